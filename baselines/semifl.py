"""SemiFL: labels at the server, which trains after the clients (Diao, Ding & Tarokh 2022).

With settings of table ``semifl`` it is (FL)² (Lee, Le, Shin & Lee 2024), which begins the same way.
With ``semifl.alignment`` the classes of pseudo labels are as frequent as those of the labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, Message

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.static_batch_norm import StaticBatchNorm, num_arrived
from fedul_flwr.config.method_settings import StrongViewSettings, Weight
from fedul_flwr.config.shared import MORE_THAN_MODELS, UNWEIGHTED
from fedul_flwr.federated.messages import metric
from fedul_flwr.learning.task import Report

if TYPE_CHECKING:
    from torch import Tensor


class SemiFLSettings(kit.Settings):
    """SemiFL (Diao et al. 2022), and what (FL)² adds to it (Lee et al. 2024)."""

    table: ClassVar[str] = "semifl"
    threshold: kit.AdaptiveConfidence = 0.95
    """Smallest top probability, by the model that a client received, of the points that it trains
    on. `adaptive` is (FL)²'s: the mean top probability of the client's points, less for classes
    that the model seldom predicts there."""
    mix_weight: Weight = 1.0
    """Weight of the loss of points mixed with others, sure or not; (FL)² has 0."""
    learning_status: Annotated[
        bool,
        kit.only_without("base", *UNWEIGHTED),
        kit.only_without("client-weights", "examples"),
    ] = False
    """Weigh clients by 1 − the mean top probability of their points ((FL)²): those whose points the
    model knows least count most. They send that number. Otherwise `client-weights` counts."""
    alignment: bool = False
    """Whether a client scales its points' probabilities before it makes pseudo labels, so that the
    mean over the last round's clients is the class shares of the server's labels. Only with a
    server whose labels have about the clients' shares. Clients send the mean of theirs."""
    sharpness: Weight = 0.0
    """Radius ρ of (FL)²'s consistency between the weights and the worst ones near them; 0 leaves it
    out, (FL)² has 0.1, and 1 for CIFAR-100. A step then costs three times as much."""


MOMENTUM = "momentum"
"""Name of the server's momentum in the state of a run."""
FACTORS = "class-factors"
"""Value that the server sends: what a client multiplies the classes' probabilities by."""
MEAN_POSTERIOR = "mean-posterior"
"""Metric of a client: the mean of its points' posteriors, before they are aligned."""
MEAN_TOP = "mean-top-probability"
"""Metric of a client: the mean top probability of its points, by the model that it received."""
LARGEST_GRADIENT = 1.0
"""Norm to which the gradient of a step is cut (authors' code)."""


def of_method(plan: learning.LocalPlan) -> learning.LocalPlan:
    """The plan of a round at clients and server: Nesterov's momentum, and gradients cut."""
    return replace(plan, nesterov=True, max_gradient_norm=LARGEST_GRADIENT)


def labeled_loss(network: learning.Network, batch: kit.Batch) -> Tensor:
    """Cross-entropy; running statistics of batch norm do not change."""
    from torch.nn import functional

    with network.frozen_statistics():
        return functional.cross_entropy(network(batch.inputs), batch.targets)


REPORTS = {
    **kit.CONFIDENT,
    MEAN_TOP: kit.Part(
        at_least=0,
        at_most=1,
        says="how sure the model is of its points",
        when=lambda settings: settings[SemiFLSettings].learning_status,
    ),
    MEAN_POSTERIOR: kit.Part(
        "classes",
        combine="keep",
        at_least=0,
        total=1,
        says="the mean of its points' posteriors by the model that it received, a number for each "
        "class",
        when=lambda settings: settings[SemiFLSettings].alignment,
    ),
}
"""What a client reports; the last two by the model that it received."""


class SemiFL(kit.Strategy):
    """The base strategy on clients with sure points, then training at the server.

    The server's momentum lives on between rounds. The model stays where no client is sure of a
    point. Statistics of batch norm are those of :class:`StaticBatchNorm`.
    """

    trains_at_server = True
    server_order = "after"
    stays = True
    goes_with = (
        kit.only_with("scenario.labels-at", "server", why="the server trains on its labels"),
        kit.only_without("base", *MORE_THAN_MODELS, why="its momentum lives on"),
    )
    state = {MOMENTUM: {}, FACTORS: None}

    def client_config(self) -> dict[str, kit.Value]:
        """The classes' factors, once a round has shown which classes the model predicts."""
        factors = self.state[FACTORS]
        return {} if factors is None else {FACTORS: factors}

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """``arrays`` after a round of training on cross-entropy of the server's labels."""
        assert self.trainer is not None  # as `trains_at_server` says
        momentum = self.state[MOMENTUM]
        return self.trainer.train(arrays, round_number, labeled_loss, of_method, momentum)

    def weigh(self, replies: Sequence[Message]) -> kit.Floats:
        """Weights of the mean: with ``semifl.learning-status`` 1 − the mean top probability."""
        if not self.settings[SemiFLSettings].learning_status:
            return super().weigh(replies)
        weights = np.array([1 - metric(reply, MEAN_TOP) for reply in replies])
        return weights if weights.any() else np.ones(len(replies))

    def after_round(self, reports: Mapping[str, Any]) -> None:
        """The classes' factors of the next round, from the mean posterior of all points."""
        if not reports:  # no client was sure of a point
            self.record.metrics[kit.CONFIDENT_SHARE] = 0.0
        elif self.settings[SemiFLSettings].alignment:
            assert self.trainer is not None
            answers = [self.registry.answers[one.partition_id] for one in self.round.updated]
            counts = [num_arrived(self.settings, one, self.round.number) for one in answers]
            mean = np.average(reports[MEAN_POSTERIOR], axis=0, weights=counts)
            labels, total = self.trainer.label_counts(), float(sum(counts))
            self.state[FACTORS] = learning.class_factors(labels, mean, total)


class SemiFLClient(kit.SemiSupervisedClient):
    """Trains on points that the received model is sure of, and on mixtures with others.

    Pseudo labels are made once a round. The momentum lives on between its rounds.
    """

    reports = REPORTS

    def plan_of(self, plan: learning.LocalPlan) -> learning.LocalPlan:
        """With the method's form of steps."""
        return of_method(plan)

    def task(self, round: kit.Round) -> kit.Task:
        """The points of the fix set; nothing where it is empty."""
        data, options = self.data, self.settings[SemiFLSettings]
        points = data.examples.points[data.arrived(data.unlabeled, round.number)]
        inputs, views = data.examples.inputs, self.labeling_views(round.number)
        posteriors = self.posteriors(inputs, points, round, views)
        aligned = posteriors
        if FACTORS in round.config:
            aligned = learning.aligned(posteriors, round.config[FACTORS].to(posteriors))
        selection = learning.select(aligned, options.threshold)
        # With K added where a point is sure, as the loss expects it.
        targets = (selection.labels + self.num_classes * selection.sure).numpy()
        chosen = selection.chosen.nonzero()[:, 0].numpy()
        loss = learning.FixMixLoss(
            data.num_classes,
            learning.strong_view(self.settings, from_weak=True),
            learning.augmented_view(self.settings),
            options.mix_weight,
            options.sharpness,
        )
        reports: dict[str, Report] = {kit.CONFIDENT_SHARE: len(chosen) / max(len(points), 1)}
        if options.learning_status:
            reports[MEAN_TOP] = selection.mean_top
        if options.alignment:
            reports[MEAN_POSTERIOR] = posteriors.mean(dim=0)
        batches = learning.fix_mix_batches(inputs, points, targets, chosen, round.plan)
        return kit.Task(batches, loss, reports, stores_momentum=True)


METHOD = kit.Method(
    name="semifl",
    line="SemiFL: the server trains after clients, which trust and mix its sure predictions.",
    needs="labeled points at the server, and clients' unlabeled points",
    paper="Diao, Ding and Tarokh, NeurIPS 2022, arXiv:2106.01432",
    strategy=SemiFL,
    client=SemiFLClient,
    settings=(
        *(kit.LabelSettings, kit.ScenarioSettings, StrongViewSettings),
        *(kit.ServerTrainingSettings, SemiFLSettings),
    ),
    data="partly-labeled",
    can_sum=False,
    stages=(StaticBatchNorm,),
)
