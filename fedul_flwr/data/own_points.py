"""What a client's personal model learns from, and the labels that it is compared on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Floats, Inputs, Ints, LabeledPoints, PartlyLabeledPoints

ASIDE = 5
"""One label of so many is set aside; a client with fewer labels sets none aside."""


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class OwnPoints:
    """A client's points, as its personal model uses them.

    Attributes
    ----------
    inputs : images or vectors.
    points : ``(n,)``, rows of all points that the run trains on.
    tuned : ``(m,)``, rows of those with a target.
    targets : ``(m,)``, their labels or, with ``priors``, the number of their set.
    aside : points with labels that no model of the run was trained on.
    priors, set_sizes : ``(M, K)`` and ``(M,)`` of the sets; ``None`` if targets are labels.
    missing : why no head can be tuned; empty if one can.
    """

    inputs: Inputs
    points: Ints
    tuned: Ints = field(default_factory=_none)
    targets: Ints = field(default_factory=_none)
    aside: LabeledPoints | None = None
    priors: Floats | None = None
    set_sizes: Ints | None = None
    missing: str = ""


def set_aside(labeled: Ints, seed: int, client: int) -> Ints:
    """Those of ``labeled`` that are set aside: one of :data:`ASIDE`, rounded down, at random.

    Parameters
    ----------
    labeled : positions of a client's labeled points.
    seed, client : of the run, and of the client; the same ones choose the same points.
    """
    order = stream(seed, "personal", client).permutation(labeled)
    return np.sort(order[: len(labeled) // ASIDE])


def labeled_own_points(
    examples: LabeledPoints | PartlyLabeledPoints, trained: Ints, labeled: Ints, aside: Ints
) -> OwnPoints:
    """What a personal model learns from, of a client with labels.

    Parameters
    ----------
    examples : all points of the client.
    trained : rows of all points that the run trains on.
    labeled, aside : positions of those with labels that it trains on, and that are set aside.
    """
    if not len(aside):
        few = f"it has fewer than {ASIDE} labels" if len(labeled) else "it has no labels"
        return OwnPoints(examples.inputs, trained, missing=few)
    measured = LabeledPoints(examples.inputs, examples.points[aside], examples.labels[aside])
    tuned, targets = examples.points[labeled], examples.labels[labeled]
    return OwnPoints(examples.inputs, trained, tuned, targets, measured)
