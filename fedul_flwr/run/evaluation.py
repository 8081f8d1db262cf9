"""Test and validation error at the server, computed while the next round trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import UNLABELED, Floats, Ints, LabeledPoints, PointArrays, Source
from fedul_flwr.learning.class_priors import estimate_prior, reweigh
from fedul_flwr.learning.local import load_arrays, predict_logits
from fedul_flwr.learning.local_plan import local_plan
from fedul_flwr.models import build_model


class Errors(NamedTuple):
    """Percent of points misclassified; ``None`` where there are no labeled points.

    ``validation_loss`` is the mean cross-entropy of the validation points, in nats; ``labeled`` is
    the error on the labeled training points.
    """

    test: float | None = None
    validation: float | None = None
    validation_loss: float | None = None
    labeled: float | None = None


@dataclass(frozen=True)
class Reweighed:
    """``(K,)`` class priors estimated from test images, and the test error re-weighed by them."""

    prior: Floats
    test_error: float | None


class Evaluator:
    """Evaluates models on the data sets that the server has.

    Parameters
    ----------
    settings : the run's settings.
    source : the server's data; unlabeled test points do not count in errors.
    validation : rows of its training images set aside for validation.
    labeled : labeled training points, if their error is to be measured too.
    """

    def __init__(
        self,
        settings: RunConfig,
        source: Source,
        validation: Ints,
        labeled: LabeledPoints | None = None,
    ) -> None:
        self._model = build_model(
            settings.model, source.input_shape, source.num_classes, options=settings.model_options
        )
        self._plan = local_plan(settings)
        self._test = _test_points(settings, source)
        self._validation = _points(source.train, validation)
        self._labeled = labeled

    def errors(self, models: Sequence[Mapping[str, NDArray[np.generic]]]) -> Errors:
        """Mean errors of models, each given by its arrays; all ``None`` for no models."""
        found = [self._errors_of(arrays) for arrays in models]
        return Errors(*(_mean(values) for values in zip(*found, strict=True)))

    def _errors_of(self, arrays: Mapping[str, NDArray[np.generic]]) -> Errors:
        load_arrays(self._model, arrays)
        test, _ = self._error_and_loss(self._test)
        validation, loss = self._error_and_loss(self._validation)
        labeled = self._error_and_loss(self._labeled)[0] if self._labeled else None
        return Errors(test, validation, loss, labeled)

    def reweighed(self, arrays: Mapping[str, NDArray[np.generic]], trained: Floats) -> Reweighed:
        """Class priors of all test images by EM (labels unused), and the error re-weighed by them.

        Parameters
        ----------
        arrays : a model.
        trained : ``(K,)``, the class priors it was trained for.
        """
        load_arrays(self._model, arrays)
        test = self._test
        everything = np.arange(len(test.inputs), dtype=np.int64)
        logits = predict_logits(self._model, test.inputs, everything, self._plan)
        posterior = logits.double().softmax(dim=1).numpy()
        prior = estimate_prior(posterior, trained)
        guess = reweigh(posterior, trained, prior).argmax(axis=1)[test.points]
        return Reweighed(prior, _percent_wrong(guess, test.labels) if len(guess) else None)

    def _error_and_loss(self, data: LabeledPoints) -> tuple[float, float] | tuple[None, None]:
        if len(data.points) == 0:
            return None, None
        logits = predict_logits(self._model, data.inputs, data.points, self._plan).double()
        loss = float(functional.cross_entropy(logits, torch.from_numpy(data.labels)))
        return _percent_wrong(logits.argmax(dim=1).numpy(), data.labels), loss


def _points(data: PointArrays, rows: Ints) -> LabeledPoints:
    return LabeledPoints(data.inputs, rows, np.asarray(data.labels)[rows])


def _test_points(settings: RunConfig, source: Source) -> LabeledPoints:
    """Test points with a known label; none if the run must not measure test errors."""
    if not settings.measure_test_error:
        none = np.empty(0, dtype=np.int64)
        return LabeledPoints(source.test.inputs, none, none)
    known = np.flatnonzero(np.asarray(source.test.labels) != UNLABELED)
    return _points(source.test, known.astype(np.int64))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _percent_wrong(guess: Ints, labels: Ints) -> float:
    return float(100 * np.mean(guess != labels))
