"""How much noise a run's settings ask for, what the log says of it, and settings that are none."""

from __future__ import annotations

import re
from typing import Any

import pytest

import fedul_flwr.propagation.server
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.references import load_reference
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.propagation.privacy import gaussian_sigma, privacy_plan
from tests.support.refusals import refuses


def parse(method: str = "xclp", **options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": method, **options})


EPSILON = {"xclp.codes-epsilon": 10.0}


@pytest.mark.parametrize(
    ("method", "options", "releases"),
    [
        ("xclp", {}, 20),  # 30 rounds, 10 of them on labels alone
        ("xclp", {"num-rounds": 12}, 2),
        ("xclp", {"semi.labels-only-rounds": 0, "num-rounds": 7}, 7),
        ("xclp", {"num-rounds": 5}, 1),  # no propagation at all
        ("xclp-predict", {}, 1),
        ("xclp-predict", {"num-rounds": 300}, 1),
    ],
)
def test_releases(method: str, options: dict[str, Any], releases: int) -> None:
    plan = privacy_plan(parse(method, **EPSILON, **options))
    assert plan.releases == releases
    assert plan.sigma == gaussian_sigma(10, 1e-5, 2, releases)


LABELS = {"xclp.labels-epsilon": 2.0}


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("xclp", {}, []),
        ("xclp-predict", EPSILON, ["sigma 0.9998 .*releases 1", "Not covered"]),
        # √20 times as much; updates in training have no noise.
        ("xclp", EPSILON, ["sigma 4.471 .*releases 20", "NOT differentially private"]),
        ("xclp-predict", LABELS, [r"\(2, 0\)"]),
    ],
)
def test_the_log_says_what_holds(
    method: str, options: dict[str, Any], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(fedul_flwr.propagation.server, "log", lambda _, text: found.append(text))
    strategy: type[MethodStrategy] = load_reference(find_method(method).strategy, "method")
    strategy.validate(parse(method, **{"xclp.secure": "rlwe"}, **options))
    assert len(found) == len(said)
    assert all(re.search(*pair) for pair in zip(said, found, strict=True))


def test_propagation_within_clients_needs_no_noise() -> None:
    with refuses("setting-without-effect", setting="xclp.codes-epsilon"):
        parse("local-lp", **EPSILON)
