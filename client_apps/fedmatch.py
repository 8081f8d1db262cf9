"""FedMatch's client (algorithms 1 and 2): sigma from labels, psi from unlabeled points."""

from __future__ import annotations

import copy

import numpy as np
from flwr.common.typing import NDArrays
from flwr.common.typing import Scalar as FlowerScalar
from torch import nn

from client_apps.local import TrainingData
from client_apps.matching import MatchingClient
from fedul_flwr.data.seeds import stream
from fedul_flwr.exchange import HELD, HELPERS, OUT_OF_STEP, SINCE
from fedul_flwr.learning.decomposition import (
    SIGMA,
    Decomposed,
    Parts,
    compose,
    flatten,
    unflatten,
    unlabeled_part,
)
from fedul_flwr.learning.disjoint import Penalties, train_disjoint
from fedul_flwr.learning.inter_client import InterClientConsistency
from fedul_flwr.learning.local import dump_arrays, load_arrays
from fedul_flwr.learning.machine import keep_freed_memory, place, release_freed_memory
from fedul_flwr.learning.weighted import scaled_cross_entropy
from fedul_flwr.settings.matching import FedMatchSettings
from fedul_flwr.sparse import decode, encode


class FedMatchClient(MatchingClient):
    """Learns the parts of the weights apart, and exchanges what has changed of them.

    No message has a model: records are named after parts and hold sparse differences
    (:mod:`fedul_flwr.sparse`).
    """

    @property
    def options(self) -> FedMatchSettings:
        """FedMatch's own settings."""
        return self.settings.section("fedmatch", FedMatchSettings)

    def array_names(self) -> list[str]:
        """None: the model travels in parts."""
        return []

    def fit(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """One round of local training."""
        del parameters  # there are none, see array_names
        keep_freed_memory()
        self.server_round = int(config["server-round"])
        held = self._held(int(config[SINCE]))
        if held is None:
            return [], 0, _figures(out_of_step=1)
        parts = {
            part: decode(record, held.get(part, {}))
            for part, record in self.received.items()
            if part != HELPERS
        }
        data = self.training_data()
        trained, figures = parts, _figures()
        if len(data.points):
            trained, figures = self._train(data, parts, config)
        updates = {
            part: encode(trained[part], parts[part], self.options.difference_threshold)
            for part in self._sent(parts)
        }
        self.returned = {part: update.record for part, update in updates.items()}
        kept = parts | {part: update.kept for part, update in updates.items()}
        exchanged = {SINCE: np.array(self.server_round)}
        self.state.keep(HELD, self.server_round, flatten(kept) | exchanged)
        release_freed_memory()
        return [], len(data.points), figures

    def _held(self, since: int) -> Parts | None:
        """The parts of the exchange in round ``since``, none of round 0; ``None`` if not there."""
        if since == 0:
            return {}
        kept = self.state.recall(HELD, self.server_round)
        if not kept or int(kept.pop(SINCE)) != since:
            return None
        return unflatten(kept)

    def _sent(self, parts: Parts) -> list[str]:
        """Parts that the server is told of: not sigma where only the server changes it."""
        at_server = self.scenario.labels_at == "server"
        return [part for part in parts if not (at_server and part == SIGMA)]

    def _train(
        self, data: TrainingData, parts: Parts, config: dict[str, FlowerScalar]
    ) -> tuple[Parts, dict[str, FlowerScalar]]:
        options, plan = self.options, self.plan(config)
        model = place(self.model, plan.device, plan.dtype)
        decomposed = Decomposed(model, parts)
        consistency = InterClientConsistency(
            self._helpers(parts, int(config[HELPERS])),
            options.consistency_weight,
            options.threshold,
            self.views.operations,
            self.views.magnitudes,
        )
        result = train_disjoint(
            decomposed,
            self.batches(data, plan),
            scaled_cross_entropy(self.views.supervised_weight),
            consistency,
            plan,
            stream(self.settings.seed, "local", self.server_round, self.node.partition_id),
            Penalties(options.l2_weight, options.l1_weight),
        )
        confident = consistency.confident / max(consistency.points, 1)
        figures = _figures(
            result.supervised, result.consistency, result.steps, confident, len(consistency.helpers)
        )
        return decomposed.dump(), figures

    def _helpers(self, parts: Parts, count: int) -> list[nn.Module]:
        """Models of the helpers: this client's sigma with a psi of theirs (algorithm 1, line 14).

        Parameters
        ----------
        parts : what the round starts from; helpers came as differences from its psi.
        count : how many came in this round.
        """
        name = unlabeled_part(parts)
        sent = unflatten(self.received.get(HELPERS, {}))
        found = {
            str(number): decode(sent.get(str(number), {}), parts[name]) for number in range(count)
        }
        if self.options.keep_helpers:
            if found:
                self.state.keep(HELPERS, self.server_round, flatten(found))
            else:
                found = unflatten(self.state.recall(HELPERS, self.server_round))
        return [self._model_of(parts | {name: own}) for own in found.values()]

    def _model_of(self, parts: Parts) -> nn.Module:
        model = copy.deepcopy(self.model)
        load_arrays(model, dump_arrays(model) | compose(parts))
        return model


def _figures(
    supervised: float = 0.0,
    consistency: float = 0.0,
    steps: int = 0,
    confident: float = 0.0,
    helpers: int = 0,
    out_of_step: int = 0,
) -> dict[str, FlowerScalar]:
    """What a client says of its round; always the same keys, as bases demand."""
    return {
        "loss": supervised + consistency,
        "supervised-loss": supervised,
        "consistency-loss": consistency,
        "confident-share": confident,
        "num-helpers": helpers,
        "steps": steps,
        OUT_OF_STEP: out_of_step,
    }
