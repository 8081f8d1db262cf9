"""FedAvg+XCLP (Algorithm 2): every round starts with a propagation among its clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from logging import WARNING
from typing import Any

import numpy as np
from flwr.common import log

from fedul_flwr import method as kit
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.propagation.codes import SEED_BYTES
from fedul_flwr.propagation.phases import END, ROWS, UNOPENED
from fedul_flwr.propagation.server import (
    LabelPropagation,
    log_privacy,
    refuse_unfit_sizes,
    require_packages,
    warn_of_plaintext,
    wrong_sum,
)
from fedul_flwr.secure.similarity import TooFewClientsError


class XCLPClients(kit.LabelStages):
    """Also refuses rounds whose propagation would take too long."""

    def changed(self, answers: Mapping[int, kit.Content]) -> None:
        """Also look at the numbers of points of the largest clients."""
        super().changed(answers)
        if not self.on_labels_only(self.settings.num_rounds):
            most = sorted(kit.number(answer, kit.NUM_POINTS) for answer in answers.values())
            sampled = self.sample(self.settings.num_rounds)
            labeled = sum(member in self.labeled for member in sampled)
            refuse_unfit_sizes(self.settings[XCLPSettings], most[-len(sampled) :], labeled)


class XCLPStrategy(kit.Strategy):
    """Propagates labels across the clients of a round before they train.

    Two phases precede the training message, which has the result of the second one.
    """

    policy_class = XCLPClients
    policy: XCLPClients
    goes_with = (kit.NOT_ALONE,)

    def choose_clients(self, round: kit.RoundAtServer) -> Sequence[kit.ClientRef]:
        """The sampled clients that did not drop out of the propagation."""
        chosen = super().choose_clients(round)
        if self.policy.on_labels_only(round.number):
            return chosen
        rows: dict[kit.ClientRef, kit.Content] = {}
        propagation = LabelPropagation(
            partial(self.registry.query, round.grid),
            self.registry.fail,
            self.settings[XCLPSettings],
            {c: kit.number(answer, kit.NUM_POINTS) for c, answer in self.registry.answers.items()},
            round.number,
            kit.stream(self.settings.seed, "codes").bytes(SEED_BYTES),  # one a run
            self.num_classes,
        )
        try:
            left, joint = propagation.join(chosen, kit.to_arrays(round.model))
            rows = propagation.sum_labels(left, joint)
        except TooFewClientsError as error:
            able = [m for m in chosen if str(m) not in self.record.failed or m in propagation.tied]
            trained = [member for member in able if member in self.policy.labeled]
            if not trained:
                raise
            log(WARNING, "Round %s: %s Its clients train on labels alone.", round.number, error)
            return trained
        finally:
            left_out = [member for member in chosen if member not in rows]
            self.registry.broadcast(round.grid, END, left_out)
        round.alone = {member: {ROWS: content.arrays} for member, content in rows.items()}
        return list(rows)

    def after_round(self, reports: Mapping[str, Any]) -> None:
        """Log how many clients got no labels, as somebody's part of the sum was wrong."""
        if unopened := int(np.sum(reports.get(UNOPENED, 0))):
            log(WARNING, "Round %s: %s", self.record.round, wrong_sum(unopened))


def shown_by_comparisons(settings: kit.RunConfig) -> Iterator[str]:
    """What comparing points shows of an owner, in sentences for owners."""
    if settings[XCLPSettings].secure == "plaintext":
        yield "The server gets a code of every point, and every label that an owner adds up."
        return
    yield (
        "The server sees how similar any two points of all owners are, whose they are, and which "
        "have a label. Who also knows some of the points can find out much of the others."
    )
    yield (
        "Encryption holds against a server and owners who follow the protocol, as long as the "
        "server and an owner do not work together."
    )
    yield "Owners see how many points and labels others have, and how many labels of each class."


def check_settings(settings: kit.RunConfig) -> None:
    """Refuse what lacks a package, warn if the server sees all codes, and log the differential
    privacy."""
    require_packages(settings[XCLPSettings])
    log_privacy(settings)
    warn_of_plaintext(settings[XCLPSettings])


METHOD = kit.Method(
    name="xclp",
    line="Labels spread across clients in every round by similar features, under encryption.",
    needs="labels for some points of clients, and their other points; at least three clients with "
    "labels",
    paper="Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=XCLPStrategy,
    client="fedul_flwr.client_apps.xclp:XCLPClient",
    settings=(kit.LabelSettings, kit.PseudoLabelSettings, XCLPSettings, kit.WeakViewSettings),
    data="partly-labeled",
    unprotected=shown_by_comparisons,
    check=check_settings,
)
