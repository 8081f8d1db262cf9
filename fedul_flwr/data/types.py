"""Types of data: clients' points, arrays by name, packed codes, and contents of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays, Bools, Floats, Ints
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.set_priors import Dirichlet
from fedul_flwr.errors import BadMessageError

UNLABELED = -1
"""The label of a point whose class is unknown."""

InputShape = tuple[int, ...]
"""Shape of one point: ``(height, width, channels)`` of an image, ``(d,)`` of a vector, ``()`` of a
text."""


class Inputs(Protocol):
    """Points as they are stored: an array of uint8 images ``(n, height, width, channels)`` or of
    float32 vectors ``(n, d)``, bytes ``(n,)`` of texts, or vectors that are standardized when rows
    are taken."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n, …)``."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


def network_shape(shape: InputShape) -> InputShape:
    """Shape of one point as a network takes it: ``(channels, height, width)`` or ``(d,)``."""
    return shape if len(shape) == 1 else (shape[2], *shape[:2])


@dataclass(frozen=True)
class PointArrays:
    """Points of one split of a data set with their labels.

    Attributes
    ----------
    labels : int64 ``(n,)``, classes ``0..K-1`` or ``-1`` for unlabeled.
    columns : further columns of the source by name, ``(n,)`` each (for natural partitions).
    """

    inputs: Inputs
    labels: Ints
    columns: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Source:
    """A data set with a train and a test split and the names of its K classes.

    ``columns`` are those of the table that vectors come from, and ``notes`` say how its files were
    read, where they are not as usual. ``bits`` are those of the values in 16-bit images, 0 without
    such images.
    """

    train: PointArrays
    test: PointArrays
    class_names: tuple[str, ...]
    columns: Columns | None = None
    notes: tuple[str, ...] = ()
    bits: int = 0

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.class_names)

    @property
    def input_shape(self) -> InputShape:
        """Shape of every point."""
        return tuple(map(int, self.train.inputs.shape[1:]))


@dataclass(frozen=True)
class UnlabeledSets:
    """One client's unlabeled sets; on purpose there is no field for labels.

    Attributes
    ----------
    inputs : ``N`` images or vectors, shared by all clients of a simulation.
    points : int64 ``(n_c,)``, this client's rows of ``inputs``, set by set.
    sets : int64 ``(n_c,)``, the set ``0..M-1`` of every point: its surrogate label.
    priors : float64 ``(M, K)``, class priors of every set (Pi_c).
    drawn_priors : float64 ``(M, K)``, the class priors from which a simulation assigned points to
        sets; ``None`` for an owner's own sets.
    posterior : class priors and how uncertain they are; ``None`` if they are exact. Its means are
        the priors, or differ where these are noisy.
    tolerances : float64 ``(M,)``, how far the sum of a row of priors may be from 1; ``None`` for
        :data:`~fedul_flwr.config.base.SUM_TOLERANCE`.
    notes : how the owner's files were read, and what was made of the file of priors; for the owner.
    """

    inputs: Inputs
    points: Ints
    sets: Ints
    priors: Floats
    drawn_priors: Floats | None = None
    names: tuple[str, ...] = ()
    posterior: Dirichlet | None = None
    tolerances: Floats | None = None
    notes: tuple[str, ...] = ()

    @property
    def set_sizes(self) -> Ints:
        """``(M,)``, n_{c,m}."""
        return np.bincount(self.sets, minlength=len(self.priors)).astype(np.int64)


@dataclass(frozen=True)
class LabeledPoints:
    """One client's points with labels, for supervised methods; ``-1`` marks an unlabeled point."""

    inputs: Inputs
    points: Ints
    labels: Ints


@dataclass(frozen=True)
class PartlyLabeledPoints:
    """One client's points, some of them with labels.

    Attributes
    ----------
    inputs : ``N`` images or vectors, shared by all clients of a simulation.
    points : int64 ``(n_c,)``, this client's rows of ``inputs``.
    labels : int64 ``(n_c,)``, classes ``0..K-1``; ``-1`` marks an unlabeled point.
    new : bool ``(n_c,)``, points to predict; no method trains on them, and none has a label.
    names : names of the points on a device, ``n_c`` of them; empty in a simulation.
    notes : how the owner's files were read, where they are not as usual; for the owner.
    """

    inputs: Inputs
    points: Ints
    labels: Ints
    new: Bools
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unlabeled(self) -> Ints:
        """Positions of the unlabeled points that may be used in training."""
        return np.flatnonzero((self.labels == UNLABELED) & ~self.new)

    def without_labels(self) -> PartlyLabeledPoints:
        """The same points, all of them unlabeled."""
        return replace(self, labels=np.full_like(self.labels, UNLABELED))


class Propagated(NamedTuple):
    """Result of propagation for every point.

    Attributes
    ----------
    labels : int64 ``(n,)``, classes ``0..K-1``, or -1 for a point that no label reaches.
    confidence : float64 ``(n,)``, between 0 and 1; 1 for a given label, 0 for -1.
    """

    labels: Ints
    confidence: Floats


Plain = int | float | str | bytes | bool
Value = Plain | list[int] | list[float] | list[str] | list[bytes] | list[bool]

CONFIDENT_SHARE = "confident-share"
"""Report of a round: the share of the points whose pseudo labels could be used, that were."""

LARGEST_COUNT = 10**12
"""Largest number of points, sets or clients: sums over a million of them are exact in float64."""


@dataclass
class Content:
    """What travels in one extra phase: arrays and plain values by name."""

    arrays: Arrays = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)


def number(content: Content, key: str) -> int:
    """A whole number that came with a message."""
    value = content.values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadMessageError(f"A message came with no valid {key}.")
    return value


def count(content: Content, key: str) -> int:
    """A whole number that is not negative, and that sums of floats keep; see :func:`number`."""
    value = number(content, key)
    if not 0 <= value <= LARGEST_COUNT:
        raise BadMessageError(
            f"A message came with {key} outside of 0 to {LARGEST_COUNT:,}.", "message-out-of-range"
        )
    return value


def numbers(content: Content, key: str) -> Floats:
    """``(n,)``, finite numbers that came with a message; see :func:`number`."""
    value = content.values.get(key)
    of_numbers = isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    try:
        array = np.array(value if of_numbers else [np.nan], dtype=np.float64)
    except OverflowError:  # a whole number beyond every float
        array = np.array([np.inf])
    if not np.isfinite(array).all():
        raise BadMessageError(f"A message came with no valid {key}.")
    return array


# What a client's personal model learns from, and the labels that it is compared on.

ASIDE = 5
"""One label of so many is set aside; a client with fewer labels sets none aside."""


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class OwnPoints:
    """A client's points, as its personal model uses them.

    Attributes
    ----------
    points : ``(n,)``, rows of all points that the run trains on.
    tuned : ``(m,)``, rows of those with a target.
    targets : ``(m,)``, their labels or, with ``priors``, the number of their set.
    aside : points with labels that no model of the run was trained on.
    priors, set_sizes : ``(M, K)`` and ``(M,)`` of the sets; ``None`` if targets are labels.
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
    """Those of ``labeled`` that are set aside: one of :data:`ASIDE`, rounded down, at random."""
    order = stream(seed, "personal", client).permutation(labeled)
    return np.sort(order[: len(labeled) // ASIDE])


def labeled_own_points(
    examples: LabeledPoints | PartlyLabeledPoints, trained: Ints, labeled: Ints, aside: Ints
) -> OwnPoints:
    """What a personal model learns from, of a client with labels."""
    if not len(aside):
        few = f"it has fewer than {ASIDE} labels" if len(labeled) else "it has no labels"
        return OwnPoints(examples.inputs, trained, missing=few)
    measured = LabeledPoints(examples.inputs, examples.points[aside], examples.labels[aside])
    tuned, targets = examples.points[labeled], examples.labels[labeled]
    return OwnPoints(examples.inputs, trained, tuned, targets, measured)


def class_counts(labels: Ints, num_classes: int) -> Ints:
    """``(K,)``, number of labels of each class; -1 is none.

    >>> class_counts(np.array([2, 0, -1, 2]), 3)
    array([1, 0, 2])
    """
    return np.bincount(labels[labels != UNLABELED], minlength=num_classes)
