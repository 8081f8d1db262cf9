"""Statistics of batch norm that all clients of a round compute anew (Diao et al. 2021).

Running statistics of training follow its last batches. These are those of the round's model on the
points of its clients and of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import Grid

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.federated.combine import average_buffers
from fedul_flwr.federated.messages import array_record
from fedul_flwr.federated.payload import EVERY_ROUND, Declared
from fedul_flwr.federated.replies import check_update

STATISTICS = "batch-statistics"
"""Phase in which clients compute statistics of batch norm."""
SENT_STATISTICS: Declared = {
    STATISTICS: kit.all_of(
        "of a model with batch norm, means and variances of its layers over its points",
        "*",
        often=EVERY_ROUND,
        reader=kit.AVERAGED,
    )
}
"""What a client answers."""


def renewed_statistics(
    strategy: kit.Strategy,
    grid: Grid,
    clients: Sequence[kit.ClientRef],
    model: ArrayRecord,
    num_arrived: Callable[[kit.Content], int],
) -> ArrayRecord:
    """``model`` with the mean of the clients' statistics and the server's, by batches.

    Parameters
    ----------
    clients : who is asked.
    num_arrived : points of a client in this round, by its answer to ``setup``.
    """
    assert strategy.trainer is not None
    names = learning.statistic_names(strategy.trainer.model)
    if not names:
        return model
    form = {kit.ARRAYS: array_record({name: model[name] for name in names})}

    def check(client: kit.ClientRef, answer: kit.Content) -> None:
        del client
        if answer.arrays:  # none of a client without points
            check_update(RecordDict({kit.ARRAYS: kit.to_record(answer.arrays)}), form)
            check_variances(answer.arrays)

    request = kit.Content(kit.to_arrays(model), {"round": strategy.record.round})
    answers = strategy.registry.query(grid, STATISTICS, dict.fromkeys(clients, request), check)
    statistics, count = strategy.trainer.norm_statistics(model)
    records, counts = [kit.to_record(statistics)], [count]
    for client, answer in answers.items():
        if answer.arrays:
            points = num_arrived(strategy.registry.answers[client.partition_id])
            records.append(kit.to_record(answer.arrays))
            counts.append(learning.num_statistic_batches(points))
    weights, robust = np.array(counts, float), strategy.settings.base in kit.ROBUST
    averaged = average_buffers(records, weights, names, model, robust=robust)
    return array_record({name: averaged.get(name, array) for name, array in model.items()})


def check_variances(statistics: kit.Arrays) -> None:
    """Refuse variances below 0."""
    for name, array in statistics.items():
        if name.endswith("var") and (array < 0).any():
            raise kit.BadMessageError(f"its '{name}' is below 0", "message-out-of-range")


def statistics_of(client: kit.Client[Any], content: kit.Content) -> kit.Content:
    """A client's statistics over its points of a round; empty without any."""
    data, plan = client.data, learning.local_plan(client.settings)
    positions = data.arrived(data.unlabeled, kit.number(content, "round"))
    points = data.examples.points[positions]
    if not len(points):
        return kit.Content()
    learning.load_arrays(client.model, content.arrays)
    statistics, _ = learning.norm_statistics(client.model, data.examples.inputs, points, plan)
    return kit.Content(statistics)
