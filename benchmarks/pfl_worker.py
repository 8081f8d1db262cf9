"""Rounds of pfl-research's FedAvg: ``pfl_worker.py SETTINGS CLIENTS ROUNDS THREADS OUTPUT``.

Runs with pfl on the path, alone or several at a time under ``torch.distributed.run``; writes the
seconds of rounds to a file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.clients import prepared_clients
from benchmarks.plain_rounds import client_tensors
from fedul_flwr.config.run_config import parse_flat


class Classifier(nn.Module):
    """A model with the loss that pfl asks a model for."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, inputs: Tensor, labels: Tensor, eval: bool = False) -> Tensor:
        self.train(not eval)
        return nn.functional.cross_entropy(self.inner(inputs), labels)

    def metrics(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        """Nothing is evaluated."""
        del arguments, named
        return {}


class Clock(TrainingProcessCallback):  # type: ignore[misc]
    """Notes the end of every round."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        del aggregate_metrics, model, central_iteration
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    flat, clients, rounds, threads = json.loads(sys.argv[1]), *map(int, sys.argv[2:5])
    torch.set_num_threads(threads)
    settings = parse_flat(flat)
    members = prepared_clients(settings, clients)
    users = {index: list(client_tensors(client)) for index, client in enumerate(members)}
    data = FederatedDataset.from_slices(users, get_user_sampler("minimize_reuse", list(users)))
    net = Classifier(members[0].model)
    server = torch.optim.SGD(net.parameters(), 1.0)
    clock = Clock()
    # Round 0 would be evaluated: what is timed begins after it.
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=rounds + 2,
            train_cohort_size=clients,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(data, data, [WeightByUser()]),
        model=PyTorchModel(net, torch.optim.SGD, server),
        model_train_params=NNTrainHyperParams(
            local_batch_size=settings.batch_size,
            local_num_epochs=1,
            local_learning_rate=settings.learning_rate,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
    )
    if os.environ.get("RANK", "0") == "0":
        seconds = [after - before for before, after in pairwise(clock.ends)]
        Path(sys.argv[5]).write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
