"""Supervised learning with the given labels, without unlabeled points: the lower bound in
FedMatch's comparison, at the clients or at the server.
"""

from __future__ import annotations

from fedul_flwr import method as kit
from fedul_flwr.baselines.all_labels import labeled_task
from fedul_flwr.config.method_settings import LabelSourceSettings
from fedul_flwr.federated.stages.server_training import learns_at_server
from fedul_flwr.federated.strategy import NO_TURNS, require

AT_SERVER = (
    NO_TURNS,
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

    policy_class = kit.LabeledClientStages


class GivenLabelsClient(kit.SemiSupervisedClient):
    """Trains on all of its labeled points in every round; they do not arrive in steps."""

    def task(self, round: kit.Round) -> kit.Task:
        """The labeled points."""
        return labeled_task(self.data, self.data.labeled, round)


def check_settings(settings: kit.RunConfig) -> None:
    """Refuse settings about clients' models if labels are at the server."""
    if learns_at_server(settings):
        require(settings, *AT_SERVER)


METHOD = kit.Method(
    name="given-labels",
    line="Trains on the given labels and nothing else, at clients or at the server.",
    needs="labels for some points of clients or of the server",
    paper="rival in Jeong et al., ICLR 2021, arXiv:2006.12097",
    strategy=GivenLabels,
    client=GivenLabelsClient,
    settings=(
        kit.LabelSettings,
        LabelSourceSettings,
        kit.SupervisedPartSettings,
        kit.ServerTrainingSettings,
    ),
    data="partly-labeled",
    server_alone=learns_at_server,
    check=check_settings,
)
