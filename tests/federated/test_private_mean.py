"""Differential privacy: what clipping bounds, how large the noise is, and what epsilon is spent."""

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from scipy.optimize import brentq
from scipy.stats import norm

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.run_config import resolve
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.engine.in_process import InProcessGrid
from fedul_flwr.federated.messages import ARRAYS, METRICS, to_arrays, to_record
from fedul_flwr.federated.stages.dp import PrivateMean
from tests.support.fedmatch_exchanges import Exchange, watched
from tests.support.refusals import refuses
from tests.support.runs import assert_same_arrays, last_model, summary, train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 3, "local_epochs": 1, "points_per_client": 120}
}
SERVER = {"dp.clipping": "server"}
ALMOST_NONE = 1e-7
"""A noise multiplier, which must be positive."""

pytestmark = pytest.mark.usefixtures("identity")


def private_mean(num_clients: int, **settings: Any) -> PrivateMean:
    base = FedAvg(fraction_train=1.0, min_train_nodes=1, min_available_nodes=1)
    built = PrivateMean(base, DPSettings(**{"clipping": "server", **settings}))
    built.num_clients = num_clients  # type: ignore[attr-defined]
    return built


def ask(
    strategy: PrivateMean, number: int, start: Arrays, sampled: int | None = None
) -> list[Message]:
    grid = InProcessGrid(ClientApp(), sampled or strategy.num_clients, {})
    return list(strategy.configure_train(number, to_record(start), ConfigRecord(), grid))


def answer(message: Message, arrays: Arrays) -> Message:
    weight = MetricRecord({"num-examples": 1.0})
    return Message(RecordDict({ARRAYS: to_record(arrays), METRICS: weight}), reply_to=message)


def a_round(
    strategy: PrivateMean, start: Arrays, returned: list[Arrays], number: int = 1
) -> Arrays:
    """The model after a round in which clients return ``returned``."""
    messages = ask(strategy, number, start, len(returned))
    replies = [answer(*pair) for pair in zip(messages, returned, strict=True)]
    arrays, _ = strategy.aggregate_train(number, replies)
    return to_arrays(cast(ArrayRecord, arrays))


START = {"a": np.array([1.0, 1.0]), "b": np.array([[2.0]])}
FAR = {"a": np.array([3.0, 1.0]), "b": np.array([[3.5]])}  # moved by (2, 0; 1.5), of norm 2.5
NEAR = {"a": np.array([1.0, 1.3]), "b": np.array([[2.4]])}  # moved by (0, 0.3; 0.4), of norm 0.5
MEAN = {"a": np.array([1.4, 1.15]), "b": np.array([[2.5]])}
"""With norm 1 the first moves by (2, 0; 1.5)/2.5 = (0.8, 0; 0.6), the second as it did:
1 + 0.8/2 = 1.4, 1 + 0.3/2 = 1.15, 2 + (0.6 + 0.4)/2 = 2.5."""


@pytest.mark.filterwarnings("error")  # Flower divides by the length of an update
def test_a_client_that_returns_the_model_as_it_was_has_its_part_in_the_mean() -> None:
    returned = [{name: array.copy() for name, array in START.items()}, NEAR]
    found = a_round(private_mean(2, noise_multiplier=ALMOST_NONE), START, returned)
    for name, array in found.items():
        np.testing.assert_allclose(array, (START[name] + NEAR[name]) / 2, atol=1e-5)


def test_a_client_moves_the_model_by_the_norm_at_most() -> None:
    found = a_round(private_mean(2, noise_multiplier=ALMOST_NONE), START, [FAR, NEAR])
    for name, array in MEAN.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5)


def test_noise_has_the_stated_deviation_and_nobodys_seed() -> None:
    """z·C/n = 2·3/4 = 1.5. Of 100,000 numbers the deviation is known within 1.5/√200,000 = 0.003,
    their mean within 1.5/√100,000 = 0.005; tolerances are ten times as wide."""
    start = {"w": np.zeros(100_000)}
    moved = {"w": np.eye(1, 100_000)[0]}
    drawn = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        strategy = private_mean(4, norm=3.0, noise_multiplier=2.0)
        drawn.append(a_round(strategy, start, [moved] * 4)["w"] - moved["w"])
    for noise in drawn:
        assert abs(noise.std() - 1.5) < 0.03
        assert abs(noise.mean()) < 0.05
    assert abs(np.corrcoef(*drawn)[0, 1]) < 0.03


def gaussian_epsilon(releases: int, noise_multiplier: float, delta: float) -> float:
    """By Balle and Wang 2018, theorem 8, with the normal distribution's own functions."""
    mu = math.sqrt(releases) / noise_multiplier

    def excess(epsilon: float) -> float:
        upper = norm.cdf(mu / 2 - epsilon / mu)
        return float(upper - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 1e-9, 100, xtol=1e-10))


def length(update: Arrays, start: Arrays) -> float:
    return float(np.sqrt(sum(((update[name] - start[name]) ** 2).sum() for name in start)))


@pytest.mark.parametrize("clipping", ["server", "client"])
def test_epsilon_is_that_of_the_rounds_released(clipping: str) -> None:
    strategy = private_mean(2, clipping=clipping, noise_multiplier=1.3, delta=1e-4)
    for number in (1, 2, 3):
        a_round(strategy, START, [FAR, NEAR], number)
        spent = strategy.spent
        assert (spent["delta"], spent["releases"]) == (1e-4, number)
        assert spent["budget_exhausted"] is False
        assert spent["epsilon"] == pytest.approx(gaussian_epsilon(number, 1.3, 1e-4), rel=1e-6)


def test_sampling_some_clients_costs_as_much() -> None:
    """Nothing is counted in favor of those who were not sampled; the noise is that of two."""
    some, both = private_mean(50), private_mean(2)
    a_round(some, START, [FAR, NEAR])
    a_round(both, START, [FAR, NEAR])
    assert some.spent["epsilon"] == both.spent["epsilon"]


@pytest.mark.parametrize("after", [2, 4])
def test_clients_that_come_or_go_change_the_noise_and_not_epsilon(after: int) -> None:
    changing, staying = private_mean(3), private_mean(3)
    a_round(changing, START, [FAR, NEAR, NEAR])
    changing.num_clients = after  # type: ignore[attr-defined]
    ask(changing, 2, START)
    assert changing._sampled == after
    for strategy, clients in ((changing, after), (staying, 3), (staying, 3)):
        a_round(strategy, START, [FAR] * clients, 3)
    assert changing.spent == staying.spent
    assert changing.spent["releases"] == 2


# Whole runs


@pytest.mark.parametrize("clipping", ["server", "client"])
def test_a_wide_norm_without_noise_is_fedavg(settings: Settings, clipping: str) -> None:
    wide = {"dp.clipping": clipping, "dp.norm": 1e3, "dp.noise-multiplier": 1e-12}
    plan = {**QUICK, "optimizer": "sgd", "learning_rate": 0.05}  # Adam divides by tiny gradients
    plain, private = train(settings(**plan), 3), train(settings(**plan, **wide), 3)
    for name, array in last_model(plain).items():
        np.testing.assert_allclose(last_model(private)[name], array, rtol=1e-4, atol=1e-6)
    assert "epsilon" not in summary(plain)


@pytest.mark.parametrize(("clipping", "longest"), [("server", 100.0), ("client", 0.1)])
def test_what_the_server_is_sent(settings: Settings, clipping: str, longest: float) -> None:
    exchanges: list[Exchange] = []
    private = {"dp.clipping": clipping, "dp.norm": 0.1, "dp.noise-multiplier": 1e-9}
    directory = train(settings(**QUICK, **private), 3, **watched(exchanges))
    for exchange in exchanges:
        moved = length(exchange.up[ARRAYS], exchange.down[ARRAYS])
        assert moved < longest * (1 + 1e-4)
        assert clipping == "client" or moved > 0.2  # so that it had something to clip
    # The mean of updates that are no longer than 0.1 is not longer either.
    first, second = (e.down[ARRAYS] for e in exchanges if e.client == 0 and e.round < 3)
    assert length(second, first) < 0.1 * (1 + 1e-4)
    assert summary(directory)["releases"] == 3


@pytest.mark.parametrize("method", ["fedul-finetune", "fedul-mix"])
def test_what_the_server_does_with_a_model_costs_nothing(settings: Settings, method: str) -> None:
    plan = {**QUICK, "num_rounds": 2, "server_fraction": 0.1, "base": "fedprox"}
    found = summary(train(settings(**plan, **SERVER, method=method), 2))
    assert found["epsilon"] == pytest.approx(gaussian_epsilon(2, 1.0, 1e-5), rel=0.01)


@pytest.mark.parametrize("clipping", ["server", "client"])
def test_statistics_of_batch_norm_would_leave_without_noise(
    settings: Settings, clipping: str
) -> None:
    with refuses("setting-breaks-privacy", setting="model"):
        train(settings(**{**QUICK, "model": "cnn2"}, **{"dp.clipping": clipping}), 3)


def test_a_run_ends_with_its_budget(settings: Settings) -> None:
    budget = {"dp.max-epsilon": (gaussian_epsilon(2, 1, 1e-5) + gaussian_epsilon(3, 1, 1e-5)) / 2}
    directory = train(settings(**{**QUICK, "num_rounds": 5}, **SERVER, **budget), 2)
    found, model = summary(directory), last_model(directory)
    assert (found["rounds"], found["releases"], found["budget_exhausted"]) == (2, 2, True)
    assert found["epsilon"] < budget["dp.max-epsilon"]
    # To resume it changes nothing.
    train(resolve({"resume": str(directory)}, Path.cwd()), 2)
    assert summary(directory)["epsilon"] == found["epsilon"]
    assert_same_arrays(last_model(directory), model)
