"""Clients that go on from models of their own (``base = "local"``)."""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr.arrays import Arrays
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.messages import ARRAYS, OWN_MODEL, WEIGHT
from fedul_flwr.federated.payload import MODEL, TRAIN, Part, Payload
from fedul_flwr.federated.stage import ClientStage, Stage


class AtClient(ClientStage):
    """Stores its model after each round, and begins with it."""

    def start(self, arrays: Arrays, number: int) -> Arrays:
        """Its own model, if it has one."""
        self._number = number
        return self.client.state.load(OWN_MODEL, number) or arrays

    def after(self, payload: Payload) -> Payload:
        """Store the model that it has trained."""
        if payload[WEIGHT]:
            model = learning.dump_arrays(self.client.model)
            self.client.state.save(OWN_MODEL, self._number, model)
        return payload


class OwnModel(Stage):
    """Nothing is combined."""

    client = AtClient
    sent = {TRAIN: {ARRAYS: Part(MODEL, says="the model after local training")}}

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``base = "local"``."""
        return settings.base == "local"
