"""Owners whose points look different: each takes out of its features what they are off by.

Before the first head a masked sum says how far owners' features differ beside their class shares
(:mod:`fedul_flwr.learning.owner_effects`), and the server sends with each head what an owner's
offset follows from. The offset stays with the owner: heads and known errors are of features without
it, and the owner's model is the common one with biases of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from logging import INFO
from typing import Any

import numpy as np
from flwr.common import log

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content
from fedul_flwr.errors import TooFewLeftError
from fedul_flwr.federated.client import weight_type
from fedul_flwr.federated.messages import to_arrays
from fedul_flwr.federated.owner_offsets import are_taken_out, offset_of
from fedul_flwr.federated.payload import Sum
from fedul_flwr.federated.stage import ClientStage, Finished, RoundAtServer, ServerStage, Stage
from fedul_flwr.federated.stages.heads import features_of, head_names, too_few
from fedul_flwr.learning.owner_effects import (
    REFERENCE,
    EffectSums,
    Reference,
    effects_size,
    fit_effects,
)
from fedul_flwr.secure.words import FIXED

OF_EFFECTS = "owner-effects"
"""Name of the sum."""


def own_biases(client: Any, arrays: Arrays, reference: Reference) -> Arrays:
    """Biases of the last layer with which a client's model says of its points what the common one
    says of them without their offset: logits of x - δ are W x + (b - W δ)."""
    points = client.point_shares()
    features, _ = features_of(client, arrays, points.inputs, points.points)
    offset = offset_of(client, reference, features, points.points)
    weight, bias = head_names(client.settings, client.data.model_shape, client.num_classes)
    moved = arrays[bias] - arrays[weight].astype(np.float64) @ offset
    return {bias: moved.astype(arrays[bias].dtype)}


class AtServer(ServerStage):
    """Asks for the sum once, before the first head."""

    def begin(self, round: RoundAtServer) -> None:
        """Learn how far owners differ."""
        if REFERENCE[0] in self.state:
            return
        strategy, arrays = self.strategy, to_arrays(round.model)
        registry = strategy.registry
        if not registry.clients:
            strategy.registration.register_all(round.grid)
        name = head_names(self.settings, registry.model_shape, registry.num_classes)[0]
        shape = arrays[name].shape
        clients, values = registry.present(registry.clients), {"server-round": round.number}
        try:
            collect, size = strategy.sums.collect, effects_size(*shape)
            flat, _ = collect(round.grid, OF_EFFECTS, clients, size, arrays, values)
        except TooFewLeftError as error:
            raise too_few(error) from error
        made = fit_effects(EffectSums.of_flat(flat, *shape))
        kind = weight_type(self.settings)
        self.state |= {key: array.astype(kind) for key, array in made.arrays().items()}
        strategy.on_summed()
        same = "do not differ beside their class shares"
        differ = "differ beside their class shares: each takes its offset out of them"
        log(INFO, "Round %s: owners' points %s.", round.number, differ if made.ratio else same)

    @property
    def ratio(self) -> float:
        """λ; 0 where owners do not differ, or nobody was asked yet."""
        return float(self.state.get(REFERENCE[2], 0.0))

    def finish(self, run: Finished) -> Mapping[str, Any]:
        """How far owners differ."""
        del run
        return {"owners_differ": self.ratio}


class AtClient(ClientStage):
    """Sums over its features and class shares."""

    def part(self, of: str, content: Content) -> Floats | None:
        """Its sums."""
        if of != OF_EFFECTS:
            return None
        points = self.client.point_shares()
        stated = points.points[points.stated]
        features, _ = features_of(self.client, content.arrays, points.inputs, stated)
        return EffectSums.of(features, points.shares[points.stated]).flat()


class OwnersDiffer(Stage):
    """With ``closed-form.owners-differ``."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """Unless it is off."""
        return are_taken_out(settings)

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Sums in fixed point."""
        del settings
        says = (
            "how far its features are off: sums over its points of features by class and of their "
            "squares, less parts of those of its mean"
        )
        return {OF_EFFECTS: Sum.of(says, "once, in round 1", encoding=FIXED)}

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterator[str]:
        """What the server reads."""
        del settings
        yield "The server gets how far owners' features differ from each other, of all together."
