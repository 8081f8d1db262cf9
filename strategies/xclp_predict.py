"""XCLP for prediction (section 4.1): one propagation, then every client labels its own points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from logging import WARNING
from typing import Annotated, ClassVar, Literal

import numpy as np
from flwr.common import log
from flwr.serverapp import Grid
from pydantic import Field

from fedul_flwr import method as kit
from fedul_flwr.config.base import only_with, only_without
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.shared import starts_from_names
from fedul_flwr.data.types import count
from fedul_flwr.federated.members import ClientReport
from fedul_flwr.federated.stage import open_all
from fedul_flwr.propagation.codes import SEED_BYTES
from fedul_flwr.propagation.phases import END, LABEL, LAST, NAMES, PREVIOUS_LABELS, UNOPENED
from fedul_flwr.propagation.server import (
    NOBODY,
    LabelPropagation,
    log_privacy,
    refuse_unfit_sizes,
    require_packages,
    warn_of_plaintext,
    wrong_sum,
)
from fedul_flwr.secure.similarity import TooFewClientsError
from fedul_flwr.strategies.xclp import shown_by_comparisons


class XCLPPredictSettings(kit.Settings):
    """Labels for the clients' own points, without training (XCLP, section 4.1)."""

    table: ClassVar[str] = "xclp-predict"
    features: Annotated[
        Literal["pixels", "model"],
        only_with("start-from", of=("model",), code="setting-needs-setting"),
    ] = "pixels"
    """Features for similarities: pixels, or the inputs of the model's last layer, with weights from
    `start-from`."""
    groups: Annotated[int, Field(ge=1)] = 1
    """Number of random groups of clients; labels are propagated within each group (FEMNIST in the
    paper: 50)."""
    use_unlabeled: bool = True
    """Whether the graph contains unlabeled training points, or only labeled and new ones
    (`labels.new-fraction`)."""
    nearest_names: Annotated[int, Field(ge=0)] = 0
    """Class names among the neighbors of each point; 0: none. With names in the graph labels need
    not be anywhere. Needs `xclp-predict.features = "model"` and names as first weights
    (docs/features.md). The server learns which names each point is nearest to, and how near. ZLaP
    has 5 (Stojnić et al. 2024)."""
    names_power: Annotated[float, Field(gt=0), only_without("xclp-predict.nearest-names", 0)] = 5.0
    """Exponent of the cosines of points and names that are edge weights (ZLaP's γ)."""
    leave_one_out: Annotated[
        bool,
        only_with("xclp.secure", "plaintext", of=(True,), why="it returns rows of labeled points"),
    ] = False
    """For each client, also propagate without its labels to all of its points."""

    def why_no_names(self, settings: kit.RunConfig) -> tuple[str, str] | None:
        """The setting that does not go with names in the graph, and what it must be."""
        for key, fits, needed in (
            ("xclp-predict.features", self.features == "model", "'model'"),
            (
                "start-from",
                starts_from_names(settings.start_from),
                "'names', or a function of them",
            ),
            ("xclp.codes-epsilon", not settings[XCLPSettings].codes_epsilon, "0"),
            ("xclp-predict.leave-one-out", not self.leave_one_out, "false"),
        ):
            if self.nearest_names and not fits:
                return key, needed
        return None


class XCLPPredictClients(kit.LabelStages):
    """Also takes the number of points of each client in the graph."""

    compared: Mapping[int, int]

    def accept(self, report: ClientReport, answer: kit.Content) -> None:
        """Also check this number."""
        super().accept(report, answer)
        if count(answer, "num-compared") > count(answer, kit.NUM_POINTS):
            raise kit.BadMessageError(
                "it announced more points to compare than points", "message-contradicts"
            )

    def changed(self, answers: Mapping[int, kit.Content]) -> None:
        """Also require that somebody has a label, or names are in the graph."""
        super().changed(answers)
        if not (self.labeled or self.settings[XCLPPredictSettings].nearest_names):
            raise kit.UserError(
                "No client has a label: there is nothing to learn classes from", "labels-missing"
            )
        self.compared = {c: kit.number(answer, "num-compared") for c, answer in answers.items()}


class XCLPPredict(kit.Strategy):
    """Trains nothing: the clients of each group propagate once and write their labels locally."""

    policy_class = XCLPPredictClients
    policy: XCLPPredictClients
    goes_with = (kit.only_without("max-update-norm"),)

    @property
    def prediction(self) -> XCLPPredictSettings:
        """Settings in table ``xclp-predict``."""
        return self.settings[XCLPPredictSettings]

    @classmethod
    def needs_model(cls, settings: kit.RunConfig) -> bool:
        """Whether features come from a model."""
        return settings[XCLPPredictSettings].features == "model"

    def label(self, grid: Grid, weights: kit.Arrays) -> None:
        """Propagate in every group.

        Parameters
        ----------
        weights : the model for the features; empty for pixels.
        """
        self.registration.register_all(grid)
        open_all(self.stages, grid)
        groups = self.groups()
        for members in groups:
            sizes = [self.policy.compared[member.partition_id] for member in members]
            labeled = sum(member in self.policy.labeled for member in members)
            options = self.settings[XCLPSettings]
            if not labeled and self.prediction.nearest_names:  # no label is summed
                labeled = options.min_labeled_clients
            refuse_unfit_sizes(options, sizes, labeled)
        for position, members in enumerate(groups):
            self._answered: list[kit.ClientRef] = []
            try:
                self._label_group(grid, position, members, weights)
            except TooFewClientsError as error:  # other groups do not need this one
                log(WARNING, "Group %s: %s", position, error)
            finally:
                self.registry.broadcast(
                    grid, END, [member for member in members if member not in self._answered]
                )
        if self.record.clients == 0:
            raise kit.UserError("No client of any group got labels.", "labels-missing")

    def _label_group(
        self, grid: Grid, position: int, members: Sequence[kit.ClientRef], weights: kit.Arrays
    ) -> None:
        propagation = LabelPropagation(
            partial(self.registry.query, grid),
            self.registry.fail,
            self.settings[XCLPSettings],
            self.policy.compared,
            1,
            kit.stream(self.settings.seed, "codes", position).bytes(SEED_BYTES),
            self.num_classes,
            self.prediction.nearest_names,
            self.prediction.names_power,
        )
        joined, joint = propagation.join(members, weights)
        rows: dict[kit.ClientRef, kit.Content]
        if self.prediction.nearest_names and not joint.labeled[joint.owners != NOBODY].any():
            rows = {member: kit.Content() for member in joined}
        else:
            rows = propagation.sum_labels(joined, joint)
        if self.prediction.nearest_names:
            of_names = propagation.name_scores(rows, joint)
            rows = {
                member: kit.Content({**content.arrays, NAMES: of_names[member]})
                for member, content in rows.items()
            }
        left_out = self.prediction.leave_one_out
        self._tell(grid, rows, own_labels=True, last=not left_out)
        for member in rows if left_out else ():
            others = propagation.sum_labels(rows, joint, withheld=member.partition_id)
            if member in others:
                self._tell(grid, {member: others[member]}, own_labels=False, last=False)

    def groups(self) -> list[list[kit.ClientRef]]:
        """Clients assigned at random to groups of nearly equal size, none of them empty."""
        groups, clients = self.prediction.groups, self.registry.clients
        if groups > len(clients):
            raise kit.UserError(
                f"Setting xclp-predict.groups = {groups}: there are {len(clients)} clients.",
                "too-few-clients",
                setting="xclp-predict.groups",
            )
        order = kit.stream(self.settings.seed, "groups").permutation(len(clients))
        if groups == 1:
            return [clients]
        return [sorted(clients[index] for index in part) for part in np.array_split(order, groups)]

    def _tell(
        self, grid: Grid, rows: dict[kit.ClientRef, kit.Content], *, own_labels: bool, last: bool
    ) -> None:
        contents = {
            member: kit.Content(content.arrays, {PREVIOUS_LABELS: own_labels, LAST: last})
            for member, content in rows.items()
        }
        answers = self.registry.query(grid, LABEL, contents, _check_reply)
        unopened = sum(bool(answer.values[UNOPENED]) for answer in answers.values())
        if unopened:
            log(WARNING, wrong_sum(unopened))
        if own_labels:
            self.record.clients += len(answers) - unopened
        if last:
            self._answered = list(answers)


def _check_reply(client: kit.ClientRef, answer: kit.Content) -> None:
    del client
    if not isinstance(answer.values.get(UNOPENED), bool):
        raise kit.BadMessageError(f"A message came with no valid {UNOPENED}.")


def check_settings(settings: kit.RunConfig) -> None:
    """Refuse what lacks a package, model features without a model, and predictions without points
    to predict."""
    require_packages(settings[XCLPSettings])
    log_privacy(settings)
    warn_of_plaintext(settings[XCLPSettings])
    options = settings[XCLPPredictSettings]
    if (why := options.why_no_names(settings)) is not None:
        key, needed = why
        raise kit.UserError(
            f"Setting xclp-predict.nearest-names = {options.nearest_names} needs {key} = {needed}.",
            "setting-needs-setting",
            setting=key,
        )
    labels = settings[kit.LabelSettings]
    if not (options.use_unlabeled or labels.new_fraction > 0 or labels.split):
        raise kit.UserError(
            "Setting xclp-predict.use-unlabeled = false leaves no point to label: "
            "set labels.new-fraction above 0.",
            "setting-needs-setting",
            setting="xclp-predict.use-unlabeled",
        )


METHOD = kit.Method(
    name="xclp-predict",
    line="The same once, without training: labels for clients' points, and no model.",
    needs="labels for some points of clients, and their other points; at least three clients with "
    "labels",
    paper="Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=XCLPPredict,
    client="fedul_flwr.client_apps.xclp_predict:XCLPPredictClient",
    settings=(kit.LabelSettings, XCLPSettings, XCLPPredictSettings),
    data="partly-labeled",
    needs_labels=False,  # with names of classes in the graph
    unprotected=shown_by_comparisons,
    can_sum=False,
    trains=False,
    check=check_settings,
)
