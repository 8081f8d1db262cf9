"""FedNova's server side (Wang et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.federated.combine import weighted_mean
from fedul_flwr.federated.messages import NORMALIZER, metric


class FedNova(FedAvg):
    """Normalized averaging: more local steps do not give a client more weight.

    With d_i = (x − y_i)/(eta·a_i), x ← x − eta·tau·Σ p_i d_i and tau = Σ p_i a_i, which is the mean
    Σ q_i y_i + (1 − Σ q_i)·x for q_i = p_i·tau/a_i: the step size cancels. Replies carry a_i as
    metric ``normalizer`` (:func:`fedul_flwr.learning.local.local_normalizer`).
    """

    _start = ArrayRecord()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages; stores x."""
        self._start = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Mean of the models with weights q_i, and the remaining weight on x."""
        del server_round
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        contents = [reply.content for reply in valid]
        if not contents:
            return None, None
        weights = [metric(reply, self.weighted_by_key) for reply in valid]
        steps = [metric(reply, NORMALIZER) for reply in valid]
        # Sum before dividing: with equal steps q_i is exactly p_i, which gives FedAvg.
        tau = sum(w * a for w, a in zip(weights, steps, strict=True)) / sum(weights)
        shares = [w * (tau / a) for w, a in zip(weights, steps, strict=True)]
        models = [next(iter(content.array_records.values())) for content in contents]
        rest = sum(weights) - sum(shares)
        if rest:
            models, shares = [*models, self._start], [*shares, rest]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return weighted_mean(models, shares), metrics
