"""No sharing: what every federation must beat."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.federated.messages import OWN_MODEL


class LocalOnly(FedAvg):
    """Combines nothing: every client goes on from its own model of its last round.

    Messages tell it so (value ``own-model``) and carry the model that all begin with, for clients
    that have none of their own yet. It stays the run's model for good, so that a client whose first
    round comes late learns nothing of the others. The models that clients return are for measuring
    only (``evaluate = "local"``).
    """

    _start = ArrayRecord()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, which ask for the client's own model."""
        self._start = arrays
        config[OWN_MODEL] = True
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model that the round began with, and the mean of the clients' metrics."""
        del server_round
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid:
            return None, None
        contents = [reply.content for reply in valid]
        return self._start, self.train_metrics_aggr_fn(contents, self.weighted_by_key)
