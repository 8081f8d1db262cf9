"""One trial: a run in this process that a pruner may end at a rung."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, resolve
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.criterion import Line, is_diverged
from fedul_flwr.results.store import ENVIRONMENT, SUMMARY, RunDirectory

Lines = Sequence[Line]


class DivergedError(Exception):
    """A trial whose numbers are no longer finite."""


def run_trial(config: RunConfig, num_clients: int, watch: Callable[[Lines], None]) -> Lines:
    """Run ``config``, or go on with what is left of it in ``config.output``.

    Parameters
    ----------
    watch : gets the lines so far after every round; what it raises ends the trial.

    Returns
    -------
    Lines of its rounds.

    Raises
    ------
    DivergedError
        If a loss or a weight is not finite.
    """
    from fedul_flwr.engine.in_process import run_in_process

    directory = RunDirectory(Path(config.output))
    ended: list[BaseException] = []

    def look(lines: Lines) -> None:
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
            run_in_process(config, num_clients, watch=look)
        except Exception as error:
            if error not in ended and _has_diverged(directory):  # somebody refused to go on with it
                raise DivergedError from None
            raise
    return directory.read_metrics()


def environment(directory: Path) -> Mapping[str, Any]:
    """Versions and hardware of a trial; empty if it never began."""
    found = RunDirectory(directory)
    known: Mapping[str, Any] = (
        found.read_json(ENVIRONMENT) if (directory / ENVIRONMENT).exists() else {}
    )
    return known


def drop_models(directory: Path) -> None:
    """Remove what a trial that has ended needs no more: models, and what clients kept."""
    for path in directory.glob("*.safetensors"):
        path.unlink()
    (directory / "split.npz").unlink(missing_ok=True)
    RunDirectory(directory).forget_clients()
    shutil.rmtree(directory / "plots", ignore_errors=True)


def _has_diverged(directory: RunDirectory) -> bool:
    """Whether the last model or its round has numbers that are not finite."""
    try:
        arrays, line = directory.load_model(LAST_MODEL)
    except UserError:
        return False
    numbers = [array for array in arrays.values() if np.issubdtype(array.dtype, np.floating)]
    return is_diverged(line) or not all(np.isfinite(array).all() for array in numbers)
