"""FedUL end to end in process: who takes part, what is sent, how the best round is chosen."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedul_flwr.data.sources import source_directory
from fedul_flwr.data.split import build_split
from tests.support.message_log import TO_CLIENT, read_message_log
from tests.support.refusals import refuses
from tests.support.runs import metrics, summary, train
from tests.support.settings import Settings

QUICK = {"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 120}


def test_too_few_sets_are_refused_by_name_once_with_the_ways_out(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with refuses("client-refused", match="Client 0 .* 5 .* 10 ") as refused:
        train(settings(**QUICK, **{"fedul.num-sets": 5}), 2)
    for way in (
        "10 sets or more (fedul.num-sets",
        "'fedllp'",
        "fedul.fewer-sets",
        "on-client-failure",
    ):
        assert way in str(refused.value)
    assert "fewer than" not in capsys.readouterr().out


def test_clients_that_cannot_take_part_are_dropped_if_so_configured(settings: Settings) -> None:
    # M differs: clients with fewer than 10 sets cannot take part.
    options = {"fedul.num-sets": 8, "fedul.num-sets-max": 12, "on_client_failure": "continue"}
    config = settings(**QUICK, **options)
    split = build_split(source_directory("digits"), 8, config)
    able = [index for index, client in enumerate(split.clients) if len(client.priors) >= 10]
    assert 0 < len(able) < 8  # the seed gives both kinds
    directory = train(config, 8)
    clients = json.loads((directory / "federation.json").read_text())["clients"]
    assert [client["id"] for client in clients if client["status"] == "accepted"] == able
    dropped = next(client for client in clients if client["status"] == "dropped")
    assert " 10 classes" in dropped["reason"]
    assert metrics(directory)[0]["clients"] == len(able)


def test_strict_rank_refuses_what_is_else_one_warning(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    # Two classes a client: Pi has rank 2 of 10.
    two = {
        "points_per_client": 0,
        "partition": "pathological",
        "pathological.classes-per-client": 2,
    }
    train(settings(**QUICK | two), 5)
    lines = [record.getMessage() for record in caplog.records]
    assert (
        sum("of 5 clients do not tell all classes apart: 0, 1, 2, 3, 4" in line for line in lines)
        == 1
    )
    with refuses("client-refused", match="all 10 classes .*rank 2"):
        train(settings(**QUICK | two, **{"fedul.strict-rank": True}), 5)


def test_without_labels_anywhere_held_out_data_chooses_the_round(settings: Settings) -> None:
    directory = train(settings(**{**QUICK, "num_rounds": 4}, validation_fraction=0.0), 3)
    lines = metrics(directory)
    assert summary(directory)["selection"] == "heldout"
    assert all(line["validation_error"] is None for line in lines)
    losses = [line["heldout_loss"] for line in lines]
    assert summary(directory)["best_round"] == 1 + int(np.argmin(losses))


def test_a_fraction_of_the_clients_evaluates_the_same_in_every_round(
    settings: Settings, tmp_path: Path
) -> None:
    options = {"validation_fraction": 0.0, "fraction_evaluate": 0.4}
    directory = train(settings(**QUICK, **options), 5, message_log=tmp_path / "t")
    asked = [
        message.client
        for message in read_message_log(tmp_path / "t")
        if message.type == "evaluate" and message.direction == TO_CLIENT
    ]
    rounds = [asked[2 * index : 2 * index + 2] for index in range(len(metrics(directory)))]
    assert len(asked) == 2 * len(rounds)  # 0.4 of 5 clients
    assert len(rounds) > 1
    assert {tuple(sorted(clients)) for clients in rounds} == {tuple(sorted(rounds[0]))}
    model = metrics(directory)[0]["model_bytes"]
    assert 2 * model <= metrics(directory)[0]["bytes_down_evaluation"] < 2 * model + 200


def test_given_the_demo_then_five_of_its_rounds_reach_a_bar(settings: Settings) -> None:
    """At most 7 % test error with 10 clients; the demo itself has 30 rounds, and less than 4 %."""
    assert summary(train(settings(num_rounds=5), 10))["test_error"] <= 7.0
