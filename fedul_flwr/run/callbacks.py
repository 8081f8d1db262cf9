"""What looks at a run after each round: callbacks, ours and somebody's own.

A callback gets the model of a round and its line of ``metrics.jsonl``, may add numbers to the line,
and may end the run. It runs where the server runs, before the next round begins.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.base import setting_error, user_code
from fedul_flwr.config.methods import is_ours, load_subclass
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.records import Figures
from fedul_flwr.data.seeds import draws_of

if TYPE_CHECKING:
    from torch import nn


@dataclass
class EvaluatedRound:
    """A round whose model was evaluated.

    Attributes
    ----------
    number : of the round, from 1.
    arrays : the model's arrays by name.
    metrics : its line of ``metrics.jsonl`` so far; errors in percent.
    earlier : the lines of the rounds before.
    settings, directory : those of the run.
    figures : more numbers for its line, by name: ``round.figures["recall"] = 0.9``.
    """

    number: int
    arrays: Arrays
    metrics: Mapping[str, Any]
    earlier: Sequence[Mapping[str, Any]]
    settings: RunConfig
    directory: Path
    module: nn.Module
    figures: Figures = field(default_factory=Figures)
    why: str = ""

    @cached_property
    def model(self) -> nn.Module:
        """The model, a module of torch in evaluation mode; it maps float images ``(n, c, h, w)`` in
        [-1, 1], or standardized vectors ``(n, d)``, to logits ``(n, K)``."""
        from fedul_flwr.learning.local import load_arrays

        model = copy.deepcopy(self.module)
        load_arrays(model, self.arrays)
        return model.eval()

    def stop(self, why: str) -> None:
        """End the run after this round; ``why`` stands in the log."""
        self.why = why


class Callback:
    """Looks at a run; override what you need.

    Examples
    --------
    >>> class Patience(Callback):
    ...     def after_round(self, round):
    ...         if (round.metrics.get("test_error") or 100.0) < 2.0:
    ...             round.stop("the error is small enough")
    """

    waits: bool = True
    """Whether the next round waits until it has looked at one. A callback that lets it begin adds
    no number and ends no run."""

    def begin(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Look at a run before its first round, or with the ``lines`` of all earlier ones where it
        goes on."""

    def after_round(self, round: EvaluatedRound) -> None:
        """Look at a round; its figures join the line of ``metrics.jsonl``."""

    def recorded(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Look at all lines of ``metrics.jsonl`` once that of a round is there."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """Look at the summary of a run that has ended."""

    def failed(self) -> None:
        """Look at a run that an error or a signal has ended."""


class Callbacks:
    """All callbacks of a run, in their order.

    Attributes
    ----------
    why : why the run ends; empty if it does not.
    """

    def __init__(self) -> None:
        self._all: list[Callback] = []
        self.why = ""

    def add(self, *callbacks: Callback) -> None:
        """Let more of them look, after the others."""
        self._all += callbacks

    @property
    def wait(self) -> bool:
        """Whether the next round waits for any of them."""
        return any(callback.waits for callback in self._all)

    def begin(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Let all look at what there is."""
        self._each(lambda callback: callback.begin(lines))

    def after_round(self, round: EvaluatedRound) -> dict[str, Any]:
        """Let all look at a round; the numbers that they add to its line."""
        figures = Figures()
        for callback in self._all:
            seen = replace(round, metrics={**round.metrics, **figures}, figures=Figures())
            with draws_of(round.settings.seed, "callback", round.number), _guarded(callback):
                callback.after_round(seen)
            for name, value in seen.figures.items():
                figures.add(name, value)
            self.why = self.why or seen.why
        return dict(figures)

    def recorded(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Let all look at the lines."""
        self._each(lambda callback: callback.recorded(lines))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Let all look at the summary."""
        self._each(lambda callback: callback.end(summary))

    def failed(self) -> None:
        """Let all look at a run that has not reached its end, whose error counts, not theirs."""
        for callback in self._all:
            with suppress(Exception):
                callback.failed()

    def _each(self, look: Callable[[Callback], None]) -> None:
        for callback in self._all:
            with _guarded(callback):
                look(callback)


def named(settings: RunConfig) -> list[Callback]:
    """The callback that setting ``callback`` names, if it names one."""
    if not settings.callback:
        return []
    kind = load_subclass("callback", settings.callback, Callback)
    if kind is None:
        why = "it is no subclass of fedul_flwr.Callback"
        raise setting_error("callback", settings.callback, why, "own-method-wrong")
    with user_code(f"Setting callback = {settings.callback!r}"):
        return [kind()]


def _guarded(callback: Callback) -> AbstractContextManager[None]:
    """Errors of somebody's own code become a sentence."""
    kind = type(callback)
    return nullcontext() if is_ours(kind) else user_code(f"Callback {kind.__name__}")
