"""FedUL's server side (Algorithm 1): a base strategy behind every client's own verdict."""

from __future__ import annotations

from collections.abc import Mapping
from logging import INFO, WARNING

import numpy as np
from flwr.common import log
from numpy.typing import NDArray

from fedul_flwr.bridge import CLASS_MASSES, TEST_PRIOR, Content, Value
from fedul_flwr.class_priors import checked_prior, mean_prior, uniform_prior
from fedul_flwr.config import RunConfig
from fedul_flwr.data.types import Floats
from fedul_flwr.errors import UserError
from fedul_flwr.federation import ClientReport, number
from fedul_flwr.settings.fedul import FedULSettings
from fedul_flwr.verdict import ILL_CONDITIONED, stacked_rank
from strategies.wrapper import WrappingStrategy


class FedUL(WrappingStrategy):
    """Federation of unsupervised learning around any base strategy.

    Training itself is the base's: a client's transition makes its surrogate task train the wanted
    model. What is left to the server is to hear every client's verdict on its sets and to refuse or
    drop (``fedul.on-refusal``) those that cannot take part.
    """

    can_hold_out = True
    _mean_of_sets: Floats | None = None

    @classmethod
    def check(cls, settings: RunConfig) -> None:
        """Refuse a test prior where the loss leaves it out."""
        loss = settings.section("fedul", FedULSettings).surrogate_loss
        if loss == "release" and settings.test_prior_source in ("given", "sets"):
            raise UserError(
                f"Setting test-prior = {settings.test_prior!r} has no effect with "
                "fedul.surrogate-loss = 'release', which leaves class priors at test time out."
            )

    @property
    def options(self) -> FedULSettings:
        """FedUL's own settings."""
        return self.settings.section("fedul", FedULSettings)

    @property
    def test_prior(self) -> Floats | None:
        """``(K,)``, pi of every client's transition; with ``sets`` known once clients are heard."""
        if self.settings.test_prior == "sets":
            return self._mean_of_sets
        given = self.settings.class_priors()
        num_classes = len(self.introduction.values["class-names"])  # type: ignore[arg-type]
        return uniform_prior(num_classes) if given is None else checked_prior(given)

    def round_config(self) -> dict[str, Value]:
        """The mean of all clients' class priors, where that is pi."""
        if self._mean_of_sets is None:
            return {}
        return {TEST_PRIOR: self._mean_of_sets.tolist()}

    def admit(self, report: ClientReport, answer: Content) -> None:
        """Take the verdict; refuse where the client refused itself."""
        condition = float(answer.values["condition-number"])  # type: ignore[arg-type]
        report.condition_number = condition if np.isfinite(condition) else None
        report.reason = str(answer.values["reason"])
        if "priors" in answer.values:
            priors = self._priors(answer)
            report.priors = priors.tolist()
            report.set_sizes = [int(size) for size in answer.values["set-sizes"]]  # type: ignore[union-attr]
        if report.reason:
            text = f"Client {report.id} cannot take part: {report.reason}."
            if self.options.on_refusal == "stop":
                raise UserError(text)
            log(WARNING, text)
        elif report.condition_number is None:
            log(WARNING, "Client %s: its class priors have rank below K", report.id)
        elif report.condition_number > ILL_CONDITIONED:
            log(WARNING, "Client %s: condition number %.3g", report.id, report.condition_number)

    def admitted(self, answers: Mapping[int, Content]) -> None:
        """Find pi if that is asked for; check the rank of stacked priors if those are shared."""
        if self.settings.test_prior == "sets":
            self._mean_of_sets = mean_prior(
                [answer.values[CLASS_MASSES] for answer in answers.values()]
            )
        if not self.options.share_priors:
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
        flat = np.asarray(answer.values["priors"], dtype=np.float64)
        return flat.reshape(number(answer, "num-sets"), -1)
