"""Statistics of batch norm that all clients of a round compute anew (Diao et al. 2021).

Running statistics of training follow its last batches. These are those of the round's model on the
points of its clients and of the server.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.federated.client_data import part_of_step
from fedul_flwr.federated.combine import average_buffers
from fedul_flwr.federated.messages import array_record
from fedul_flwr.federated.payload import AVERAGED, EVERY_ROUND
from fedul_flwr.federated.replies import check_update

STATISTICS = "batch-statistics"
"""Phase in which clients compute statistics of batch norm."""


def num_arrived(settings: kit.RunConfig, answer: kit.Content, round_number: int) -> int:
    """Points of a client in a round's streaming step, by its answer to ``setup``."""
    points = np.arange(kit.number(answer, kit.NUM_POINTS))
    return len(part_of_step(points, settings, round_number))


class AtServer(kit.ServerStage):
    """Asks the clients of a round for the statistics of its model."""

    def end(self, model: ArrayRecord) -> ArrayRecord:
        """The model with the mean of the clients' statistics and the server's, by batches."""
        strategy = self.strategy
        number, trainer = strategy.round.number, strategy.trainer
        names = learning.statistic_names(trainer.model)
        if not names or number <= self.settings.frozen_rounds:
            return model
        form = {kit.ARRAYS: array_record({name: model[name] for name in names})}

        def check(client: kit.ClientRef, answer: kit.Content) -> None:
            del client
            if answer.arrays:  # none of a client without points
                check_update(RecordDict({kit.ARRAYS: kit.to_record(answer.arrays)}), form)
                check_variances(answer.arrays)

        registry, asked = strategy.registry, strategy.round
        request = kit.Content(kit.to_arrays(model), {"round": number})
        contents = dict.fromkeys(asked.clients, request)
        answers = registry.query(asked.grid, STATISTICS, contents, check)
        statistics, count = trainer.norm_statistics(model)
        records, counts = [kit.to_record(statistics)], [count]
        for client, answer in answers.items():
            if answer.arrays:
                of_client = registry.answers[client.partition_id]
                points = num_arrived(self.settings, of_client, number)
                records.append(kit.to_record(answer.arrays))
                counts.append(learning.num_statistic_batches(points))
        weights, robust = np.array(counts, float), self.settings.base in kit.ROBUST
        averaged = average_buffers(records, weights, names, model, robust=robust)
        return array_record({name: averaged.get(name, array) for name, array in model.items()})


def check_variances(statistics: kit.Arrays) -> None:
    """Refuse variances below 0."""
    for name, array in statistics.items():
        if name.endswith("var") and (array < 0).any():
            raise kit.BadMessageError(f"its '{name}' is below 0", "message-out-of-range")


class AtClient(kit.ClientStage):
    """Computes statistics over its points of a round."""

    phases, in_sums = frozenset({STATISTICS}), False

    def answer(self, name: str, content: kit.Content) -> kit.Content:
        """The statistics; empty without points."""
        del name
        client: Any = self.client
        data, plan = client.data, learning.local_plan(self.settings)
        positions = data.arrived(data.unlabeled, kit.number(content, "round"))
        points = data.examples.points[positions]
        if not len(points):
            return kit.Content()
        learning.load_arrays(client.model, content.arrays)
        statistics, _ = learning.norm_statistics(client.model, data.examples.inputs, points, plan)
        return kit.Content(statistics)


class StaticBatchNorm(kit.Stage):
    """Models with batch norm have statistics of their own round."""

    server, client = AtServer, AtClient
    sent = {
        STATISTICS: kit.all_of(
            "of a model with batch norm, means and variances of its layers over its points",
            "*",
            often=EVERY_ROUND,
            reader=AVERAGED,
        )
    }
