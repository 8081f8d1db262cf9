"""Runs of an app, with times and memory measured from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from fedul_flwr.config.options import Engine
from fedul_flwr.config.run_config import resolve
from fedul_flwr.engine.flower_run import as_toml
from fedul_flwr.engine.flower_simulation import (
    end_marked,
    new_home,
    simulation_environment,
)

Scalar = bool | int | float | str
ACTOR, FORK = "ClientAppActor", "multiprocessing.forkserver"
MEGABYTE = 1024**2


SELDOM = 5.0
"""Seconds between reads of page tables, each of which takes 20 ms for a process of 1.5 GB."""


class Watch:
    """Measures a run's memory about five times a second, and shared memory every five seconds.

    Parameters
    ----------
    root : process whose memory counts, with that of all processes below it.

    Attributes
    ----------
    peaks : most resident (``rss``) and own (``uss``) megabytes by process id of clients' processes.
    server : most megabytes of the root itself, likewise.
    memory : most megabytes of all processes together, each shared page counted once (PSS).
    """

    def __init__(self, root: int) -> None:
        self.peaks: dict[int, dict[str, float]] = {}
        self.memory = self.server = 0.0
        self._root = root
        self._actors: dict[int, psutil.Process] = {}
        self._next_search = 0.0

    def poll(self) -> None:
        """Take one measurement."""
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
                if process.pid == self._root:
                    self.server = max(self.server, memory.pss / MEGABYTE)
                if is_client(process):
                    self._actors[process.pid] = process
                    self._note(process, rss=memory.rss, uss=memory.uss)
        self.memory = max(self.memory, together)

    def _note(self, process: psutil.Process, **seen: int) -> None:
        peak = self.peaks.setdefault(process.pid, {"rss": 0.0, "uss": 0.0})
        for kind, size in seen.items():
            peak[kind] = max(peak[kind], size / MEGABYTE)


@dataclass
class Rounds:
    """Records of a run of our app.

    Attributes
    ----------
    lines : of ``metrics.jsonl``.
    watch : memory.
    first, whole : seconds from the command's start to its line about the first round, and to its
        end.
    """

    lines: list[dict[str, Any]]
    watch: Watch
    first: float = 0.0
    whole: float = 0.0

    def seconds(self) -> list[float]:
        """Seconds of every round but the first, in which clients are prepared."""
        return [line["seconds"] for line in self.lines[1:]]


def run_ours(
    overrides: Mapping[str, Scalar],
    output: Path,
    num_supernodes: int,
    engine: Engine = "processes",
) -> Rounds:
    """Run fedul-flwr as ``fedul-flwr run`` does, as a program of its own."""
    settings = resolve({**overrides, "output": str(output)}, base_dir=Path.cwd())
    file = output.with_suffix(".toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_toml(settings.to_flat()))
    options = ["--num-supernodes", str(num_supernodes), "--engine", engine]
    started = time.monotonic()
    program = subprocess.Popen(
        [sys.executable, "-u", "-m", "fedul_flwr.cli", "run", "-c", str(file), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = Rounds([], Watch(program.pid))
    said: list[str] = []

    def read() -> None:
        assert program.stdout is not None
        for line in program.stdout:
            said.append(line)
            if line.startswith("round ") and not found.first:
                found.first = time.monotonic() - started

    reader = threading.Thread(target=read)
    reader.start()
    while program.poll() is None:
        found.watch.poll()
        time.sleep(0.2)
    found.whole = time.monotonic() - started
    reader.join()
    if program.returncode:
        raise RuntimeError("".join(said[-10:]))
    text = (output / "metrics.jsonl").read_text()
    found.lines = [json.loads(line) for line in text.splitlines()]
    return found


def largest(runs: Iterable[Rounds], kind: str) -> float:
    """Megabytes, ``"rss"`` or ``"uss"``, of the largest process of a client in any of the runs."""
    return max((peak[kind] for run in runs for peak in run.watch.peaks.values()), default=0.0)


def run_noop(num_rounds: int, output: Path, num_supernodes: int) -> tuple[list[float], Watch]:
    """Run the app without work; returns seconds of its rounds but the first, and memory."""
    output.mkdir(parents=True, exist_ok=True)
    times, home = output / "times", new_home()
    numbers = [str(num_rounds), str(num_supernodes)]
    try:
        program = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.noop_simulation", *numbers, str(times)],
            env=simulation_environment(home, ""),
        )
        watch = Watch(program.pid)
        while program.poll() is None:
            watch.poll()
            time.sleep(0.2)
    finally:
        end_marked(home)
    if program.returncode:
        raise RuntimeError(f"The app without work ended with exit code {program.returncode}.")
    ends = [float(line.split()[1]) for line in times.read_text().splitlines()][1:]
    return [after - before for before, after in pairwise(ends)], watch


def is_client(process: psutil.Process) -> bool:
    """Whether it answers messages: an actor of Ray, or a fork of the pool's fork server."""

    def named(name: str, found: psutil.Process | None) -> bool:
        return found is not None and name in " ".join(found.cmdline())

    forked = named(FORK, process) and named(FORK, process.parent())
    return forked or named(ACTOR, process)


def _below(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
