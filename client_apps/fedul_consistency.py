"""FedUL's client with a consistency loss between views, on the recovered class posterior."""

from __future__ import annotations

from flwr.common.typing import NDArrays
from flwr.common.typing import Scalar as FlowerScalar

from client_apps.fedul import FedULClient
from fedul_flwr.config.consistency import FedULConsistencySettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.disclosure import EVERY_ROUND, TRAIN, Sent
from fedul_flwr.federated.messages import METRICS
from fedul_flwr.learning.consistency import ConsistencyObjective
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.schedules import ramp_up
from fedul_flwr.surrogate import SurrogateLoss


class FedULConsistencyClient(FedULClient):
    """Trains on surrogate labels, and trains strong views on the posterior of weak views."""

    consistency: ConsistencyObjective | None = None
    """This round's objective, if the consistency loss has a weight."""

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """FedUL's entries, and metrics of the strong view."""
        sent = super().sends(settings)
        if settings[FedULConsistencySettings].weight:
            names, what = ("consistency-loss", "masked-share"), "how the strong views went"
            sent.append(Sent(TRAIN, names, what, METRICS, EVERY_ROUND))
        return sent

    def objective(self, server_round: int) -> Objective:
        """FedUL's loss of the weak view plus the weighted consistency loss of the strong one."""
        options = self.settings[FedULConsistencySettings]
        weight = options.weight * ramp_up(server_round, options.ramp_up_rounds)
        if weight == 0:
            return super().objective(server_round)
        loss = self.loss()
        assert isinstance(loss, SurrogateLoss)
        given_set = options.target == "set-posterior"
        self.consistency = ConsistencyObjective(
            surrogate=loss,
            weight=weight,
            threshold=options.threshold,
            form=options.form,
            temperature=options.temperature,
            log_weights=loss.transition.log_weights if given_set else None,
        )
        return self.consistency

    def fit(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """One round; reports surrogate loss, consistency loss and the fraction of masked points."""
        arrays, count, metrics = super().fit(parameters, config)
        if self.consistency is not None:
            surrogate, value, masked = self.consistency.means()
            metrics |= {"loss": surrogate, "consistency-loss": value, "masked-share": masked}
        return arrays, count, metrics
