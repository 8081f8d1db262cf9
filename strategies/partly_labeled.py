"""The server side of every method on partly labeled clients: two stages, and who is sampled."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedul_flwr.config.semi import SamplingSettings, StageSettings
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import Content
from fedul_flwr.federated.phases import count, number
from fedul_flwr.federated.registry import ClientRef, ClientReport
from fedul_flwr.federated.strategy import MethodStrategy


class PartlyLabeled(MethodStrategy):
    """Trains on labels alone at first, and then also on what a method makes of unlabeled points.

    In the first stage only clients with labels are sampled; in the second stage they are a fixed
    share of each round's clients, so that no round is without labels.
    """

    uses_unlabeled_clients = True
    """Whether clients without any label have something to learn from in the second stage."""

    @property
    def labeled_share(self) -> float:
        """Least part of a round's clients in the second stage that has labels."""
        return self.settings.section("semi", SamplingSettings).labeled_share

    def accept_client(self, report: ClientReport, answer: Content) -> None:
        """Take how many labels a client has."""
        report.num_labeled = count(answer, "num-labeled")

    def on_clients_changed(self, answers: Mapping[int, Content]) -> None:
        """Remember who has labels.

        Raises
        ------
        UserError
            If nobody has.
        """
        labeled = {part for part, told in answers.items() if number(told, "num-labeled") > 0}
        if not labeled:
            raise UserError("No client has a label: there is nothing to learn classes from.")
        clients = self.registry.clients
        self.labeled = [client for client in clients if client.partition_id in labeled]
        self.unlabeled = [client for client in clients if client.partition_id not in labeled]

    def on_labels_only(self, round_number: int) -> bool:
        """Whether a round belongs to the first stage."""
        return round_number <= self.settings.section("semi", StageSettings).labels_only_rounds

    def stage_start(self, round_number: int) -> int:
        """Round 1, or the first round of the second stage."""
        if self.on_labels_only(round_number):
            return 1
        return self.settings.section("semi", StageSettings).labels_only_rounds + 1

    def sample(self, round_number: int) -> list[ClientRef]:
        """As many as ``fraction-train`` says, of either kind as the stage says."""
        count = self.registry.sample_size
        if self.on_labels_only(round_number) or not self.uses_unlabeled_clients:
            with_labels, without = min(count, len(self.labeled)), 0
        else:
            # 0.56 * 25 is a little more than 14, which is no reason for a fifteenth.
            least = math.ceil(round(self.labeled_share * count, 9))
            without = min(count - least, count - 1)
            without = min(without, len(self.unlabeled))
            with_labels = min(count - without, len(self.labeled))
            without = min(count - with_labels, len(self.unlabeled))
        return sorted(
            self.registry.draw(self.labeled, with_labels, "sample", round_number)
            + self.registry.draw(self.unlabeled, without, "sample unlabeled", round_number)
        )
