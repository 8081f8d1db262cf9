"""Measures of a finished run's models on the server's test set, and its warnings."""

from __future__ import annotations

from logging import WARNING
from typing import Any, NamedTuple

import numpy as np
from flwr.common import log

from fedul_flwr.config.run_config import LAST_MODEL
from fedul_flwr.data.class_priors import estimate_prior, reweigh
from fedul_flwr.data.run_files.store import BEST_MODEL, MEASURES, TEMPERATURE
from fedul_flwr.data.types import UNLABELED, Floats, Ints, LabeledPoints
from fedul_flwr.learning.temperature import fit_temperature
from fedul_flwr.run.evaluation import Evaluator
from fedul_flwr.run.measures import BINS, DETAILS, NUMBERS, Measured, measures
from fedul_flwr.run.recorder import Recorder
from fedul_flwr.run.run_warnings import (
    one_class_warning,
    shares_warning,
    training_warnings,
)

BEST, LAST, UNSCALED, REWEIGHED = "best", "last", "unscaled", "reweighed"
"""Predictions that are measured: those of the best round's model and of the last round's; and of
the best one before temperature scaling, and re-weighed for the class priors of the test inputs."""


class Outcome(NamedTuple):
    """Entries for the summary, and the measures of all predictions by their names."""

    summary: dict[str, Any]
    measures: dict[str, Measured]


def measure_models(recorder: Recorder, trained: Floats | None) -> Outcome:
    """Measure the models of the best and the last round, in one pass over the test set each.

    With ``calibration`` the best model gets its temperature first, from validation points.

    Parameters
    ----------
    trained : ``(K,)``, the class priors that the models were trained for; None if there are none.
    """
    settings, evaluator = recorder.settings, recorder.evaluator
    kept = recorder.best()
    best, last = kept or recorder.lines[-1], recorder.lines[-1]
    about: dict[str, Any] = {
        "test_prior": None if trained is None else trained.tolist(),
        "test_prior_source": None if trained is None else settings.test_prior_source,
        "validation_balanced_error": best.get("validation_balanced_error"),
    }
    if trained is not None:
        about["validation_prior_error"] = best.get("validation_prior_error")
    if evaluator is None:
        return Outcome(about, {})
    # Without a criterion for the best round no best model was saved.
    name = BEST_MODEL if kept else LAST_MODEL
    temperature = None
    if settings.calibration == "temperature" and kept:
        temperature = about["temperature"] = _calibrate(recorder, evaluator)
    if settings.evaluate == "local" and best.get("test_balanced_error") is not None:
        about["balanced_accuracy"] = 100 - best["test_balanced_error"]
    test = evaluator.test
    to_estimate = settings.test_prior == "em" and trained is not None
    to_measure = settings.evaluate == "global" and len(test.points) > 0
    if not (to_estimate or to_measure):
        return Outcome(about, {})

    from scipy.special import softmax  # slow to load, and needed at a run's end only

    inputs = np.arange(len(test.inputs), dtype=np.int64) if to_estimate else test.points
    logits = evaluator.logits(recorder.directory.load_model(name)[0], test, inputs)
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
        return Outcome(about, {})
    if best["round"] == last["round"]:
        posteriors[LAST] = posteriors.get(UNSCALED, posteriors[BEST])
    else:
        logits = evaluator.logits(recorder.directory.load_model(LAST_MODEL)[0], test)
        posteriors[LAST] = softmax(logits, axis=1)
    found: dict[str, Measured] = {
        key: {"round": (last if key == LAST else best)["round"], **measures(rows, test.labels)}
        for key, rows in posteriors.items()
    }
    about |= {key: found[BEST][key] for key in NUMBERS if key != "error"}
    about["ece_bins"] = BINS
    about["measures"] = {
        key: {part: value for part, value in one.items() if part not in DETAILS}
        for key, one in found.items()
    }
    return Outcome(about, found)


def _calibrate(recorder: Recorder, evaluator: Evaluator) -> float:
    """Fit the best model's temperature on the validation points, and write it with the model."""
    arrays, header = recorder.directory.load_model(BEST_MODEL)
    validation = evaluator.validation
    found = fit_temperature(evaluator.logits(arrays, validation), validation.labels)
    recorder.directory.save_model(BEST_MODEL, arrays, {**header, TEMPERATURE: found})
    return found


def finish_measures(
    recorder: Recorder, shares: ShareCheck, trained: Floats | None
) -> dict[str, Any]:
    """Write ``measures.json`` (:func:`measure_models`); returns the summary's entries.

    Parameters
    ----------
    trained : ``(K,)``, the class priors that the models were trained for; None if there are none.
    """
    outcome = measure_models(recorder, trained)
    if outcome.measures:
        recorder.directory.write_json(MEASURES, outcome.measures, indent=None)
    warnings = [*training_warnings(recorder.lines).values(), shares.warning(trained)]
    if BEST in outcome.measures:
        best = outcome.measures[BEST]
        model, matrix = f"The model of round {best['round']}", np.asarray(best["confusion"])
        warnings.append(one_class_warning(matrix, shares.class_names, model, "test points"))
        if warnings[-1]:
            log(WARNING, "%s", warnings[-1])
    return {**outcome.summary, "warnings": [text for text in warnings if text]}


class ShareCheck:
    """Compares the class shares of the server's labeled points with the priors trained for.

    Parameters
    ----------
    recorder : of the run.
    of_server : labeled points that the server trains on, or None.
    class_names : K names.
    """

    def __init__(
        self, recorder: Recorder, of_server: LabeledPoints | None, class_names: tuple[str, ...]
    ) -> None:
        self.class_names = class_names
        self._settings = recorder.settings
        evaluator = recorder.evaluator
        parts = {
            "server's labeled points": of_server,
            "validation points": evaluator and evaluator.validation,
            "test points": evaluator and evaluator.test,
        }
        self._counts = {name: self._count(data.labels) for name, data in parts.items() if data}
        self._said = False

    def warning(self, prior: Floats | None) -> str | None:
        """The warning for the priors ``(K,)`` trained for, logged once; None if all is well."""
        if prior is None:
            return None
        advice = "set test-prior if these are the class shares to come"
        estimates = self._settings.test_prior == "em"
        found = shares_warning(self._counts, prior, self.class_names, "" if estimates else advice)
        if found and not self._said:
            log(WARNING, "%s", found)
            self._said = True
        return found

    def _count(self, labels: Ints) -> Ints:
        return np.bincount(labels[labels != UNLABELED], minlength=len(self.class_names))
