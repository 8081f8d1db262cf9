"""Settings of scenarios and consistency methods: what is refused, in which words, by whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedul_flwr.config.method_settings import (
    ConsistencySettings,
    FixMatchSettings,
    ScenarioSettings,
    SupervisedPartSettings,
    UDASettings,
    ViewSettings,
)
from fedul_flwr.config.run_config import RunConfig, all_sections, default_flat, parse_flat
from fedul_flwr.errors import UserError
from fedul_flwr.federated.label_place import LabelPlaceStrategy
from tests.support.runs import train

Settings = Callable[..., RunConfig]
AT_SERVER = {"scenario.labels-at": "server"}


def parse(method: str = "uda", **options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": method, **options})


def refused(message: str, method: str = "uda", **options: Any) -> None:
    with pytest.raises(UserError) as error:
        parse(method, **options)
    assert str(error.value) == message


def test_every_table_has_its_widest_class() -> None:
    tables = all_sections()
    assert tables["scenario"] is ScenarioSettings
    assert tables["ssl"] is ConsistencySettings
    assert issubclass(ConsistencySettings, ViewSettings)
    assert issubclass(ViewSettings, SupervisedPartSettings)
    assert (tables["uda"], tables["fixmatch"]) == (UDASettings, FixMatchSettings)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("scenario.labels-at", "nowhere", "must be one of 'clients' or 'server'"),
        ("scenario.streaming-steps", 0, "must be at least 1"),
        ("scenario.rounds-per-step", 0, "must be at least 1"),
        ("ssl.supervised-weight", 0, "must be greater than 0.0"),
        ("ssl.unsupervised-weight", -1, "must be at least 0.0"),
        ("ssl.unlabeled-batch-size", -1, "must be at least 0"),
        ("ssl.randaugment", "ours", "must be one of 'paper' or 'release'"),
        ("ssl.operations", 14, "must be at most 13"),
        ("ssl.operations", 0, "must be at least 1"),
        ("ssl.max-magnitude", 11, "must be at most 10"),
        ("ssl.min-magnitude", -1, "must be at least 0"),
        (
            "uda.signal-annealing",
            "log",
            "must be one of 'exponential', 'linear', 'logarithmic' or 'none'",
        ),
        ("uda.threshold", 1, "must be less than 1.0"),
        ("uda.temperature", 0, "must be greater than 0.0"),
    ],
)
def test_a_value_out_of_range(key: str, value: Any, rule: str) -> None:
    refused(f"Setting {key} = {value!r}: {rule}.", **{key: value})


def test_rules_over_two_settings() -> None:
    refused(
        "Setting ssl.min-magnitude = 6 must not be above ssl.max-magnitude = 5.",
        **{"ssl.min-magnitude": 6},
    )
    both = {"ssl.min-magnitude": 6, "ssl.max-magnitude": 6}
    assert parse(**both)[ViewSettings].magnitudes == (6, 6)
    refused(
        "Setting ssl.min-magnitude = 0 is no bound: with ssl.randaugment = 'release' it must be "
        "at least 1.",
        **{"ssl.min-magnitude": 0, "ssl.randaugment": "release"},
    )
    parse(**{"ssl.min-magnitude": 0})
    parse(**{"ssl.min-magnitude": 1, "ssl.randaugment": "release"})
    refused(
        "Setting scenario.rounds-per-step = 5 has an effect only with scenario.streaming-steps "
        "other than 1: leave it out.",
        **{"scenario.rounds-per-step": 5},
    )
    parse(**{"scenario.rounds-per-step": 5, "scenario.streaming-steps": 2})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("labels.total", 50),
        ("labels.fraction", 0.1),
        ("labels.labeled-clients", 0.5),
        ("labels.sampling", "random"),
        ("labels.without-client", 1),
        ("uda.signal-annealing", "none"),
    ],
)
def test_what_has_no_effect_without_labels_at_clients(key: str, value: Any) -> None:
    parse(**{key: value})
    refused(
        f"Setting {key} = {value!r} has an effect only with scenario.labels-at other than "
        "'server': leave it out.",
        **AT_SERVER,
        **{key: value},
    )


def test_what_has_an_effect_without_labels_at_clients() -> None:
    parse(**AT_SERVER, **{"labels.new-fraction": 0.1, "server.epochs": 2})
    parse(**AT_SERVER, **{"labels.split": "split.npz"})


@pytest.mark.parametrize(
    ("method", "key", "value"),
    [
        ("all-labels", "labels.total", 50),
        ("all-labels", "ssl.operations", 3),
        ("all-labels", "ssl.unsupervised-weight", 2.0),
        ("fixmatch", "uda.temperature", 0.5),
        ("uda", "fixmatch.threshold", 0.5),
        ("labels-only", "scenario.streaming-steps", 2),
        ("uda", "semi.labels-only-rounds", 3),
    ],
)
def test_a_key_of_another_method(method: str, key: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{key} = {value} has an effect only with method = ") as e:
        parse(method, **{key: value})
    assert f"'{method}'" not in str(e.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("points", 10), ("epochs", 2), ("dataset", "digits"), ("learning-rate", 0.5)],
)
@pytest.mark.parametrize("method", ["uda", "all-labels"])
def test_a_server_without_labels_has_no_settings(method: str, key: str, value: Any) -> None:
    refused(
        f"Setting server.{key} = {value!r} has an effect only with scenario.labels-at other than "
        "'clients': leave it out.",
        method,
        **{f"server.{key}": value},
    )
    LabelPlaceStrategy.validate(parse(method, **AT_SERVER, **{f"server.{key}": value}))


def test_who_trains() -> None:
    assert LabelPlaceStrategy.learns_at_server(parse(**AT_SERVER))
    assert not LabelPlaceStrategy.learns_at_server(parse())


def test_labels_at_a_server_that_has_none(settings: Settings) -> None:
    config = settings(method="uda", model="mlp", num_rounds=1, **AT_SERVER)
    with pytest.raises(UserError, match=r"trains on labeled points at the server: set server-fr"):
        train(config, 2)


def test_nobody_has_a_label(settings: Settings) -> None:
    config = settings(method="uda", model="mlp", num_rounds=1, **{"labels.total": 0})
    with pytest.raises(UserError) as error:
        train(config, 2)
    assert str(error.value) == (
        "No client has a label: there is nothing to learn classes from (with scenario.labels-at = "
        "'server' the server learns them)."
    )
