"""SemiFL in runs: who trains when, what lives on between rounds, what is refused."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import MetricRecord, RecordDict
from safetensors.numpy import load_file

from fedul_flwr.baselines.semifl import MEAN_POSTERIOR, MEAN_TOP, SemiFL
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.messages import DIAGNOSTICS, METRICS
from fedul_flwr.federated.payload import Sizes, in_record, reports_of
from fedul_flwr.federated.replies import check_trained
from fedul_flwr.learning.batch_statistics import norm_statistics
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.models import build_model
from tests.support.fedmatch_exchanges import TINY
from tests.support.plain_loops import split_of
from tests.support.refusals import refuses
from tests.support.runs import assert_same_run, cut_off, last_model, metrics, resume, same, train
from tests.support.settings import Settings

SERVER: dict[str, Any] = {"scenario.labels-at": "server", "server_fraction": 0.1}
SGD: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.03, "momentum": 0.9}
QUICK: dict[str, Any] = {
    **{"method": "semifl", "model": "mlp", "num_rounds": 3, "local_epochs": 1},
    **{"points_per_client": 60, "semifl.threshold": 0.3},
    **SERVER,
    **SGD,
}
FL2: dict[str, Any] = {
    **{"semifl.threshold": "adaptive", "semifl.mix-weight": 0.0},
    **{"semifl.learning-status": True, "semifl.sharpness": 0.1},
}


def test_every_setting_counts(settings: Settings) -> None:
    """Those that the example has are compared with its page."""
    plain: dict[str, Any] = {**QUICK, "server.epochs": 3}
    adaptive = {"semifl.threshold": "adaptive"}
    others: list[dict[str, Any]] = [
        {"semifl.mix-weight": 0.0},
        {"semifl.sharpness": 0.5},
        {"semifl.alignment": True},
        {"server.when": "before"},
        {"ssl.operations": 1},
        {"scenario.streaming-steps": 2, "scenario.rounds-per-step": 1},
        adaptive,
        {**adaptive, "semifl.learning-status": True},
    ]
    runs = [train(settings(**{**plain, **other}), 3) for other in ({}, *others)]
    for other, run in zip(others, runs[1:], strict=True):
        assert not same(runs[0], run), other
    assert not same(runs[-2], runs[-1])


RESUMED: dict[str, dict[str, Any]] = {
    "momentum": {"fraction_train": 0.5, "base": "fedavgm", "learning_rate_schedule": "cosine"},
    "(FL)2": FL2,
    "alignment": {"semifl.alignment": True},
    "batch norm": {"model": TINY, "augment": "rotate"},
}


@pytest.mark.parametrize("options", RESUMED.values(), ids=RESUMED)
def test_given_a_run_that_was_cut_off_then_it_ends_as_an_uninterrupted_one(
    settings: Settings, options: dict[str, Any]
) -> None:
    plan = {**QUICK, "num_rounds": 4, **options}
    whole = train(settings(**plan), 4)
    calls = 2 if options.get("model") == TINY else 1  # a round's training, and its statistics
    directory = cut_off(settings(**plan), 4, call=2 + 2 * calls)
    assert len(metrics(directory)) == 2
    assert_same_run(resume(directory, 4), whole)


def test_given_a_client_then_its_momentum_is_in_its_own_folder_and_nothing_is_sent_of_it(
    settings: Settings,
) -> None:
    directory = train(settings(**QUICK, **{"server.epochs": 3}), 2)
    for client in ("0", "1"):
        (file,) = (directory / "clients" / client).glob("momentum-*.safetensors")
        kept = load_file(file)
        assert kept.keys() == last_model(directory).keys()
        assert any(array.any() for array in kept.values())
    state = load_file(directory / "state-3.safetensors")
    assert {name.removeprefix("momentum/") for name in state} == last_model(directory).keys()


@pytest.mark.parametrize(("clients", "points", "steps"), [(3, 60, 1), (1, 1000, 2)])
def test_given_batch_norm_then_its_statistics_are_those_of_the_model_on_all_batches(
    settings: Settings, clients: int, points: int, steps: int
) -> None:
    """Batches have up to 250 points, and with a stream only those of the present step count."""
    plan = {**QUICK, "model": TINY, "points_per_client": points, "scenario.streaming-steps": steps}
    config = settings(**plan)
    directory = train(config, clients)
    arrays, split = last_model(directory), split_of(config, clients)
    source = load_source("digits")
    parts = [split.server]
    for number, client in enumerate(split.clients):
        order = stream(config.seed, "streaming", number).permutation(len(client.points))
        parts.append(client.points[np.array_split(order, steps)[0]])
    model = build_model(TINY, source.input_shape, 10)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    found = [norm_statistics(model, source.train.inputs, rows, LocalPlan())[0] for rows in parts]
    batches = [math.ceil(len(rows) / 250) for rows in parts]
    assert max(batches) == steps  # the one client has 500 points in its step, of 1,000
    for name in found[0]:
        statistics = [one[name] for one in found]
        mean = np.average(statistics, axis=0, weights=batches)
        np.testing.assert_allclose(arrays[name], mean, rtol=1e-4, atol=1e-5)


def test_given_frozen_rounds_then_statistics_stay_as_they_were(settings: Settings) -> None:
    plan = {**QUICK, "model": TINY, "num_rounds": 1}
    first = train(settings(**plan), 2)
    frozen = {"start_from": str(first), "frozen_rounds": 1}
    found = last_model(train(settings(**{**plan, **frozen, "num_rounds": 1}), 2))
    later = last_model(train(settings(**{**plan, **frozen, "num_rounds": 2}), 2))
    for name, array in last_model(first).items():
        if "running" in name:
            np.testing.assert_array_equal(found[name], array)
            assert not np.array_equal(later[name], array)


def reply(**figures: Any) -> Any:
    values = {name.replace("_", "-"): value for name, value in figures.items()}
    return SimpleNamespace(content=RecordDict({METRICS: MetricRecord(values)}))


def strategy_of(config: RunConfig) -> SemiFL:
    return SemiFL(config, build_base(config), Content(values={"class-names": ["a", "b"]}))


@pytest.mark.parametrize(
    ("tops", "weights"), [([0.9, 0.6, 0.5], [0.1, 0.4, 0.5]), ([1.0, 1.0], [1.0, 1.0])]
)
def test_given_learning_status_then_the_least_learned_client_counts_most(
    settings: Settings, tops: list[float], weights: list[float]
) -> None:
    replies = [reply(num_examples=3, mean_top_probability=top) for top in tops]
    found = strategy_of(settings(**{**QUICK, **FL2})).weigh(replies)
    np.testing.assert_allclose(found, weights)
    assert strategy_of(settings(**QUICK)).weigh(replies).tolist() == [1.0] * len(tops)


WRONG = (
    *((MEAN_TOP, x, "message-out-of-range") for x in (-3.0, 1.5)),
    (MEAN_TOP, None, "message-incomplete"),
    (MEAN_POSTERIOR, [0.5, 0.5, 0.0], "message-form"),
    (MEAN_POSTERIOR, [1.5, -0.5], "message-out-of-range"),
    (MEAN_POSTERIOR, [0.5, 0.4], "message-out-of-range"),
)


@pytest.mark.parametrize(("name", "wrong", "code"), WRONG)
def test_given_numbers_that_no_points_give_then_the_client_is_refused(
    settings: Settings, name: str, wrong: Any, code: str
) -> None:
    declared = reports_of(settings(**QUICK | FL2 | {"semifl.alignment": True}))
    sizes = Sizes(classes=2)
    right = {"num-examples": 3, MEAN_TOP: 0.5, MEAN_POSTERIOR: [0.25, 0.75]}
    right |= {"started": 1.0, "ended": 2.0}
    nothing = {"num-examples": 0, "started": 1.0, "ended": 2.0}  # it counts nothing

    def reply(values: dict[str, Any]) -> RecordDict:
        apart = in_record(declared, DIAGNOSTICS)
        tables = {METRICS: MetricRecord(), DIAGNOSTICS: MetricRecord()}
        for key, value in values.items():
            tables[DIAGNOSTICS if key in apart else METRICS][key] = value
        return RecordDict({**tables})

    given = {key: value for key, value in {**right, name: wrong}.items() if value is not None}
    with refuses(code, BadMessageError):
        check_trained(reply(given), declared, sizes)
    for fine in (right, nothing):
        check_trained(reply(fine), declared, sizes)


@pytest.mark.parametrize(
    "options",
    [
        {"ssl.supervised-weight": 2.0},
        {"views.weak": True},
        {"labels.total": 7},
        {"semifl.learning-status": True, "base": "krum"},
        {"semifl.learning-status": True, "client_weights": "examples"},
    ],
)
def test_what_has_no_effect_is_refused(settings: Settings, options: dict[str, Any]) -> None:
    with refuses("setting-without-effect"):
        settings(**{**QUICK, **options})


def test_given_a_stream_that_has_run_dry_then_the_server_goes_on(settings: Settings) -> None:
    steps = {"scenario.streaming-steps": 3, "scenario.rounds-per-step": 1}
    directory = train(settings(**{**QUICK, "points_per_client": 2, "model": TINY}, **steps), 2)
    assert len(metrics(directory)) == 3
    assert Path(directory, "summary.json").is_file()
