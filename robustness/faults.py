"""Attack the program: ``python -m robustness.faults bad-inputs [GROUP …] [--list]``.

Every input is given to the command line in a fork of this process, which has loaded everything.
Counted are tracebacks (and any end that is not an exit code 1 or 2 with a message), hangs,
inputs that were accepted, and files of others that were changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustness.bad_inputs import BadInput, bad_inputs
from robustness.program_faults import add_arguments, run_process_faults

PATIENCE = 60.0
"""Seconds after which an input counts as a hang; none of them has to train."""
SENTENCES = ("Error: ", "Failed: ")
"""How a refusal begins: of a command, of a trial of `compare`, of `deploy check` by its kind."""
NOTES = ("config.json", "error.txt")
"""Files that a refused ``--resume`` may change: the plan of rounds, and why it ended."""
MEMORY = 8 * 2**30
"""Bytes of address space of a fork above those of this process."""


@dataclass(frozen=True)
class Ending:
    """How the program took an input.

    Attributes
    ----------
    verdict : ``"refused"``, ``"traceback"``, ``"hang"``, ``"accepted"``, or ``"started"`` if
        Flower was started for a setting that can be refused before.
    code : exit code; of a signal its negative number.
    said : stdout and stderr.
    """

    verdict: str
    code: int
    said: str
    seconds: float


def judge(code: int, said: str, *, hung: bool = False) -> str:
    """Verdict on an exit code and what was printed."""
    if hung:
        return "hang"
    if "STARTED" in said:
        return "started"
    if "Traceback (most recent call last)" in said or code not in (0, 1, 2) or not said.strip():
        return "traceback"
    if code == 0:
        return "accepted"
    if code == 1:
        told = [line for line in said.splitlines() if line.startswith(SENTENCES)]
        errors = [line for line in told if line.startswith("Error: ")]
        if not told or len(errors) > 1:
            return "traceback"
    return "refused"


def attack(bad: BadInput, root: Path) -> Ending:
    """Give an input to the command line in a fork."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _be_attacked(bad, root, output.fileno())
        hung = not _wait(child, began + PATIENCE)
        if hung:
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it has left behind
        output.seek(0)
        said = output.read().decode("utf-8", errors="replace")
    code = os.waitstatus_to_exitcode(status)
    return Ending(judge(code, said, hung=hung), code, said, time.monotonic() - began)


def _wait(child: int, deadline: float) -> bool:
    while time.monotonic() < deadline:
        found = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            return True
        time.sleep(0.005)
    return False


def _be_attacked(bad: BadInput, root: Path, output: int) -> None:
    os.setpgid(0, 0)
    code = 70
    try:
        os.chdir(root)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        _forbid_flower()
        sys.argv = ["fedul-flwr", *bad.arguments]
        from fedul_flwr.cli.main import app

        app()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _forbid_flower() -> None:
    """A simulation that is started says so and ends the program."""
    from fedul_flwr.engine import simulate

    def start(*_: Any, **__: Any) -> None:
        print("STARTED", flush=True)
        os._exit(3)

    simulate.run_here = start


def fingerprint(folder: Path) -> dict[str, str]:
    """Digest of every regular file, by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".lock" not in path.parts and path.name not in NOTES
    }


def run_bad_inputs(groups: Sequence[str], show: bool) -> int:
    """Give all inputs, print what went wrong and a table; returns how many did."""
    from robustness.bad_files import prepare, warm_up

    with tempfile.TemporaryDirectory(prefix="fedul-faults-") as place:
        root = Path(place)
        os.environ["FEDUL_CACHE"] = str(root / "cache")
        os.environ["FEDUL_PATH"] = str(root)
        warm_up()
        prepare(root)
        before = fingerprint(root / "runs-of-others")
        found = [bad for bad in bad_inputs() if not groups or bad.group in groups]
        endings: list[tuple[BadInput, Ending]] = []
        for bad in found:
            ending = attack(bad, root)
            endings.append((bad, ending))
            if show or ending.verdict != "refused":
                print(f"{ending.verdict} ({ending.code}, {ending.seconds:.1f} s): {bad}")
                print("    " + "\n    ".join(ending.said.strip().splitlines()[-6:]), flush=True)
        after = fingerprint(root / "runs-of-others")
        changed = sorted(k for k in before | after if before.get(k) != after.get(k))
    return _table(endings, changed)


def _table(endings: Sequence[tuple[BadInput, Ending]], changed: Sequence[str]) -> int:
    verdicts = ("refused", "traceback", "hang", "accepted", "started")
    counts = Counter((bad.group, ending.verdict) for bad, ending in endings)
    print("group".ljust(12) + "".join(name.rjust(11) for name in ("inputs", *verdicts)))
    for group in [*dict.fromkeys(bad.group for bad, _ in endings), "all"]:
        of_group = [
            sum(n for (g, v), n in counts.items() if v == verdict and group in (g, "all"))
            for verdict in verdicts
        ]
        print(group.ljust(12) + "".join(f"{n:11}" for n in (sum(of_group), *of_group)))
    print(f"files of others changed: {', '.join(changed) or 'none'}")
    return sum(ending.verdict != "refused" for _, ending in endings) + len(changed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m robustness.faults", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    inputs = commands.add_parser("bad-inputs", help="values and files that no run can use")
    inputs.add_argument("groups", nargs="*", metavar="GROUP")
    inputs.add_argument("--list", action="store_true", help="print every answer")
    add_arguments(commands.add_parser("processes", help="programs that are killed"))
    arguments = parser.parse_args()
    if arguments.command == "processes":
        sys.exit(1 if run_process_faults(arguments) else 0)
    sys.exit(1 if run_bad_inputs(arguments.groups, arguments.list) else 0)


if __name__ == "__main__":
    main()
