"""When in a round the server trains on its labels: before the clients, or after their mean."""

from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.messages import ARRAYS, METRICS, Content, to_arrays, to_record
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.server_training import ServerTrainer
from fedul_flwr.federated.strategy import Strategy, validate
from tests.support.plain_loops import assert_ends_as, fresh, split_of, step
from tests.support.refusals import refuses
from tests.support.runs import assert_same_run, cut_off, metrics, resume, same, train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 60},
    **{"server_fraction": 0.1},
}
AT_SERVER: dict[str, Any] = {**QUICK, "scenario.labels-at": "server"}
WIDE: dict[str, Any] = {
    **{"precision": "float64", "batch_size": 0, "optimizer": "sgd", "learning_rate": 0.01}
}
BI_OBJECTIVE = ("fedul-finetune", "fedul-mix")


def options(method: str, **more: Any) -> dict[str, Any]:
    return {**(QUICK if method in BI_OBJECTIVE else AT_SERVER), "method": method, **more}


# By hand: the client doubles the model's one weight, and the server adds 1 to it.


class AddsOne:
    """In place of training at the server."""

    def train(self, arrays: ArrayRecord, *rest: Any) -> tuple[ArrayRecord, float]:
        return to_record({"w": to_arrays(arrays)["w"] + 1}), 0.5


def doubled(message: Message) -> Message:
    arrays = {"w": to_arrays(cast(ArrayRecord, message.content[ARRAYS]))["w"] * 2}
    figures = {"num-examples": 3, "loss": 2.0, "steps": 1, "normalizer": 1.0}
    spans = MetricRecord({"started": 10.0, "ended": 12.0})
    content = {ARRAYS: to_record(arrays), METRICS: MetricRecord(figures), "diagnostics": spans}
    return Message(RecordDict(dict(content)), reply_to=message)


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize(
    ("when", "first", "second"),
    [
        ("before", 4.0, 10.0),  # 2·(1 + 1), 2·(4 + 1)
        ("after", 3.0, 7.0),  # 2·1 + 1, 2·3 + 1
        ("parallel", 2.0, 3.5),  # (2·1 + 1 + 1)/2, (2·2 + 2 + 1)/2
    ],
)
def test_given_a_turn_then_the_model_of_a_round_is_what_the_last_one_has_made_of_it(
    settings: Settings, when: str, first: float, second: float
) -> None:
    assert rounds_by_hand(settings, when)[:2] == [first, second]


def rounds_by_hand(settings: Settings, when: str, **more: Any) -> list[float]:
    """The model's weight after each of three rounds, at first 1."""
    config = settings(**AT_SERVER, method="fixmatch", **{"server.when": when}, **more)
    trainer = cast(ServerTrainer, AddsOne())
    strategy = Strategy(config, build_base(config), Content(), trainer=trainer)
    strategy.registry.clients = [ClientRef(0, FIRST_NODE_ID)]
    strategy.registry.answers = {0: Content(values={"num-points": 1000})}
    grid, model = InProcessGrid(ClientApp(), 1, {}), to_record({"w": np.ones(1)})
    found = []
    for number in (1, 2, 3):
        messages = list(strategy.configure_train(number, model, ConfigRecord(), grid))
        combined, _ = strategy.aggregate_train(number, [doubled(one) for one in messages])
        model = cast(ArrayRecord, combined)
        found.append(float(to_arrays(model)["w"][0]))
        assert strategy.record.reported["server-loss"] == 0.5
    return found


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize(
    ("when", "models"),
    [
        # Of 2 the client makes 4: the step is 2, and the model 4. Of 5 it makes 10: the step is
        # 5 + 2/2 = 6, and the model 11. Of 12 it makes 24: the step is 12 + 6/2, and the model 27.
        ("before", [4.0, 11.0, 27.0]),
        # Of 1 it makes 2, the step is 1, the model 2 and, with the server's 1, 3. Of 3 it makes 6:
        # the step is 3 + 1/2, and the model 6.5 + 1. Then it is 7.5 + 3.5/2, 16.75 and 17.75.
        ("after", [3.0, 7.5, 17.75]),
        # Of 1 both make 2: the step is 1. Of 2 they make 4 and 3: the step is 1.5 + 1/2, the model
        # 4. Of 4 they make 8 and 5: the step is 2.5 + 2/2.
        ("parallel", [2.0, 4.0, 7.5]),
    ],
)
def test_given_server_momentum_then_its_step_begins_at_the_model_that_clients_got(
    settings: Settings, when: str, models: list[float]
) -> None:
    momentum = {"base": "fedavgm", "fedavgm.server-momentum": 0.5}
    assert rounds_by_hand(settings, when, **momentum) == models


# Real training, one step at each side


@pytest.mark.parametrize("when", ["before", "after"])
def test_given_one_client_and_one_step_at_each_side_then_they_come_in_that_order(
    settings: Settings, when: str
) -> None:
    config = settings(**AT_SERVER, **WIDE, method="all-labels", **{"server.when": when})
    directory = train(config, 1)
    split = split_of(config, 1)
    model, sides = fresh(config), [split.server, split.clients[0].points]
    for _ in range(2):
        for rows in sides if when == "before" else sides[::-1]:
            step(model, rows, config.learning_rate, 10)
    assert_ends_as(directory, model)


def test_given_a_run_that_was_cut_off_then_it_ends_as_an_uninterrupted_one(
    settings: Settings,
) -> None:
    more = {"fedul-mix.independent": "persistent", "server.when": "before"}
    plan = options("fedul-mix", **{"num_rounds": 4, **more})
    whole = train(settings(**plan), 4)
    directory = cut_off(settings(**plan), 4, call=4)  # hello, prepare, two rounds are over
    assert len(metrics(directory)) == 2
    assert_same_run(resume(directory, 4), whole)


# What is refused


def test_given_labels_at_the_server_alone_then_there_is_no_turn(settings: Settings) -> None:
    config = settings(**AT_SERVER, method="given-labels", **{"server.when": "after"})
    with refuses("method-mismatch", setting="server.when"):
        validate(config)


def test_given_no_sure_point_then_semifl_in_parallel_has_the_servers_model(
    settings: Settings,
) -> None:
    unsure = {"method": "semifl", "semifl.threshold": 0.999}
    runs = [
        train(settings(**{**AT_SERVER, **unsure, "num_rounds": 1, "server.when": when}), 1)
        for when in ("parallel", "after")
    ]
    assert same(*runs)
