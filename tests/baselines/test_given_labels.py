"""The labels that there are and nothing else: at clients, at the server, on FedMatch's splits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.federated.strategy import validate
from fedul_flwr.strategies import fedmatch
from tests.support.refusals import refuses
from tests.support.runs import last_model, metrics, train
from tests.support.settings import AT_SERVER, QUICK, WIDE, Settings

AT_SERVER_FLAT: dict[str, Any] = {"scenario.labels-at": "server", "server-fraction": 0.1}


def assert_same(one: Path, other: Path) -> None:
    for name, array in last_model(one).items():
        np.testing.assert_allclose(array, last_model(other)[name], rtol=1e-9, atol=1e-12)


# What it computes


def test_of_weight_1_it_is_what_xclp_has_in_its_first_stage(settings: Settings) -> None:
    options = {**QUICK, **WIDE}
    ours = train(settings(**options, method="given-labels", **{"ssl.supervised-weight": 1.0}), 3)
    assert_same(ours, train(settings(**options, method="labels-only"), 3))


def test_at_the_server_and_of_weight_1_it_is_what_is_beside_unlabeled_sets(
    settings: Settings,
) -> None:
    options = {**QUICK, **WIDE, "server_fraction": 0.1}
    place = {"scenario.labels-at": "server", "ssl.supervised-weight": 1.0}
    ours = train(settings(**options, **place, method="given-labels"), 3)
    assert_same(ours, train(settings(**options, method="server-only"), 3))


@pytest.mark.parametrize("scenario", [{}, AT_SERVER], ids=["clients", "server"])
def test_it_is_fedmatch_without_psi_consistency_and_penalties(
    settings: Settings, scenario: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedmatch, "PSI_FACTOR", 0.0)
    options = {**QUICK, **WIDE, **scenario}
    nothing = {
        f"fedmatch.{key}": 0.0
        for key in (
            *("consistency-weight", "l2-weight", "l1-weight"),
            *("psi-cutoff", "difference-threshold"),
        )
    }
    ours = train(settings(**options, method="given-labels"), 2)
    assert_same(ours, train(settings(**options, method="fedmatch", **nothing), 2))


def test_with_labels_at_the_server_no_client_is_asked(settings: Settings) -> None:
    for line in metrics(train(settings(**QUICK, **AT_SERVER, method="given-labels"), 3)):
        assert (line["clients"], line["bytes_up"], line["bytes_down"]) == (0, 0, 0)
        assert line["server_loss"] > 0


def test_only_clients_with_labels_are_sampled(settings: Settings) -> None:
    half = {"labels.labeled-clients": 0.5, "labels.total": 20, "fraction_train": 1.0}
    lines = metrics(train(settings(**QUICK, method="given-labels", **half), 4))
    assert [line["clients"] for line in lines] == [2, 2]
    everybody = {"labels.total": 20, "fraction_train": 0.5}
    lines = metrics(train(settings(**QUICK, method="given-labels", **everybody), 4))
    assert [line["clients"] for line in lines] == [2, 2]


# What it refuses


def parse(**options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": "given-labels", **options})


@pytest.mark.parametrize(
    "key", ["scenario.streaming-steps", "ssl.operations", "fedmatch.helpers", "server.epochs"]
)
def test_what_is_about_unlabeled_points_or_the_server_has_no_effect(key: str) -> None:
    with refuses("setting-without-effect"):
        parse(**{key: 3})


@pytest.mark.parametrize(("key", "value"), [("evaluate", "local"), ("max-update-norm", 2.0)])
def test_without_clients_there_are_no_clients_models(key: str, value: Any) -> None:
    options = {**AT_SERVER_FLAT, key: value}
    with refuses("method-mismatch", setting=key):
        validate(parse(**options))
    validate(parse(**{key: value}))
