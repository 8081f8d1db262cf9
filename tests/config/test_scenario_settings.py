"""Settings of scenarios and consistency methods: what is refused, in which words, by whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.federated.label_source import LabelSourceStrategy
from tests.support.refusals import refuses
from tests.support.runs import train

Settings = Callable[..., RunConfig]
AT_SERVER = {"scenario.labels-at": "server"}


def parse(method: str = "uda", **options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": method, **options})


def refused(key: str, value: Any, cause: str, method: str = "uda", **options: Any) -> None:
    with refuses("setting-without-effect", setting=key, match=cause):
        parse(method, **options, **{key: value})


@pytest.mark.parametrize(("key", "value"), [("labels.total", 50), ("labels.without-client", 1)])
def test_what_has_no_effect_without_labels_at_clients(key: str, value: Any) -> None:
    parse(**{key: value})
    refused(key, value, "labels-at other than 'server'", **AT_SERVER)


@pytest.mark.parametrize(("key", "value"), [("points", 10), ("learning-rate", 0.5)])
@pytest.mark.parametrize("method", ["uda", "all-labels"])
def test_a_server_without_labels_has_no_settings(method: str, key: str, value: Any) -> None:
    refused(f"server.{key}", value, "labels-at other than 'clients'", method)
    LabelSourceStrategy.validate(parse(method, **AT_SERVER, **{f"server.{key}": value}))


def test_labels_at_a_server_that_has_none(settings: Settings) -> None:
    config = settings(method="uda", model="mlp", num_rounds=1, **AT_SERVER)
    with refuses("setting-needs-labels"):
        train(config, 2)


def test_nobody_has_a_label(settings: Settings) -> None:
    config = settings(method="uda", model="mlp", num_rounds=1, **{"labels.total": 0})
    with refuses("labels-missing", match="labels-at"):
        train(config, 2)
