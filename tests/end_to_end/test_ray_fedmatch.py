"""FedMatch through the command line and Ray, in three scenarios, against the in-process grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_ray import assert_same_numbers
from tests.end_to_end.test_ray_xclp import CLIENTS, in_process, on_ray
from tests.support.fedmatch_exchanges import LC, LS, assert_in_step
from tests.support.runs import metrics

pytestmark = pytest.mark.ray

AT_CLIENTS, AT_SERVER = (
    {key.replace("_", "-"): value for key, value in options.items()}
    | {"fraction-train": 0.5, "points-per-client": 40}
    for options in (LC, LS)
)
STREAMING = {
    **{**AT_CLIENTS, "labels.total": 100, "num-rounds": 4},
    **{"scenario.streaming-steps": 2, "scenario.rounds-per-step": 2},
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({**AT_CLIENTS, "labels.total": 100}, id="clients"),
        pytest.param(AT_SERVER, id="server", marks=pytest.mark.slow),
        pytest.param(STREAMING, id="streaming", marks=pytest.mark.slow),
    ],
)
def test_scenarios(tmp_path: Path, settings: dict[str, Any]) -> None:
    there = on_ray(settings, tmp_path)
    here = in_process(settings, tmp_path)
    assert [line["clients"] for line in metrics(there)] == [CLIENTS // 2] * settings["num-rounds"]
    assert_same_numbers(there, here)
    assert metrics(there)[1]["num_helpers"] > 0
    assert assert_in_step(there, settings["num-rounds"])
