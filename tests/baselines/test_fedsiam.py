"""FedSiam through runs: the ramp of its weight, the second head, what it learns from."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, Message, MetricRecord, RecordDict
from safetensors.numpy import load_file
from torch.nn import functional

from fedul_flwr.baselines.fedsiam import TEACHER, FedSiamClient
from fedul_flwr.data.sources import load_source
from fedul_flwr.federated.combine import combined
from fedul_flwr.federated.messages import to_record
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model
from tests.support.fedmatch_exchanges import TINY
from tests.support.message_log import TO_SERVER, read_message_log
from tests.support.runs import MeddlingGrid, is_train, last_model, metrics, train
from tests.support.settings import Settings
from tests.support.simulated_clients import simulated_client

Weights = dict[str, torch.Tensor]
QUICK: dict[str, Any] = {
    **{"method": "fedsiam", "model": "mlp", "local_epochs": 3, "points_per_client": 40},
    **{"labels.total": 30, "num_rounds": 2, "semi.labels-only-rounds": 1, "augment": "rotate"},
}
"""One round of each stage, of several steps: at first the teacher is the student."""


def run(settings: Settings, **options: Any) -> Path:
    return train(settings(**{**QUICK, **options}), 2)


def test_it_equals_a_plain_loop(settings: Settings) -> None:
    """Both stages; the teacher and its steps go on from round to round, averaged over clients."""
    config = settings(
        **{"method": "fedsiam", "model": "mlp", "num_rounds": 3, "local_epochs": 2},
        **{"optimizer": "sgd", "learning_rate": 0.1, "precision": "float64", "batch_size": 0},
        **{"points_per_client": 40, "labels.fraction": 0.5, "semi.labels-only-rounds": 1},
    )
    directory = train(config, 2)
    source = load_source("digits")
    with np.load(directory / "split.npz") as archive:
        held = np.split(archive["points"], archive["bounds"][1:-1])
        given = np.split(archive["labels"], archive["bounds"][1:-1])
    model = build_model("mlp", source.input_shape, 10, config.seed).double()
    x = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    teacher, steps = dict(x), 0

    def loss(weights: Weights, of_teacher: Weights, client: int, weight: float) -> torch.Tensor:
        inputs = to_input(torch.from_numpy(source.train.inputs[held[client]])).double()
        labels = torch.from_numpy(given[client])
        logits = torch.func.functional_call(model, weights, inputs)
        with torch.no_grad():
            target = torch.func.functional_call(model, of_teacher, inputs).softmax(1)
        known = labels >= 0
        assert known.sum() == 20  # of 40: a batch has all labeled points and as many others
        supervised = functional.cross_entropy(logits[known], labels[known].long()) / 2
        return supervised + weight * ((logits.softmax(1) - target) ** 2).mean()

    for number in (1, 2, 3):
        weight = 100 * math.exp(-5 * (1 - number / 5) ** 2)
        ends, teachers = [], []
        for client in range(2):
            y, own = x, teacher
            for t in (steps + 1, steps + 2):
                leaves = {name: value.clone().requires_grad_() for name, value in y.items()}
                value = loss(leaves, own, client, weight)
                slopes = torch.autograd.grad(value, list(leaves.values()))
                y = {name: y[name] - 0.1 * g for name, g in zip(leaves, slopes, strict=True)}
                decay = min(1 - 1 / (t + 1), 0.97)
                own = {name: decay * own[name] + (1 - decay) * y[name] for name in own}
            ends.append(y)
            teachers.append(own)
        steps += 4  # of both clients
        x = {name: (ends[0][name] + ends[1][name]) / 2 for name in x}
        teacher = {name: (teachers[0][name] + teachers[1][name]) / 2 for name in x}
    kept = load_file(directory / "state-3.safetensors")
    assert int(kept["teacher-steps"]) == steps == 12
    for name, array in last_model(directory).items():
        np.testing.assert_allclose(array, x[name].numpy(), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(kept[f"teacher/{name}"], teacher[name], rtol=1e-6, atol=1e-8)
        assert np.abs(array - teacher[name].numpy()).max() > 1e-4


def test_teachers_with_batch_norm_are_averaged_with_their_buffers(
    settings: Settings, tmp_path: Path
) -> None:
    options = {"model": TINY, "num_rounds": 2, "client_weights": "examples"}
    config = settings(**{**QUICK, **options, "partition": "dirichlet", "points_per_client": 0})
    directory = train(config, 3, message_log=tmp_path / "t")
    sizes, returned = {}, {}
    for message in read_message_log(tmp_path / "t"):
        if (message.type, message.direction) == ("train", TO_SERVER):  # of round 2 in the end
            sizes[message.client] = message.values["metrics"]["num-examples"]
            returned[message.client] = {
                array.name: array.numpy() for array in message.arrays if array.record == "teacher"
            }
    assert len(set(sizes.values())) > 1
    kept, total = load_file(directory / "state-2.safetensors"), sum(sizes.values())
    floats = [n for n, a in returned[0].items() if a.dtype.kind == "f"]
    assert any("running_var" in name for name in floats)
    for name in floats:
        mean = sum(sizes[client] / total * returned[client][name] for client in sizes)
        np.testing.assert_allclose(kept[f"teacher/{name}"], mean, rtol=1e-5, atol=1e-7)


def test_a_teacher_that_is_too_far_from_the_one_sent_is_refused(settings: Settings) -> None:
    def meddle(call: int, replies: list[Message]) -> list[Message]:
        if is_train(replies):
            record = replies[0].content.array_records["teacher"]
            record["1.bias"] = Array(record["1.bias"].numpy() + 100)
        return replies

    plan = {**QUICK, "num_rounds": 1, "on_client_failure": "continue", "max_update_norm": 20.0}
    honest = train(settings(**plan), 2)
    assert [line["failures"] for line in metrics(honest)] == [0]
    found = train(settings(**plan), 2, wrap_grid=lambda grid: MeddlingGrid(grid, meddle))
    assert [line["failures"] for line in metrics(found)] == [1]


@pytest.mark.parametrize(("robust", "teacher"), [(False, 17.0), (True, 1.0)])
def test_teachers_are_combined_by_the_median_where_the_base_is_robust(
    robust: bool, teacher: float
) -> None:
    replies: list[Any] = [
        SimpleNamespace(
            content=RecordDict(
                {
                    "teacher": to_record({"w": np.array([value])}),
                    "arrays": to_record({"w": np.array([0.0])}),
                    "metrics": MetricRecord({"teacher-steps": 2}),
                }
            )
        )
        for value in (0.0, 1.0, 50.0)  # mean 17, median 1
    ]
    found = combined(replies, FedSiamClient.reports, np.ones(3), {}, robust=robust)
    assert found["teacher"]["w"] == pytest.approx([teacher])
    assert found["teacher-steps"] == 3 * 2
    assert all(list(reply.content) == ["arrays", "metrics"] for reply in replies)


def test_the_loss_of_a_client_is_that_of_the_authors_code(settings: Settings) -> None:
    config = settings(**{**QUICK, "model": "mlp+head", "points_per_client": 30})
    built = simulated_client(FedSiamClient, config)
    teacher = dump_arrays(build_model("mlp+head", (8, 8, 1), 10, seed=5))
    now = built.round({"server-round": 2, "teacher-steps": 9}, {TEACHER: teacher})
    found: Any = built.task(now).loss
    assert (found.logit_cost, found.decay, found.steps) == (0.01, 0.97, 9)
    assert found.weight == pytest.approx(100 * math.exp(-1.8))  # 2 of 5 rounds: exp(-5·(3/5)²)
    for name, array in dump_arrays(found.teacher).items():
        np.testing.assert_array_equal(array, teacher[name])
    assert found.teacher is not built.model
