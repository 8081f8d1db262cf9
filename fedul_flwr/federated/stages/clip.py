"""Updates no longer than a bound: clients clip theirs, and the server refuses longer ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, Message

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.combine import clip_update, update_norm
from fedul_flwr.federated.messages import ARRAYS, to_arrays, to_record
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import Payload
from fedul_flwr.federated.replies import require_short
from fedul_flwr.federated.stage import ClientStage, ServerStage, Stage, are_hidden


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


class AtServer(ServerStage):
    """Refuses longer updates."""

    def keep(self, client: ClientRef, reply: Message) -> None:
        """Refuse an update that its client has not clipped."""
        del client
        start, norm = self.strategy.round.model, self.settings[DPSettings].norm
        check_clipped(cast(ArrayRecord, reply.content[ARRAYS]), start, norm)


class Clip(Stage):
    """Clients clip their updates to ``dp.norm``; under masks that is done where noise is added."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``dp.clipping = "client"``, where each client's update is read."""
        return settings[DPSettings].clipping == "client" and not are_hidden(settings)


def check_clipped(update: ArrayRecord, start: ArrayRecord, norm: float) -> None:
    """Check that a client has clipped its update to ``norm``, as ``dp.clipping = "client"`` says.

    Clipping in float32 is not exact: a thousandth of ``norm`` is allowed, and the rounding of
    ``start``'s values, to which the clipped update was added.
    """
    length = update_norm(update, start)
    rounding = math.sqrt(
        sum(
            float(np.finfo(array.dtype).eps * np.linalg.norm(array.numpy().astype(np.float64))) ** 2
            for array in start.values()
            if np.issubdtype(np.dtype(array.dtype), np.floating)
        )
    )
    require_short(length, 1.001 * norm + rounding, f"dp.norm = {norm:g}")
