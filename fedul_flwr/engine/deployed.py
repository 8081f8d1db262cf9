"""Run the app on a SuperLink with owners' SuperNodes, with progress and a true exit code."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fedul_flwr.config.base import nearest
from fedul_flwr.config.overrides import read_toml
from fedul_flwr.engine.simulate import RunProgress
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.config.run_config import RunConfig

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

    Parameters
    ----------
    superlink : name of the connection in ``config.toml`` of ``$FLWR_HOME`` (``~/.flwr``).
    named : whether the user has named ``config.output``; if not, it gets a suffix where it exists.

    Returns
    -------
    Directory of the results, or None if they are on another machine.
    """
    from fedul_flwr.data.run_files.run_lock import lock_directory, require_unlocked
    from fedul_flwr.data.run_files.store import ERROR, SUMMARY
    from fedul_flwr.engine.flower_run import (
        FlowerProgram,
        app_directory,
        failure,
        follow,
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
    flwr = FlowerProgram(os.environ)
    again = f"fedul-flwr run --federation {superlink} --resume"
    with RunProgress(config, log_to_show=log if verbose else None) as progress:
        try:
            run = start_run(flwr, app_directory(), config.to_flat(), superlink=superlink)
            try:
                outcome = follow(run, log, progress.poll, _Silence(superlink).reason)
            except BaseException:
                run.stop()
                deadline = time.monotonic() + _STOP_SECONDS
                while not (ended := run.outcome() is not None) and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
                how = "The run has ended" if ended else "The run was asked to stop, without answer"
                print(f"{how}; {again} {output} goes on with it.", file=sys.stderr)
                raise
        finally:
            flwr.close()
    if outcome.succeeded:
        return output if stamp(output / SUMMARY) != summary_before else None
    raise failure(outcome.details, error, before, log, again)


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


class _Silence:
    """How long a SuperLink has not answered."""

    def __init__(self, superlink: str) -> None:
        self._superlink = superlink
        self._answered = time.monotonic()

    def reason(self, answers: bool) -> str:
        """Return the reason why it is taken for lost, or an empty string."""
        if answers:
            self._answered = time.monotonic()
        if time.monotonic() - self._answered <= _SILENT_SECONDS:
            return ""
        return (
            f"The SuperLink {self._superlink!r} has not answered for {_SILENT_SECONDS:.0f} s. Once "
            f"it runs, `flwr list {self._superlink}` says how the run ended."
        )
