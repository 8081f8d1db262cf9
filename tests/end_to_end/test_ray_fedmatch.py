"""FedMatch through the command line and Ray, against the in-process grid.

The comparison of :mod:`tests.end_to_end.test_ray_compare` runs it with labels at clients.
"""

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(AT_SERVER, id="server"),
        pytest.param(STREAMING, id="streaming"),
    ],
)
def test_scenarios(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert_same_run(on_ray(settings, tmp_path), in_process(settings, tmp_path), settings)


def assert_same_run(there: Path, here: Path, settings: dict[str, Any]) -> None:
    assert [line["clients"] for line in metrics(there)] == [CLIENTS // 2] * settings["num-rounds"]
    assert_same_numbers(there, here)
    assert metrics(there)[1]["num_helpers"] > 0
    assert assert_in_step(there, settings["num-rounds"])
