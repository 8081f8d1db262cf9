"""A client's setup and rounds: whose settings count, its plan, its random numbers, its variates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.messages import (
    SETUP,
    VALIDATED_ROUND,
    VALIDATION_LOSS,
)
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.learning.variates import CONTROL, VARIATE_ROUNDS, proposal
from tests.support.simulated_clients import simulated_client

Settings = Callable[..., RunConfig]
SHAPE = DataShape((4, 4, 1), ("a", "b"))


class Registered(MethodClient):
    """A client without data."""

    def register(self) -> dict[str, Any]:
        return {}


def plain(config: RunConfig, state: ClientState | None = None) -> Registered:
    node = NodeConfig(partition_id=3, num_partitions=5)
    return Registered(config, node, state or ClientState(RecordDict()))


def test_given_settings_that_the_server_resolved_then_these_count(settings: Settings) -> None:
    client = plain(settings(seed=1))
    client.on_phase(SETUP, setup_content(settings(seed=2), SHAPE))
    assert client.settings.seed == 2
    # A setup of an older server has none: the client's own stay.
    own = plain(settings(seed=1))
    content = setup_content(settings(seed=2), SHAPE)
    content.values["settings"] = ""
    own.on_phase(SETUP, content)
    assert own.settings.seed == 1


@pytest.mark.parametrize("base", ["scaffold", "fedavg"])
def test_given_variates_of_an_earlier_run_then_a_client_says_which(
    settings: Settings, tmp_path: Path, base: str
) -> None:
    ones = {"w": np.ones(2)}
    kept = ClientState(RecordDict(), tmp_path / "3")
    kept.save(CONTROL, 6, proposal(ones, 4, ones, 6))
    config = settings(base=base, optimizer="sgd")
    told = setup_content(config, SHAPE, {"memory": str(tmp_path)})
    answer = plain(config).on_phase(SETUP, told).values
    assert answer.get(VARIATE_ROUNDS) == ([6, 4] if base == "scaffold" else None)
    assert (answer["partition-id"], answer["num-partitions"]) == (3, 5)


def test_given_patience_of_clients_then_the_second_stage_counts_its_own_losses(
    settings: Settings,
) -> None:
    options: dict[str, Any] = {
        **{"method": "pseudo-label", "semi.labels-only-rounds": 3, "num_rounds": 8},
        **{"learning_rate_schedule": "client-plateau", "learning_rate_patience": 1},
        **{"learning_rate": 0.9, "optimizer": "sgd"},
    }
    client = plain(settings(**options))
    rates = []
    for number in range(1, 8):
        # Losses that never fall: of the round before, which is the first in rounds 2 and 5.
        told = {VALIDATED_ROUND: number - 1, VALIDATION_LOSS: 1.0} if number > 1 else {}
        rates.append(client.round({"server-round": number, **told}).plan.learning_rate)
    # In each stage the first loss is the best so far, and each later one divides the step by 3.
    # Rounds of the second stage are 4 to 7; the loss of round 3, told in round 4, is the first's.
    assert rates == pytest.approx([0.9, 0.9, 0.3, 0.9, 0.9, 0.3, 0.1])


def test_given_sets_of_a_simulation_then_the_server_alone_says_why_they_are_refused(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(method="fedul", model="mlp", **{"fedul.num-sets": 4})
    client = simulated_client(FedULClient, config)
    assert str(client.register()["reason"]).startswith("it has 4 sets")
    assert capsys.readouterr().out == ""
