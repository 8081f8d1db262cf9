"""Supervised learning with the given labels, without unlabeled points: the lower bound in
FedMatch's comparison, at the clients or at the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr import method as kit
from fedul_flwr.baselines.all_labels import labeled_task
from fedul_flwr.data.split import label_scenario

AT_SERVER = (
    kit.NO_TURNS,
    kit.only_with("evaluate", "global", why="no client trains"),
    kit.only_without("max-update-norm", why="no client trains"),
    kit.only_with("secure-sum", "off", why="no client trains"),
)
"""Rules where no client has a label."""


class GivenLabels(kit.Strategy):
    """The base strategy on the clients that have labels, or training at the server only.

    With labels at the server it trains as before every round of FedMatch, and no client takes part.
    With labels at clients the clients of a round are sampled from those that have some.
    """

    policy_class = kit.AssignedLabelClients

    @classmethod
    def validate(cls, settings: kit.RunConfig) -> None:
        """Also refuse settings about clients' models if labels are at the server."""
        super().validate(settings)
        if cls.learns_at_server(settings):
            kit.require(settings, *AT_SERVER)

    def configure_round(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """With labels at the server, train there and send no message."""
        if not self.learns_at_server(self.settings):
            return super().configure_round(server_round, arrays, config, grid)
        arrays = self.before_round(server_round + self.round_offset, arrays)
        self.begin_round(server_round, arrays)
        return []

    def aggregate_round(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The base's mean, or the model that the server has trained."""
        if not self.learns_at_server(self.settings):
            return super().aggregate_round(server_round, replies)
        return self.after_train(self.global_arrays), None

    def summary(self) -> None:
        """Log which base is used, or that none is."""
        if not self.learns_at_server(self.settings):
            super().summary()
            return
        log(INFO, "\t├──> %s: no client takes part", type(self).__name__)


class GivenLabelsClient(kit.Client[kit.PartlyLabeledData]):
    """Trains on all of its labeled points in every round; they do not arrive in steps."""

    def task(self, round: kit.Round) -> kit.Task:
        """The labeled points."""
        return labeled_task(self.data, self.data.labeled, round)


DISCLOSURES = (
    *kit.only_when(lambda settings: label_scenario(settings) == "clients", kit.PARTLY_LABELED),
    *kit.only_when(lambda settings: label_scenario(settings) != "clients", kit.DESCRIBE_ONLY),
)
"""Sent by a client; with labels at the server, which it is."""


METHOD = kit.Method(
    name="given-labels",
    line="Trains on the given labels and nothing else, at clients or at the server.",
    needs="labels for some points of clients or of the server",
    paper="rival in Jeong et al., ICLR 2021, arXiv:2006.12097",
    strategy=GivenLabels,
    client=GivenLabelsClient,
    disclosures="fedul_flwr.baselines.given_labels:DISCLOSURES",
    settings=(
        kit.LabelSettings,
        kit.LabelSourceSettings,
        kit.SupervisedPartSettings,
        kit.ServerTrainingSettings,
    ),
    data="partly-labeled",
)
