"""Errors at the server after each round, their record, and measures of a finished run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from logging import INFO
from typing import Any

import numpy as np
import torch
from flwr.common import log
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.data.class_priors import estimate_prior, reweigh
from fedul_flwr.data.run_files.parts import Measured
from fedul_flwr.data.run_files.records import best_line, refuse_other_keys
from fedul_flwr.data.run_files.run import BEST_MODEL, HAS_STATE, TEMPERATURE, TRAINED_FOR, Run
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import UNLABELED, Inputs, LabeledPoints, PointArrays, Source
from fedul_flwr.learning.calibration import fit_temperature
from fedul_flwr.learning.local import load_arrays, predict_logits
from fedul_flwr.learning.plan import local_plan
from fedul_flwr.models import build_model
from fedul_flwr.run.callbacks import Callbacks, EvaluatedRound
from fedul_flwr.run.measures import (
    BINS,
    DETAILS,
    NUMBERS,
    balanced_accuracy,
    confusion,
    measures,
    prior_error,
)

Errors = Mapping[str, float | None]
"""Errors of a model by their keys in ``metrics.jsonl``, in percent; ``None`` where there are no
labeled points. ``validation_loss`` is the mean cross-entropy in nats. In a balanced error all
classes that occur weigh equally; in a prior error they weigh as the class priors that the model is
trained for."""


class Evaluator:
    """Evaluates models on the data sets that the server has."""

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
        self.test = _test_points(settings, source)
        self.validation = _points(source.train, validation)
        self._labeled = labeled

    def errors(
        self, models: Sequence[Mapping[str, NDArray[np.generic]]], prior: Floats | None = None
    ) -> Errors:
        """Mean errors of models, each given by its arrays; none for no models."""
        errors = [self._errors_of(arrays, prior) for arrays in models]
        return {key: _mean([one[key] for one in errors]) for key in errors[0]} if errors else {}

    def _errors_of(self, arrays: Mapping[str, NDArray[np.generic]], prior: Floats | None) -> Errors:
        load_arrays(self._model, arrays)
        errors: dict[str, float | None] = {}
        parts = {"test": self.test, "validation": self.validation, "labeled": self._labeled}
        for part, data in parts.items():
            if data is None or len(data.points) == 0:
                continue
            logits = predict_logits(self._model, data.inputs, data.points, self._plan).double()
            predicted = logits.argmax(dim=1).numpy()
            matrix = confusion(data.labels, predicted, logits.shape[1])
            accuracy = balanced_accuracy(matrix)
            assert accuracy is not None  # there are points
            errors |= {
                f"{part}_error": float(100 * np.mean(predicted != data.labels)),
                f"{part}_balanced_error": 100 - accuracy,
            }
            if part == "validation":
                loss = functional.cross_entropy(logits, torch.from_numpy(data.labels))
                errors["validation_loss"] = float(loss)
                errors[PRIOR_ERROR] = None if prior is None else prior_error(matrix, prior)
        return errors

    def logits(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        data: LabeledPoints,
        points: Ints | None = None,
    ) -> Floats:
        """Outputs ``(n, K)`` of a model on ``data``, or on other ``points`` of its inputs."""
        load_arrays(self._model, arrays)
        rows = data.points if points is None else points
        logits = predict_logits(self._model, data.inputs, rows, self._plan)
        return np.asarray(logits.double().numpy())

    def error_in_shares(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        counts: Ints,
        inputs: Inputs | None = None,
    ) -> float | None:
        """Percent of test points that a model gets wrong, weighed by a client's class shares.

        Parameters
        ----------
        counts : ``(K,)``, the client's points of each class.
        inputs : the test points as they look at the client; by default as they are.

        Returns
        -------
        ``None`` without points of a class that the client has.
        """
        present = counts > 0
        if not len(self.test.points) or not present.any():
            return None
        test = self.test if inputs is None else replace(self.test, inputs=inputs)
        logits = self.logits(arrays, test)
        matrix = confusion(self.test.labels, logits.argmax(axis=1), logits.shape[1])
        if (matrix.sum(axis=1)[present] == 0).any():
            return None
        return prior_error(matrix, counts / counts.sum())


def _points(data: PointArrays, rows: Ints) -> LabeledPoints:
    return LabeledPoints(data.inputs, rows, np.asarray(data.labels)[rows])


def _test_points(settings: RunConfig, source: Source) -> LabeledPoints:
    """Test points with a known label; none if the run must not measure test errors."""
    if not settings.measure_test_error:
        none = np.empty(0, dtype=np.int64)
        return LabeledPoints(source.test.inputs, none, none)
    labeled = np.flatnonzero(np.asarray(source.test.labels) != UNLABELED)
    return _points(source.test, labeled.astype(np.int64))


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


ERRORS = ("test_error", "validation_error", "test_balanced_error", "validation_balanced_error")
PRIOR_ERROR = "validation_prior_error"
"""Errors that a line of metrics has, the latter if class priors are known."""


class Recorder:
    """Records every round's model, and evaluates it in the background of the next round.

    Evaluation and the next round do not depend on each other, so evaluation takes no extra time if
    a core is idle. Only clients' own models (``evaluate = "local"``) are evaluated before the round
    is recorded, and a round that callbacks look at before the next one begins.

    Parameters
    ----------
    module : of torch, in which a round's arrays are loaded for callbacks.
    """

    def __init__(
        self,
        run: Run,
        settings: RunConfig,
        evaluator: Evaluator | None,
        callbacks: Callbacks,
        module: nn.Module,
    ) -> None:
        self.run = run
        self.callbacks = callbacks
        self.settings = settings
        self.evaluator = evaluator
        self._module = module
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaluation")
        self._pending: Future[None] | None = None

    def record(
        self,
        line: Mapping[str, Any],
        arrays: Arrays,
        state: Mapping[str, Any],
        local_models: Sequence[Arrays] = (),
        prior: Floats | None = None,
    ) -> None:
        """Save the model of one round and evaluate it in the background."""
        self.wait()
        self.run.check()
        number = line["round"]
        local = self.settings.evaluate == "local"
        if local:  # first, because they are not saved: a run interrupted here repeats this round
            self._evaluate(dict(line), arrays, local_models, prior)
        self.run.save_state(number, state)
        extra = {} if prior is None else {TRAINED_FOR: prior.tolist()}
        about = {**line, HAS_STATE: bool(state), **extra}
        self.run.save_model(LAST_MODEL, arrays, about)
        self.run.drop_states_before(number)
        self.run.drop_client_versions(number)
        if not local and self.callbacks.wait:
            self._evaluate(dict(line), arrays, [arrays], prior)
        elif not local:
            self._pending = self._pool.submit(self._evaluate, dict(line), arrays, [arrays], prior)

    def wait(self) -> None:
        """Wait for the running evaluation; raises its errors."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Wait for the running evaluation and stop the background thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()

    def best(self) -> Mapping[str, Any] | None:
        """Line of the best round so far."""
        return best_line(self.run.lines, self.settings.selection)

    def _evaluate(
        self,
        line: dict[str, Any],
        arrays: Arrays,
        measured: Sequence[Arrays],
        prior: Floats | None,
    ) -> None:
        number, forgetting = line["round"], self.settings.measure_forgetting
        errors: Errors = {}
        started = time.perf_counter()
        if self.evaluator and self.settings.is_evaluated(number):
            errors = self.evaluator.errors(measured, prior)
        of_models = {
            **{key: errors.get(key) for key in ERRORS},
            **({} if prior is None else {PRIOR_ERROR: errors.get(PRIOR_ERROR)}),
            "validation_loss": errors.get("validation_loss"),
            **({"labeled_error": errors.get("labeled_error")} if forgetting else {}),
            "seconds_evaluation": time.perf_counter() - started,
        }
        refuse_other_keys(of_models)
        line |= of_models
        if self.callbacks.wait:
            of = (self.settings, self.run.path, self._module)
            seen = EvaluatedRound(number, arrays, line, self.run.lines, *of)
            line |= self.callbacks.after_round(seen)
            self.run.check()  # they may have taken long
        if best_line([*self.run.lines, line], self.settings.selection) is line:
            # Save before writing the line: a run interrupted here evaluates this round again.
            self.run.save_model(BEST_MODEL, arrays, {"round": number})
        self.run.add_line(line)
        log(INFO, "Round %s: %s", number, _readable(line))
        self.callbacks.recorded(self.run.lines)


def _readable(line: Mapping[str, Any]) -> str:
    words = {
        "test error": ("test_error", "%"),
        "validation error": ("validation_error", "%"),
        "held-out loss": ("heldout_loss", ""),
        "surrogate loss": ("surrogate_loss", ""),
        "chance": ("surrogate_chance", ""),
        "loss": ("loss", ""),
        "time": ("seconds", " s"),
    }
    return ", ".join(
        f"{word} {np.round(line[key], 4)}{unit}"
        for word, (key, unit) in words.items()
        if line.get(key) is not None
    )


BEST, LAST, UNSCALED, REWEIGHED = "best", "last", "unscaled", "reweighed"
"""Predictions that are measured: those of the best round's model and of the last round's; and of
the best one before temperature scaling, and re-weighed for the class priors of the test inputs."""


def measure_models(
    recorder: Recorder, trained: Floats | None, num_shares: int = 0
) -> dict[str, Any]:
    """Measure the models of the best and the last round, in one pass over the test set each, and
    write ``measures.json``; the summary's entries.

    With ``calibration = "validation"`` the best model gets its temperature first.
    """
    settings, evaluator = recorder.settings, recorder.evaluator
    selected = recorder.best()
    best, last = selected or recorder.run.lines[-1], recorder.run.lines[-1]
    about: dict[str, Any] = {
        "test_prior": None if trained is None else trained.tolist(),
        "test_prior_source": None if trained is None else settings.test_prior_source,
        "validation_balanced_error": best.get("validation_balanced_error"),
    }
    if trained is not None:
        about[PRIOR_ERROR] = best.get(PRIOR_ERROR)
    if evaluator is None:
        return about
    # Without a criterion for the best round no best model was saved.
    name = BEST_MODEL if selected else LAST_MODEL
    arrays, header = recorder.run.load_model(name)
    if settings.calibration == "validation" and selected:
        points = evaluator.validation
        fitted = fit_temperature(evaluator.logits(arrays, points), points.labels)
        header |= {TEMPERATURE: fitted}
        recorder.run.save_model(BEST_MODEL, arrays, header)
    temperature = header.get(TEMPERATURE)  # of class shares, else
    if temperature is not None:
        about["temperature"] = temperature
    if settings.evaluate == "local" and best.get("test_balanced_error") is not None:
        about["balanced_accuracy"] = 100 - best["test_balanced_error"]
    test = evaluator.test
    to_estimate = settings.test_prior == "em" and trained is not None
    to_measure = settings.evaluate == "global" and len(test.points) > 0
    if not (to_estimate or to_measure):
        return about

    from scipy.special import softmax  # slow to load, and needed at a run's end only

    inputs = np.arange(len(test.inputs), dtype=np.int64) if to_estimate else test.points
    logits = evaluator.logits(arrays, test, inputs)
    posteriors = {BEST: softmax(logits / (temperature or 1), axis=1)}
    if temperature is not None:
        posteriors[UNSCALED] = softmax(logits, axis=1)
    if to_estimate:
        assert trained is not None
        prior = estimate_prior(posteriors[BEST], trained)
        posteriors[REWEIGHED] = reweigh(posteriors[BEST], trained, prior)
        posteriors = {key: rows[test.points] for key, rows in posteriors.items()}
        about["test_prior_estimate"] = prior.tolist()
        predicted = posteriors[REWEIGHED].argmax(axis=1)
        about["test_error_reweighed"] = (
            100 * float(np.mean(predicted != test.labels)) if len(predicted) else None
        )
    if not to_measure:
        return about
    if best["round"] == last["round"]:
        posteriors[LAST] = posteriors.get(UNSCALED, posteriors[BEST])
    else:
        logits = evaluator.logits(recorder.run.load_model(LAST_MODEL)[0], test)
        posteriors[LAST] = softmax(logits, axis=1)
    measured = {
        key: Measured(round=(last if key == LAST else best)["round"], **measures(rows, test.labels))
        for key, rows in posteriors.items()
    }
    about |= measured[BEST].model_dump(include={*NUMBERS} - {"error"})
    about["ece_bins"] = BINS
    if 0 < num_shares <= len(test.labels):
        wrong = posteriors[BEST].argmax(axis=1) != test.labels
        drawn = stream(settings.seed, "test shares").permutation(len(wrong))
        shares = np.array_split(wrong[drawn], num_shares)
        about["test_error_by_share"] = [100 * float(share.mean()) for share in shares]
    about["measures"] = {key: one.model_dump(exclude={*DETAILS}) for key, one in measured.items()}
    recorder.run.store(measures=measured)
    return about
