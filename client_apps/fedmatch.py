"""FedMatch's client (algorithms 1 and 2): trains sigma on labeled, psi on unlabeled points."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.method_settings import ViewSettings
from fedul_flwr.federated.messages import BASE_ROUND, EXCHANGED, HELPERS, NORMALIZER, STALE, WEIGHT
from fedul_flwr.federated.payload import AVERAGED, HOW_TRAINING_WENT, MODEL, WEIGHTS, Payload
from fedul_flwr.learning.parts import (
    PSI,
    SIGMA,
    THETA,
    Parts,
    compose,
    decompose,
    flatten,
    unflatten,
    unlabeled_part,
)
from fedul_flwr.learning.task import Records
from fedul_flwr.strategies.fedmatch import FedMatchSettings
from fedul_flwr.strategies.fedmatch_parts import PartsTravel, decode, encode

if TYPE_CHECKING:
    from torch import nn


def _parts_of(settings: kit.RunConfig) -> tuple[str, ...]:
    """Parts that are sent to the server: not sigma if only the server trains it."""
    if not settings[FedMatchSettings].decomposition:
        return (THETA,)
    at_server = settings[kit.ScenarioSettings].labels_at == "server"
    return (PSI,) if at_server else (SIGMA, PSI)


def _metrics(
    supervised: float = 0.0,
    consistency: float = 0.0,
    steps: int = 0,
    confident: float = 0.0,
    helpers: int = 0,
    stale: int = 0,
) -> dict[str, float]:
    """Metrics of a round; always the same keys, as base strategies require."""
    return {
        "loss": supervised + consistency,
        "supervised-loss": supervised,
        "consistency-loss": consistency,
        kit.CONFIDENT_SHARE: confident,
        "num-helpers": helpers,
        "steps": steps,
        STALE: stale,
    }


def _of_part(part: str, shape: str) -> kit.Part:
    def is_sent(settings: kit.RunConfig) -> bool:
        return part in _parts_of(settings) and PartsTravel.is_on(settings)

    reader = AVERAGED if part == SIGMA else f"{AVERAGED}, and as a helper's some others"
    says = f"what has changed of the weights' part {part}"
    return kit.Part(shape, says=says, reader=reader, when=is_sent)


FEDMATCH = {
    "supervised-loss": kit.Part(says=HOW_TRAINING_WENT),
    "consistency-loss": kit.Part(says=HOW_TRAINING_WENT),
    "num-helpers": kit.Part.count(says=HOW_TRAINING_WENT),
    NORMALIZER: kit.Part(when=lambda _: False),  # no base that needs it goes with parts
    STALE: kit.Part.count(says=HOW_TRAINING_WENT, optional=True),
    **kit.CONFIDENT,
    kit.ARRAYS: kit.Part(
        MODEL,
        says="both parts of the weights after local training",
        when=lambda settings: not PartsTravel.is_on(settings),
    ),
    SIGMA: _of_part(SIGMA, WEIGHTS),
    PSI: _of_part(PSI, MODEL),
    THETA: _of_part(THETA, MODEL),
}
"""What a client sends of both parts of its training."""


class FedMatchClient(kit.SemiSupervisedClient):
    """Trains the parts of the weights separately, and exchanges only their changed values.

    Messages contain no whole model: records are named after parts and have sparse differences
    (:mod:`fedul_flwr.strategies.fedmatch_parts`).
    """

    reports = FEDMATCH

    def array_names(self) -> list[str]:
        """Empty, as parts travel in records of their own; in a secure sum those of the parts."""
        if PartsTravel.is_on(self.settings):
            return []
        factor = 1.0 if self.options.decomposition else None
        model = learning.dump_arrays(self.model)
        return [*flatten(decompose(model, frozenset(super().buffer_names()), factor, whole=True))]

    def buffer_names(self) -> list[str]:
        """Those of the part for unlabeled points."""
        part = PSI if self.options.decomposition else THETA
        return [f"{part}/{name}" for name in super().buffer_names()]

    def train(
        self, arrays: kit.Arrays, config: Mapping[str, Any], received: Records | None = None
    ) -> Payload:
        """One round of local training from the parts in ``received``."""
        learning.retain_freed_memory()
        if not PartsTravel.is_on(self.settings):
            parts = unflatten(arrays)
            trained, count, metrics = self._train_parts(parts, self.round(config, {}))
            learning.release_freed_memory()
            return {kit.ARRAYS: flatten(parts | trained), WEIGHT: count, **metrics}
        start: Parts = {}
        if since := int(config[BASE_ROUND]):
            stored = self.state.load(EXCHANGED, int(config["server-round"]))
            if not stored or int(stored.pop(BASE_ROUND)) != since:  # it is lost
                return {WEIGHT: 0, **_metrics(stale=1)}
            start = unflatten(stored)
        round = self.round(config, received)
        parts = {
            part: decode(record, start.get(part, {}))
            for part, record in round.received.items()
            if part != HELPERS
        }
        trained, count, metrics = self._train_parts(parts, round)
        updates = {
            part: encode(trained[part], parts[part], self.options.difference_threshold)
            for part in _parts_of(self.settings)
        }
        now = parts | {part: update.stored for part, update in updates.items()}
        exchanged = {BASE_ROUND: np.array(round.number)}
        self.state.save(EXCHANGED, round.number, flatten(now) | exchanged)
        learning.release_freed_memory()
        sent = {part: update.record for part, update in updates.items()}
        return {WEIGHT: count, **metrics, **sent}

    def _train_parts(self, parts: Parts, round: kit.Round) -> tuple[Parts, int, dict[str, float]]:
        """The parts after training, the number of points, and metrics."""
        options, plan = self.options, round.plan
        batches = self.data.labeled_and_unlabeled(round)
        if batches.num_points == 0:
            return parts, 0, _metrics()
        model = learning.move_model(self.model, plan.device, plan.precision)
        decomposed, views = learning.Decomposed(model, parts), self.settings[ViewSettings]
        consistency = learning.InterClientConsistency(
            self._helpers(parts, round),
            options.consistency_weight,
            self.smallest_top(options.threshold, round),
            learning.strong_view(self.settings),
            "lowest" if views.recipe == "release" else "own",
            learning.weak_view(self.settings),
        )
        loss = learning.DisjointLoss(
            learning.scaled_cross_entropy(views.supervised_weight),
            consistency,
            learning.Penalties(options.l2_weight, options.l1_weight),
        )
        rng = kit.stream(self.settings.seed, "local", round.number, self.node.partition_id)
        result = learning.train_disjoint(decomposed, batches, loss, plan, rng)
        metrics = _metrics(
            result.supervised,
            result.consistency,
            result.steps,
            consistency.confidence.share,
            len(consistency.helpers),
        )
        return decomposed.dump(), batches.num_points, metrics

    def _helpers(self, parts: Parts, round: kit.Round) -> list[nn.Module]:
        """Models of the helpers: this client's sigma with each helper's psi (algorithm 1, line 14).

        Helpers are sent as differences from the psi of ``parts``, those of the round's start.
        """
        name, count = unlabeled_part(parts), int(round.config.get(HELPERS, 0))
        sent = unflatten(round.received.get(HELPERS, {}))
        models = {
            str(number): decode(sent.get(str(number), {}), parts[name]) for number in range(count)
        }
        if self.options.keep_helpers:
            if models:
                self.state.save(HELPERS, round.number, flatten(models))
            else:
                models = unflatten(self.state.load(HELPERS, round.number))
        copies = [copy.deepcopy(self.model) for _ in models]
        for model, weights in zip(copies, models.values(), strict=True):
            learning.load_arrays(
                model, learning.dump_arrays(model) | compose(parts | {name: weights})
            )
        return copies
