"""Kill programs of runs at random moments: ``python -m robustness.faults processes``.

After each fault the run is resumed as a user does. It must end with the model and the metrics of a
run that nobody disturbed, bit by bit, and leave nothing behind: no process, no folder for temporary
files, no half-written file, no lock. ``--results FILE`` keeps what was found, and another call adds
to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.flower_runs import FORK, is_client
from fedul_flwr.config.options import Engine
from fedul_flwr.data.run_files.store import require_unlocked
from fedul_flwr.engine.flower_simulation import MARK, PREFIX
from fedul_flwr.errors import UserError
from tests.support.patience import quiet_seconds
from tests.support.runs import last_model, metrics

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
PATIENCE = 300.0
"""Seconds of a quiet machine that anything may take before it counts as a hang."""
CLIENTS = 3
TINY = "model='mlp' num-rounds=6 local-epochs=1 points-per-client=40"
METHODS = {
    "fedul": f"{TINY} method='fedul' fedul.num-sets=10 base='fedadam'",
    "fedmatch": f"{TINY} method='fedmatch'",
}
"""Settings of the runs; of both the server keeps more than the model from round to round."""


@dataclass(frozen=True)
class Fault:
    """A fault and what came of it.

    Attributes
    ----------
    kind : ``in process``, ``pool``, ``Ray`` or ``deployed``.
    program : the one that was hit.
    signal : name of the signal.
    after : seconds from the start of the run.
    same : whether the resumed run has the bits of the undisturbed one.
    left : what was left behind.
    said : what the programs said, if something went wrong.
    """

    kind: str
    program: str
    signal: str
    after: float
    same: bool
    left: Sequence[str]
    said: str = ""


Report = Callable[[Fault], None]


def command(arguments: Sequence[str], output: Path) -> int:
    """Start ``fedul-flwr ARGUMENTS`` in a fork of this process, which has loaded everything."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        # What a shell starts in the background ignores Ctrl-C, and so do its children.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # Whoever captures what a test prints has put other files in their places.
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        sys.argv = ["fedul-flwr", *arguments]
        from fedul_flwr.cli.main import app

        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


def wait(child: int) -> int:
    """Exit code of a fork; a hang is ended and is -1000."""
    for _ in quiet_seconds(PATIENCE):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1000


ALL_CPUS = ["--client-cpus", str(os.cpu_count() or 1)]


def start_arguments(method: str, output: Path, engine: Engine = "in-process") -> list[str]:
    """Arguments of a new run of ``method``."""
    more = ["--engine", engine, *(ALL_CPUS if engine == "ray" else [])]
    clients = ["--num-supernodes", str(CLIENTS)]
    return ["run", "-c", METHODS[method], *clients, "--output", str(output), *more]


def go_on(method: str, output: Path, log: Path) -> int:
    """Resume a run in process, or begin it if it had not; returns the exit code."""
    if (output / "config.json").exists():
        return wait(command(["run", "--resume", str(output), "--engine", "in-process"], log))
    return wait(command(start_arguments(method, output), log))


def undisturbed(method: str, place: Path, engine: Engine = "in-process") -> tuple[Path, float]:
    """Folder of a run without a fault, and the seconds it took."""
    began = time.monotonic()
    output = place / f"undisturbed-{method}-{engine}"
    shutil.rmtree(output, ignore_errors=True)
    log = place / f"undisturbed-{method}.log"
    if wait(command(start_arguments(method, output, engine), log)) != 0:
        raise SystemExit(f"The undisturbed run failed:\n{log.read_text()}")
    return output, time.monotonic() - began


def same_bits(one: Path, other: Path) -> bool:
    """Whether two runs have the same last model and the same metrics but for times."""
    with contextlib.suppress(OSError):
        models = [last_model(path) for path in (one, other)]
        equal = models[0].keys() == models[1].keys() and all(
            models[0][name].tobytes() == models[1][name].tobytes() for name in models[0]
        )
        return equal and metrics(one) == metrics(other)
    return False


def left_behind(output: Path) -> list[str]:
    """What remains of programs that have ended: in ``output``, as files, and as processes."""
    found = [str(path.relative_to(output)) for path in output.rglob("*.part")]
    found += [f"{path.name}/" for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*")]
    try:
        require_unlocked(output)
    except UserError as error:
        found.append(str(error))
    return found + [f"process {process.name()}" for process in marked()]


def marked() -> list[psutil.Process]:
    """Living processes of the simulations and pools that were started here."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            mark = environment.get(MARK, "")
            if FORK in " ".join(process.cmdline()):
                mark = environment.get("TMPDIR", "")
            if mark.startswith(tempfile.gettempdir()) and process.status() != "zombie":
                found.append(process)
    return found


def wait_until_nothing_is_left(output: Path) -> list[str]:
    """What is still left behind when programs have had half a minute to clean up."""
    for _ in quiet_seconds(30.0):
        if all(thing.endswith(".part") for thing in left_behind(output)):
            break
    return left_behind(output)


def fail_here(
    engine: Engine, tries: int, chance: random.Random, place: Path, report: Report
) -> None:
    """Hit the command while it runs; with a pool now and then one of its processes."""
    wanted = {name: undisturbed(name, place, engine) for name in METHODS}
    for number in range(tries):
        method, hit = list(METHODS)[number % 2], SIGNALS[number // 2 % 3]
        whole, seconds = wanted[method]
        output, log = place / f"{engine}-{number}", place / f"{engine}-{number}.log"
        one_of_pool = engine == "processes" and hit == signal.SIGKILL and number // 6 % 2 == 1
        while True:  # until the moment lies before the end
            shutil.rmtree(output, ignore_errors=True)
            child = command(start_arguments(method, output, engine), log)
            after = chance.uniform(0, seconds)
            time.sleep(after)
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                break
            seconds = after  # the run takes less
        members = clients_of(child) if one_of_pool else []
        os.kill(chance.choice(members or [child]), hit)
        codes = [wait(child)]
        if codes[0] != 0:
            codes.append(go_on(method, output, log))
        # A signal after the last file was written hits a run that is complete.
        complete = codes[-1] == 0 or "[run-exists]" in log.read_text()
        same = complete and same_bits(output, whole)
        left = wait_until_nothing_is_left(output)
        said = "" if same and not left else f"{codes}\n{log.read_text()}"
        kind = "pool" if engine == "processes" else "in process"
        program = "a client's process" if members else "whole program"
        report(Fault(kind, program, hit.name, after, same, left, said))
        shutil.rmtree(output)


def clients_of(command: int) -> list[int]:
    """Process ids of the pool of a command; none before its first message."""
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(command).children(recursive=True)
        return [process.pid for process in below if is_client(process)]
    return []


def table(faults: Sequence[Fault]) -> str:
    """The table of :doc:`faults`, in Markdown."""
    groups: dict[tuple[str, str, str], list[Fault]] = {}
    for fault in sorted(faults, key=lambda one: (one.kind != "in process", one.kind)):
        groups.setdefault((fault.kind, fault.program, fault.signal), []).append(fault)
    lines = [
        "| run | program that was hit | signal | tries | resumed to the same bits | left behind |",
        "|---|---|---|---|---|---|",
    ]
    for name, group in [*groups.items(), (("all", "", ""), list(faults))]:
        same, left = sum(one.same for one in group), sum(bool(one.left) for one in group)
        lines.append(f"| {' | '.join(name)} | {len(group)} | {same} | {left or 'nothing'} |")
    return "\n".join(lines)


def read_results(file: Path | None) -> list[Fault]:
    """Faults of earlier calls."""
    if file is None or not file.exists():
        return []
    return [Fault(**entry) for entry in json.loads(file.read_text())]


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder in which all runs and temporary files lie; its path is short enough for Ray."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as name:
        place = Path(name)
        (place / "t").mkdir()
        before = {key: os.environ.get(key) for key in ("TMPDIR", "FEDUL_CACHE")}
        os.environ |= {"TMPDIR": str(place / "t"), "FEDUL_CACHE": str(place / "cache")}
        tempfile.tempdir = None
        try:
            yield place
        finally:
            _restore(before)
            tempfile.tempdir = None


def _restore(before: Mapping[str, str | None]) -> None:
    for key, value in before.items():
        if value is None:
            del os.environ[key]
        else:
            os.environ[key] = value
