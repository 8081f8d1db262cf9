"""Warnings about rounds that trained nothing, class shares, and models that name one class alone;
pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedul_flwr.data.types import Floats, Ints

FAR = 0.1
"""Total variation distance from which class shares are far from class priors."""
CHANCE = 0.001
"""They must also be farther than samples of as many points are in this fraction of cases."""
_SAMPLES = 10_000
ONE_CLASS, OTHERS = 0.95, 0.1
"""A model names one class alone if it names it for this fraction of points or more, and at most
this fraction of the points of other classes rightly."""


def training_warnings(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Warnings about rounds in which nothing, or no pseudo label, was learned.

    Parameters
    ----------
    lines : lines of ``metrics.jsonl``. ``confident_share`` is the share of the points that could
        have a pseudo label and were trained on one; ``update_norm`` the L2 norm of the change of
        the model's weights in the round.

    Returns
    -------
    A sentence by the metric's name for each metric that was 0 in a round, and for the share of
    confident points if it was 0 in half of the rounds or more; empty if all is well.
    """
    words = {
        "confident_share": "No point reached the threshold of confidence in {rounds}: no confident "
        "prediction was trained on. A lower threshold would change that.",
        "loss": "The loss was 0 in {rounds}: no gradient trained the model.",
        "update_norm": "The weights did not change in {rounds}: nothing was learned.",
    }
    found = {}
    for key, text in words.items():
        values = {int(line["round"]): line[key] for line in lines if line.get(key) is not None}
        zero = [number for number, value in values.items() if value == 0]
        # A new model is confident about no point: that alone is no fault.
        if zero and (key != "confident_share" or 2 * len(zero) >= len(values)):
            found[key] = text.format(rounds=_rounds_of(zero, len(lines)))
    return found


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
    found = distance(counts, prior)
    if found <= FAR:
        return False
    total = int(counts.sum())
    drawn = np.random.default_rng(0).multinomial(total, prior, _SAMPLES)
    distances = np.abs(drawn / total - prior).sum(axis=1) / 2
    return bool(np.mean(distances >= found) < CHANCE)


def shares_warning(
    parts: Mapping[str, Ints], prior: Floats, class_names: Sequence[str], advice: str
) -> str | None:
    """A warning if points have class shares far from the class priors that is trained for.

    Parameters
    ----------
    parts : class counts ``(K,)`` of labeled points by their name, such as ``"test points"``.
    prior : ``(K,)``.
    advice : what to do, as a part of a sentence; empty for nothing.
    """
    far = {name: n for name, n in parts.items() if n.sum() and is_far(n, prior)}
    if not far:
        return None
    names = _listed([f"the {name} by {distance(n, prior):.0%}" for name, n in far.items()])
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
    """A warning if a model names one class for nearly all points, and others hardly ever rightly.

    Parameters
    ----------
    matrix : ``(K, K)`` or ``(K, K + 1)``, from :func:`fedul_flwr.run.measures.confusion`.
    model, points : what they are called in the sentence.
    """
    named = matrix.sum(axis=0)[: len(matrix)]
    k = int(named.argmax())
    others = matrix.sum() - matrix[k].sum()
    right = matrix.diagonal().sum() - matrix[k, k]
    if not others or named[k] < ONE_CLASS * matrix.sum() or right > OTHERS * others:
        return None
    return (
        f"{model} names class {class_names[k]!r} for {named[k] / matrix.sum():.0%} of the {points} "
        f"({matrix[k].sum() / matrix.sum():.0%} are of it), and {right / others:.0%} of the points "
        "of other classes rightly: look at balanced accuracy and recalls, not at the error alone."
    )


def _listed(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
