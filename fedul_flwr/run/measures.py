"""Measures of class predictions, of labels and of class priors where true ones are known, and
warnings; pure functions.

Errors, accuracies, recalls, precisions and the calibration error are in percent, AUC is between 0
and 1, NLL is in nats, and the Brier score is between 0 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.data.run_files.label_files import (
    SOURCES,
    file_name,
    pseudo_labels_file,
    read_labels,
)
from fedul_flwr.data.run_files.parts import ClientScore, Coverage, LabelScore, LabelScores
from fedul_flwr.data.split import LabelTruth, SetTruth
from fedul_flwr.data.types import UNLABELED, Propagated
from fedul_flwr.federated.messages import PRIOR_FIT

BINS = 15
"""Bins of equal width in which confidences are compared with accuracies (Guo et al. 2017)."""
DETAILS = ("confusion", "reliability")
"""Entries of :func:`measures` that a run writes to ``measures.json``, not to its summary."""
NUMBERS = ("error", "balanced_accuracy", "auc", "ece", "nll", "brier")
"""Entries of :func:`measures` that are one number."""


def measures(probabilities: Floats, labels: Ints) -> dict[str, Any]:
    """All measures of predictions: a point gets the class of its largest probability.

    Parameters
    ----------
    probabilities : ``(n, K)``, n > 0.
    labels : ``(n,)``, true labels in 0 … K − 1.

    Returns
    -------
    ``points`` (n); ``error``; ``balanced_accuracy``; ``auc``; ``ece``, ``nll``, ``brier``; lists
    ``recall`` and ``precision`` of all classes; ``confusion`` and ``reliability``. None stands for
    a value that is not defined; without finite probabilities that is so for all that need them.

    Examples
    --------
    >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8]])
    >>> found = measures(probabilities, np.array([0, 0, 1, 1]))
    >>> found["error"], found["recall"], found["confusion"]
    (25.0, [100.0, 50.0], [[2, 0], [1, 1]])
    """
    num_classes = probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    matrix = confusion(labels, predicted, num_classes)
    measured: dict[str, Any] = {
        "points": len(labels),
        "error": 100 * float(np.mean(predicted != labels)),
        **per_class(matrix),
        **dict.fromkeys(("auc", "ece", "nll", "brier", "reliability")),
        "confusion": matrix.tolist(),
    }
    if np.isfinite(probabilities).all():
        bins = reliability(probabilities.max(axis=1), predicted == labels)
        measured |= {
            "auc": auc(probabilities, labels),
            "ece": calibration_error(bins),
            "nll": nll(probabilities, labels),
            "brier": brier(probabilities, labels),
            "reliability": {name: defined(values) for name, values in bins.items()},
        }
    return measured


def confusion(labels: Ints, predicted: Ints, num_classes: int) -> Ints:
    """Number of points of each class (row) that were named each class (column).

    Parameters
    ----------
    labels, predicted : ``(n,)``, true and predicted labels; a prediction of −1 is none.

    Returns
    -------
    ``(K, K)``, or ``(K, K + 1)`` if a prediction is missing: the last column counts these.

    Examples
    --------
    >>> confusion(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), num_classes=2).tolist()
    [[2, 0], [1, 1]]
    >>> confusion(np.array([0, 1]), np.array([0, -1]), num_classes=2).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    width = num_classes + bool((predicted < 0).any())
    columns = np.where(predicted < 0, num_classes, predicted)
    counts = np.bincount(labels * width + columns, minlength=num_classes * width)
    return np.asarray(counts.reshape(num_classes, width), dtype=np.int64)


def recalls(matrix: Ints) -> Floats:
    """``(K,)`` percent of the points of each class that were named it; NaN for an absent class."""
    return _percent(matrix.diagonal(), matrix.sum(axis=1))


def precisions(matrix: Ints) -> Floats:
    """``(K,)`` percent of the points named each class that are of it; NaN if none was named it."""
    return _percent(matrix.diagonal(), matrix[:, : len(matrix)].sum(axis=0))


def balanced_accuracy(matrix: Ints) -> float | None:
    """Mean recall in percent over the classes that occur; None if none does."""
    of_present = recalls(matrix)[matrix.sum(axis=1) > 0]
    return float(of_present.mean()) if len(of_present) else None


def prior_error(matrix: Ints, prior: Floats) -> float | None:
    """Error in percent of points with class priors ``prior``, by the errors in each class.

    Classes without points are left out: the mean is over the classes that occur.

    Parameters
    ----------
    matrix : ``(K, K)`` or ``(K, K + 1)``, from :func:`confusion`.
    prior : ``(K,)``, all positive.

    Returns
    -------
    Σ_k pi_k (100 - recall_k) / Σ_k pi_k; None if no class occurs.
    """
    occurs = matrix.sum(axis=1) > 0
    if not occurs.any():
        return None
    return float(np.average(100 - recalls(matrix)[occurs], weights=prior[occurs]))


def per_class(matrix: Ints) -> dict[str, Any]:
    """``balanced_accuracy``, ``recall`` and ``precision`` of a confusion matrix."""
    return {
        "balanced_accuracy": balanced_accuracy(matrix),
        "recall": defined(recalls(matrix)),
        "precision": defined(precisions(matrix)),
    }


def auc(probabilities: Floats, labels: Ints) -> float | None:
    """Area under the ROC curve of each class against the rest, mean over the classes that occur.

    For two classes both areas are equal: it is the usual, binary AUC. None if only one class
    occurs.

    Examples
    --------
    Of the four pairs of a point of each class, three are in the right order:

    >>> probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    >>> auc(probabilities, np.array([0, 0, 1, 1]))
    0.75
    """
    classes = np.unique(labels)
    if len(classes) < 2:
        return None
    return float(np.mean([_area(probabilities[:, k], labels == k) for k in classes]))


def _area(scores: Floats, positive: Any) -> float:
    """Share of the pairs with a positive point that have it in front; a tie is half a pair.

    It is counted with ranks: those of equal scores are their mean (Mann and Whitney 1947).
    """
    _, position, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[position]
    ours = np.count_nonzero(positive)
    ahead = ranks[positive].sum() - ours * (ours + 1) / 2
    return float(ahead / (ours * (len(scores) - ours)))


def reliability(confidence: Floats, right: Any) -> dict[str, Floats]:
    """Confidence and accuracy of the points in each of :data:`BINS` bins of their confidence.

    A bin of width w = 1 / BINS has the confidences in ((i − 1) w, i w].

    Parameters
    ----------
    confidence, right : ``(n,)``: the largest probability, and whether its class is the true one.

    Returns
    -------
    Per bin ``points``, and in percent ``confidence`` and ``accuracy``, NaN for an empty bin.
    """
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    points = np.bincount(bins, minlength=BINS)
    sums = [np.bincount(bins, weights, BINS) for weights in (confidence, right)]
    return {
        "points": points.astype(np.float64),
        **{n: _percent(s, points) for n, s in zip(("confidence", "accuracy"), sums, strict=True)},
    }


def calibration_error(bins: dict[str, Floats]) -> float:
    """Expected calibration error in percent: mean of |accuracy − confidence| over all points.

    Parameters
    ----------
    bins : from :func:`reliability`.
    """
    is_filled = bins["points"] > 0
    gaps = np.abs(bins["accuracy"] - bins["confidence"])[is_filled]
    return float(np.average(gaps, weights=bins["points"][is_filled]))


def nll(probabilities: Floats, labels: Ints) -> float:
    """Mean of −log p(true class) in nats; a probability of 0 counts as the smallest float."""
    of_truth = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean())


def brier(probabilities: Floats, labels: Ints) -> float:
    """Mean over points of Σ_k (p_k − [k is the true class])²."""
    of_truth = probabilities[np.arange(len(labels)), labels]
    return float(np.mean((probabilities**2).sum(axis=1) - 2 * of_truth + 1))


def defined(values: Floats) -> list[float | None]:
    """``values`` with None for NaN, as JSON has it."""
    return [None if np.isnan(value) else float(value) for value in values]


def _percent(part: Any, whole: Any) -> Floats:
    values = np.full(len(whole), np.nan)
    return np.asarray(np.divide(100.0 * part, whole, out=values, where=whole > 0))


# Labels and class priors of a simulation, whose true ones are known.


class Score(NamedTuple):
    """Score of labels against true labels."""

    points: int
    error: float
    balanced_accuracy: float
    unreached: float


def score(labels: Ints, truth: Ints) -> Score | None:
    """Compare ``(n,)`` labels with true ones, -1 for unknown; None without any true label."""
    is_labeled = truth != UNLABELED
    if not is_labeled.any():
        return None
    labels, truth = labels[is_labeled], truth[is_labeled]
    balanced = balanced_accuracy(confusion(truth, labels, int(max(truth.max(), labels.max())) + 1))
    assert balanced is not None  # there are points
    return Score(
        points=len(truth),
        error=100 * float(1 - np.mean(labels == truth)),
        balanced_accuracy=balanced,
        unreached=100 * float((labels == UNLABELED).mean()),
    )


def risk_coverage(confidence: Floats, right: Floats, at: int = 100) -> tuple[Floats, Floats]:
    """Error among the most confident points, for growing fractions of all points."""
    order = np.argsort(-confidence, kind="stable")
    _, group, sizes = np.unique(-confidence[order], return_inverse=True, return_counts=True)
    expected = np.bincount(group, right[order]) / sizes
    errors = np.cumsum(expected[group])
    # In integers, because in floating point 0.07 · 100 is slightly above 7.
    counts = np.unique(-(-np.arange(1, at + 1) * len(order) // at))
    return counts / len(order), 100 * (1 - errors[counts - 1] / counts)


def score_labels(folder: Path, truths: Sequence[LabelTruth], num_classes: int) -> LabelScores:
    """Compare the files of labels of a simulation's clients with true labels.

    Only new points count if there are some (``labels.new-fraction``), else all unlabeled ones.

    Returns
    -------
    ``points``: ``"new"`` or ``"unlabeled"``; ``sources``: for each of
    :data:`~fedul_flwr.data.run_files.label_files.SOURCES` with files, a :class:`Score` over
    all clients, ``recall``, ``precision`` and ``confusion``
    (:func:`per_class`), ``coverage`` (:func:`risk_coverage`), and ``clients``
    with a score each. Empty without truths.
    """
    only_new = any(truth.new.any() for truth in truths)
    sources = {}
    for source in SOURCES:
        labels = {
            client: _of_truth(file, truth, only_new=only_new)
            for client, truth in enumerate(truths)
            if (file := folder / str(client) / file_name(source)).exists()
        }
        if labels:
            sources[source] = _scored(labels, num_classes)
    points = "new" if only_new else "unlabeled"
    return LabelScores(points=points, sources=sources) if sources else LabelScores()


def score_pseudo_labels(
    folder: Path, server_round: int, truths: Sequence[LabelTruth]
) -> dict[str, float | None]:
    """Compare the pseudo labels of a simulation's clients in one round with true labels."""
    name = pseudo_labels_file(server_round)
    files = [(folder / str(client) / name, truth) for client, truth in enumerate(truths)]
    left = [(load_file(file), truth) for file, truth in files if file.exists()]
    if not left:
        return {}
    labels = np.concatenate([arrays["labels"] for arrays, _ in left])
    true = np.concatenate(
        [truth.labels[_positions(truth, arrays["points"])] for arrays, truth in left]
    )
    got = labels != UNLABELED
    result = score(labels[got], true[got])
    return {
        "pseudo_label_error": None if result is None else result.error,
        "pseudo_labeled": 100 * float(got.mean()) if len(got) else 0.0,
    }


def _positions(truth: LabelTruth, points: Ints) -> Ints:
    """Positions of ``points`` among the client's points, which must include them."""
    order = np.argsort(truth.points)
    positions: Ints = order[np.searchsorted(truth.points, points, sorter=order)]
    return positions


def _of_truth(file: Path, truth: LabelTruth, *, only_new: bool) -> tuple[Propagated, Ints]:
    """Labels of the scored points, and their true labels."""
    names, propagated = read_labels(file)
    positions = _positions(truth, np.array(names, dtype=np.int64))
    counts = truth.new[positions] if only_new else np.ones(len(positions), dtype=bool)
    chosen = Propagated(propagated.labels[counts], propagated.confidence[counts])
    return chosen, truth.labels[positions[counts]]


def _scored(labels: Mapping[int, tuple[Propagated, Ints]], num_classes: int) -> LabelScore:
    assigned = np.concatenate([propagated.labels for propagated, _ in labels.values()])
    confidence = np.concatenate([propagated.confidence for propagated, _ in labels.values()])
    truth = np.concatenate([true for _, true in labels.values()])
    overall = score(assigned, truth)
    if overall is None:
        return LabelScore(clients=[])
    is_labeled = truth != UNLABELED
    matrix = confusion(truth[is_labeled], assigned[is_labeled], num_classes)
    shares, errors = risk_coverage(
        confidence[is_labeled], (assigned == truth)[is_labeled].astype(np.float64)
    )
    return LabelScore(
        **{**overall._asdict(), **per_class(matrix)},
        confusion=matrix.tolist(),
        coverage=Coverage(share=shares.tolist(), error=errors.tolist()),
        clients=[
            ClientScore(id=client, **propagated._asdict())
            for client, (labels_here, true) in labels.items()
            if (propagated := score(labels_here.labels, true)) is not None
        ],
    )


def score_priors(folder: Path, server_round: int, truths: Sequence[SetTruth]) -> dict[str, Any]:
    """Results of the clients' checks of their class priors in one round, beside the true priors."""
    name = f"*/{PRIOR_FIT}-{server_round}.safetensors"
    learned = {int(file.parent.name): load_file(file) for file in sorted(folder.glob(name))}
    if not learned:
        return {}
    misfits = np.concatenate([arrays["misfits"] for arrays in learned.values()])
    scores: dict[str, Any] = {"sets": len(misfits), "misfits": int(misfits.sum())}
    if truths:
        stated = _distances([(truths[c].priors, truths[c].true_priors) for c in learned])
        seen = _distances([(learned[c]["shares"], truths[c].true_priors) for c in learned])
        scores["told_distance"] = float(stated.mean())
        scores["found_distance"] = float(seen.mean())
        scores["misfit_distance"] = float(stated[misfits].mean()) if misfits.any() else None
    return {"prior_fit": scores}


def _distances(pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Total variation distances of all rows of all pairs."""
    return np.concatenate([np.abs(one - other).sum(axis=1) / 2 for one, other in pairs])
