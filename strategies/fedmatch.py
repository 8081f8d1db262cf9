"""FedMatch (Jeong et al. 2021): separate averages of sigma and psi, helpers, sparse differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from logging import WARNING
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common import log
from numpy.typing import NDArray
from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.auto_settings import unresolved
from fedul_flwr.config.base import AUTO
from fedul_flwr.config.method_settings import ViewSettings, Weight
from fedul_flwr.config.shared import MORE_THAN_MODELS
from fedul_flwr.data.run_files.store import RunDirectory
from fedul_flwr.data.types import below, l2_norm
from fedul_flwr.errors import NoUpdateError
from fedul_flwr.learning.parts import (
    SIGMA,
    Parts,
    compose,
    decompose,
    flatten,
    unflatten,
    unlabeled_part,
)
from fedul_flwr.strategies.fedmatch_parts import ClientModelCache, PartsCodec, WholeParts, is_stale

WITH_PARTS = kit.only_with("fedmatch.decomposition", True)
WITH_HELPERS = kit.only_without("fedmatch.helpers", 0)


class FedMatchSettings(kit.Settings):
    """FedMatch: inter-client consistency and disjoint learning of sigma and psi."""

    table: ClassVar[str] = "fedmatch"
    consistency_weight: Weight = 1e-2
    """Weight λ_ICCS of the consistency loss Φ (eq. 2)."""
    l2_weight: Annotated[Weight, WITH_PARTS] = 10.0
    """Weight λ_L2 of ‖σ − ψ‖² (eq. 5)."""
    l1_weight: Annotated[Weight, WITH_PARTS] = 1e-4
    """Weight λ_L1 of ‖ψ‖₁ (eq. 5); the text has 1e-5 with labels at the server."""
    threshold: kit.AdaptiveConfidence = kit.ADAPTIVE
    """Smallest top probability (τ) with which a point is trained on. `adaptive` is the mean top
    probability of a client's unlabeled points by the model that it received, so some point always
    reaches it; 0.85 in the text, 0.75 in the authors' code."""
    helpers: Annotated[int, Field(ge=0)] = 2
    """Number of other clients' models (H) that vote on pseudo labels and are targets of the
    consistency loss; 0 is FedMatch without inter-client consistency."""
    helper_interval: Annotated[int, Field(ge=1), WITH_HELPERS] = 10
    """Helpers are sent in every round whose number is a multiple of this."""
    keep_helpers: Annotated[bool, WITH_HELPERS] = False
    """Whether clients reuse their last helpers in the rounds between; not in the authors' code."""
    decomposition: bool = True
    """Whether the model's weights are θ = σ + ψ, with σ trained on labeled and ψ on unlabeled
    points; otherwise both train θ."""
    evaluate_with: Annotated[Literal["both", "sigma", "psi"], WITH_PARTS] = "both"
    """Weights of the model that is evaluated and saved: σ + ψ, or one of them alone (ablation)."""
    psi_cutoff: Annotated[Weight, WITH_PARTS] = 5e-6
    """Values of ψ smaller than this in magnitude count as 0 at evaluation; 1e-5 in the authors'
    code with labels at the server."""
    difference_threshold: Annotated[Weight, kit.only_with("secure-sum", "off")] = 5e-5
    """Changes of a weight smaller than this in magnitude are not sent, in either direction; 1e-5 in
    the authors' code with labels at the server; 0 sends all."""


PSI_FACTOR = 0.2
"""Initial psi as a multiple of the initial sigma (authors' code)."""
STATE = "parts/"
"""Prefix of the parts in a resumed run's state."""
FARTHEST = 3.0
"""With a robust base: largest distance of a helper's parts from the combined ones, in median
distances of the round's clients."""
UNFIT_BASES = (*MORE_THAN_MODELS, "local")
"""Bases that depend on local training, and so need a whole model."""


class FedMatchStrategy(kit.Strategy):
    """Combines sigma and psi separately, by a base that treats each value independently.

    Flower's rounds pass on the evaluated model theta; its parts are stored here.
    """

    codec: PartsCodec
    goes_with = (
        kit.only_without("base", *UNFIT_BASES, why="it combines sigma and psi apart"),
        kit.only_without("frozen-rounds", why="it trains sigma and psi of all layers"),
        kit.only_without("server.when", "parallel"),
        kit.only_with("closed-form.every", 0, AUTO, why="it trains models in parts"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counters: kit.Arrays = {}

    def make_codec(self) -> PartsCodec:
        """A codec for sparse differences of the parts, or in a secure sum for whole parts."""
        build = WholeParts if self.settings.sums_updates else PartsCodec
        return build(
            ClientModelCache(RunDirectory(Path(self.settings.output)).exchanged),
            self.options.difference_threshold,
            cutoff=self.options.psi_cutoff,
            returned=self._returned,
            helpers_of=self._helpers_of,
            on_update=self._on_update,
            compose=self._model,
        )

    @classmethod
    def validate(cls, settings: kit.RunConfig) -> None:
        """Also refuse helpers in secure sums, and steps that diverge."""
        super().validate(settings)
        options = settings[FedMatchSettings]
        if settings.sums_updates and options.helpers:
            raise kit.UserError(
                f"Setting fedmatch.helpers = {options.helpers}: a helper is a single client's "
                "model, which nobody reads with secure-sum = 'on'; choose 0.",
                "method-mismatch",
                setting="fedmatch.helpers",
            )
        l2 = options.l2_weight if options.decomposition else 0.0
        # Gradient descent on λ_L2·‖σ − ψ‖² converges for smaller steps only (Polyak 1964).
        limit = (1 + settings.momentum) / l2 if l2 else math.inf
        chosen = "learning-rate" not in unresolved(settings)
        if settings.optimizer == "sgd" and chosen and settings.learning_rate >= limit:
            raise kit.UserError(
                f"Setting learning-rate = {settings.learning_rate}: with fedmatch.l2-weight = {l2} "
                f"psi would overshoot sigma in every step; it must be below {limit:g}.",
                "setting-out-of-range",
                setting="learning-rate",
            )

    @property
    def options(self) -> FedMatchSettings:
        """Settings in table ``fedmatch``."""
        return self.settings[FedMatchSettings]

    @cached_property
    def helpers(self) -> learning.HelperChoice:
        """Choice of each client's helpers."""
        return learning.HelperChoice(self.settings, self.registry.model_shape, self.num_classes)

    def _returned(self, parts: Parts) -> list[str]:
        """Parts that clients return: not sigma if only the server trains it, but in a secure sum,
        where they return what they get."""
        at_server = self.learns_at_server(self.settings) and not self.settings.sums_updates
        return [part for part in parts if not (at_server and part == SIGMA)]

    # The model

    def before_round(self, round: kit.RoundAtServer) -> None:
        """Take the model apart before the first round, and train sigma on the server's labels."""
        if not self.codec.parts:
            factor = PSI_FACTOR if self.options.decomposition else None
            trained = bool(self.settings.start_from)
            model = kit.to_arrays(round.model)
            self.codec.parts = decompose(model, self.model_buffers, factor, whole=trained)
        current = self.codec.parts[unlabeled_part(self.codec.parts)]
        self._counters = {n: array.numpy() for n, array in round.model.items() if n not in current}
        super().before_round(round)

    @property
    def buffers(self) -> frozenset[str]:
        """Batch-norm statistics, which belong to psi, the part for unlabeled points."""
        last = unlabeled_part(self.codec.parts)
        current = self.codec.parts[last]
        return frozenset(f"{last}/{name}" for name in self.model_buffers & current.keys())

    def to_combine(self, arrays: ArrayRecord) -> ArrayRecord:
        """The parts that clients return."""
        del arrays
        parts = self.codec.parts
        return kit.to_record(flatten({part: parts[part] for part in self._returned(parts)}))

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """Train sigma on the server's labels with psi fixed (algorithm 2, lines 4 to 8).

        The model travels in parts: ``arrays`` are only what it is evaluated as.
        """
        del arrays
        assert self.trainer is not None  # as `learns_at_server` says
        weight = self.settings[kit.SupervisedPartSettings].supervised_weight
        plan = self.trainer.plan(round_number, self.rate_factor)
        decomposed = learning.Decomposed(
            learning.move_model(self.trainer.model, plan.device, plan.precision), self.codec.parts
        )
        result = learning.train_disjoint(
            decomposed,
            self.trainer.batches(plan),
            learning.DisjointLoss(learning.scaled_cross_entropy(weight), learning.no_consistency),
            plan,
            self.trainer.rng(round_number),
        )
        self.codec.parts = decomposed.dump()
        return kit.to_record(self._model(self.codec.parts)), result.supervised

    def combine(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        """Let the base combine parts; the model is their sum."""
        received, metrics = list(replies), None
        lost = [reply.metadata.src_node_id for reply in received if is_stale(reply)]
        stale = len(lost)
        for node in lost:
            self.record.owners.pop(node, None)
        if stale:  # their state is lost; the next message to them has everything
            text = "Round %s: %s client(s) did not hold what they should, and sit it out."
            log(WARNING, text, self.record.round, stale)
        try:
            combined, metrics = super().combine(server_round, received)
        except NoUpdateError:
            if not stale:
                raise  # else the model stays
        else:
            arrays = kit.to_arrays(combined)
            if self.settings.base in kit.ROBUST and self.options.helpers:
                self._leave_out_far_helpers(arrays)
            self.codec.parts |= unflatten(arrays)
        self.record.clients -= stale
        self.codec.drop_unanswered()
        return kit.to_record(self._model(self.codec.parts)), metrics

    def _model(self, parts: Parts) -> kit.Arrays:
        """The model from ``parts`` that is evaluated and saved."""
        options = self.options
        return compose(parts, options.evaluate_with, options.psi_cutoff) | self._counters

    # Helpers

    def _helpers_of(self, client: int) -> list[kit.Arrays]:
        """The helpers' psi, in rounds in which helpers are sent."""
        options, codec = self.options, self.codec
        if not options.helpers or self.record.round % options.helper_interval:
            return []
        chosen = self.helpers.helpers_of(client, options.helpers, codec.cache.rounds)
        return [codec.cache.of(helper)[unlabeled_part(codec.parts)] for helper in chosen]

    def _leave_out_far_helpers(self, combined: kit.Arrays) -> None:
        """With a robust base: let nobody be a helper whose parts it would hardly have counted.

        A client is left out if the distance of its parts from the combined ones is more than
        :data:`FARTHEST` times the median distance. The combined parts and the median are within the
        range of the honest clients as long as these are more than half.
        """
        distances = {}
        for client, received in self.codec.received.items():
            parts = flatten(received)
            distances[client] = l2_norm(
                parts[name].astype(np.float64) - array for name, array in combined.items()
            )
        middle = median(distances.values())
        names = {client.partition_id: client for client in self.registry.clients}
        for client, distance in sorted(distances.items()):
            if distance > FARTHEST * middle:
                self.helpers.forget(client)
                text = "Round %s: %s helps nobody: its weights are %.3g from the combined ones, "
                text += "the median is %.3g."
                log(WARNING, text, self.record.round, names[client], distance, middle)

    def _on_update(self, client: int, parts: Parts) -> None:
        if self.options.helpers:
            self.helpers.embed(client, compose(parts) | self._counters)

    # Resuming

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """The base's state, the parts, clients' last exchanges, and embeddings."""
        parts = {STATE + name: array for name, array in flatten(self.codec.parts).items()}
        state = parts | self.codec.cache.state_dict() | self.helpers.state_dict()
        return super().state_dict() | state

    def resume(self, state: Mapping[str, NDArray[Any]], rounds_done: int) -> None:
        """Go on with the state from :meth:`state_dict`."""
        super().resume(state, rounds_done)
        self.codec.parts = unflatten(below(STATE, state))
        self.codec.cache.load_state_dict(state)
        self.helpers.load_state_dict(state)


def shown_by_helpers(settings: kit.RunConfig) -> Iterator[str]:
    """What helpers show of an owner."""
    if settings[FedMatchSettings].helpers:
        yield (
            "Each owner gets parts of other owners' models, which were trained on these owners' "
            "points alone."
        )


METHOD = kit.Method(
    name="fedmatch",
    line="FedMatch: consistency with similar clients' models, in two parts sent sparsely.",
    needs="labels for some points of clients or of the server, and clients' other points",
    paper="Jeong et al., ICLR 2021, arXiv:2006.12097",
    strategy=FedMatchStrategy,
    client="fedul_flwr.client_apps.fedmatch:FedMatchClient",
    settings=(
        kit.LabelSettings,
        kit.ScenarioSettings,
        ViewSettings,
        kit.ServerTrainingSettings,
        kit.WeakViewSettings,
        FedMatchSettings,
    ),
    data="partly-labeled",
    unprotected=shown_by_helpers,
    needs_labels=False,
)
