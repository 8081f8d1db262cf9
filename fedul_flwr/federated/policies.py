"""Which clients take part in a round: one policy for each kind of data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from logging import INFO, WARNING

import numpy as np
from flwr.common import log
from numpy.typing import NDArray

from fedul_flwr.config.method_settings import (
    AdmissionSettings,
    FedULSettings,
    LabelSourceSettings,
    StageSettings,
    fewer_sets,
)
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.set_priors import (
    ILL_CONDITIONED,
    identifiable_directions,
    stacked_rank,
)
from fedul_flwr.data.types import Content, count, number, numbers
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.client_data import PartlyLabeledData, UnlabeledSetData, data_class_of
from fedul_flwr.federated.members import ClientRegistry, ClientReport
from fedul_flwr.federated.messages import (
    client_label,
    quote_client_text,
)
from fedul_flwr.federated.nodes import (
    ClientRef,
)
from fedul_flwr.federated.stage import sums_of
from fedul_flwr.federated.stages.class_priors import OF_SETS

LABELED_SHARE = 0.6
"""Smallest fraction of a round's clients that have labels, if some clients have none (XCLP: 3 of
5)."""


class ClientPolicy:
    """Accepts every client, and samples from all of them.

    Parameters
    ----------
    registry : the clients of the run.
    """

    def __init__(self, registry: ClientRegistry) -> None:
        self.registry, self.num_classes = registry, registry.num_classes

    @property
    def settings(self) -> RunConfig:
        """The run's settings."""
        return self.registry.settings

    def accept(self, report: ClientReport, answer: Content) -> None:
        """Check a client's answer to ``setup``; set ``report.reason`` to refuse the client.

        It is called again for a client that was restarted.

        Raises
        ------
        BadMessageError
            If the answer is malformed; the client counts as failed.
        UserError
            If the run must not start with such a client. Later in the run the client is refused
            instead.
        """

    def changed(self, answers: Mapping[int, Content]) -> None:
        """Use the answers of all accepted clients, by partition; called when one was added."""

    def sample(self, round_number: int) -> list[ClientRef]:
        """Clients of a round: all, or as many as `fraction-train` says, drawn from the seed."""
        registry, size = self.registry, self.registry.sample_size
        if size == len(registry.clients):
            return registry.clients
        return sorted(registry.draw(registry.clients, size, "sample", round_number))

    def stage_start(self, round_number: int) -> int:
        """First round of the stage of training that a round belongs to."""
        del round_number
        return 1


class SetAdmission(ClientPolicy):
    """Clients with unlabeled sets, each of which has checked its own.

    Those whose sets cannot be used end the run or are left out (``on-client-failure``).
    """

    def __init__(self, registry: ClientRegistry) -> None:
        super().__init__(registry)
        self._alike: dict[int, float | None] = {}
        """Condition numbers of clients whose sets are alike, until they are logged."""

    def accept(self, report: ClientReport, answer: Content) -> None:
        """Take the result of the client's check; refuse where the client refused itself."""
        condition, reason = (answer.values.get(key) for key in ("condition-number", "reason"))
        if not isinstance(condition, float) or not isinstance(reason, str):
            raise BadMessageError(
                "the result of the check of its sets is missing", "message-incomplete"
            )
        report.condition_number = condition if np.isfinite(condition) else None
        report.reason = quote_client_text(reason) if reason else ""
        if self.settings[AdmissionSettings].share_priors:
            report.priors = self._priors(answer).tolist()
            report.set_sizes = [int(size) for size in numbers(answer, "set-sizes")]
            if min(report.set_sizes, default=0) < 0 or sum(report.set_sizes) != report.num_points:
                raise BadMessageError(
                    "the sizes of its sets are not those of its points", "message-contradicts"
                )
        if report.reason:
            label = client_label("Client", report.id, report.name)
            text = f"{label} cannot take part: {report.reason}."
            if self.settings.on_client_failure == "stop":
                raise UserError(f"{text} {self._remedy(answer)}", "client-refused")
            log(WARNING, text)
        elif report.condition_number is None or report.condition_number > ILL_CONDITIONED:
            self._alike[report.id] = report.condition_number

    def _remedy(self, answer: Content) -> str:
        """Settings with which a run can go on that a client's refusal has ended."""
        drop = "on-client-failure = 'continue' leaves such clients out"
        num_sets = answer.values.get("num-sets")
        options = self.settings[AdmissionSettings]
        needs_all = isinstance(options, FedULSettings) and not options.fewer_sets
        if not (needs_all and isinstance(num_sets, int) and num_sets < self.num_classes):
            return f"Setting {drop}."
        return (
            f"Ways out: {self.num_classes} sets or more (fedul.num-sets in a simulation); "
            "method = 'fedllp', for which one set is enough; fedul.fewer-sets = true, if clients' "
            f"sets together tell all classes apart; or {drop}."
        )

    def changed(self, answers: Mapping[int, Content]) -> None:
        """Refuse priors that clients have shared and whose stack has a rank below K."""
        self._log_alike()
        options = self.settings[AdmissionSettings]
        few = fewer_sets(options)
        if OF_SETS in sums_of(self.settings):
            return  # a sum tells
        if not options.share_priors:
            text = "Rank of all clients' priors not checked: they are not shared."
            more = " Whether their sets together tell the classes apart is for the owners to know."
            log(WARNING if few else INFO, text + more * few)
            return
        priors = [self._priors(answer) for answer in answers.values()]
        rank = stacked_rank([prior_matrix.T @ prior_matrix for prior_matrix in priors])
        if rank < self.num_classes:
            raise UserError(
                f"The class priors of all clients together have rank {rank}, below "
                f"{self.num_classes} classes: no method can tell the classes apart.",
                "priors-rank",
            )
        if few:
            self.check_directions(identifiable_directions(priors))

    def _log_alike(self) -> None:
        """Say in one line for all clients where class priors of sets have no rank K, or hardly."""
        below = [str(client) for client, condition in self._alike.items() if condition is None]
        large = {str(client): c for client, c in self._alike.items() if c is not None}
        self._alike = {}
        if below:
            some = ", ".join(below)
            text = "Alone, the sets of %s clients do not tell all classes apart: %s"
            log(WARNING, text, len(below), some)
        if large:
            some, most = ", ".join(large), max(large.values())
            text = (
                "Class shares of sets are nearly alike (condition number to %.3g) at %s clients: %s"
            )
            log(WARNING, text, most, len(large), some)

    def check_directions(self, directions: int) -> None:
        """Refuse a run with few sets a client whose sets together leave a ratio open."""
        if directions < self.num_classes - 1:
            raise UserError(
                f"The sets of all clients together determine {directions} of the "
                f"{self.num_classes - 1} ratios between the classes' posteriors: with "
                "fedul.fewer-sets a client of M sets determines at most M - 1 of them.",
                "priors-rank",
            )

    def _priors(self, answer: Content) -> NDArray[np.float64]:
        flat, shape = (
            numbers(answer, "priors"),
            (count(answer, "num-sets"), self.num_classes),
        )
        if flat.size != shape[0] * shape[1]:
            raise BadMessageError(
                f"it sent {flat.size} class priors, not {shape[0]} x {shape[1]}", "message-form"
            )
        return flat.reshape(shape)


class LabeledClients(ClientPolicy):
    """Clients that say how many labels they have.

    Attributes
    ----------
    labeled, unlabeled : clients that have some, and those that have none.
    """

    def __init__(self, registry: ClientRegistry) -> None:
        super().__init__(registry)
        self.labeled: list[ClientRef] = []
        self.unlabeled: list[ClientRef] = []

    def accept(self, report: ClientReport, answer: Content) -> None:
        """Take how many labels a client has."""
        report.num_labeled = count(answer, "num-labeled")
        if report.num_points is not None and report.num_labeled > report.num_points:
            raise BadMessageError("it announced more labels than points", "message-contradicts")

    def changed(self, answers: Mapping[int, Content]) -> None:
        """Remember who has labels; somebody must, or the first weights must tell classes apart."""
        having = {part for part, values in answers.items() if number(values, "num-labeled") > 0}
        side = self.settings[LabelSourceSettings].labels_at
        stages = self.settings.find(StageSettings)
        needed = find_method(self.settings.method).needs_labels
        # First weights may take the place of labels.
        needed = needed or bool(stages and stages.labels_only_rounds)
        if not having and side == "clients" and (needed or not self.settings.start_from):
            advice = " (with scenario.labels-at = 'server' the server learns them)"
            text = "No client has a label: there is nothing to learn classes from"
            raise UserError(
                f"{text}{advice * ('scenario' in self.settings.sections)}.", "labels-missing"
            )
        clients = self.registry.clients
        self.labeled = [client for client in clients if client.partition_id in having]
        self.unlabeled = [client for client in clients if client.partition_id not in having]


class LabelStages(LabeledClients):
    """Two stages: labels alone at first, then also what a method makes of unlabeled points.

    In the first stage only clients with labels are sampled; in the second stage they are a fixed
    share of each round's clients, so that no round is without labels.
    """

    unlabeled_learn = True
    """Whether clients without any label have something to learn from in the second stage."""

    @property
    def _labels_only_rounds(self) -> int:
        stages = self.settings.find(StageSettings)
        return stages.labels_only_rounds if stages else 0

    def on_labels_only(self, round_number: int) -> bool:
        """Whether a round belongs to the first stage."""
        return round_number <= self._labels_only_rounds

    def stage_start(self, round_number: int) -> int:
        """Round 1, or the first round of the second stage."""
        return 1 if self.on_labels_only(round_number) else self._labels_only_rounds + 1

    def sample(self, round_number: int) -> list[ClientRef]:
        """As many as ``fraction-train`` says, with or without labels as the stage says."""
        size = self.registry.sample_size
        if self.on_labels_only(round_number) or not self.unlabeled_learn:
            with_labels, without = min(size, len(self.labeled)), 0
        else:
            # 0.56 * 25 is a little more than 14, which is no reason for a fifteenth.
            least = math.ceil(round(LABELED_SHARE * size, 9))
            without = min(size - least, size - 1, len(self.unlabeled))
            with_labels = min(size - without, len(self.labeled))
            without = min(size - with_labels, len(self.unlabeled))
        return sorted(
            self.registry.draw(self.labeled, with_labels, "sample", round_number)
            + self.registry.draw(self.unlabeled, without, "sample unlabeled", round_number)
        )


class LabeledClientStages(LabelStages):
    """Labeled clients alone, in both stages if there are two."""

    unlabeled_learn = False


def policy_for(settings: RunConfig) -> type[ClientPolicy]:
    """The policy for the data of a run's method."""
    data = data_class_of(settings)
    if issubclass(data, UnlabeledSetData):
        return SetAdmission
    if issubclass(data, PartlyLabeledData):
        return LabelStages if settings.find(StageSettings) else LabeledClients
    return ClientPolicy
