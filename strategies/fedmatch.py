"""FedMatch (Jeong et al. 2021): separate averages of sigma and psi, helpers, sparse differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from flwr.app import ArrayRecord
from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.auto_settings import unresolved
from fedul_flwr.config.base import AUTO
from fedul_flwr.config.method_settings import ViewSettings, Weight
from fedul_flwr.config.shared import MORE_THAN_MODELS
from fedul_flwr.federated.stages.server_training import learns_at_server
from fedul_flwr.learning.parts import (
    SIGMA,
    Parts,
    compose,
    decompose,
    flatten,
    unflatten,
    unlabeled_part,
)
from fedul_flwr.strategies.fedmatch_parts import PartsTravel, SparseParts

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


PARTS = "parts"
"""Name of the parts in the state of a run."""
PSI_FACTOR = 0.2
"""Initial psi as a multiple of the initial sigma (authors' code)."""
UNFIT_BASES = (*MORE_THAN_MODELS, "local")
"""Bases that depend on local training, and so need a whole model."""


class FedMatchStrategy(kit.Strategy):
    """Combines sigma and psi separately, by a base that treats each value independently.

    Flower's rounds pass on the evaluated model theta; its parts are stored here.
    """

    state = {PARTS: {}}
    goes_with = (
        kit.only_without("base", *UNFIT_BASES, why="it combines sigma and psi apart"),
        kit.only_without("frozen-rounds", why="it trains sigma and psi of all layers"),
        kit.only_without("server.when", "parallel"),
        kit.only_with("closed-form.every", 0, AUTO, why="it trains models in parts"),
    )

    @property
    def parts(self) -> Parts:
        """The server's parts; empty before they are first needed."""
        return unflatten(self.state[PARTS])

    @property
    def returned(self) -> list[str]:
        """Parts that clients return: not sigma if only the server trains it, but in a secure sum,
        where they return what they get."""
        at_server = learns_at_server(self.settings) and PartsTravel.is_on(self.settings)
        return [part for part in self.parts if not (at_server and part == SIGMA)]

    @property
    def counters(self) -> kit.Arrays:
        """Arrays of the round's model that are in no part."""
        parts = self.parts
        current = parts[unlabeled_part(parts)]
        return {name: array for name, array in self._whole.items() if name not in current}

    def _take_apart(self, model: ArrayRecord) -> None:
        """The parts of the first model; later ones are known."""
        self._whole = kit.to_arrays(model)
        if not self.state[PARTS]:
            factor = PSI_FACTOR if self.options.decomposition else None
            trained = bool(self.settings.start_from)
            parts = decompose(self._whole, self.model_buffers, factor, whole=trained)
            self.state[PARTS] = flatten(parts)

    def choose_clients(self, round: kit.RoundAtServer) -> Sequence[kit.ClientRef]:
        """The sample, which starts from the parts that it returns."""
        self._take_apart(round.model)
        parts = self.parts
        last = unlabeled_part(parts)  # batch-norm statistics belong to it
        names = self.model_buffers & parts[last].keys()
        self.buffers = frozenset(f"{last}/{name}" for name in names)
        round.model = kit.to_record(flatten({part: parts[part] for part in self.returned}))
        round.whole = lambda arrays: self._model(parts | unflatten(arrays))
        return super().choose_clients(round)

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """Train sigma on the server's labels with psi fixed (algorithm 2, lines 4 to 8).

        The model travels in parts: ``arrays`` are only what it is evaluated as.
        """
        self._take_apart(arrays)
        assert self.trainer is not None  # as `trains_at_server` says
        weight = self.settings[kit.SupervisedPartSettings].supervised_weight
        plan = self.trainer.plan(round_number)
        decomposed = learning.Decomposed(
            learning.move_model(self.trainer.model, plan.device, plan.precision), self.parts
        )
        result = learning.train_disjoint(
            decomposed,
            self.trainer.batches(plan),
            learning.DisjointLoss(learning.scaled_cross_entropy(weight), learning.no_consistency),
            plan,
            self.trainer.rng(round_number),
        )
        self.state[PARTS] = flatten(decomposed.dump())
        return kit.to_record(self._model(self.parts)), result.supervised

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """The sum of the parts, of which some were combined."""
        combined = kit.to_arrays(model)
        for stage in self.stages:
            if isinstance(stage, SparseParts):
                stage.leave_out_far_helpers(combined)
        self.state[PARTS] = {**self.state[PARTS], **combined}
        return super().after_train(kit.to_record(self._model(self.parts)))

    def _model(self, parts: Parts) -> kit.Arrays:
        """The model from ``parts`` that is evaluated and saved."""
        options = self.options
        return compose(parts, options.evaluate_with, options.psi_cutoff) | self.counters


def shown_by_helpers(settings: kit.RunConfig) -> Iterator[str]:
    """What helpers show of an owner."""
    if settings[FedMatchSettings].helpers:
        yield (
            "Each owner gets parts of other owners' models, which were trained on these owners' "
            "points alone."
        )


def check_settings(settings: kit.RunConfig) -> None:
    """Refuse helpers in secure sums, and steps that diverge."""
    options = settings[FedMatchSettings]
    if options.helpers and not PartsTravel.is_on(settings):
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
    stages=(PartsTravel,),
    check=check_settings,
)
