"""The wrapping strategy: what the base combines, what it never sees, order, failures, resuming."""

import copy
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message
from safetensors.numpy import load_file

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source
from fedul_flwr.federated.bases import BASES, ROBUST
from fedul_flwr.federated.messages import ARRAYS, METRICS
from fedul_flwr.learning.batches import to_input
from fedul_flwr.surrogate import SurrogateLoss
from tests.support.fedmatch_exchanges import TINY
from tests.support.plain_loops import fresh, split_of
from tests.support.refusals import refuses
from tests.support.runs import (
    MeddlingGrid,
    as_error,
    assert_same_arrays,
    assert_same_run,
    cut_off,
    is_train,
    last_model,
    metrics,
    resume,
    summary,
    train,
)
from tests.support.settings import Settings

QUICK = {"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 120}


def one_step(settings: Settings, **more: Any) -> RunConfig:
    """Full-batch SGD in float64: one step a round, nothing random left."""
    plain = {
        **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "batch_size": 0},
        **{"optimizer": "sgd", "learning_rate": 0.5, "precision": "float64"},
    }
    return settings(**{**plain, **more})


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_a_plain_loop_gives_the_same_weights(settings: Settings, weights: str) -> None:
    config = one_step(settings, client_weights=weights, partition="dirichlet")
    directory = train(config, 3)

    source, split, model = load_source("digits"), split_of(config, 3), fresh(config)
    for _ in range(2):
        start, trained, sizes = model.state_dict(), [], []
        for client in split.clients:
            local = copy.deepcopy(model)
            loss = SurrogateLoss(
                torch.from_numpy(client.priors), torch.from_numpy(np.bincount(client.sets))
            )
            inputs = to_input(torch.from_numpy(source.train.inputs[client.points])).double()
            loss(local(inputs), torch.from_numpy(client.sets)).backward()
            trained.append({n: (p - 0.5 * p.grad).detach() for n, p in local.named_parameters()})
            sizes.append(len(client.points) if weights == "examples" else 1)
        share = [size / sum(sizes) for size in sizes]
        mean = {n: sum(s * t[n] for s, t in zip(share, trained, strict=True)) for n in start}
        model.load_state_dict(mean)
    for name, array in last_model(directory).items():
        assert array.dtype == np.float64
        np.testing.assert_allclose(array, model.state_dict()[name].numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("base", sorted(BASES.keys() - ROBUST))
def test_every_base_trains(settings: Settings, base: str) -> None:
    sgd = {"optimizer": "sgd", "learning_rate": 0.1} if base in ("scaffold", "fednova") else {}
    local = {"evaluate": "local"} if base == "local" else {}
    directory = train(settings(**{**QUICK, **sgd, **local, "num_rounds": 3}, base=base), 3)
    lines = metrics(directory)
    assert lines[-1]["surrogate_loss"] < lines[0]["surrogate_loss"]
    assert summary(directory)["base"] == base


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_buffers_are_averaged_and_never_reach_an_adaptive_base(
    settings: Settings, weights: str
) -> None:
    """An adaptive step of 100 would throw a running mean far off; it stays the clients' mean."""
    sent: list[dict[str, np.ndarray]] = []
    sizes: list[float] = []

    def watch(_: int, replies: list[Message]) -> list[Message]:
        if is_train(replies):
            for reply in replies:
                record = cast(ArrayRecord, reply.content[ARRAYS])
                sent.append({name: array.numpy() for name, array in record.items()})
                sizes.append(float(reply.content.metric_records[METRICS]["num-examples"]))  # type: ignore[arg-type]
        return replies

    config = settings(
        **{"model": "cnn6-quarter", "num_rounds": 1, "local_epochs": 1, "base": "fedadam"},
        **{"fedopt.eta": 100.0, "partition": "dirichlet", "client_weights": weights},
    )
    directory = train(config, 2, wrap_grid=lambda grid: MeddlingGrid(grid, watch))
    model = last_model(directory)
    assert max(sizes) > 1.2 * min(sizes)
    first = sizes[0] / sum(sizes) if weights == "examples" else 0.5
    for name in ("1.running_mean", "1.running_var"):
        mean = first * sent[0][name] + (1 - first) * sent[1][name]
        np.testing.assert_allclose(model[name], mean, rtol=1e-5)
        assert np.abs(sent[0][name] - sent[1][name]).max() > 1e-3
    assert (model["1.running_var"] > 0).all()
    assert model["1.num_batches_tracked"] == 0  # a counter is kept, not averaged
    moved = np.abs(model["0.weight"] - (sent[0]["0.weight"] + sent[1]["0.weight"]) / 2).max()
    assert moved > 1  # the adaptive base did act on the weights
    assert {array.dtype for n, array in model.items() if "tracked" not in n} == {
        np.dtype(np.float32)
    }


def test_a_failing_client_stops_the_run_and_leaves_the_last_model(settings: Settings) -> None:
    def fail(call: int, replies: list[Message]) -> list[Message]:
        # Calls: 0 hello, 1 prepare, 2 round 1, 3 round 2.
        return [as_error(replies[0], "disk full"), *replies[1:]] if call == 3 else replies

    config = settings(**QUICK)
    with refuses("client-failed", match=r"round 2: Client \d: .*full"):
        train(config, 3, wrap_grid=lambda grid: MeddlingGrid(grid, fail))
    directory = Path(config.output)
    assert [line["round"] for line in metrics(directory)] == [1]
    assert "disk full" in (directory / "error.txt").read_text()
    assert not (directory / "summary.json").exists()


def test_evaluation_is_done_when_due_and_at_the_end(settings: Settings) -> None:
    directory = train(settings(**{**QUICK, "num_rounds": 5, "evaluate_every": 2}), 2)
    known = [line["round"] for line in metrics(directory) if line["test_error"] is not None]
    assert known == [2, 4, 5]
    assert summary(directory)["best_round"] in known


RESUMED: dict[str, dict[str, Any]] = {
    "fedadam": {"base": "fedadam", "model": TINY},
    # Clients have variates of their own, and those of a round that was cut off must not count.
    "scaffold": {"base": "scaffold", "scaffold.option": "I", "fraction_train": 0.7},
    # Their models are theirs, buffers too.
    "local": {**{"base": "local", "evaluate": "local", "model": TINY}, "fraction_train": 0.7},
}


@pytest.mark.parametrize("options", RESUMED.values(), ids=RESUMED)
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    settings: Settings, options: dict[str, Any]
) -> None:
    plan = {**QUICK, "num_rounds": 4, "points_per_client": 120, **options}
    whole = train(settings(**plan), 3)
    directory = cut_off(settings(**plan), 3, call=4)  # hello, prepare, rounds 1 and 2 are over
    assert not (directory / "summary.json").exists()
    assert_same_run(resume(directory, 3), whole)
    best = "model.safetensors"
    assert_same_arrays(load_file(directory / best), load_file(whole / best))
    ends, was = summary(directory), summary(whole)
    same = [key for key in was if not key.startswith("seconds")]
    assert {key: ends[key] for key in same} == {key: was[key] for key in same}
