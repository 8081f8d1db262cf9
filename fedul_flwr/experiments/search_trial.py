"""One trial of a search: a run in this process that Optuna may stop early."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, resolve
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.criterion import is_diverged
from fedul_flwr.results.best_round import Line
from fedul_flwr.results.store import ENVIRONMENT, SUMMARY, RunDirectory

Lines = Sequence[Line]


class DivergedError(Exception):
    """A loss or a weight of a trial is not finite."""


def run_trial(config: RunConfig, num_clients: int, watch: Callable[[Lines], None]) -> Lines:
    """Run ``config``, or resume the run in ``config.output``.

    Parameters
    ----------
    watch : called with the lines of all rounds so far after every round; an exception that it
        raises ends the trial.

    Returns
    -------
    Lines of all rounds.

    Raises
    ------
    DivergedError
        If a loss or a weight is not finite.
    """
    from fedul_flwr.engine.in_process import run_in_process

    directory = RunDirectory(Path(config.output))
    ended: list[BaseException] = []

    def check(lines: Lines) -> None:
        try:
            if is_diverged(lines[-1]):
                raise DivergedError
            watch(lines)
        except BaseException as error:
            ended.append(error)
            raise

    if not (directory.path / SUMMARY).exists():
        if (directory.path / LAST_MODEL).exists():
            config = resolve({"resume": str(directory.path)}, Path.cwd())
        try:
            run_in_process(config, num_clients, watch=check)
        except Exception as error:
            if error not in ended and _has_diverged(directory):  # the error follows from NaN
                raise DivergedError from None
            raise
    return directory.read_metrics()


def read_environment(directory: Path) -> Mapping[str, Any]:
    """Versions and hardware of a trial; empty if it did not begin."""
    found = RunDirectory(directory)
    known: Mapping[str, Any] = (
        found.read_json(ENVIRONMENT) if (directory / ENVIRONMENT).exists() else {}
    )
    return known


def remove_models(directory: Path) -> None:
    """Remove files that an ended trial no longer needs: models, split, client states and plots."""
    for path in directory.glob("*.safetensors"):
        path.unlink()
    (directory / "split.npz").unlink(missing_ok=True)
    RunDirectory(directory).forget_clients()
    shutil.rmtree(directory / "plots", ignore_errors=True)


def _has_diverged(directory: RunDirectory) -> bool:
    """Whether the last model or its losses are not finite."""
    try:
        arrays, line = directory.load_model(LAST_MODEL)
    except UserError:
        return False
    numbers = [array for array in arrays.values() if np.issubdtype(array.dtype, np.floating)]
    return is_diverged(line) or not all(np.isfinite(array).all() for array in numbers)
