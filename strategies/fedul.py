"""FedUL's server side (Algorithm 1): any base strategy, and the test class priors pi."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedul_flwr import method as kit
from fedul_flwr.data.class_priors import mean_prior
from fedul_flwr.data.set_priors import directions_of_gram
from fedul_flwr.data.types import numbers
from fedul_flwr.federated.members import ClientReport
from fedul_flwr.federated.messages import CLASS_MASSES, TEST_PRIOR
from fedul_flwr.federated.payload import Summed
from fedul_flwr.federated.policies import SetAdmission
from fedul_flwr.federated.secure_sum import from_steps

SUMMED_PRIOR = "summed-prior"
"""Name, in the state of a run, of pi from a secure sum; without a number if it is not summed."""


class FedULClients(SetAdmission):
    """Also takes class masses of the clients' sets, if pi is computed from them."""

    stated_mean: kit.Floats | None = None
    """Pi from these."""

    def accept(self, report: ClientReport, answer: kit.Content) -> None:
        """Also require class masses."""
        super().accept(report, answer)
        if self.settings.sends_class_masses and not report.reason:
            self._masses(answer)

    def changed(self, answers: Mapping[int, kit.Content]) -> None:
        """Also compute pi, unless it comes from a secure sum."""
        if self.settings.sends_class_masses:
            self.stated_mean = mean_prior([self._masses(answer) for answer in answers.values()])
        super().changed(answers)

    def _masses(self, answer: kit.Content) -> kit.Floats:
        masses = numbers(answer, CLASS_MASSES)
        if not masses.any():
            raise kit.BadMessageError(f"a message came with no valid {CLASS_MASSES}")
        return masses


class FedULStrategy(kit.Strategy):
    """Federation of unsupervised learning around any base strategy.

    The base combines updates as usual, because a client's transition makes its surrogate task train
    the class model. The server only checks the results of clients' checks of their sets, and
    determines pi.
    """

    policy_class = FedULClients
    policy: FedULClients
    can_hold_out = True
    takes_test_prior = True
    state = {SUMMED_PRIOR: None}

    @property
    def _mean_of_sets(self) -> kit.Floats | None:
        """Pi with ``test-prior = "sets"``, once it is known."""
        summed: kit.Floats | None = self.state[SUMMED_PRIOR]
        return self.policy.stated_mean if summed is None else summed if len(summed) else None

    @property
    def test_prior(self) -> kit.Floats | None:
        """``(K,)``, pi of every client's transition; with ``sets`` known after registration."""
        if self.settings.test_prior == "sets":
            return self._mean_of_sets
        return self.stated_prior()

    def client_config(self) -> dict[str, kit.Value]:
        """Pi, with ``test-prior = "sets"``: the mean of all clients' class priors."""
        if self._mean_of_sets is None:
            return {}
        return {TEST_PRIOR: self._mean_of_sets.tolist()}

    def before_train(
        self, round_number: int, arrays: ArrayRecord, grid: Grid
    ) -> list[kit.ClientRef]:
        """Sum what the clients know of their sets, once, if they do not tell it one by one."""
        has_masses, has_gram = self.settings.sums_of_sets
        if self.state[SUMMED_PRIOR] is None and (has_masses or has_gram):
            self._sum_sets(grid, has_masses, has_gram)
        return super().before_train(round_number, arrays, grid)

    def _sum_sets(self, grid: Grid, has_masses: bool, has_gram: bool) -> None:
        """Pi, and whether all sets together tell the classes apart, from a sum over all clients.

        Clients that join later are not in it: a second sum would tell their parts.
        """
        assert self.sums is not None
        k = self.num_classes
        size = k * has_masses + k * k * has_gram
        steps, _ = self.sums.collect(grid, Summed.SETS, self.registry.clients, size)
        sums = from_steps(steps)
        prior = np.zeros(0)
        if has_masses:
            try:
                prior = mean_prior([sums[:k]])
            except ValueError as error:
                raise kit.UserError(
                    "The secure sum of class masses holds numbers that no sets have.", "sum-wrong"
                ) from error
        if has_gram:
            self.policy.check_directions(directions_of_gram(sums[-k * k :].reshape(k, k)))
        self.state[SUMMED_PRIOR] = prior
        self.on_summed()


METHOD = kit.Method(
    name="fedul",
    line="FedUL: trains to predict a point's set through a fixed map of class posteriors.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes; "
    "classes that look alike at all clients",
    paper="Lu et al., ICLR 2022, arXiv:2204.03304",
    strategy=FedULStrategy,
    client="fedul_flwr.client_apps.fedul:FedULClient",
    settings=(kit.FedULSettings, kit.DPSettings),
)
