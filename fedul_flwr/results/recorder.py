"""What the server keeps of every round: errors, traffic, the best model, a point to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from logging import INFO
from typing import Any

import numpy as np
from flwr.common import log

from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.data.types import Arrays
from fedul_flwr.results.store import BEST_MODEL, RunDirectory
from fedul_flwr.run.evaluation import Errors, Evaluator

AddRound = Callable[[Mapping[str, Any]], None]

CRITERION = {"validation": "validation_error", "heldout": "heldout_loss", "last": "round"}
"""Key of a metrics line by which the best round is chosen, per ``selection``; least is best,
but for ``last``."""


class Recorder:
    """Evaluates and records every round's model in the background of the next round.

    Evaluation needs no client, and the clients of the next round need no evaluation: in a round in
    which some core has nothing to do it is free. Only clients' own models (``evaluate = "local"``)
    are evaluated before the round is kept.

    Parameters
    ----------
    directory : the run's directory.
    settings : the run's settings, with ``selection`` resolved.
    evaluator : ``None`` where the server has no data.
    add_round : gets every line once it is in ``metrics.jsonl``.
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
    ) -> None:
        """Keep the model of one round and evaluate it in the background.

        Parameters
        ----------
        line : the round's figures so far, with key ``round``.
        arrays : its model.
        state : memory of the base strategy.
        local_models : its clients', evaluated in its place where ``evaluate = "local"``.
        """
        self.wait()
        number = line["round"]
        local = self.settings.evaluate == "local"
        if local:  # first: they are kept nowhere, and a run cut off here trains this round again
            self._evaluate(dict(line), arrays, local_models)
        self.directory.save_state(number, state)
        self.directory.save_model(LAST_MODEL, arrays, line)
        self.directory.drop_states_before(number)
        self.directory.drop_client_versions(number)
        if not local:
            self._pending = self._pool.submit(self._evaluate, dict(line), arrays, [arrays])

    def wait(self) -> None:
        """Wait for the evaluation under way; its errors come out here."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Finish what is under way."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()

    def best(self) -> dict[str, Any] | None:
        """Line of the best round so far."""
        key = CRITERION[self.settings.selection]
        known = [line for line in self.lines if line.get(key) is not None]
        if not known:
            return None
        if key == "round":
            return known[-1]
        return min(known, key=lambda line: float(line[key]))  # the earliest of equals

    def _evaluate(self, line: dict[str, Any], arrays: Arrays, measured: Sequence[Arrays]) -> None:
        number = line["round"]
        errors = Errors()
        started = time.perf_counter()
        if self.evaluator and self.settings.is_evaluated(number):
            errors = self.evaluator.errors(measured)
        line |= {
            "test_error": errors.test,
            "validation_error": errors.validation,
            "validation_loss": errors.validation_loss,
            **({"labeled_error": errors.labeled} if self.settings.measure_forgetting else {}),
            "seconds_evaluation": time.perf_counter() - started,
        }
        self.lines.append(line)
        if self.best() is line:
            # Before its line: a run that is cut off here evaluates this round again.
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
