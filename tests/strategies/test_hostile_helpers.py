"""FedMatch's helper channel: what is judged bad reaches no other client."""

from typing import cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content
from fedul_flwr.federated.grid import RoundRecord
from fedul_flwr.federated.messages import HELPERS, to_record
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.stage import RoundAtServer
from fedul_flwr.learning.parts import PSI, flatten
from fedul_flwr.strategies.fedmatch import FedMatchStrategy
from fedul_flwr.strategies.fedmatch_parts import SparseParts
from tests.support.fedmatch_exchanges import LC, Exchange, watched
from tests.support.runs import train
from tests.support.settings import Settings

BAD = 1
PLAN = {**LC, "num_rounds": 4, "on_client_failure": "continue", "fedmatch.helper-interval": 1}
FAR = 1e4


def far_psi(exchange: Exchange, reply: Message) -> None:
    """Client 1 returns a finite psi that is far away, in whole arrays, from round 1 on."""
    if exchange.client == BAD:
        sent = exchange.up[PSI]
        far = {}
        for name, array in exchange.down[PSI].items():
            if "/" not in name:
                far[name] = np.full_like(array, FAR)
        if not far:  # differences: move the values that are sent
            far = {n: a + np.float32(FAR) if n.endswith("/values") else a for n, a in sent.items()}
        reply.content[PSI] = to_record(far)


def helpers_values(exchanges: list[Exchange], client: int) -> float:
    """Largest value that other clients were sent of helpers."""
    found = [
        float(np.abs(array).max())
        for exchange in exchanges
        if exchange.client != client
        for name, array in exchange.down.get(HELPERS, {}).items()
        if not name.endswith(("/indices", "/mask")) and array.size
    ]
    assert found  # helpers were sent
    return max(found)


def server(config: RunConfig) -> FedMatchStrategy:
    setup = Content(values={"class-names": ["a", "b", "c"], "model-shape": [8, 8, 1]})
    return FedMatchStrategy(config, FedAvg(), setup)


@pytest.mark.parametrize("base", ["fedavg", "fedmedian"])
def test_given_a_client_far_away_then_a_robust_base_lets_it_help_nobody(
    settings: Settings, caplog: pytest.LogCaptureFixture, base: str
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    exchanges: list[Exchange] = []
    plan = {**PLAN, "base": base}
    train(settings(**plan), 5, **watched(exchanges, meddle=far_psi))
    worst = helpers_values(exchanges, BAD)
    if base == "fedavg":  # which is not robust: docs/faults.md says so
        assert worst > FAR / 10
        assert "helps nobody" not in caplog.text
    else:
        assert worst < 10
        assert "Round 1: Client 1 helps" in caplog.text


def test_given_distances_then_those_beyond_three_medians_are_forgotten(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    forgotten: list[int] = []
    strategy = server(settings(**{**PLAN, "base": "fedmedian"}))
    strategy.registry.clients = [ClientRef(number, 90 + number, "st-mary") for number in range(5)]
    strategy.rounds.begin(RoundRecord(round=4))
    strategy.round = RoundAtServer(4, cast(Grid, None), ArrayRecord())
    exchange = next(stage for stage in strategy.stages if isinstance(stage, SparseParts))
    monkeypatch.setattr(exchange.helpers, "forget", forgotten.append)
    # From (1, -1) the clients are 2, 2, 2, 6 and 6.5 away: the median is 2, three times it is 6.
    for client, far in enumerate([2.0, 2.0, 2.0, 6.0, 6.5]):
        way = np.array([far, 0.0]) if client % 2 else np.array([0.0, -far])
        own = np.array([1.0, -1.0]) + way
        exchange.received[client] = {PSI: {"w": own.astype(np.float32)}}
    (name,) = flatten({PSI: {"w": own}})
    exchange.leave_out_far_helpers({name: np.array([1.0, -1.0], np.float32)})
    assert forgotten == [4]
    assert [line.getMessage() for line in caplog.records] == [
        "Round 4: Client 4 (st-mary) helps nobody: its weights are 6.5 from the combined ones, "
        "the median is 2."
    ]
