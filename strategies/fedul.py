"""FedUL's server side (Algorithm 1): any base strategy, and the test class priors pi."""

from __future__ import annotations

from collections.abc import Mapping

from fedul_flwr.config.class_priors import checked_prior
from fedul_flwr.data.class_priors import mean_prior, uniform_prior
from fedul_flwr.data.content import Content, Value, numbers
from fedul_flwr.data.types import Floats
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.client_policy import SetAdmission
from fedul_flwr.federated.messages import CLASS_MASSES, TEST_PRIOR
from fedul_flwr.federated.nodes import ClientReport
from fedul_flwr.federated.strategy import MethodStrategy


class FedULStrategy(MethodStrategy):
    """Federation of unsupervised learning around any base strategy.

    The base combines updates as usual, because a client's transition makes its surrogate task train
    the class model. The server only checks the results of clients' checks of their sets, and
    determines pi.
    """

    policy_class = SetAdmission
    can_hold_out = True
    takes_test_prior = True
    _mean_of_sets: Floats | None = None

    @property
    def test_prior(self) -> Floats | None:
        """``(K,)``, pi of every client's transition; with ``sets`` known after registration."""
        if self.settings.test_prior == "sets":
            return self._mean_of_sets
        prior = self.settings.class_priors()
        return uniform_prior(self.num_classes) if prior is None else checked_prior(prior)

    def client_config(self) -> dict[str, Value]:
        """Pi, with ``test-prior = "sets"``: the mean of all clients' class priors."""
        if self._mean_of_sets is None:
            return {}
        return {TEST_PRIOR: self._mean_of_sets.tolist()}

    def accept_client(self, report: ClientReport, answer: Content) -> None:
        """Also require class masses if pi is computed from them."""
        super().accept_client(report, answer)
        if self.settings.test_prior == "sets" and not report.reason:
            self._masses(answer)

    def on_clients_changed(self, answers: Mapping[int, Content]) -> None:
        """Compute pi, with ``test-prior = "sets"``."""
        if self.settings.test_prior == "sets":
            self._mean_of_sets = mean_prior([self._masses(answer) for answer in answers.values()])
        super().on_clients_changed(answers)

    def _masses(self, answer: Content) -> Floats:
        masses = numbers(answer, CLASS_MASSES)
        if len(masses) != self.num_classes or (masses < 0).any() or not masses.any():
            raise BadMessageError(f"a message came with no valid {CLASS_MASSES}")
        return masses
