"""The server side of every method on unlabeled sets: a base behind every client's own verdict."""

from __future__ import annotations

from collections.abc import Mapping
from logging import INFO, WARNING

import numpy as np
from flwr.common import log
from numpy.typing import NDArray

from fedul_flwr.config.fedul import AdmissionSettings
from fedul_flwr.data.set_check import ILL_CONDITIONED, stacked_rank
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.messages import Content
from fedul_flwr.federated.phases import count, numbers
from fedul_flwr.federated.registry import ClientReport
from fedul_flwr.federated.strategy import MethodStrategy


class UnlabeledSets(MethodStrategy):
    """Hears every client's verdict on its sets before round 1.

    Those that cannot take part are refused or dropped (``fedul.on-refusal``).
    """

    @property
    def admission(self) -> AdmissionSettings:
        """Who takes part."""
        return self.settings.section("fedul", AdmissionSettings)

    def accept_client(self, report: ClientReport, answer: Content) -> None:
        """Take the verdict; refuse where the client refused itself."""
        condition, reason = (answer.values.get(key) for key in ("condition-number", "reason"))
        if not isinstance(condition, float) or not isinstance(reason, str):
            raise BadMessageError("its verdict on its sets is missing")
        report.condition_number = condition if np.isfinite(condition) else None
        report.reason = reason
        if self.admission.share_priors:
            report.priors = self._priors(answer).tolist()
            report.set_sizes = [int(size) for size in numbers(answer, "set-sizes")]
        if report.reason:
            text = f"Client {report.id} cannot take part: {report.reason}."
            if self.admission.on_refusal == "stop":
                raise UserError(text)
            log(WARNING, text)
        elif report.condition_number is None:
            log(WARNING, "Client %s: its class priors have rank below K", report.id)
        elif report.condition_number > ILL_CONDITIONED:
            log(WARNING, "Client %s: condition number %.3g", report.id, report.condition_number)

    def on_clients_changed(self, answers: Mapping[int, Content]) -> None:
        """Check the rank of all clients' priors stacked, where they were shared."""
        if not self.admission.share_priors:
            log(INFO, "Rank of all clients' priors not checked: they are not shared.")
            return
        grams = [(priors := self._priors(answer)).T @ priors for answer in answers.values()]
        rank, num_classes = stacked_rank(grams), len(grams[0])
        if rank < num_classes:
            raise UserError(
                f"The class priors of all clients together have rank {rank}, below "
                f"{num_classes} classes: no method can tell the classes apart."
            )

    def _priors(self, answer: Content) -> NDArray[np.float64]:
        flat, shape = numbers(answer, "priors"), (count(answer, "num-sets"), self.num_classes)
        if flat.size != shape[0] * shape[1]:
            raise BadMessageError(f"it sent {flat.size} class priors, not {shape[0]} x {shape[1]}")
        return flat.reshape(shape)
