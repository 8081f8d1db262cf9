"""Runs of an app on Flower's Ray simulation, watched from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from fedul_flwr.config import resolve
from fedul_flwr.launcher import LocalSuperLink, app_directory, run_app

Scalar = bool | int | float | str
ACTOR = "ClientAppActor"
MEGABYTE = 1024**2


class Watch:
    """Looks at a run about five times a second.

    Attributes
    ----------
    peaks : most resident (``rss``) and own (``uss``) megabytes by process id of a Ray actor.
    memory : most megabytes of all processes together, each shared page counted once (PSS).
    """

    def __init__(self, superlink: LocalSuperLink) -> None:
        self.peaks: dict[int, dict[str, float]] = {}
        self.memory = 0.0
        self._root = superlink.pid
        self._actors: dict[int, psutil.Process] = {}
        self._next_search = 0.0

    def poll(self) -> None:
        """Note what there is to see now."""
        if time.monotonic() > self._next_search:
            self._next_search = time.monotonic() + 2
            processes = _below(self._root)
            for process in processes:
                if ACTOR in _title(process):
                    self._actors[process.pid] = process
            self.memory = max(self.memory, sum(map(_share, processes)))
        for process in self._actors.values():
            try:
                memory = process.memory_full_info()
            except psutil.Error:  # it has ended
                continue
            peak = self.peaks.setdefault(process.pid, {"rss": 0.0, "uss": 0.0})
            for key in peak:
                peak[key] = max(peak[key], getattr(memory, key) / MEGABYTE)


@dataclass
class Rounds:
    """What a run of our app left: lines of ``metrics.jsonl`` and what was seen from outside."""

    lines: list[dict[str, Any]]
    watch: Watch

    def seconds(self) -> list[float]:
        """Of every round but the first, in which clients are prepared."""
        return [line["seconds"] for line in self.lines[1:]]


def run_ours(overrides: Mapping[str, Scalar], output: Path, num_supernodes: int) -> Rounds:
    """Run fedul-flwr as ``fedul-flwr run`` does."""
    settings = resolve({**overrides, "output": str(output)}, base_dir=Path.cwd())
    with LocalSuperLink() as superlink:
        watch = Watch(superlink)
        _run(superlink, app_directory(), settings.to_flat(), num_supernodes, watch, output)
    text = (output / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return Rounds(lines, watch)


def run_noop(num_rounds: int, output: Path, num_supernodes: int) -> tuple[list[float], Watch]:
    """Run the app without work; seconds of its rounds but the first, and what was seen."""
    output.mkdir(parents=True, exist_ok=True)
    times = output / "times"
    overrides: dict[str, Scalar] = {
        "num-rounds": num_rounds,
        "num-clients": num_supernodes,
        "output": str(times),
    }
    app = Path(__file__).parent / "noop_app"
    with LocalSuperLink() as superlink:
        watch = Watch(superlink)
        _run(superlink, app, overrides, num_supernodes, watch, output)
    ends = [float(line.split()[1]) for line in times.read_text().splitlines()][1:]
    return [after - before for before, after in pairwise(ends)], watch


def _run(
    superlink: LocalSuperLink,
    app: Path,
    overrides: Mapping[str, Scalar],
    num_supernodes: int,
    watch: Watch,
    output: Path,
) -> None:
    outcome = run_app(
        superlink,
        app,
        overrides,
        num_supernodes=num_supernodes,
        on_poll=watch.poll,
        log_file=output / "flower.log",
    )
    if not outcome.succeeded:
        raise RuntimeError(f"{outcome.status}: {outcome.details} (log in {output})")


def _below(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def _share(process: psutil.Process) -> float:
    """Megabytes of a process; of pages that several have, its part."""
    try:
        return float(process.memory_full_info().pss) / MEGABYTE
    except psutil.Error:  # it has ended
        return 0.0


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
