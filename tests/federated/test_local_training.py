"""A client's training with SCAFFOLD's variate, and what it keeps and writes beside its model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.label_files import PSEUDO_LABELS
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import UNLABELED, PartlyLabeledPoints
from fedul_flwr.federated import client_training as local_training
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.client_training import arrived, staged_points, train_task
from fedul_flwr.learning.local import LocalResult
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.pseudo_label_task import PseudoLabels
from fedul_flwr.learning.task import LocalTask, Round
from fedul_flwr.learning.variates import CONTROL, USED_ROUND, confirmed

Settings = Callable[..., RunConfig]
PLAN = LocalPlan(local_epochs=1, batch_size=0)


@pytest.mark.parametrize("option", ["I", "II"])
def test_given_variates_then_a_client_keeps_the_new_one_and_that_which_the_server_knows(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    asked: list[dict[str, Any]] = []

    def trained(*_: Any, **options: Any) -> Any:
        asked.append(options)
        number = np.array([float(len(asked))])  # c_i is 1 after the first call, 2 after the second
        return LocalResult(loss=0.5, steps=3), {"w": number}, {"w": number / 10}

    monkeypatch.setattr(local_training, "train_with_variates", trained)
    state, rng = ClientState(RecordDict()), np.random.default_rng(0)
    task = LocalTask(4, lambda _: iter(()), cast(Any, None))
    server = {"w": np.array([7.0])}
    for number, used in ((2, 0), (5, 2)):
        config = {"scaffold-option": option, USED_ROUND: used}
        now = Round(number, config, PLAN, {CONTROL: server})
        metrics, records = train_task(nn.Linear(1, 1), task, now, state, rng)
        assert (metrics["loss"], metrics["steps"]) == (0.5, 3)
        assert records == {CONTROL: {"w": np.array([len(asked) / 10])}}
    assert [given["option"] for given in asked] == [option] * 2
    assert [given["server"] for given in asked] == [server] * 2
    assert [given["variate"] for given in asked] == [{}, {"w": np.array([1.0])}]
    # Whichever of both updates the server has used, the client still has its c_i.
    kept = state.load(CONTROL, 6)
    assert confirmed(kept, 5) == {"w": np.array([2.0])}
    assert confirmed(kept, 2) == {"w": np.array([1.0])}


def data_of(config: RunConfig, labels: list[int]) -> PartlyLabeledData:
    count = len(labels)
    names = {"class-names": ["a", "b"]}
    node: Any = SimpleNamespace(partition_id=3, num_partitions=5)
    data = PartlyLabeledData(config, node, names)
    data.examples = PartlyLabeledPoints(
        np.zeros((count, 1, 1, 1), np.uint8),
        np.arange(count),
        np.array(labels),
        np.zeros(count, dtype=np.bool_),
    )
    return data


def test_given_a_simulation_then_a_client_writes_the_labels_of_each_round(
    settings: Settings, tmp_path: Path
) -> None:
    config = settings(method="pseudo-label", **{"semi.labels-only-rounds": 1})
    data = data_of(config, [0, UNLABELED, 1, UNLABELED])
    state = ClientState(RecordDict(), tmp_path)
    found = PseudoLabels(np.array([1, UNLABELED]), np.array([0.5, 0.25]), 0.5)
    for number, labels, confidence in ((1, [-1, -1], [0.0, 0.0]), (2, [1, -1], [0.5, 0.25])):
        points = staged_points(data, state, Round(number, {}, PLAN), lambda: found)
        assert points.points.tolist() == ([0, 2] if number == 1 else [0, 2, 1])
        written = state.load(PSEUDO_LABELS, number + 1)
        assert {name: array.tolist() for name, array in written.items()} == {
            "points": [1, 3],
            "labels": labels,
            "confidence": confidence,
        }


def test_given_streaming_steps_then_points_arrive_in_an_order_of_the_clients_own(
    settings: Settings,
) -> None:
    steps = {"scenario.streaming-steps": 3, "scenario.rounds-per-step": 2}
    config = settings(method="fedmatch", seed=4, **steps)
    data, positions = data_of(config, [UNLABELED] * 8), np.arange(8)
    order = stream(4, "streaming", 3).permutation(positions)  # of client 3
    # Eight points in three steps: 3, 3 and 2; the last step goes on.
    expected = [order[:3], order[:3], order[3:6], order[3:6], order[6:], order[6:], order[6:]]
    for number, points in enumerate(expected, 1):
        found = arrived(data, positions, Round(number, {}, PLAN))
        np.testing.assert_array_equal(found, points)


def test_given_a_task_of_its_own_metrics_and_records_then_these_join_those_of_training() -> None:
    model = nn.Linear(2, 2)
    inputs, targets = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    task = LocalTask(
        3,
        lambda _: iter([(inputs, targets)]),
        lambda network, x, y: nn.functional.cross_entropy(network(x), y),
        lambda: {"loss": 9.0, "more": 1.0},
        lambda trained: {"own": {"w": trained.weight.detach().numpy()}},
    )
    now = Round(1, {}, LocalPlan(local_epochs=2, momentum=0.0, optimizer="sgd"))
    state, rng = ClientState(RecordDict()), np.random.default_rng(0)
    metrics, records = train_task(model, task, now, state, rng)
    assert metrics == {"loss": 9.0, "steps": 2, "normalizer": 2.0, "more": 1.0}
    assert records.keys() == {"own"}
