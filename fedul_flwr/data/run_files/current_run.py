"""Which run a SuperLink has begun last: where its files are, and whether its process lives."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fedul_flwr.config.user_files import read_object, read_text
from fedul_flwr.data.run_files.store import METRICS
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError

CURRENT_RUN = "FEDUL_CURRENT_RUN"
"""Environment variable: the file of :func:`note_run`; nothing is noted without it."""


def note_run(directory: Path, num_rounds: int, state: str) -> None:
    """Note the state of this process's run, such as ``"training"``. A full disk stops nothing."""
    if file := os.environ.get(CURRENT_RUN):
        started = psutil.Process().create_time()
        about = {"directory": str(directory), "rounds": num_rounds, "state": state}
        with suppress(UserError):
            write_atomically(Path(file), json.dumps({**about, "process": [os.getpid(), started]}))


def read_run(file: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """What :func:`note_run` has noted, and the run's lines of metrics; both empty without a run.

    ``state`` is ``"died"`` if the process is gone.
    """
    about = read_object(file)
    if about is None:
        return {}, []
    if about["state"] == "training":
        process, started = about["process"]
        with suppress(psutil.Error):
            if psutil.Process(process).create_time() == started:
                started = None
        if started is not None:
            about["state"] = "died"
    lines = (read_text(Path(about["directory"]) / METRICS) or "").splitlines(keepends=True)
    return about, [json.loads(line) for line in lines if line.endswith("\n")]
