"""FedMatch's client (algorithms 1 and 2): trains sigma on labeled, psi on unlabeled points."""

from __future__ import annotations

import copy

import numpy as np
from flwr.common.typing import NDArrays
from flwr.common.typing import Scalar as FlowerScalar
from torch import nn

from client_apps.matching import MatchingClient
from fedul_flwr.config.matching import FedMatchSettings, ScenarioSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Arrays
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.federated.disclosure import AVERAGED, EVERY_ROUND, TRAIN, Sent
from fedul_flwr.federated.messages import ARRAYS, METRICS
from fedul_flwr.federated.sparse import decode, encode
from fedul_flwr.federated.sync import BASE_ROUND, HELD, HELPERS, STALE
from fedul_flwr.learning.decomposition import (
    PSI,
    SIGMA,
    THETA,
    Decomposed,
    Parts,
    compose,
    decompose,
    flatten,
    unflatten,
    unlabeled_part,
)
from fedul_flwr.learning.disjoint import Penalties, train_disjoint
from fedul_flwr.learning.inter_client import InterClientConsistency
from fedul_flwr.learning.local import dump_arrays, load_arrays
from fedul_flwr.learning.machine import keep_freed_memory, place, release_freed_memory
from fedul_flwr.learning.weighted import scaled_cross_entropy


class FedMatchClient(MatchingClient):
    """Trains the parts of the weights separately, and exchanges only their changed values.

    Messages contain no whole model: records are named after parts and have sparse differences
    (:mod:`fedul_flwr.federated.sparse`).
    """

    @property
    def options(self) -> FedMatchSettings:
        """Settings in table ``fedmatch``."""
        return self.settings[FedMatchSettings]

    def array_names(self) -> list[str]:
        """Empty: the model is sent in parts."""
        return []

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Inherited entries, with parts of the weights in place of a model."""
        replaced = ((TRAIN, ARRAYS), (TRAIN, METRICS))
        sent = [e for e in super().sends(settings) if (e.phase, e.record) not in replaced]
        helps = settings[FedMatchSettings].helpers > 0
        for part in _parts_of(settings):
            as_it_is = helps and part != SIGMA
            reader = f"{AVERAGED}, and some this one as a helper's" if as_it_is else AVERAGED
            what = f"what has changed of the weights' part {part}"
            sent.append(Sent(TRAIN, ("*",), what, part, EVERY_ROUND, reader))
        names = ("num-examples", *_figures())
        what = "how many points it trained on and how it went"
        return [*sent, Sent(TRAIN, names, what, METRICS, EVERY_ROUND)]

    def update(self) -> dict[str, Arrays]:
        """The whole parts, as sent when server and client have had no exchange."""
        factor = self.options.psi_factor if self.options.decomposition else None
        buffers = {name for name, _ in self.model.named_buffers()}
        parts = decompose(self.model_arrays(), buffers, factor)
        return {part: parts[part] for part in _parts_of(self.settings)}

    def fit(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """One round of local training."""
        del parameters  # empty, see array_names
        keep_freed_memory()
        self.server_round = int(config["server-round"])
        held = self._held(int(config[BASE_ROUND]))
        if held is None:
            return [], 0, _figures(stale=1)
        self.count_validation(config)
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
            for part in _parts_of(self.settings)
        }
        self.returned = {part: update.record for part, update in updates.items()}
        kept = parts | {part: update.kept for part, update in updates.items()}
        exchanged = {BASE_ROUND: np.array(self.server_round)}
        self.state.keep(HELD, self.server_round, flatten(kept) | exchanged)
        release_freed_memory()
        return [], len(data.points), figures

    def _held(self, since: int) -> Parts | None:
        """Parts of the exchange in round ``since``: empty for round 0, ``None`` if lost."""
        if since == 0:
            return {}
        kept = self.state.recall(HELD, self.server_round)
        if not kept or int(kept.pop(BASE_ROUND)) != since:
            return None
        return unflatten(kept)

    def _train(
        self, data: TrainingData, parts: Parts, config: dict[str, FlowerScalar]
    ) -> tuple[Parts, dict[str, FlowerScalar]]:
        options, plan = self.options, self.plan(config)
        model = place(self.model, plan.device, plan.precision)
        decomposed = Decomposed(model, parts)
        consistency = InterClientConsistency(
            self._helpers(parts, int(config[HELPERS])),
            options.consistency_weight,
            options.threshold,
            self.strong_view,
            options.ties,
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
        """Models of the helpers: this client's sigma with each helper's psi (algorithm 1, line 14).

        Parameters
        ----------
        parts : parts at the start of the round; helpers are sent as differences from its psi.
        count : number of helpers sent in this round.
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


def _parts_of(settings: RunConfig) -> tuple[str, ...]:
    """Parts that are sent to the server: not sigma if only the server trains it."""
    if not settings[FedMatchSettings].decomposition:
        return (THETA,)
    at_server = settings[ScenarioSettings].labels_at == "server"
    return (PSI,) if at_server else (SIGMA, PSI)


def _figures(
    supervised: float = 0.0,
    consistency: float = 0.0,
    steps: int = 0,
    confident: float = 0.0,
    helpers: int = 0,
    stale: int = 0,
) -> dict[str, FlowerScalar]:
    """Metrics of a round; always the same keys, as base strategies require."""
    return {
        "loss": supervised + consistency,
        "supervised-loss": supervised,
        "consistency-loss": consistency,
        "confident-share": confident,
        "num-helpers": helpers,
        "steps": steps,
        STALE: stale,
    }
