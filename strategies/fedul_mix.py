"""Bi-objective FedUL, method 2: a model trained at the server is mixed into the aggregated one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from flwr.app import ArrayRecord
from pydantic import Field

from fedul_flwr import method as kit
from fedul_flwr.federated.combine import mix
from fedul_flwr.federated.stages.server_training import turn_of
from fedul_flwr.strategies.fedul import FedULStrategy


class FedULMixSettings(kit.Settings):
    """Mixing FedUL's model with one trained at the server (bi-objective FedUL, method 2)."""

    table: ClassVar[str] = "fedul-mix"
    mixing_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight lambda of the server's model f' in (1 − lambda)·f + lambda·f'."""
    independent: Literal["restart", "persistent"] = "restart"
    """Whether f' restarts from the aggregated f in every round, or continues from its own last
    round."""


INDEPENDENT = "independent"
"""Name of f' in the state of a run, if it is persistent."""


class FedULMix(FedULStrategy):
    """FedUL with f ← (1 − lambda)·f + lambda·f′ after every aggregation; f′ learns from labels."""

    trains_at_server = True
    server_order = "after"
    goes_with = (kit.NOT_ALONE, kit.only_without("server.when", "parallel"))
    state = {**FedULStrategy.state, INDEPENDENT: {}}

    @property
    def mixing(self) -> FedULMixSettings:
        """Settings in table ``fedul-mix``: lambda, and how f′ starts each round."""
        return self.settings[FedULMixSettings]

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """Train f′ and mix it into ``arrays`` (procedure C, method 2)."""
        start = arrays
        if self.mixing.independent == "persistent":
            # In the first round f′ starts from the initial global model.
            before = self.state[INDEPENDENT]
            first = self.round.model if turn_of(self.settings) == "after" else arrays
            start = kit.to_record(before) if before else first
        independent, loss = super().learn_labels(start, round_number)
        if self.mixing.independent == "persistent":
            self.state[INDEPENDENT] = kit.to_arrays(independent)
        return mix(arrays, independent, self.mixing.mixing_weight), loss


METHOD = kit.Method(
    name="fedul-mix",
    line="FedUL with M2: the server mixes the combined model with one trained on its labels.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes; "
    "classes that look alike at all clients; labeled points at the server",
    paper="A Bi-Objective Optimization Approach for Enhancing FedUL, project report",
    strategy=FedULMix,
    client="fedul_flwr.client_apps.fedul:FedULClient",
    settings=(kit.FedULSettings, kit.ServerTrainingSettings, FedULMixSettings),
)
