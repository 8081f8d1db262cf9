"""How large a propagation may be, and what a graph needs to have points to label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.propagation.server import (
    LARGEST,
    LONGEST,
    refuse_beyond_reach,
)
from fedul_flwr.secure.backends import BACKENDS
from fedul_flwr.secure.similarity import Cost
from fedul_flwr.strategies.xclp_predict import XCLPPredict
from tests.support.refusals import refuses

Settings = Callable[..., RunConfig]


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
    "labels", [{"labels.new-fraction": 0.2}, {"labels.split": "an-earlier-split.npz"}]
)
def test_given_new_points_then_the_graph_can_do_without_unlabeled_ones(
    settings: Settings, labels: dict[str, Any]
) -> None:
    total = {} if "labels.split" in labels else {"labels.total": 40}
    plan = {"method": "xclp-predict", "xclp-predict.use-unlabeled": False}
    XCLPPredict.validate(settings(**plan, **total, **labels))
