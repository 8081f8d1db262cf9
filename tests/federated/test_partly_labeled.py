"""Two stages and who is sampled in them: by hand, at their borders, over bases, resumed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.types import Content
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.policies import LabelStages
from fedul_flwr.federated.strategy import Strategy
from tests.support.runs import assert_same_run, cut_off, metrics, resume, same, train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "local_epochs": 1, "points_per_client": 60, "labels.total": 60}
}
SECOND = 11
"""First round of the second stage by default."""


class Stages(Strategy):
    policy_class = LabelStages
    policy: LabelStages


@pytest.fixture
def strategy(settings: Settings) -> Callable[..., Stages]:
    """``strategy(labeled, clients, **settings)``: clients that have labels, and how many."""

    def build(labeled: set[int], clients: int, kind: type[Stages] = Stages, **more: Any) -> Stages:
        config = settings(method="pseudo-label", **more)
        built = kind(config, build_base(config), Content())
        built.registry.clients = [ClientRef(number, 1000 - number) for number in range(clients)]
        built.policy.changed(
            {n: Content(values={"num-labeled": 3 * (n in labeled)}) for n in range(clients)}
        )
        return built

    return build


Build = Callable[..., Stages]
TEN = set(range(0, 20, 2))


def kinds(strategy: Stages, round_number: int) -> tuple[int, int]:
    """How many of a round's clients have labels and how many have none."""
    chosen = strategy.policy.sample(round_number)
    assert chosen == sorted(set(chosen))
    with_labels = sum(member in strategy.policy.labeled for member in chosen)
    return with_labels, len(chosen) - with_labels


@pytest.mark.parametrize(
    ("labeled", "clients", "more", "first", "second"),
    [
        (TEN, 20, {"fraction_train": 0.25}, (5, 0), (3, 2)),
        (TEN, 20, {"fraction_train": 0.2}, (4, 0), (3, 1)),
        (set(range(20)), 50, {"fraction_train": 0.5}, (20, 0), (15, 10)),
        ({1}, 20, {"fraction_train": 0.25}, (1, 0), (1, 4)),
        (set(range(19)), 20, {"fraction_train": 0.25}, (5, 0), (4, 1)),
        ({1, 3}, 5, {}, (2, 0), (2, 3)),
    ],
)
def test_how_many_of_each_kind(
    strategy: Build,
    labeled: set[int],
    clients: int,
    more: dict[str, Any],
    first: tuple[int, int],
    second: tuple[int, int],
) -> None:
    built = strategy(labeled, clients, **more)
    assert {kinds(built, number) for number in range(1, SECOND)} == {first}
    assert {kinds(built, number) for number in range(SECOND, SECOND + 10)} == {second}


# Whole runs


METHODS = ("xclp", "fedsem")


@pytest.mark.parametrize("method", METHODS)
def test_the_first_stage_is_training_on_labels_alone(settings: Settings, method: str) -> None:
    plan = {**QUICK, "labels.labeled-clients": 0.5, "fraction_train": 0.5, "num_rounds": 2}
    plan["augment"] = "rotate"
    bits = {"xclp.num-bits": 256} if method in ("xclp", "local-lp") else {}
    only = train(settings(**plan, method="labels-only"), 6)
    first = train(settings(**plan, **bits, method=method, **{"semi.labels-only-rounds": 2}), 6)
    assert same(only, first)
    both = train(settings(**plan, **bits, method=method, **{"semi.labels-only-rounds": 1}), 6)
    assert metrics(both)[0] == metrics(only)[0]
    assert not same(only, both)


XCLP: dict[str, Any] = {
    **QUICK,
    **{"method": "xclp", "xclp.num-bits": 256, "semi.labels-only-rounds": 1, "num_rounds": 4},
    **{"labels.labeled-clients": 0.5, "fraction_train": 0.75},
}


def test_a_resumed_run_ends_as_an_uninterrupted_one(settings: Settings) -> None:
    plan = {**XCLP, "base": "scaffold", "optimizer": "sgd", "learning_rate": 0.1}
    whole = train(settings(**plan), 4)
    # Calls: hello, prepare, round 1; then compare, sum, train in rounds 2, 3 and 4.
    directory = cut_off(settings(**plan), 4, 8)
    assert 1 <= len(metrics(directory)) < 4
    assert_same_run(resume(directory, 4), whole)


@pytest.mark.parametrize(("method", "base"), [("pseudo-label", "scaffold"), ("xclp", "fedavg")])
def test_a_client_with_nothing_to_learn_from_is_left_out(
    settings: Settings, tmp_path: Path, method: str, base: str
) -> None:
    plan = {"model": "mlp", "local_epochs": 1, "num_rounds": 2, "method": method, "base": base}
    plan |= {"semi.labels-only-rounds": 0, "optimizer": "sgd", "learning_rate": 0.1}
    plan |= {"xclp.num-bits": 256} if method == "xclp" else {}
    two = train(settings(**plan, **{"labels.total": 20}, points_per_client=30), 2)
    with np.load(two / "split.npz") as archive:
        arrays = dict(archive)
    arrays["bounds"] = np.append(arrays["bounds"], arrays["bounds"][-1])  # client 2 has no point
    np.savez(tmp_path / "split.npz", **arrays)
    three = train(settings(**plan, **{"labels.split": str(tmp_path / "split.npz")}), 3)
    assert [line["clients"] for line in metrics(three)] == [3, 3]
    assert [line["failures"] for line in metrics(three)] == [0, 0]
    if base == "fedavg":  # SCAFFOLD divides by the number of all clients
        assert same(two, three)
    assert metrics(two)[0]["loss"] == metrics(three)[0]["loss"]
