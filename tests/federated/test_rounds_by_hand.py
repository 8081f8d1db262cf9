"""Rounds by hand: three nodes, a model of four numbers, replies made up here."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import ArrayLike

from fedul_flwr.arrays import Arrays
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.combine import weighted_mean
from fedul_flwr.federated.grid import RoundRecord
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DIAGNOSTICS,
    METRICS,
    Content,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.resume import dump_base_state, go_on, load_base_state
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.strategies.fednova import FedNova
from tests.support.refusals import refuses
from tests.support.settings import Settings

MODEL: Arrays = {
    "w": np.array([1.0, 2.0], np.float32),
    "mean": np.array([4.0], np.float32),
    "count": np.array(5),
}
BUFFERS = frozenset({"mean", "count"})
BYTES = 128 * 3 + 2 * 4 + 4 + 8
"""Of the model: a header for each array, and the numbers."""

pytestmark = pytest.mark.usefixtures("identity")


@pytest.fixture
def grid() -> InProcessGrid:
    return InProcessGrid(ClientApp(), 3, {})


def strategy_of(settings: Settings, offset: int = 0, **options: Any) -> Strategy:
    config = settings(method="supervised", **options)
    built = Strategy(config, build_base(config), Content(), buffers=BUFFERS)
    go_on(built, {}, offset)
    built.registry.clients = [ClientRef(client, FIRST_NODE_ID + client) for client in range(3)]
    built.registry.answers = dict.fromkeys(range(3), Content(values={"num-points": 1000}))
    return built


def by_node(messages: Iterable[Message]) -> list[Message]:
    """Flower asks nodes in a random order."""
    return sorted(messages, key=lambda message: message.metadata.dst_node_id)


def answer(message: Message, w: ArrayLike, mean: float, size: int, loss: float) -> Message:
    """An update that began and ended as many seconds after 10 as its client's number says."""
    arrays = {
        "w": np.array(w, np.float32),
        "mean": np.array([mean], np.float32),
        "count": np.array(99),
    }
    figures = {"num-examples": size, "loss": loss, "steps": 2, "normalizer": 2.0}
    client = message.metadata.dst_node_id - FIRST_NODE_ID
    spans = MetricRecord({"started": 10.0 + client, "ended": 12.0 + client})
    content = {ARRAYS: to_record(arrays), METRICS: MetricRecord(figures), DIAGNOSTICS: spans}
    return Message(RecordDict(dict(content)), reply_to=message)


def a_round(
    strategy: Strategy, grid: InProcessGrid, number: int = 1
) -> tuple[Arrays, MetricRecord | None]:
    """Two clients learn from 3 points and 1 point, the last one from none."""
    messages = by_node(strategy.configure_train(number, to_record(MODEL), ConfigRecord(), grid))
    replies = [
        answer(messages[2], [50.0, 50.0], 50.0, 0, 0.0),
        answer(messages[1], [5.0, 0.0], 8.0, 1, 6.0),
        answer(messages[0], [1.0, 4.0], 0.0, 3, 2.0),
    ]
    arrays, metrics = strategy.aggregate_train(number, replies)
    return to_arrays(cast(ArrayRecord, arrays)), metrics


@pytest.mark.parametrize(
    ("weights", "w", "mean", "loss"),
    [
        ("uniform", [3.0, 2.0], 4.0, 4.0),  # (1 + 5)/2, (4 + 0)/2, (0 + 8)/2, (2 + 6)/2
        ("examples", [2.0, 3.0], 2.0, 3.0),  # (3·1 + 5)/4, (3·4 + 0)/4, (0 + 8)/4, (3·2 + 6)/4
    ],
)
def test_a_round_is_the_mean_of_those_that_learned_something(
    settings: Settings, grid: InProcessGrid, weights: str, w: list[float], mean: float, loss: float
) -> None:
    strategy = strategy_of(settings, client_weights=weights)
    model, metrics = a_round(strategy, grid)
    assert list(model) == ["w", "mean", "count"]
    np.testing.assert_allclose(model["w"], w)
    np.testing.assert_allclose(model["mean"], [mean])
    assert model["count"] == 5  # a counter is not averaged
    assert [array.dtype for array in model.values()] == [array.dtype for array in MODEL.values()]
    assert metrics is not None
    record = strategy.record
    assert (record.round, record.sampled, record.clients, record.failures) == (1, 3, 3, 0)
    assert (record.model_bytes, record.model_values) == (BYTES, 4)
    assert record.reported == {"loss": loss, "steps": 2.0}
    assert record.spans == [(10.0, 12.0), (11.0, 13.0), (12.0, 14.0)]
    assert record.heldout_loss is None


def test_a_base_that_combines_nothing_ends_the_run(settings: Settings, grid: InProcessGrid) -> None:
    strategy = strategy_of(settings)
    strategy.base.aggregate_train = lambda number, replies: (None, None)  # type: ignore[method-assign]
    with refuses("no-update", match="combined"):
        a_round(strategy, grid)


# Held-out losses


def losses(messages: list[Message], figures: list[tuple[float, int]]) -> list[Message]:
    """Replies with a loss and the number of points that it is of."""
    return [
        Message(
            RecordDict({METRICS: MetricRecord({"loss": loss, "num-examples": size})}),
            reply_to=message,
        )
        for message, (loss, size) in zip(messages, figures, strict=True)
    ]


def test_the_held_out_loss_is_the_median_over_clients_whatever_points_they_claim(
    settings: Settings, grid: InProcessGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = strategy_of(settings, offset=2, selection="heldout", validation_fraction=0.0)
    monkeypatch.setattr(strategy, "client_config", lambda: {"rate-factor": 0.5})
    strategy.rounds.begin(RoundRecord(round=3))
    told = ConfigRecord({"own": 1})
    messages = by_node(strategy.configure_evaluate(1, to_record(MODEL), told, grid))
    assert [message.metadata.dst_node_id for message in messages] == [1000, 1001, 1002]
    for message in messages:
        assert message.metadata.message_type == "evaluate"
        assert list(cast(ArrayRecord, message.content[ARRAYS])) == list(MODEL)
        assert message.content[CONFIG] == ConfigRecord(
            {"own": 1, "rate-factor": 0.5, "server-round": 3}
        )
    assert strategy.record.down == {"evaluation": 3 * (BYTES + 3 * 8)}
    metrics = strategy.aggregate_evaluate(1, losses(messages, [(2.0, 3), (6.0, 1), (-1e30, 900)]))
    assert metrics == MetricRecord({"loss": 2.0})  # the middle one of -1e30, 2 and 6
    assert strategy.record.heldout_loss == 2.0
    assert strategy.record.heldout_losses == [(0, 2.0), (1, 6.0), (2, -1e30)]


def test_who_has_held_out_nothing_has_no_part_in_the_held_out_loss(
    settings: Settings, grid: InProcessGrid
) -> None:
    strategy = strategy_of(settings, selection="heldout", validation_fraction=0.0)
    strategy.rounds.begin(RoundRecord(round=1))
    messages = by_node(strategy.configure_evaluate(1, to_record(MODEL), ConfigRecord(), grid))
    strategy.aggregate_evaluate(1, losses(messages, [(2.0, 3), (6.0, 1), (0.0, 0)]))
    assert strategy.record.heldout_loss == 4.0  # the median of two is their mean
    assert strategy.record.heldout_losses == [(0, 2.0), (1, 6.0)]


# Pieces of it


def test_memory_of_a_base_comes_back_as_it_was() -> None:
    """Moments by name, and momentum in the model's order, of which there are more than ten."""
    base, again = FedAvg(), FedAvg()
    assert dump_base_state(base) == {}
    moments = {"0.weight": np.array([1.0]), "a/b": np.array([2.0])}
    momentum = [np.array([float(i)]) for i in range(12)]
    base.m_t, base.momentum_vector, base.v_t = moments, momentum, None  # type: ignore[attr-defined]
    kept = dump_base_state(base)
    assert len(kept) == 14
    assert all(isinstance(array, np.ndarray) for array in kept.values())
    load_base_state(again, dict(reversed(kept.items())))
    assert again.m_t == moments  # type: ignore[attr-defined]
    assert again.momentum_vector == momentum  # type: ignore[attr-defined]
    assert not hasattr(again, "v_t")


def test_a_weighted_mean_has_the_bits_of_flowers() -> None:
    """Weights are divided before they multiply, and products are added one after the other."""
    rng = np.random.default_rng(0)
    records = [to_record({"w": rng.normal(size=99).astype(np.float32)}) for _ in range(5)]
    weights = [3.0, 0.1, 7.0, 11.0, 0.7]
    replies = [
        Message(
            RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": weight})}),
            reply_to=Message(RecordDict(), dst_node_id=1, message_type="train"),
        )
        for record, weight in zip(records, weights, strict=True)
    ]
    flowers, _ = FedAvg().aggregate_train(1, replies)
    assert flowers is not None
    mean = weighted_mean(records, weights)["w"].numpy()
    np.testing.assert_array_equal(mean, flowers["w"].numpy(), strict=True)


# SCAFFOLD's c


def test_fednova_reports_the_means_of_the_clients_figures(grid: InProcessGrid) -> None:
    """x = 2, y = 4 after 1 step and 8 after 3: tau = 2, x + 2·(2/1 + 6/3)/2 = 6."""
    base = FedNova(fraction_train=1.0, min_train_nodes=1, min_available_nodes=1)
    x = to_record({"w": np.array([2.0])})
    messages = by_node(base.configure_train(1, x, ConfigRecord({"own": 1}), grid))
    assert messages[0].content[CONFIG] == ConfigRecord({"own": 1, "server-round": 1})
    replies = []
    for message, y, steps in zip(messages, (4.0, 8.0), (1.0, 3.0), strict=False):
        figures = {"num-examples": 2.0, "normalizer": steps, "loss": y}
        content = {ARRAYS: to_record({"w": np.array([y])}), METRICS: MetricRecord(figures)}
        replies.append(Message(RecordDict(dict(content)), reply_to=message))
    failed = grid.send_and_receive(messages[2:])
    arrays, metrics = base.aggregate_train(1, [*replies, *failed])
    assert to_arrays(cast(ArrayRecord, arrays))["w"].tolist() == [6.0]
    assert metrics == MetricRecord({"normalizer": 2.0, "loss": 6.0})
