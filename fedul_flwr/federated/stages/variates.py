"""SCAFFOLD at a client: it trains with variates, and sends the change of its own."""

from __future__ import annotations

from typing import Any

from fedul_flwr import learning
from fedul_flwr.arrays import Arrays
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import LARGEST_COUNT, Value
from fedul_flwr.federated.messages import SETUP
from fedul_flwr.federated.payload import (
    ANY,
    AVERAGED,
    TRAIN,
    WEIGHTS,
    Part,
    Payload,
)
from fedul_flwr.federated.stage import ClientStage, Stage, Train
from fedul_flwr.learning.variates import (
    CONTROL,
    USED_ROUND,
    VARIATE_ROUNDS,
    confirmed,
    proposal,
    variate_rounds,
)


class AtClient(ClientStage):
    """Corrects each step by the difference of the server's variate and its own."""

    _change: Arrays | None = None

    def register(self) -> dict[str, Value]:
        """In which rounds it had the variates that it has."""
        return {VARIATE_ROUNDS: variate_rounds(self.client.state.load(CONTROL, LARGEST_COUNT))}

    def training(self, train: Train) -> Train:
        """Training with variates in place of ``train``."""
        del train

        def trained(model: Any, task: Any, round: Any, rng: Any) -> Any:
            used, state = int(round.config[USED_ROUND]), self.client.state
            variate = confirmed(state.load(CONTROL, round.number), used)
            result, renewed, self._change = learning.train_with_variates(
                model,
                task,
                round.plan,
                rng,
                variates=(round.received[CONTROL], variate),
                option=str(round.config["scaffold-option"]),
            )
            state.save(CONTROL, round.number, proposal(variate, used, renewed, round.number))
            return result

        return trained

    def after(self, payload: Payload) -> Payload:
        """With the change of its variate, if it has trained."""
        return payload if self._change is None else {**payload, CONTROL: self._change}


class Variates(Stage):
    """Clients of SCAFFOLD."""

    client = AtClient
    sent = {
        SETUP: {
            VARIATE_ROUNDS: Part(ANY, says="of which rounds it still has its correction (variate)")
        },
        TRAIN: {
            CONTROL: Part(
                WEIGHTS,
                says="the change of its correction (variate), a mean of gradients",
                reader=AVERAGED,
            )
        },
    }

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``base = "scaffold"``."""
        return settings.base == "scaffold"
