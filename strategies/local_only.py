"""Local training without sharing: the baseline of every federated method."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.federated.messages import OWN_MODEL


class LocalOnly(FedAvg):
    """Combines nothing: every client continues from its own model of its last round.

    Messages say so (value ``own-model``) and contain the initial model for clients that have no
    model yet. The run's model stays the initial one, so that a client whose first round comes late
    learns nothing from the others. The models that clients return are used only for evaluation
    (``evaluate = "local"``).
    """

    _start = ArrayRecord()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, with the request to continue from the client's own model."""
        self._start = arrays
        config[OWN_MODEL] = True
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The unchanged model, and the mean of the clients' metrics."""
        del server_round
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid:
            return None, None
        contents = [reply.content for reply in valid]
        return self._start, self.train_metrics_aggr_fn(contents, self.weighted_by_key)
