"""How good labels are where the truth is known; free of Flower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from fedul_flwr.data.label_split import LabelTruth
from fedul_flwr.data.types import UNLABELED, Floats, Ints
from fedul_flwr.propagation.labels import Propagated
from fedul_flwr.results.label_files import read_labels
from fedul_flwr.results.label_names import SOURCES, file_name, pseudo_labels_file


class Score(NamedTuple):
    """Of labels against the truth.

    Attributes
    ----------
    points : number of points with a known truth.
    error : percent of them labeled wrongly or not at all.
    balanced_accuracy : mean over classes that occur of the percent of their points labeled
        rightly.
    unreached : percent without a label.
    """

    points: int
    error: float
    balanced_accuracy: float
    unreached: float


def score(labels: Ints, truth: Ints) -> Score | None:
    """Compare ``(n,)`` labels with the truth, -1 where either is not known; None without truth."""
    known = truth != UNLABELED
    if not known.any():
        return None
    labels, truth = labels[known], truth[known]
    right = labels == truth
    present = np.unique(truth)
    recalls = [right[truth == k].mean() for k in present]
    return Score(
        points=len(truth),
        error=100 * float(1 - right.mean()),
        balanced_accuracy=100 * float(np.mean(recalls)),
        unreached=100 * float((labels == UNLABELED).mean()),
    )


def risk_coverage(confidence: Floats, right: Floats, at: int = 100) -> tuple[Floats, Floats]:
    """Error among the most confident points, for growing shares of all of them.

    Parameters
    ----------
    confidence, right : ``(n,)``, n > 0; whether a label is right, as 0 or 1.
    at : number of shares.

    Returns
    -------
    Shares of points in (0, 1], and percent wrong among that share; points of equal confidence
    count by their mean, for their order says nothing.
    """
    order = np.argsort(-confidence, kind="stable")
    _, group, sizes = np.unique(-confidence[order], return_inverse=True, return_counts=True)
    expected = np.bincount(group, right[order]) / sizes
    found = np.cumsum(expected[group])
    # In whole numbers: 0.07 · 100 is a little more than 7.
    counts = np.unique(-(-np.arange(1, at + 1) * len(order) // at))
    return counts / len(order), 100 * (1 - found[counts - 1] / counts)


def score_labels(folder: Path, truths: Sequence[LabelTruth]) -> dict[str, Any]:
    """Compare the files of labels of a simulation's clients with the truth.

    Only new points count where there are some (``labels.new-fraction``), else all unlabeled ones.

    Parameters
    ----------
    folder : holds one folder per client, by number.
    truths : of the clients, in order.

    Returns
    -------
    ``points``: ``"new"`` or ``"unlabeled"``; ``sources``: for each of
    :data:`~fedul_flwr.results.label_files.SOURCES` that there are files of, a :class:`Score` over
    all clients, ``coverage`` (:func:`risk_coverage`), and ``clients`` with a score each. Empty
    without truths.
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
            sources[source] = _scored(labels)
    return {"points": "new" if only_new else "unlabeled", "sources": sources} if sources else {}


def score_pseudo_labels(
    folder: Path, server_round: int, truths: Sequence[LabelTruth]
) -> dict[str, float | None]:
    """Compare what a simulation's clients left of one round with the truth.

    Parameters
    ----------
    folder : holds one folder per client, by number; those without a file of this round count for
        nothing.
    truths : of the clients, in order.

    Returns
    -------
    ``pseudo_label_error``: percent wrong among points that got a label, None where none did;
    ``pseudo_labeled``: percent of these clients' unlabeled points that got one. Empty without
    files.
    """
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
    found = score(labels[got], true[got])
    return {
        "pseudo_label_error": None if found is None else found.error,
        "pseudo_labeled": 100 * float(got.mean()) if len(got) else 0.0,
    }


def _positions(truth: LabelTruth, points: Ints) -> Ints:
    """Where ``points``, each of which is one of the client's, stand among them."""
    order = np.argsort(truth.points)
    found: Ints = order[np.searchsorted(truth.points, points, sorter=order)]
    return found


def _of_truth(file: Path, truth: LabelTruth, *, only_new: bool) -> tuple[Propagated, Ints]:
    """Labels of the points that count, and their true labels."""
    names, found = read_labels(file)
    positions = _positions(truth, np.array(names, dtype=np.int64))
    counts = truth.new[positions] if only_new else np.ones(len(positions), dtype=bool)
    chosen = Propagated(found.labels[counts], found.confidence[counts])
    return chosen, truth.labels[positions[counts]]


def _scored(labels: Mapping[int, tuple[Propagated, Ints]]) -> dict[str, Any]:
    given = np.concatenate([found.labels for found, _ in labels.values()])
    confidence = np.concatenate([found.confidence for found, _ in labels.values()])
    truth = np.concatenate([true for _, true in labels.values()])
    overall = score(given, truth)
    if overall is None:
        return {"clients": []}
    known = truth != UNLABELED
    shares, errors = risk_coverage(confidence[known], (given == truth)[known].astype(np.float64))
    return {
        **overall._asdict(),
        "coverage": {"share": shares.tolist(), "error": errors.tolist()},
        "clients": [
            {"id": client, **found._asdict()}
            for client, (own, true) in labels.items()
            if (found := score(own.labels, true)) is not None
        ],
    }
