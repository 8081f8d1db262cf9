"""Updates no longer than a bound: clients clip theirs, and the server refuses longer ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.combine import clip_update
from fedul_flwr.federated.messages import ARRAYS, to_arrays, to_record
from fedul_flwr.federated.payload import Payload
from fedul_flwr.federated.stage import ClientStage, Stage


class AtClient(ClientStage):
    """Shortens its update."""

    _start: ArrayRecord

    def before(self, asked: Asked, shares: Mapping[str, Any]) -> None:
        """Keep the model from which it starts."""
        del shares
        self._start = to_record(asked.records[ARRAYS])

    def after(self, payload: Payload) -> Payload:
        """The update, not longer than the norm."""
        clipped = to_record(payload[ARRAYS])
        clip_update(clipped, self._start, self.settings[DPSettings].norm)
        return {**payload, ARRAYS: to_arrays(clipped)}


class Clip(Stage):
    """Clients clip their updates to ``dp.norm``; under masks that is done where noise is added."""

    client = AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``dp.clipping = "client"``, where each client's update is read."""
        return settings[DPSettings].clipping == "client" and not settings.sums_updates
