"""Where a run begins: at its first round, or after the last complete one in its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from fedul_flwr.config.run_config import LAST_MODEL
from fedul_flwr.data.run_files import store
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import UserError
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.run.evaluation import Recorder
from fedul_flwr.run.setup import start_elsewhere

REMEDY = "restore the file from a copy, or begin anew in another output"
_EVERY_LINE = ("round", "seconds", "seconds_fit", "bytes_up", "bytes_down", "clients", "failures")
"""Keys of a line that numbers belong to in every run."""


@dataclass(frozen=True)
class Start:
    """Where a run begins.

    Attributes
    ----------
    arrays : the model.
    done : complete rounds.
    state : the strategy's, as of ``state_dict``.
    """

    arrays: Arrays
    done: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)


def starting_point(directory: store.RunDirectory, recorder: Recorder, model: nn.Module) -> Start:
    """The last complete round of a run that resumes, else the weights of ``model``.

    Raises
    ------
    UserError
        If files of the run to resume are missing, damaged or of another run. Nothing is changed
        then.
    """
    resumes = bool(recorder.settings.resume)
    if not resumes or not (directory.path / LAST_MODEL).exists():
        if recorder.lines and resumes:
            rounds = recorder.lines[-1]["round"]
            raise _damaged(directory, LAST_MODEL, f"is missing, and {rounds} rounds are complete")
        directory.keep_metrics([])
        directory.forget_clients()
        recorder.lines = []
        start_elsewhere(model, recorder.settings.start_from)
        return Start(dump_arrays(model))
    arrays, line = directory.load_model(LAST_MODEL)
    has_state = bool(line.pop(store.HAS_STATE, False))
    prior = line.pop(store.TRAINED_FOR, None)
    if not _is_line(line):
        raise _damaged(directory, LAST_MODEL, "does not say of which round it is")
    done = int(line["round"])
    arrays = _fitting(directory, arrays, dump_arrays(model))
    lines = [known for known in recorder.lines if known["round"] <= done]
    _check_lines(directory, lines, done)
    state = directory.load_state(done)
    if has_state and not state:
        raise _damaged(directory, store.state_file(done), "is missing")
    recorder.lines = lines
    directory.keep_metrics(lines)
    if len(lines) < done:
        # The run was interrupted after training and before evaluating this round.
        recorder.record(line, arrays, state, prior=None if prior is None else np.array(prior))
    return Start(arrays, done, state)


def is_summarised(directory: store.RunDirectory, done: int) -> bool:
    """Whether a run of ``done`` rounds has its summary and its pictures."""
    if not (directory.path / store.SUMMARY).exists() or not directory.plots.exists():
        return False
    rounds = directory.read_json(store.SUMMARY).get("rounds")
    return isinstance(rounds, int) and rounds >= done


def _fitting(directory: store.RunDirectory, arrays: Arrays, wanted: Arrays) -> Arrays:
    for name, array in wanted.items():
        if name not in arrays:
            raise _damaged(directory, LAST_MODEL, f"is of another model: it has no array {name!r}")
        if arrays[name].shape != array.shape or arrays[name].dtype != array.dtype:
            raise _damaged(
                directory,
                LAST_MODEL,
                f"is of another model: array {name!r} is {_form(arrays[name])} there, and "
                f"{_form(array)} in this run",
            )
    return {name: arrays[name] for name in wanted}


def _form(array: Any) -> str:
    return f"{array.dtype} {array.shape}"


def _check_lines(directory: store.RunDirectory, lines: list[dict[str, Any]], done: int) -> None:
    rounds = [line["round"] for line in lines]
    # Of the last round the evaluation may be missing.
    if rounds not in (list(range(1, done + 1)), list(range(1, done))):
        missing = sorted(set(range(1, done)) - set(rounds)) or rounds[:1]
        raise _damaged(directory, store.METRICS, f"does not have round {missing[0]} once")
    for line in lines:
        if not _is_line(line):
            raise _damaged(directory, store.METRICS, f"lacks values of round {line['round']}")


def _is_line(line: Mapping[str, Any]) -> bool:
    numbers = [line.get(key) for key in _EVERY_LINE]
    known = all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    return known and isinstance(line["round"], int) and line["round"] >= 1


def _damaged(directory: store.RunDirectory, name: str, how: str) -> UserError:
    return UserError(f"{directory.path / name} {how}: {REMEDY}.")
