"""XCLP's servers without a grid: seeds, who trains after a lost propagation, traffic, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content
from fedul_flwr.data.seeds import stream
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import NUM_POINTS, payload_parts
from fedul_flwr.federated.nodes import CheckAnswer, ClientRef
from fedul_flwr.federated.round_record import RoundRecord
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.propagation.phases import END, LAST, PREVIOUS_LABELS, ROWS, SENT, UNOPENED
from fedul_flwr.propagation.server import (
    LARGEST,
    LONGEST,
    LabelPropagation,
    refuse_beyond_reach,
)
from fedul_flwr.secure.backends import BACKENDS
from fedul_flwr.secure.similarity import Cost, TooFewClientsError
from fedul_flwr.strategies import xclp, xclp_predict
from fedul_flwr.strategies.xclp import XCLPStrategy
from fedul_flwr.strategies.xclp_predict import XCLPPredict
from tests.support.refusals import refuses

Settings = Callable[..., RunConfig]
CLIENTS = [ClientRef(number, 100 + number) for number in range(4)]
GRID: Any = object()


class Propagation:
    """Stands for a propagation: each client that is left gets its own number as its row."""

    made: list[tuple[Any, ...]]
    left: set[int]
    fails: Exception | None
    tied: set[ClientRef]

    def __init__(self, *given: Any) -> None:
        type(self).made.append(given)

    def join(self, members: list[ClientRef], weights: Any) -> Any:
        if self.fails:
            raise self.fails
        return [member for member in members if member.partition_id in self.left], weights

    def sum_labels(self, left: Any, joint: Any, *, withheld: int | None = None) -> Any:
        rows = {c: Content({"rows": np.array([float(c.partition_id)])}) for c in left}
        return {c: row for c, row in rows.items() if withheld is None or c.partition_id == withheld}


@pytest.fixture
def propagation(monkeypatch: pytest.MonkeyPatch) -> type[Propagation]:
    kind = type(
        "Fake", (Propagation,), {"made": [], "left": {0, 1, 2, 3}, "fails": None, "tied": set()}
    )
    for module in (xclp, xclp_predict):
        monkeypatch.setattr(module, "LabelPropagation", kind)
    return cast(type[Propagation], kind)


@pytest.fixture
def server(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Any, list[tuple[str, list[int]]]]]:
    """A strategy with four clients, and the phases that it sends without asking for answers."""

    def build(kind: type[MethodStrategy], **options: Any) -> tuple[Any, list[Any]]:
        setup = Content(values={"class-names": ["a", "b"]})
        strategy: Any = kind(settings(**options), FedAvg(), {}, setup)
        strategy.registry.clients = list(CLIENTS)
        strategy.registry.answers = {
            client.partition_id: Content(
                values={NUM_POINTS: 30 + client.partition_id, "num-compared": 20, "num-labeled": 1}
            )
            for client in CLIENTS
        }
        strategy.policy.labeled = CLIENTS[:2]
        strategy.policy.unlabeled = CLIENTS[2:]
        sent: list[Any] = []
        monkeypatch.setattr(
            strategy.registry,
            "broadcast",
            lambda _, name, clients: sent.append((name, [c.partition_id for c in clients])),
        )
        return strategy, sent

    return build


Server = Callable[..., tuple[Any, list[tuple[str, list[int]]]]]
TRAIN: dict[str, Any] = {"method": "xclp", "semi.labels-only-rounds": 1, "seed": 6}


def test_given_rounds_of_each_stage_then_the_second_ones_propagate(
    server: Server, propagation: type[Propagation]
) -> None:
    strategy, sent = server(XCLPStrategy, **TRAIN)
    strategy._rows = {}
    assert strategy.before_train(1, ArrayRecord(), GRID) == CLIENTS[:2]  # who has labels
    assert propagation.made == []
    assert sent == []
    propagation.left = {0, 1, 3}
    assert strategy.before_train(5, ArrayRecord(), GRID) == [CLIENTS[0], CLIENTS[1], CLIENTS[3]]
    ((query, fail, options, sizes, number, seed, classes),) = propagation.made
    assert fail == strategy.registry.fail
    assert (query.func, query.args) == (strategy.registry.query, (GRID,))
    assert options is strategy.settings[type(options)]
    assert sizes == {0: 30, 1: 31, 2: 32, 3: 33}
    assert (number, classes) == (5, 2)
    assert seed == stream(6, "codes").bytes(32)  # that of all rounds
    assert sent == [(END, [2])]


def test_given_too_few_clients_then_all_that_were_chosen_train_on_labels_alone(
    server: Server, propagation: type[Propagation], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    strategy, sent = server(XCLPStrategy, **TRAIN)
    strategy._rows = {}
    propagation.fails = TooFewClientsError("2 clients are too few.", [1, 2])
    labeled = [CLIENTS[0], CLIENTS[1]]
    assert strategy.before_train(5, ArrayRecord(), GRID) == labeled
    # But for those that have failed; two that contradict each other have labels, whoever lies.
    strategy.record.failed = {str(CLIENTS[0]): "gone"}
    assert strategy.before_train(5, ArrayRecord(), GRID) == [CLIENTS[1]]
    propagation.tied = {CLIENTS[0]}
    assert strategy.before_train(5, ArrayRecord(), GRID) == labeled
    assert "Round 5: 2 clients" in caplog.text
    assert sent == 3 * [(END, [0, 1, 2, 3])]
    propagation.tied = set()
    strategy.record.failed = {str(client): "gone" for client in CLIENTS[:2]}
    with pytest.raises(TooFewClientsError):
        strategy.before_train(6, ArrayRecord(), GRID)
    assert len(sent) == 4


@pytest.mark.usefixtures("identity")
def test_each_client_gets_its_own_rows_and_they_count_as_traffic(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, _ = server(XCLPStrategy, **TRAIN)
    strategy.rounds.begin(RoundRecord(round=5))
    rows: Mapping[ClientRef, Content] = {
        client: Content({"rows": np.full(3 + client.partition_id, 1.0)}) for client in CLIENTS[:3]
    }

    def configured(self: Any, *_: Any) -> list[Message]:
        self._rows = rows
        content = RecordDict({"config": ConfigRecord({"server-round": 5})})
        return [Message(content, client.node_id, MessageType.TRAIN) for client in rows]

    monkeypatch.setattr(MethodStrategy, "configure_train", configured)
    messages = strategy.configure_train(5, ArrayRecord(), ConfigRecord(), GRID)
    total = 0
    for message, size in zip(messages, (3, 4, 5), strict=True):
        record = cast(ArrayRecord, message.content[ROWS])
        assert record["rows"].numpy().tolist() == [1.0] * size
        assert message.content["config"] == ConfigRecord({"server-round": 5})
        total += payload_parts(RecordDict({ROWS: record}))[ROWS]
    assert strategy.record.down[ROWS] == strategy.record.down.total() == total
    assert total > 3 * 8 * 4


# Limits of a propagation

LIMITS = [(LONGEST, LARGEST, True), (LONGEST + 1, LARGEST, False), (LONGEST, LARGEST + 1, False)]


@pytest.mark.parametrize(("seconds", "traffic", "allowed"), LIMITS)
def test_a_propagation_may_be_as_large_as_the_limits(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    traffic: float,
    allowed: bool,
) -> None:
    options = settings(method="xclp", **{"xclp.secure": "rlwe"})[XCLPSettings]
    of_this_size = replace(BACKENDS["rlwe"], cost=lambda *_: Cost(seconds, traffic))
    monkeypatch.setitem(BACKENDS, "rlwe", of_this_size)  # type: ignore[arg-type]
    if allowed:
        refuse_beyond_reach(options, [10, 10, 10], 3)
    else:
        with refuses("too-expensive", setting="xclp.secure"):
            refuse_beyond_reach(options, [10, 10, 10], 3)


@pytest.mark.parametrize(
    ("share", "named"),
    [
        (np.zeros((6, 2), np.int64), r"int64 \(6, 2\)"),
        (np.zeros((5, 2), np.uint64), r"uint64 \(5, 2\)"),
        (np.zeros((6, 3), np.uint64), r"uint64 \(6, 3\)"),
        (np.zeros((6, 2), np.uint64), ""),
    ],
)
def test_a_share_has_the_type_and_the_rows_of_the_others(
    settings: Settings, share: Any, named: str
) -> None:
    options = settings(method="xclp")[XCLPSettings]
    propagation: Any = LabelPropagation(lambda *_: {}, lambda _: None, options, {}, 1, bytes(32), 2)
    answer, rows = (
        Content({SENT: share}),
        {0: 3, 1: 1, 2: 4},
    )  # 1 + 4 rows, and a check row
    if not named:
        propagation._check_share(rows, CLIENTS[0], answer)
        return
    with refuses("message-form", BadMessageError, match=f"share {named};"):
        propagation._check_share(rows, CLIENTS[0], answer)


# Prediction

PREDICT: dict[str, Any] = {"method": "xclp-predict", "seed": 6, "labels.total": 40}


def predicting(server: Server, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """A server that labels, what it does before, and what it tells each client."""
    strategy, sent = server(XCLPPredict, **{**PREDICT, **options})
    before: list[Any] = []
    monkeypatch.setattr(strategy.registration, "register_all", before.append)
    monkeypatch.setattr(strategy.columns, "share", before.append)
    strategy._compared = {client.partition_id: 20 for client in CLIENTS}
    told: list[Any] = []

    def query(
        grid: Any, name: str, contents: Mapping[ClientRef, Content], check: CheckAnswer
    ) -> Any:
        assert grid is GRID
        for client, content in contents.items():
            values = content.values
            told.append((client.partition_id, values[PREVIOUS_LABELS], values[LAST]))
        answers = {
            client: Content(values={UNOPENED: False})
            for client in contents
            if client.partition_id != 3
        }
        for client, answer in answers.items():
            check(client, answer)
        return answers

    monkeypatch.setattr(strategy.registry, "query", query)
    return SimpleNamespace(strategy=strategy, sent=sent, before=before, told=told)


@pytest.mark.parametrize("left_out", [True, False])
def test_given_a_propagation_then_clients_are_told_and_the_others_leave_it(
    server: Server,
    propagation: type[Propagation],
    monkeypatch: pytest.MonkeyPatch,
    left_out: bool,
) -> None:
    option = {"xclp-predict.leave-one-out": left_out}
    found = predicting(server, monkeypatch, **option)
    propagation.left = {0, 1, 3}
    found.strategy.label(GRID, {})
    assert found.before == [GRID, GRID]
    own = [(client, True, not left_out) for client in (0, 1, 3)]
    others = [(client, False, False) for client in (0, 1, 3)]
    assert found.told == own + others * left_out
    # Client 3 has not answered: it is told to leave, as is 2, who was lost before.
    assert found.sent == [(END, [0, 1, 2, 3] if left_out else [2, 3])]
    assert found.strategy.record.clients == 2
    (made,) = propagation.made
    assert made[4] == 1
    assert made[5] == stream(6, "codes", 0).bytes(32)


def test_given_as_many_groups_as_clients_then_each_is_alone(server: Server) -> None:
    strategy, _ = server(XCLPPredict, **PREDICT, **{"xclp-predict.groups": 4})
    order = stream(6, "groups").permutation(4)
    assert strategy.groups() == [[CLIENTS[index]] for index in order]
    strategy, _ = server(XCLPPredict, **PREDICT, **{"xclp-predict.groups": 5})
    with refuses("too-few-clients", setting="xclp-predict.groups"):
        strategy.groups()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"measure_test_error": False}, "measure-test-error = false"),
        ({"calibration": "temperature"}, "calibration = 'temperature'"),
    ],
)
def test_given_a_setting_of_a_model_then_xclp_predict_refuses_it(
    settings: Settings, options: dict[str, Any], named: str
) -> None:
    with refuses("setting-without-effect", match=named):
        XCLPPredict.validate(settings(**PREDICT, **options))


@pytest.mark.parametrize(
    "labels", [{"labels.new-fraction": 0.2}, {"labels.split": "an-earlier-split.npz"}]
)
def test_given_new_points_then_the_graph_can_do_without_unlabeled_ones(
    settings: Settings, labels: dict[str, Any]
) -> None:
    total = {} if "labels.split" in labels else {"labels.total": 40}
    plan = {"method": "xclp-predict", "xclp-predict.use-unlabeled": False}
    XCLPPredict.validate(settings(**plan, **total, **labels))
