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
    """Note that this process's run is ``"training"``, ``"finished"`` or ``"failed"``."""
    if file := os.environ.get(CURRENT_RUN):
        process = [os.getpid(), psutil.Process().create_time()]
        about = {"directory": str(directory), "rounds": num_rounds, "state": state}
        with suppress(UserError):  # a full disk stops no run
            write_atomically(Path(file), json.dumps({**about, "process": process}))


def read_run(file: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """What was noted last, and the lines of ``metrics.jsonl``; both empty without a run.

    ``state`` is ``"died"`` if the process of a run that trained is gone.
    """
    about = read_object(file)
    if about is None:
        return {}, []
    process, started = about["process"]
    try:
        lives = psutil.Process(process).create_time() == started
    except psutil.Error:
        lives = False
    if about["state"] == "training" and not lives:
        about["state"] = "died"
    lines = (read_text(Path(about["directory"]) / METRICS) or "").splitlines(keepends=True)
    return about, [json.loads(line) for line in lines if line.endswith("\n")]


def run_in_words(file: Path) -> str:
    """One line about the last run: how far it is, and how to resume it if it ended early."""
    about, lines = read_run(file)
    if not about:
        return "No run yet."
    last = lines[-1] if lines else {"clients": 0, "failures": 0}
    text = f"Run {about['directory']}: {about['state']}, {len(lines)} of {about['rounds']} rounds"
    text += f"; in the last one {last['clients']} owners, {last['failures']} failures."
    if about["state"] in ("died", "failed"):
        text += f" fedul-flwr run --federation … --resume {about['directory']} continues it."
    return text
