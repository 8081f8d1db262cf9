"""Classifiers of scikit-learn: from unlabeled sets by FedUL or in closed form, and XCLP's."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from logging import ERROR
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedul_flwr.api.arguments import Rules, check_parameters, flat_settings
from fedul_flwr.api.input_data import (
    as_array,
    is_of,
    missing_values,
    stored_points,
    training_points,
    unmasked,
)
from fedul_flwr.arrays import Floats, Ints, blocks
from fedul_flwr.config.base import Scalar, checked_prior, in_order, is_named, without_exit
from fedul_flwr.config.method_settings import FedULSettings, PropagationSettings
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.config.shared import FITTED_MODEL, SharedSettings, TrainingSettings
from fedul_flwr.data.class_labels import class_labels
from fedul_flwr.data.class_priors import class_masses, floored
from fedul_flwr.data.cores import exclusive
from fedul_flwr.data.saying_columns import SAID, saying_feature
from fedul_flwr.data.set_priors import check_sets, identifiable_directions
from fedul_flwr.data.standardize import Scaling, moments, scaled, scaling_by
from fedul_flwr.data.types import UNLABELED, Inputs, Propagated, UnlabeledSets
from fedul_flwr.errors import UserError
from fedul_flwr.learning.closed_form import (
    fit_gaussians,
    linear_head,
    posteriors,
    posteriors_of_sets,
    soft_sums,
)
from fedul_flwr.propagation.central import Similarity, label_propagation
from fedul_flwr.propagation.codes import NUM_BITS, SEED_BYTES
from fedul_flwr.propagation.solve import ALPHA, NUM_NEIGHBORS, POWER

_RULES: Rules = {
    "model": (TrainingSettings, "model"),
    "rounds": (TrainingSettings, "num-rounds"),
    "local_epochs": (TrainingSettings, "local-epochs"),
    "batch_size": (TrainingSettings, "batch-size"),
    "optimizer": (TrainingSettings, "optimizer"),
    "learning_rate": (TrainingSettings, "learning-rate"),
    "weight_decay": (TrainingSettings, "weight-decay"),
    "surrogate_loss": (FedULSettings, "surrogate-loss"),
    "device": (SharedSettings, "device"),
}
_OF_PLAN = ("local_epochs", "batch_size", "optimizer", "learning_rate", "weight_decay")


@contextmanager
def _value_errors() -> Iterator[None]:
    """Context in which errors of users are those that scikit-learn expects."""
    try:
        with without_exit("This call"):
            yield
    except UserError as error:
        raise ValueError(str(error)) from error


class _Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    _scaling: Scaling | None = None

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable class of every point, ``(n,)``."""
        check_is_fitted(self)
        labels: NDArray[Any] = np.asarray(self.classes_)[self.predict_proba(X).argmax(axis=1)]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Share of the points with a label in ``y`` that are predicted right."""
        y, has_label = _without_gaps(y)
        if not has_label.any():
            raise ValueError("no point has a label: y is -1 or missing for all of them")
        weights = None if sample_weight is None else np.asarray(sample_weight)[has_label]
        right = self.predict(X)[has_label] == np.asarray(y)[has_label]
        return float(np.average(right, weights=weights))

    def _standardized(self, points: Inputs) -> Inputs:
        """Training points, by whose means and scales vectors are standardized from now on."""
        self._scaling = None
        if self.standardize and len(points.shape) == 2:
            self._scaling = scaling_by(moments(points, np.arange(len(points))), None)
        return self._scaled(points)

    def _scaled(self, points: Inputs) -> Inputs:
        return points if self._scaling is None else scaled(points, self._scaling)


class FedULClassifier(_Classifier):
    """Learns a classifier from unlabeled sets whose class proportions are known (FedUL).

    All sets may be at one client, or at several: then every round each client trains the model on
    its own sets, and the models are averaged, as in a run of method ``fedul`` with its defaults.

    Parameters
    ----------
    model : name of a model, or ``package.module:function`` of your own.
    rounds, local_epochs, batch_size, optimizer, learning_rate, weight_decay : as the settings of
        these names (docs/settings.md); ``batch_size`` is 1 or more.
    test_prior : ``(K,)``, class priors of the points to predict; by default those of the points in
        ``fit``, by their labels or by the sets' priors.
    standardize : whether to standardize vectors by the training points.
    surrogate_loss : ``"nll"``, eq. 9 of the paper, or ``"release"``, that of the authors' code.
    device : ``"cpu"``, ``"cuda"`` or ``"auto"``.
    random_state : seed, generator, or None for another result in every call.

    Attributes
    ----------
    classes_ : ``(K,)``, the classes: numbers of the columns of ``priors``; without priors the sets.
    model_ : the trained module.
    losses_ : mean surrogate loss of every round.
    n_features_in_ : length of vectors.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ill, sound = rng.normal(2, 1, (300, 2)), rng.normal(-2, 1, (300, 2))
    >>> sets = [np.r_[ill[:240], sound[:60]], np.r_[ill[240:], sound[60:]]]
    >>> found = FedULClassifier(rounds=5).fit(sets, [[0.8, 0.2], [0.2, 0.8]])
    >>> found.predict([[2.0, 2.0], [-2.0, -2.0]])
    array([0, 1])
    """

    _rules = _RULES
    _uses_unlabeled = False

    def __init__(
        self,
        model: str = "mlp",
        *,
        rounds: int = 30,
        local_epochs: int = 2,
        batch_size: int = 16,
        optimizer: str = "adam",
        learning_rate: float = 3e-3,
        weight_decay: float = 0.0,
        test_prior: ArrayLike | None = None,
        standardize: bool = True,
        surrogate_loss: str = "nll",
        device: str = "cpu",
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.rounds = rounds
        self.local_epochs = local_epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.test_prior = test_prior
        self.standardize = standardize
        self.surrogate_loss = surrogate_loss
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        priors: ArrayLike | None = None,
        *,
        clients: ArrayLike | None = None,
    ) -> Self:
        """Train on unlabeled sets: ``fit(sets, priors)``, or ``fit(X, set_of_point, priors)``.

        Parameters
        ----------
        X : list of M arrays, the sets: vectors ``(n_m, d)`` or images ``(n_m, h, w, c)``. Or all
            points as one array.
        y : ``(M, K)`` class priors of the sets, if X is a list of sets. Else ``(n,)``, the set of
            each point, or its class if there are no priors. Points with -1, None or NaN are left
            out; :class:`ClosedFormClassifier` without priors uses them as unlabeled.
        priors : ``(M, K)``, with one array X; row m is for the m-th smallest value in ``y``, by the
            order of its categories if they have one. In a DataFrame the index names the sets, and
            the columns the classes. By default each set is one class, which is ordinary training
            with labels.
        clients : ``(M,)``, the client that has each set; by default one client has all.

        Raises
        ------
        ValueError
            If a parameter has a value that makes no sense, sets and priors do not fit each other,
            or the sets of all clients together do not determine the classes.
        """
        check_parameters(self, self._rules)
        if isinstance(X, list | tuple) and len(X) and all(_dims(part) >= 2 for part in X):
            if priors is not None:
                raise ValueError("with a list of sets, priors are the second argument")
            names = np.arange(len(X))
            y, priors = np.repeat(names, [len(part) for part in X]), y
            rows: Any = priors
            X, has_label = _joined(X), np.ones(len(y), dtype=bool)  # noqa: N806
            self._score_takes_sets = False
        else:
            rows = _by_categories(priors, y)
            y, has_label = _without_gaps(y)
            y = column_or_1d(y, warn=True)
            check_classification_targets(y)
            names = np.unique(y[has_label])
            rows = in_order(rows, names)
            self._score_takes_sets = priors is not None
        points = self._points(X, y)
        sets = np.where(has_label, np.searchsorted(names, np.asarray(y)), UNLABELED).astype(
            np.int64
        )
        what = "y" if priors is None else "sets"
        if len(points.shape) == 2 and (said := saying_feature(np.asarray(points), {what: sets})):
            raise ValueError(f"column {said[0]} of X says {SAID[what]}: leave it out")
        if priors is not None or not self._uses_unlabeled:
            points, sets = points[has_label], sets[has_label]
        proportions = np.eye(len(names)) if priors is None else np.asarray(rows, dtype=float)
        if priors is None and len(names) < 2:
            raise ValueError(f"y has {len(names)} class(es), and 2 or more are needed; -1 is none")
        owners = self._owners(names, clients)
        if proportions.ndim != 2 or len(proportions) != len(names) or proportions.shape[1] < 2:
            raise ValueError(
                f"priors have the shape {proportions.shape}; they must be ({len(names)}, classes), "
                "and one class is too few; -1 is no set"
            )
        self.classes_ = names if priors is None else _class_names(priors, proportions.shape[1])
        sizes = np.bincount(sets[sets != UNLABELED], minlength=len(names))
        with _value_errors(), exclusive():
            _check(proportions, sizes, owners)
            self._test_prior = self._prior(proportions, sizes)
            self._train(points, sets, proportions, owners)
        self._sets = _FittedSets(names, proportions, sizes, owners)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """How good the model is for what ``fit`` takes; larger is better.

        After ``fit(X, set_of_point, priors)`` y is the set of each point, of which no accuracy
        follows, and the score is minus the mean surrogate loss (eq. 9 of the paper) of the points.
        So is that of a list of sets and their priors. Else y is the class of each point, and the
        score the accuracy. Points with -1, None or NaN do not count.
        """
        check_is_fitted(self)
        fitted = self._sets
        if isinstance(X, list | tuple) and len(X) and all(_dims(part) >= 2 for part in X):
            rows, first = np.asarray(y, dtype=float), len(fitted.names)
            if rows.shape != (len(X), len(self.classes_)):
                raise ValueError(
                    f"priors have the shape {rows.shape}; they must be "
                    f"({len(X)}, {len(self.classes_)})"
                )
            new = [len(part) for part in X]
            numbers, has_label = np.repeat(first + np.arange(len(X)), new), np.ones(sum(new), bool)
            priors, sizes = np.concatenate([fitted.priors, rows]), np.r_[fitted.sizes, new]
            fitted = _FittedSets(fitted.names, priors, sizes, [np.arange(len(sizes))])
            X = _joined(X)  # noqa: N806
        elif self._score_takes_sets:
            y, has_label = _without_gaps(y)
            numbers = np.searchsorted(fitted.names, y).clip(max=len(fitted.names) - 1)
            odd = np.asarray(y)[has_label & (fitted.names[numbers] != y)]
            if len(odd) or not has_label.any():
                what = f"{odd[0]} is no set of fit" if len(odd) else "it names no set"
                raise ValueError(
                    f"y is the set of each point, as in fit, and {what}; for true classes use "
                    "sklearn.metrics.accuracy_score(y, model.predict(X))"
                )
        else:
            return super().score(X, y, sample_weight)
        probabilities = self.predict_proba(X)
        losses = fitted.losses(probabilities / self._test_prior, numbers)[has_label]
        weights = None if sample_weight is None else np.asarray(sample_weight)[has_label]
        return -float(np.average(losses, weights=weights))

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Class probabilities ``(n, K)`` of points, in the order of ``classes_``."""
        from fedul_flwr.learning.local import predict_logits

        check_is_fitted(self)
        points = self._scaled(self._points(X))
        logits = predict_logits(self.model_, points, np.arange(len(points)), self._plan())
        probabilities: Floats = logits.double().softmax(dim=1).numpy()
        return probabilities

    def _points(self, X: Any, y: Any = None) -> Inputs:  # noqa: N803
        """Checked points: float32 vectors, or uint8 images."""
        X = unmasked(X)  # noqa: N806
        if _dims(X) > 2:
            with _value_errors():
                images = stored_points(X) if y is None else training_points(X)
            if y is not None:
                self._shape = images.shape[1:]
                if len(y) != len(images):
                    raise ValueError(f"X has {len(images)} images, and y {len(y)} entries")
            elif images.shape[1:] != self._shape:
                raise ValueError(f"X holds images {images.shape[1:]}, trained on {self._shape}")
            return images
        if y is None:
            return np.asarray(validate_data(self, X, reset=False, dtype=np.float32))
        points, _ = validate_data(self, X, y, dtype=np.float32)
        self._shape = points.shape[1:]
        return np.asarray(points)

    def _owners(self, names: NDArray[Any], clients: ArrayLike | None) -> list[Ints]:
        """Numbers of each client's sets."""
        if clients is None:
            return [np.arange(len(names))]
        numbers = np.asarray(clients)
        if numbers.shape != (len(names),):
            raise ValueError(f"clients must name a client for each of the {len(names)} sets")
        return [np.flatnonzero(numbers == client) for client in np.unique(numbers)]

    def _plan(self) -> Any:
        from fedul_flwr.learning.device import choose_device
        from fedul_flwr.learning.plan import LocalPlan

        values = {name: value for name, value in vars(self).items() if name in _OF_PLAN}
        return LocalPlan(**values, device=choose_device(self.device))

    def _train(self, points: Inputs, sets: Ints, priors: Floats, owners: list[Ints]) -> None:
        from fedul_flwr.api.own_client import CheckedSetsClient
        from fedul_flwr.api.own_strategy import built_strategy, plain_mean
        from fedul_flwr.engine.in_process import InProcessGrid, task_identity
        from fedul_flwr.engine.shell import flower_logs
        from fedul_flwr.federated.messages import to_arrays, to_record
        from fedul_flwr.federated.nodes import DataShape
        from fedul_flwr.federated.owner.door import make_client_app
        from fedul_flwr.learning.local import dump_arrays, load_arrays

        if self.batch_size == 0:
            raise ValueError("batch_size = 0: must be at least 1.")
        points = self._standardized(points)
        clients = []
        for numbers in owners:
            rows = np.flatnonzero(np.isin(sets, numbers))
            set_numbers = np.searchsorted(numbers, sets[rows])
            clients.append(
                CheckedSetsClient(UnlabeledSets(points, rows, set_numbers, priors[numbers]))
            )
        shape = DataShape(points.shape[1:], tuple(map(str, range(priors.shape[1]))))
        strategy = built_strategy(plain_mean(), shape, self._settings())
        self.model_ = strategy.registry.fresh_model()
        first = to_record(dump_arrays(self.model_))
        app = make_client_app(
            lambda context: clients[int(context.node_config["partition-id"])].bind(context)
        )
        # An estimator prints nothing.
        with task_identity(), flower_logs(ERROR), redirect_stdout(io.StringIO()):
            grid = InProcessGrid(app, len(owners), {}, raises=True)
            result = strategy.start(grid, first, int(self.rounds))
        load_arrays(self.model_, to_arrays(result.arrays))
        self.model_.eval()
        rounds = result.train_metrics_clientapp.values()
        self.losses_ = [float(cast(float, metrics["loss"])) for metrics in rounds]

    def _settings(self) -> dict[str, Scalar]:
        return flat_settings(
            {
                "method": "fedul",
                "fedul": {"surrogate_loss": self.surrogate_loss},
                # The loss of the authors' code takes none.
                "test_prior": self._test_prior.tolist() if self.surrogate_loss == "nll" else None,
                "seed": self._seed(),
                "device": self.device,
                "model": self.model,
                "augment": "none",
                "precision": "float32",
                "client_weights": "uniform",
                "client_threads": 0,
                **{name: value for name, value in vars(self).items() if name in _OF_PLAN},
            }
        )

    def _prior(self, priors: Floats, sizes: Ints) -> Floats:
        if self.test_prior is None:
            return floored(class_masses(priors, sizes))
        try:
            values = in_order(self.test_prior, self.classes_)
            prior = checked_prior(np.asarray(values, dtype=float))
        except (TypeError, ValueError) as error:
            raise ValueError(f"test_prior = {self.test_prior!r}: {error}") from None
        if len(prior) != priors.shape[1]:
            raise ValueError(f"test_prior has {len(prior)} entries for {priors.shape[1]} classes")
        return prior

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))


class _FittedSets(NamedTuple):
    """Names of sets, their class priors ``(M, K)`` and sizes ``(M,)``, and each client's sets."""

    names: NDArray[Any]
    priors: Floats
    sizes: Ints
    owners: list[Ints]

    def losses(self, likelihoods: Floats, sets: Ints) -> Floats:
        """Minus the log-probability of each point's set among those of its client, ``(n,)``.

        ``likelihoods`` ``(n, K)`` are p(x | k) up to a factor for each point.
        """
        joint = likelihoods @ (self.priors * self.sizes[:, None]).T
        likelihood = joint[np.arange(len(sets)), sets]
        for numbers in self.owners:
            rows = np.isin(sets, numbers)
            likelihood[rows] /= joint[np.ix_(rows, numbers)].sum(axis=1)
        return np.asarray(-np.log(np.maximum(likelihood, np.finfo(float).tiny)))


def _dims(values: Any) -> int:
    try:
        return int(np.asarray(values).ndim)
    except ValueError:  # lists of other lengths: scikit-learn says what is wrong
        return 0


def _joined(sets: Sequence[Any]) -> Any:
    """All points of sets of one form; frames are joined by the names of their columns."""
    frames = [is_of(part, "pandas", "DataFrame") for part in sets]
    if not any(frames):
        return np.concatenate([as_array(part, f"set {n}") for n, part in enumerate(sets)])
    names = sorted(map(str, sets[0].columns)) if all(frames) else []
    if not names or any(sorted(map(str, part.columns)) != names for part in sets):
        raise ValueError("sets must all be arrays, or all DataFrames with the same columns")
    import pandas as pd

    return pd.concat([part[list(sets[0].columns)] for part in sets], ignore_index=True)


def _by_categories(priors: Any, y: Any) -> Any:
    """``priors`` with the names of sets, if these are categories that have an order."""
    import pandas as pd

    kind = getattr(y, "dtype", None)
    if priors is None or not getattr(kind, "ordered", False) or _is_named(priors, "index"):
        return priors
    there = [category for category in kind.categories if category in set(y)]  # type: ignore[union-attr]
    return pd.DataFrame(np.asarray(priors), index=there)


def _is_named(table: Any, axis: str) -> bool:
    """Whether rows (``"index"``) or ``"columns"`` of a DataFrame have other names than numbers."""
    return hasattr(table, "columns") and is_named(getattr(table, axis, ()))


def _class_names(priors: Any, count: int) -> NDArray[Any]:
    return np.array([*priors.columns]) if _is_named(priors, "columns") else np.arange(count)


def _check(priors: Floats, sizes: Ints, owners: list[Ints]) -> None:
    """Refuse sets that cannot be used, or that together do not determine the classes."""
    num_classes = priors.shape[1]
    for client, numbers in enumerate(owners):
        check = check_sets(priors[numbers], sizes[numbers], min_sets=1)
        if not check.accepted:
            raise ValueError(f"client {client}: {check.in_words(numbers.tolist())}")
    directions = identifiable_directions([priors[numbers] for numbers in owners])
    if directions < num_classes - 1:
        raise ValueError(
            f"the sets determine {directions} of the {num_classes - 1} ratios of class "
            "posteriors: more sets, or sets that differ more in their classes, are needed"
        )


_GRAPH_RULES: Rules = {
    "k": (PropagationSettings, "k"),
    "num_bits": (PropagationSettings, "num-bits"),
    "alpha": (PropagationSettings, "alpha"),
}


class ClosedFormClassifier(FedULClassifier):
    """Learns a classifier from sets, or from labels of some or all points, in closed form.

    Nothing is trained. Vectors are classified by a linear discriminant of the vectors, images by
    one of answers of filters that fit them. Its numbers are sums over points, so that those of
    several clients give the same (method ``closed-form``, docs/closed-form.md).

    Parameters
    ----------
    model : network whose last layer is made; by default ``"linear"`` for vectors, and
        ``"whitened-filters"`` for images.
    refinements : 0 to 2, how often sums are made anew by posteriors under the class proportions of
        a point's set, those of unlabeled points under ``test_prior``.
    shrinkage : of the covariance, above 0 to 1; by default from the numbers of features and points.
    test_prior : ``(K,)``, class priors of the points to predict; by default those of the points in
        ``fit``, by their labels or by the sets' priors.
    standardize : whether to standardize vectors by the training points.
    device : ``"cpu"``, ``"cuda"`` or ``"auto"``.
    random_state : seed, generator, or None for other random features in every call.

    Attributes
    ----------
    classes_ : ``(K,)``, the classes: numbers of the columns of ``priors``; without priors the sets.
    model_ : the module.
    n_features_in_ : length of vectors.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ill, sound = rng.normal(2, 1, (300, 2)), rng.normal(-2, 1, (300, 2))
    >>> sets = [np.r_[ill[:240], sound[:60]], np.r_[ill[240:], sound[60:]]]
    >>> ClosedFormClassifier().fit(sets, [[0.8, 0.2], [0.2, 0.8]]).predict([[2.0, 2.0]])
    array([0])
    """

    _uses_unlabeled = True
    _rules: Rules = {
        "refinements": (HeadSettings, "refinements"),
        "device": (SharedSettings, "device"),
    }

    def __init__(
        self,
        model: str | None = None,
        *,
        refinements: int = 1,
        shrinkage: float | None = None,
        test_prior: ArrayLike | None = None,
        standardize: bool = True,
        device: str = "cpu",
        random_state: Any = 0,
    ) -> None:
        self.model = model  # type: ignore[assignment]
        self.refinements = refinements
        self.shrinkage = shrinkage
        self.test_prior = test_prior
        self.standardize = standardize
        self.device = device
        self.random_state = random_state

    def _train(self, points: Inputs, sets: Ints, priors: Floats, owners: list[Ints]) -> None:
        del owners  # sums are the same whoever has which points
        import torch

        from fedul_flwr.learning.filters import moments_of, patch_sums, with_moments
        from fedul_flwr.learning.local import dump_arrays, features_and_logits, load_arrays
        from fedul_flwr.models import build_model
        from fedul_flwr.models.parts import feature_layer

        if self.shrinkage is not None and not 0 < self.shrinkage <= 1:
            raise ValueError(f"shrinkage = {self.shrinkage!r}: it must be above 0, at most 1")
        points, count, prior = self._standardized(points), priors.shape[1], self._test_prior
        name = self.model or ("linear" if len(points.shape) == 2 else FITTED_MODEL)
        self.model_ = build_model(name, points.shape[1:], count, seed=self._seed())
        head, rows = feature_layer(self.model_), np.arange(len(points))
        if name == FITTED_MODEL:
            arrays = dump_arrays(self.model_)
            patches = patch_sums(points, rows, self.model_[0].filters.shape[2])
            load_arrays(self.model_, with_moments(arrays, moments_of(patches, len(points))))
        stated = sets != UNLABELED
        shares = np.where(stated[:, None], priors[sets], prior)
        is_certain = bool((shares.max(axis=1) == 1).all())  # posteriors would be the labels
        for turn in range(1 if is_certain else 1 + self.refinements):
            features, logits = features_and_logits(self.model_, points, rows, self._plan())
            if turn:
                scores = logits.double().numpy()
                soft = posteriors(scores, shares, prior)
                of_sets = scores[stated], shares[stated], prior, sets[stated]
                soft[stated] = posteriors_of_sets(*of_sets, np.zeros(len(priors)))
                sums = soft_sums(features, soft, stated=False)
            else:
                sums = soft_sums(features[stated], shares[stated], stated=True)
            for weight, value in zip(
                (head.weight, head.bias),
                linear_head(fit_gaussians(sums), prior, self.shrinkage),
                strict=True,
            ):
                with torch.no_grad():
                    weight.copy_(torch.from_numpy(value))
        self.model_.eval()


class GraphLabelClassifier(_Classifier):
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
        k: int = NUM_NEIGHBORS,
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
        check_parameters(self, _GRAPH_RULES)
        if not 0 < self.power < math.inf:
            raise ValueError(f"power = {self.power!r}: it must be a positive number")
        filled, is_present = _without_gaps(y)
        points, labels = validate_data(self, unmasked(X), filled, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels[is_present])
        if len(self.classes_) == 0:
            raise ValueError(
                "no point has a label: y is -1 or missing for all of them, and 1 or more is needed"
            )
        numbers = np.full(len(labels), UNLABELED, dtype=np.int64)
        numbers[is_present] = np.searchsorted(self.classes_, labels[is_present])
        self._features = np.asarray(self._standardized(points), dtype=np.float64)
        with _value_errors():
            result = self._one_party(numbers) if clients is None else self._among(numbers, clients)
        self._numbers, self.confidence_ = result.labels, result.confidence
        reached = result.labels != UNLABELED
        if reached.all():
            self.transduction_ = self.classes_[result.labels]
        else:
            is_number = self.classes_.dtype.kind in "iuf"
            labels = self.classes_[result.labels]
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
        points = validate_data(self, unmasked(X), reset=False, dtype=np.float64)
        points = _unit(np.asarray(self._scaled(points), dtype=np.float64))
        references, votes = _unit(self._features), np.zeros((len(points), len(self.classes_)))
        voters = self._numbers != UNLABELED
        references, numbers = references[voters], self._numbers[voters]
        confidence = np.maximum(self.confidence_[voters], np.finfo(float).tiny)
        count = min(self.k, len(references))
        for rows in blocks(len(points)):
            cosines = np.maximum(points[rows] @ references.T, 0)
            nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
            weights = np.take_along_axis(cosines, nearest, axis=1) ** self.power
            weights *= confidence[nearest]
            np.add.at(votes[rows], (np.arange(len(nearest))[:, None], numbers[nearest]), weights)
        total = votes.sum(axis=1, keepdims=True)
        equal = np.full_like(votes, 1 / len(self.classes_))
        return np.asarray(np.divide(votes, total, out=equal, where=total > 0))

    def _one_party(self, labels: NDArray[np.int64]) -> Propagated:
        return label_propagation(
            self._features,
            labels,
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

    def _among(self, labels: NDArray[np.int64], clients: ArrayLike) -> Propagated:
        """The same, by a run of ``xclp-predict`` with these clients."""
        from fedul_flwr.api.labels import label

        if self.similarity != "codes":
            raise ValueError("with clients, similarity must be 'codes'")
        recipes = {(3.0, True): "release", (1.0, False): "paper"}
        recipe = recipes.get((float(self.power), bool(self.class_scaling)))
        if recipe is None:
            raise ValueError(
                f"with clients, power = {self.power} and class_scaling = {self.class_scaling}: "
                "it must be 3 and True, as the authors' code, or 1 and False, as the paper's text"
            )
        # An estimator prints nothing.
        with exclusive(), tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            result = label(
                (self._features, labels),
                clients=clients,
                output=Path(folder) / "run",
                engine="in-process",
                standardize="none",
                seed=int(check_random_state(self.random_state).randint(2**31)),
                xclp={
                    "k": self.k,
                    "num_bits": self.num_bits,
                    "alpha": float(self.alpha),
                    "recipe": recipe,
                    "reweigh": self.reweigh,
                },
            )
            return Propagated(result.labels, result.confidence)


def _without_gaps(y: Any) -> tuple[Any, NDArray[np.bool_]]:
    """``y`` with any label where one is -1 or missing, and ``(n,)``, whether a point has one."""
    objects = np.asarray(y, dtype=object)
    if objects.ndim != 1:
        return y, np.ones(len(objects) if objects.ndim else 0, dtype=bool)
    is_present = ~missing_values(y)
    if any(isinstance(value, str) for value in objects[is_present]):  # texts may stand beside -1
        with _value_errors():
            is_present = class_labels(objects, "y").numbers != UNLABELED
    elif np.asarray(objects[is_present].tolist()).dtype.kind in "iuf":
        is_present[is_present] = objects[is_present] != UNLABELED
    if is_present.all():
        return y, is_present
    if not is_present.any():
        return np.full(len(objects), UNLABELED), is_present
    filled = objects.copy()
    filled[~is_present] = objects[is_present][0]
    return np.array(filled.tolist()), is_present


def _unit(points: Floats) -> Floats:
    """Rows divided by their length; rows of zeros stay."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(np.divide(points, length, out=np.zeros_like(points), where=length > 0))
