"""Environment of a run: versions, hardware, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

COMMIT = "FEDUL_COMMIT"
"""Environment variable with the commit of the source."""


def describe_environment() -> dict[str, Any]:
    """Versions, hardware and git commit, for ``environment.json``."""
    import torch

    packages = ("fedul-flwr", "flwr", "ray", "torch", "torchvision", "numpy", "scikit-learn")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "versions": {name: _version(name) for name in packages},
        "git_commit": git_commit(),
    }


@cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@cache
def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def git_commit() -> str | None:
    """Commit of the running source, with ``-dirty`` if it was changed; ``None`` if unknown.

    Flower runs a copy of the source without history, so the command line looks the commit up first
    and puts it into an environment variable.
    """
    if COMMIT in os.environ:
        return os.environ[COMMIT] or None
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None  # it may be installed within another project's repository
    return _describe_commit(root)


@cache  # what this process has imported stays as it was
def _describe_commit(root: Path) -> str | None:
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
