"""Run the app on a SuperLink with owners' SuperNodes, with progress and a true exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedul_flwr.config.base import nearest
from fedul_flwr.config.user_files import read_toml
from fedul_flwr.engine.simulate import RunProgress
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.engine.flower_run import FlowerRun

_POLL_SECONDS = 0.2
_SILENT_SECONDS = 60.0
"""A SuperLink that has not answered for as long is taken for lost."""
_STOP_SECONDS = 20.0


def run_deployed(
    config: RunConfig, superlink: str, verbose: bool = False, *, named: bool = True
) -> Path | None:
    """Run on a SuperLink that is named in Flower's configuration, and wait for the end.

    Ctrl-C stops the run. Progress and results are read from ``config.output``, to which the
    SuperLink's machine writes: on another machine progress shows the start and the end alone.
    """
    from fedul_flwr.data.run_files.store import ERROR, SUMMARY, lock_directory, require_unlocked
    from fedul_flwr.engine.flower_run import (
        FlowerProgram,
        app_directory,
        failure,
        stamp,
        start_run,
    )

    _refuse_unknown(superlink)
    output = Path(config.output)
    require_unlocked(output)
    if not named:
        output = lock_directory(output)
        config = config.model_copy(update={"output": str(output)})
    log, error = output / "flower.log", output / ERROR
    before, summary_before = stamp(error), stamp(output / SUMMARY)
    again = f"fedul-flwr run --federation {superlink} --resume"
    with (
        RunProgress(config, log_to_show=log if verbose else None) as progress,
        contextlib.closing(FlowerProgram(os.environ)) as flwr,
    ):
        run = start_run(flwr, app_directory(), config.to_flat(), superlink)
        try:
            why = _follow(run, log, progress.poll)
        except BaseException:
            run.stop()
            deadline = time.monotonic() + _STOP_SECONDS
            while not (ended := run.end()[1] is not None) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            how = "The run has ended" if ended else "The run was asked to stop, without answer"
            print(f"{how}; {again} {output} goes on with it.", file=sys.stderr)
            raise
    if why:
        raise failure(why, error, before, log, again)
    return output if stamp(output / SUMMARY) != summary_before else None


def _follow(run: FlowerRun, log_file: Path, on_poll: Callable[[], None]) -> str:
    """Append the log of a run to a file, and wait for the end; returns why it failed, if it has.

    ``on_poll`` is called from this thread about five times a second, if the log is there.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    start = log_file.stat().st_size if log_file.exists() else 0
    stream, answered = run.copy_log(log_file, start), time.monotonic()
    while True:
        stream.join(_POLL_SECONDS)
        on_poll()
        if stream.is_alive():
            answered = time.monotonic()
            continue
        # The log ends with the run, or the connection is broken.
        answers, why = run.end()
        if why is not None:
            on_poll()  # for lines written after the last poll
            return why
        if answers:
            answered = time.monotonic()
        elif time.monotonic() - answered > _SILENT_SECONDS:
            return (
                f"The SuperLink {run.superlink!r} has not answered for {_SILENT_SECONDS:.0f} s. "
                f"Once it runs, `flwr list {run.superlink}` says how the run ended."
            )
        time.sleep(1.0)
        stream = run.copy_log(log_file, start)


def _refuse_unknown(superlink: str) -> None:
    """Refuse a name that Flower's configuration lacks; Flower names its own defaults itself."""
    home = os.environ.get("FLWR_HOME")
    file = (Path(home) if home else Path.home() / ".flwr") / "config.toml"
    allowed = read_toml(file).get("superlink", {}) if file.is_file() else {}
    if allowed and superlink not in allowed:
        names = ", ".join(name for name, entry in allowed.items() if isinstance(entry, dict))
        raise UserError(
            f"--federation {superlink!r}: {file} has no such SuperLink; it has {names}"
            f"{nearest(superlink, allowed) or '.'}",
            "unknown-name",
            option="--federation",
        )
