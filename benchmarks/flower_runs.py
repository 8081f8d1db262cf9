"""Runs of an app on Flower's Ray simulation, watched from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from fedul_flwr.config.run_config import resolve
from fedul_flwr.engine.submit import LocalSuperLink, app_directory, run_app

Scalar = bool | int | float | str
ACTOR = "ClientAppActor"
MEGABYTE = 1024**2


SELDOM = 5.0
"""Seconds between looks at page tables, which take some 20 ms of a core for a process of 1.5 GB."""


class Watch:
    """Looks at a run about five times a second, and at what memory is shared every five seconds.

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
        for process in self._actors.values():
            with suppress(psutil.Error):  # it has ended
                self._note(process, rss=process.memory_info().rss)
        if time.monotonic() < self._next_search:
            return
        self._next_search = time.monotonic() + SELDOM
        together = 0.0
        for process in _below(self._root):
            with suppress(psutil.Error):
                memory = process.memory_full_info()
                together += memory.pss / MEGABYTE
                if ACTOR in " ".join(process.cmdline()):
                    self._actors[process.pid] = process
                    self._note(process, rss=memory.rss, uss=memory.uss)
        self.memory = max(self.memory, together)

    def _note(self, process: psutil.Process, **seen: int) -> None:
        peak = self.peaks.setdefault(process.pid, {"rss": 0.0, "uss": 0.0})
        for kind, size in seen.items():
            peak[kind] = max(peak[kind], size / MEGABYTE)


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
