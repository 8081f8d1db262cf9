"""Records of every round at the server: errors, traffic, best model, state for resuming."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from logging import INFO
from typing import Any

import numpy as np
from flwr.common import log

from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.data.run_files.best_round import best_line
from fedul_flwr.data.run_files.store import BEST_MODEL, HAS_STATE, TRAINED_FOR, RunDirectory
from fedul_flwr.data.types import Arrays, Floats
from fedul_flwr.run.evaluation import Errors, Evaluator

AddRound = Callable[[Mapping[str, Any]], None]


class Recorder:
    """Records every round's model, and evaluates it in the background of the next round.

    Evaluation and the next round do not depend on each other, so evaluation takes no extra time if
    a core is idle. Only clients' own models (``evaluate = "local"``) are evaluated before the round
    is recorded.

    Parameters
    ----------
    directory : the run's directory.
    settings : the run's settings, with ``selection`` resolved.
    evaluator : ``None`` if the server has no data.
    add_round : called with every line once it is in ``metrics.jsonl``.
    """

    def __init__(
        self,
        directory: RunDirectory,
        settings: RunConfig,
        evaluator: Evaluator | None,
        add_round: AddRound,
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.evaluator = evaluator
        self._add_round = add_round
        self.lines = directory.read_metrics()
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
        """Save the model of one round and evaluate it in the background.

        Parameters
        ----------
        line : the round's metrics so far, with key ``round``.
        arrays : the round's model.
        state : state for resuming.
        local_models : models of the round's clients, evaluated instead with ``evaluate = "local"``.
        prior : ``(K,)``, class priors that the model is trained for; None if there are none.
        """
        self.wait()
        self.directory.check()
        number = line["round"]
        local = self.settings.evaluate == "local"
        if local:  # first, because they are not saved: a run interrupted here repeats this round
            self._evaluate(dict(line), arrays, local_models, prior)
        self.directory.save_state(number, state)
        known = {} if prior is None else {TRAINED_FOR: prior.tolist()}
        about = {**line, HAS_STATE: bool(state), **known}
        self.directory.save_model(LAST_MODEL, arrays, about)
        self.directory.drop_states_before(number)
        self.directory.drop_client_versions(number)
        if not local:
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
        return best_line(self.lines, self.settings.selection)

    def _evaluate(
        self,
        line: dict[str, Any],
        arrays: Arrays,
        measured: Sequence[Arrays],
        prior: Floats | None,
    ) -> None:
        number = line["round"]
        errors = Errors()
        started = time.perf_counter()
        if self.evaluator and self.settings.is_evaluated(number):
            errors = self.evaluator.errors(measured, prior)
        line |= {
            "test_error": errors.test,
            "validation_error": errors.validation,
            "test_balanced_error": errors.test_balanced,
            "validation_balanced_error": errors.validation_balanced,
            **({} if prior is None else {"validation_prior_error": errors.validation_prior}),
            "validation_loss": errors.validation_loss,
            **({"labeled_error": errors.labeled} if self.settings.measure_forgetting else {}),
            "seconds_evaluation": time.perf_counter() - started,
        }
        self.lines.append(line)
        if self.best() is line:
            # Save before writing the line: a run interrupted here evaluates this round again.
            self.directory.save_model(BEST_MODEL, arrays, {"round": number})
        self.directory.append_metrics(line)
        self._add_round(line)
        log(INFO, "Round %s: %s", number, _readable(line))


def _readable(line: Mapping[str, Any]) -> str:
    words = {
        "test error": ("test_error", "%"),
        "validation error": ("validation_error", "%"),
        "held-out loss": ("heldout_loss", ""),
        "surrogate loss": ("surrogate_loss", ""),
        "loss": ("loss", ""),
        "time": ("seconds", " s"),
    }
    return ", ".join(
        f"{word} {np.round(line[key], 4)}{unit}"
        for word, (key, unit) in words.items()
        if line.get(key) is not None
    )
