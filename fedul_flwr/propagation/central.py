"""Label propagation by one party with all points: the same result as XCLP's across clients."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedul_flwr.arrays import Floats
from fedul_flwr.data.class_labels import checked_labels, labels_from_scores
from fedul_flwr.data.types import UNLABELED, Propagated
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.codes import (
    NUM_BITS,
    SEED_BYTES,
    encode,
    neighbors_by_code,
    neighbors_by_cosine,
)
from fedul_flwr.propagation.solve import (
    ALPHA,
    NUM_NEIGHBORS,
    POWER,
    normalized_graph,
    one_hot,
    propagate,
    reweigh_by_prior,
)

Similarity = Literal["codes", "cosine"]


class Propagation(NamedTuple):
    """How labels are propagated; see :func:`label_propagation`."""

    similarity: Similarity = "codes"
    k: int = NUM_NEIGHBORS
    num_bits: int = NUM_BITS
    alpha: float = ALPHA
    power: float = POWER
    class_scaling: bool = True
    seed: bytes = bytes(SEED_BYTES)

    def scores(
        self, features: NDArray[np.floating], labels: ArrayLike, num_classes: int | None = None
    ) -> Floats:
        """Z, ``(n, K)``, scores of all points, labeled ones too.

        Examples
        --------
        >>> points = np.array([[1.0, 0.0], [2.0, 0.0]])
        >>> Propagation("cosine", alpha=0.5).scores(points, [0, -1]).round(4).tolist()
        [[1.3333], [0.6667]]
        """
        checked = checked_labels(labels)
        if len(checked) != len(features):
            raise UserError(
                f"{len(checked)} labels do not go with features of {len(features)} points",
                "points-and-labels-differ",
            )
        k, alpha, power, size = self.k, self.alpha, self.power, len(self.seed)
        if k < 1 or not 0 <= alpha < 1 or not 0 < power < np.inf or size != SEED_BYTES:
            raise UserError(
                f"k = {k}, alpha = {alpha}, power = {power} and a seed of {size} bytes: k is 1 or "
                f"more, alpha from 0 to below 1, power above 0, and a seed has {SEED_BYTES} bytes",
                "argument-not-allowed",
            )
        if self.similarity == "codes":
            neighbors = neighbors_by_code(encode(features, self.seed, self.num_bits), k)
        elif self.similarity == "cosine":
            neighbors = neighbors_by_cosine(features, k)
        else:
            raise UserError(
                f"similarity is {self.similarity!r}; it must be 'codes' or 'cosine'",
                "argument-not-allowed",
            )
        classes = int(checked.max(initial=0)) + 1 if num_classes is None else num_classes
        graph, rows = normalized_graph(neighbors, power), one_hot(checked, classes)
        return propagate(graph, rows, alpha, class_scaling=self.class_scaling)


def label_propagation(
    features: NDArray[np.floating],
    labels: ArrayLike,
    *,
    num_classes: int | None = None,
    similarity: Similarity = "codes",
    k: int = NUM_NEIGHBORS,
    num_bits: int = NUM_BITS,
    alpha: float = ALPHA,
    power: float = POWER,
    class_scaling: bool = True,
    reweigh: bool = False,
    seed: bytes = bytes(SEED_BYTES),
) -> Propagated:
    """Labels of unlabeled points from the labels of similar ones (XCLP, algorithm 1).

    The result is that of a federation of any number of clients with the same points, ordered by
    client.

    Parameters
    ----------
    features : ``(n, d)``, finite; only their directions count, so center them by fixed constants.
    labels : integers ``(n,)``, classes ``0..K-1`` or -1 for unlabeled.
    num_classes : K; without it, the largest label plus one.
    similarity : ``"codes"`` as in the paper, or ``"cosine"`` of the features, which does not use
        ``num_bits`` and ``seed``.
    k, num_bits, alpha : k, L and alpha of the paper.
    power, class_scaling : the authors' code by default; 1 and ``False`` are the paper's text.
    reweigh : see :func:`~fedul_flwr.propagation.solve.reweigh_by_prior`.
    seed : 32 bytes.

    Returns
    -------
    Labels and confidence of all points. Given labels stay; -1 for points that no label reaches.

    Raises
    ------
    UserError
        If features, labels or settings are invalid.

    Examples
    --------
    >>> points = [[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.2, 1.0], [0.0, 0.0]]
    >>> label_propagation(np.array(points), [0, -1, 1, -1, -1], k=1).labels
    array([ 0,  0,  1,  1, -1])
    """
    checked = checked_labels(labels)
    how = Propagation(similarity, k, num_bits, alpha, power, class_scaling, seed)
    scores = how.scores(features, checked, num_classes)
    if reweigh:
        unlabeled = checked == UNLABELED
        scores[unlabeled] = reweigh_by_prior(scores[unlabeled])
    return labels_from_scores(scores, checked)
