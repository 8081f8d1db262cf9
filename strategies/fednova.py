"""FedNova's server side (Wang et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

from fedul_flwr.federated.messages import NORMALIZER


class FedNova(FedAvg):
    """Normalised averaging: clients that made more steps do not weigh more for it.

    With d_i = (x − y_i)/(eta·a_i), x ← x − eta·tau·Σ p_i d_i and tau = Σ p_i a_i, which is the mean
    Σ q_i y_i + (1 − Σ q_i)·x for q_i = p_i·tau/a_i: the step size cancels. Replies carry a_i as
    metric ``normalizer`` (:func:`fedul_flwr.learning.corrections.local_normalizer`).
    """

    _start = ArrayRecord()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages; remembers x."""
        self._start = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Mean of the models by the weights q_i, with the rest of the weight on x."""
        del server_round
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        contents = [reply.content for reply in valid]
        if not contents:
            return None, None
        found = [next(iter(content.metric_records.values())) for content in contents]
        weights = [float(cast(float, record[self.weighted_by_key])) for record in found]
        steps = [float(cast(float, record[NORMALIZER])) for record in found]
        # Sums before quotients: with equal steps q_i is p_i to the last digit, and so FedAvg.
        tau = sum(w * a for w, a in zip(weights, steps, strict=True)) / sum(weights)
        shares = [w * (tau / a) for w, a in zip(weights, steps, strict=True)]
        weighted = [
            _with_weight(content, share, self.weighted_by_key)
            for content, share in zip(contents, shares, strict=True)
        ]
        rest = sum(weights) - sum(shares)
        if rest:
            own = RecordDict({self.arrayrecord_key: self._start})
            weighted.append(_with_weight(own, rest, self.weighted_by_key))
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return aggregate_arrayrecords(weighted, self.weighted_by_key), metrics


def _with_weight(content: RecordDict, weight: float, key: str) -> RecordDict:
    arrays = next(iter(content.array_records.values()))
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({key: weight})})
