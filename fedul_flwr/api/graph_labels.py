"""XCLP's label propagation as a classifier of scikit-learn."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedul_flwr.api.parameters import (
    Rules,
    check_parameters,
    missing_values,
    refuse_no_truth_value,
    unmasked,
)
from fedul_flwr.config.method_settings import PropagationSettings
from fedul_flwr.data.cores import exclusive
from fedul_flwr.data.packed_codes import blocks
from fedul_flwr.data.standardize import moments, scaled, scaling_by
from fedul_flwr.data.types import UNLABELED, Floats, Propagated
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.central import Similarity, label_propagation
from fedul_flwr.propagation.codes import NUM_BITS, SEED_BYTES
from fedul_flwr.propagation.solve import ALPHA, NUM_NEIGHBOURS, POWER

_RULES: Rules = {
    "k": (PropagationSettings, "k"),
    "num_bits": (PropagationSettings, "num-bits"),
    "alpha": (PropagationSettings, "alpha"),
    "power": (PropagationSettings, "power"),
}


class GraphLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels unlabeled points from the labels of similar ones, in a graph of all points (XCLP).

    Its interface is that of ``sklearn.semi_supervised.LabelPropagation``. The points may belong to
    several clients: then they are labeled by a run of ``xclp-predict`` in this process, in which
    clients compare points under encryption; its result is that of one party with all points, up to
    the random projections of the codes.

    Parameters
    ----------
    k, num_bits, alpha : neighbors of a point, L and alpha of the paper.
    power, class_scaling : the authors' code by default; 1 and False are the paper's text.
    similarity : ``"codes"`` as in the paper, or ``"cosine"``, for one party only.
    reweigh : re-weigh scores by class priors estimated from them (docs/xclp.md).
    standardize : whether to standardize columns by the points of ``fit``; only directions of points
        count, so they have to be centered.
    random_state : seed or generator of the codes.

    Attributes
    ----------
    classes_ : ``(K,)``, classes of the given labels.
    transduction_ : ``(n,)``, labels of all points in ``fit``; given ones stay, and -1 is for points
        that no label reaches.
    confidence_ : ``(n,)``, from 0 to 1; 1 for given labels.
    n_features_in_ : length of vectors.

    Examples
    --------
    >>> points = [[1.0, 0.1], [1.0, 0.2], [-1.0, 0.1], [-1.0, 0.2]]
    >>> GraphLabelClassifier(k=1).fit(points, [3, -1, 5, -1]).transduction_
    array([3, 3, 5, 5])
    """

    def __init__(
        self,
        k: int = NUM_NEIGHBOURS,
        *,
        num_bits: int = NUM_BITS,
        alpha: float = ALPHA,
        power: float = POWER,
        class_scaling: bool = True,
        similarity: Similarity = "codes",
        reweigh: bool = False,
        standardize: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.k = k
        self.num_bits = num_bits
        self.alpha = alpha
        self.power = power
        self.class_scaling = class_scaling
        self.similarity = similarity
        self.reweigh = reweigh
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, clients: ArrayLike | None = None) -> Self:  # noqa: N803
        """Label the unlabeled points.

        Parameters
        ----------
        X : vectors ``(n, d)``.
        y : ``(n,)``, a label for each point; -1, None or NaN for an unlabeled one.
        clients : ``(n,)``, the client of each point, any values; by default one party has all.

        Raises
        ------
        ValueError
            If a parameter has a value that makes no sense, or points or labels cannot be used.
        """
        check_parameters(self, _RULES)
        refuse_no_truth_value(self, "class_scaling", "reweigh", "standardize")
        filled, known = _without_gaps(y)
        points, labels = validate_data(self, unmasked(X), filled, dtype=np.float64)
        check_classification_targets(labels)
        if labels.dtype.kind in "iuf":
            known &= labels != UNLABELED
        self.classes_ = np.unique(labels[known])
        if len(self.classes_) == 0:
            raise ValueError(
                "no point has a label: y is -1 or missing for all of them, and 1 or more is needed"
            )
        given = np.full(len(labels), UNLABELED, dtype=np.int64)
        given[known] = np.searchsorted(self.classes_, labels[known])
        self._scaling = None
        if self.standardize:
            self._scaling = scaling_by(moments(points, np.arange(len(points))), None)
        self._features = self._scaled(points)
        try:
            found = self._one_party(given) if clients is None else self._among(given, clients)
        except UserError as error:
            raise ValueError(str(error)) from error
        self._numbers, self.confidence_ = found.labels, found.confidence
        reached = found.labels != UNLABELED
        if reached.all():
            self.transduction_ = self.classes_[found.labels]
        else:
            is_number = self.classes_.dtype.kind in "iuf"
            labels = self.classes_[found.labels]
            self.transduction_ = np.where(
                reached, labels if is_number else labels.astype(object), UNLABELED
            )
        return self

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Class probabilities ``(n, K)``: votes of the k most similar points of ``fit``.

        A vote counts by its label's confidence and the cosine to the power of ``power``. A point
        without similar ones gets equal probabilities.
        """
        check_is_fitted(self)
        points = _unit(
            self._scaled(validate_data(self, unmasked(X), reset=False, dtype=np.float64))
        )
        known, votes = _unit(self._features), np.zeros((len(points), len(self.classes_)))
        voters = self._numbers != UNLABELED
        known, numbers = known[voters], self._numbers[voters]
        confidence = np.maximum(self.confidence_[voters], np.finfo(float).tiny)
        count = min(self.k, len(known))
        for rows in blocks(len(points)):
            cosines = np.maximum(points[rows] @ known.T, 0)
            nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
            weights = np.take_along_axis(cosines, nearest, axis=1) ** self.power
            weights *= confidence[nearest]
            for column in range(count):
                np.add.at(
                    votes[rows],
                    (np.arange(len(nearest)), numbers[nearest[:, column]]),
                    weights[:, column],
                )
        total = votes.sum(axis=1, keepdims=True)
        equal = np.full_like(votes, 1 / len(self.classes_))
        return np.asarray(np.divide(votes, total, out=equal, where=total > 0))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable class of every point, ``(n,)``."""
        check_is_fitted(self)
        found: NDArray[Any] = np.asarray(self.classes_)[self.predict_proba(X).argmax(axis=1)]
        return found

    def _scaled(self, points: Any) -> Floats:
        found = points if self._scaling is None else scaled(points, self._scaling)
        return np.asarray(found, dtype=np.float64)

    def _one_party(self, given: NDArray[np.int64]) -> Propagated:
        return label_propagation(
            self._features,
            given,
            num_classes=len(self.classes_),
            similarity=self.similarity,
            k=self.k,
            num_bits=self.num_bits,
            alpha=self.alpha,
            power=self.power,
            class_scaling=self.class_scaling,
            reweigh=self.reweigh,
            seed=check_random_state(self.random_state).bytes(SEED_BYTES),
        )

    def _among(self, given: NDArray[np.int64], clients: ArrayLike) -> Propagated:
        """The same, by a run of ``xclp-predict`` with these clients."""
        from fedul_flwr.api.labels import label

        if self.similarity != "codes":
            raise ValueError("with clients, similarity must be 'codes'")
        # An estimator prints nothing.
        with exclusive(), tempfile.TemporaryDirectory() as place, redirect_stdout(io.StringIO()):
            found = label(
                (self._features, given),
                clients=clients,
                output=Path(place) / "run",
                engine="in-process",
                standardize="none",
                seed=int(check_random_state(self.random_state).randint(2**31)),
                xclp={
                    "k": self.k,
                    "num_bits": self.num_bits,
                    "alpha": float(self.alpha),
                    "power": float(self.power),
                    "class_scaling": self.class_scaling,
                    "reweigh": self.reweigh,
                },
            )
            return Propagated(found.labels, found.confidence)


def _without_gaps(y: Any) -> tuple[Any, NDArray[np.bool_]]:
    """``y`` with any label where one is missing, and ``(n,)``, whether a point has one."""
    objects = np.asarray(y, dtype=object)
    if objects.ndim != 1:
        return y, np.ones(len(objects) if objects.ndim else 0, dtype=bool)
    # Texts may stand beside -1.
    known = ~missing_values(y)
    if any(isinstance(value, str) for value in objects[known]):
        known[known] = [value not in (UNLABELED, "") for value in objects[known]]
    if known.all():
        return y, known
    if not known.any():
        return np.full(len(objects), UNLABELED), known
    filled = objects.copy()
    filled[~known] = objects[known][0]
    return np.array(filled.tolist()), known


def _unit(points: Floats) -> Floats:
    """Rows divided by their length; rows of zeros stay."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(np.divide(points, length, out=np.zeros_like(points), where=length > 0))
