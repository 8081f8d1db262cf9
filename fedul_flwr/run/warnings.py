"""What a run warns of: rounds that learned nothing, slow evaluations, and class shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from logging import WARNING
from statistics import fmean
from typing import Any

import numpy as np
from flwr.common import log

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.run.callbacks import Callback

FAR = 0.1
"""Total variation distance from which class shares are far from class priors."""
CHANCE = 0.001
"""They must also be farther than samples of as many points are in this fraction of cases."""
_SAMPLES = 10_000
ONE_CLASS, OTHERS = 0.95, 0.1
"""A model predicts one class alone if it does for this fraction of points or more, and at most
this fraction of the points of other classes rightly."""


def training_warnings(lines: Sequence[Mapping[str, Any]], method: str) -> dict[str, str]:
    """Warnings about rounds in which nothing, or no pseudo label, was learned by a method."""
    built_in = METHODS.get(method)
    if built_in is not None and built_in.idle:
        return {}
    words = {
        "confident_share": "No point reached the threshold of confidence in {rounds}: no confident "
        "prediction was trained on. A lower threshold would change that."
        if built_in
        else "No confident point was counted in {rounds}: none reached the threshold, or the "
        "method's objective does not count them (confidence.add).",
        "loss": "The loss was 0 in {rounds}: no gradient trained the model.",
        "update_norm": "The weights did not change in {rounds}: nothing was learned.",
    }
    warnings = {}
    for key, text in words.items():
        values = {int(line["round"]): line[key] for line in lines if line.get(key) is not None}
        zero = [number for number, value in values.items() if value == 0]
        # A new model is confident about no point: that alone is no fault.
        if zero and (key != "confident_share" or 2 * len(zero) >= len(values)):
            warnings[key] = text.format(rounds=_rounds_of(zero, len(lines)))
    return warnings


_WAITED = 10.0
"""Seconds of waiting for evaluations from which a run says so."""


def slow_evaluation(lines: Sequence[Mapping[str, Any]]) -> str:
    """A sentence that proposes `evaluate-every`, if evaluations take longer than training."""
    waited = sum(line.get("seconds_waiting") or 0.0 for line in lines)
    trained = [line["seconds"] - (line.get("seconds_waiting") or 0.0) for line in lines]
    evaluated = [s for line in lines if (s := line.get("seconds_evaluation")) is not None]
    if waited < _WAITED or not evaluated or fmean(evaluated) <= fmean(trained):
        return ""
    every = math.ceil(fmean(evaluated) / max(fmean(trained), 1e-9))
    return (
        f"An evaluation takes {fmean(evaluated):.1f} s and the rest of a round "
        f"{fmean(trained):.1f} s: rounds have waited {waited:.0f} s for evaluations. "
        f"evaluate-every = {max(every, 2)} would take less time."
    )


def _rounds_of(rounds: Sequence[int], total: int) -> str:
    """``all 30 rounds``, ``round 7 of 30`` or ``24 of 30 rounds (7 to 30)``."""
    if len(rounds) == total > 1:
        return f"all {total} rounds"
    if len(rounds) == 1:
        return f"round {rounds[0]}"
    return f"{len(rounds)} of {total} rounds (between {rounds[0]} and {rounds[-1]})"


def distance(counts: Ints, prior: Floats) -> float:
    """Total variation distance of class shares from class priors, both ``(K,)``: in [0, 1].

    It is the largest difference of the probabilities of any group of classes.
    """
    return float(np.abs(counts / counts.sum() - prior).sum() / 2)


def is_far(counts: Ints, prior: Floats) -> bool:
    """Whether points with class ``counts`` have other class priors than ``prior``, and not nearly.

    Their distance is above :data:`FAR`, and chance alone does not explain it: of samples drawn by
    ``prior``, with as many points, less than :data:`CHANCE` are that far (Monte Carlo test with
    fixed seed).
    """
    gap = distance(counts, prior)
    if gap <= FAR:
        return False
    total = int(counts.sum())
    drawn = np.random.default_rng(0).multinomial(total, prior, _SAMPLES)
    distances = np.abs(drawn / total - prior).sum(axis=1) / 2
    return bool(np.mean(distances >= gap) < CHANCE)


def shares_warning(
    parts: Mapping[str, Ints], prior: Floats, class_names: Sequence[str], advice: str
) -> str | None:
    """A warning if points have class shares far from the class priors that is trained for."""
    far = {name: n for name, n in parts.items() if n.sum() and is_far(n, prior)}
    if not far:
        return None
    parts_far = [f"the {name} by {distance(n, prior):.0%}" for name, n in far.items()]
    names = " and ".join(filter(None, [", ".join(parts_far[:-1]), parts_far[-1]]))
    worst = max(far, key=lambda name: np.abs(far[name] / far[name].sum() - prior).max())
    shares = far[worst] / far[worst].sum()
    k = int(np.abs(shares - prior).argmax())
    return (
        f"Class shares differ from the class priors that the model is trained for: {names} (total "
        f"variation distance). Most of all, class {class_names[k]!r} has {shares[k]:.0%} of the "
        f"{worst} and a prior of {prior[k]:.0%}. The error over all points then depends mostly on "
        f"the frequent classes{': ' if advice else ''}{advice}."
    )


def one_class_warning(
    matrix: Ints, class_names: Sequence[str], model: str, points: str
) -> str | None:
    """A warning if a model predicts one class for nearly all points, and others hardly rightly."""
    predicted = matrix.sum(axis=0)[: len(matrix)]
    k = int(predicted.argmax())
    others = matrix.sum() - matrix[k].sum()
    right = matrix.diagonal().sum() - matrix[k, k]
    if not others or predicted[k] < ONE_CLASS * matrix.sum() or right > OTHERS * others:
        return None
    return (
        f"{model} predicts class {class_names[k]!r} for {predicted[k] / matrix.sum():.0%} of the "
        f"{points} ({matrix[k].sum() / matrix.sum():.0%} are of it), and {right / others:.0%} of "
        "the points of other classes rightly: look at balanced accuracy and recalls, not at the "
        "error alone."
    )


class Warnings(Callback):
    """Logs what is wrong with a run, each kind once, and says it for the summary.

    Parameters
    ----------
    counts : ``(K,)`` labeled points of each class by what they are for.
    of_split : what was said of the split already.
    prior : ``(K,)``, class priors that the model is trained for, once they are known.
    """

    waits = False

    def __init__(
        self,
        settings: RunConfig,
        class_names: Sequence[str],
        counts: Mapping[str, Ints],
        of_split: Sequence[str],
        prior: Callable[[], Floats | None],
    ) -> None:
        self._settings, self._class_names = settings, class_names
        self._counts, self._of_split, self._prior = counts, of_split, prior
        self._said = {"confident_share"}
        """Of one round a share says little: the run's end says it of all."""

    def begin(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Compare class shares with priors that are known from the start."""
        del lines
        self._say({"shares": self._shares()})

    def recorded(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Say what is wrong with the last round."""
        of_round = training_warnings(lines[-1:], self._settings.method)
        self._say({**of_round, "evaluation": slow_evaluation(lines), "shares": self._shares()})

    def of_run(self, run: Run) -> list[str]:
        """All warnings about a finished run."""
        texts: list[str | None] = [*self._of_split]
        texts += training_warnings(run.lines, self._settings.method).values()
        texts.append(self._shares())
        self._say({"shares": texts[-1]})
        if best := run.measures.get("best"):
            model, matrix = f"The model of round {best.round}", np.asarray(best.confusion)
            texts.append(one_class_warning(matrix, self._class_names, model, "test points"))
            self._say({"one class": texts[-1]})
        return [text for text in texts if text]

    def _say(self, texts: Mapping[str, str | None]) -> None:
        for kind, text in texts.items():
            if text and kind not in self._said:
                log(WARNING, "%s", text)
                self._said.add(kind)

    def _shares(self) -> str | None:
        if (prior := self._prior()) is None:
            return None
        advice = "set test-prior if these are the class shares to come"
        estimates = self._settings.test_prior == "em"
        return shares_warning(self._counts, prior, self._class_names, "" if estimates else advice)
