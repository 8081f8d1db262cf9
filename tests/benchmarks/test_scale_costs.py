"""Formulas of what a federation costs against messages and bytes that runs were counted to have."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp import Grid

from benchmarks.metered import MeteredGrid
from benchmarks.scale_costs import Group, Plan, exchanges, run_bytes, sparse_bytes
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.propagation.phases import COMPARE, ROWS, SUM
from tests.support.runs import metrics
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "batch_size": 0},
    **{"points_per_client": 50, "precision": "float32", "selection": "last"},
}
FEDUL = {**QUICK, "method": "fedul", "fedul.num-sets": 10, "selection": "heldout"}
SCAFFOLD = {**QUICK, "method": "supervised", "base": "scaffold", "optimizer": "sgd"}
XCLP = {
    **{**QUICK, "points_per_client": 12, "method": "xclp", "labels.total": 24},
    **{"semi.labels-only-rounds": 0, "xclp.num-bits": 64, "num_rounds": 1},
}


def metered(settings: RunConfig, clients: int) -> MeteredGrid:
    from fedul_flwr.engine.in_process import run_in_process

    grids: list[MeteredGrid] = []

    def wrap(grid: Grid) -> Grid:
        grids.append(MeteredGrid(grid))
        return grids[0]

    run_in_process(settings, clients, wrap_grid=wrap)
    return grids[0]


def plain(numbers: Mapping[str, int]) -> dict[str, int]:
    """Those of other phases than secure sums, by which a run ends that holds points out."""
    return {phase: number for phase, number in numbers.items() if not phase.startswith("sum-")}


def one_of_each(grid: MeteredGrid, ways: str) -> dict[str, int]:
    """Bytes of one message of each phase: they are all of one size."""
    bytes_of, messages = getattr(grid, ways), plain(grid.messages)
    assert all(bytes_of[phase] % count == 0 for phase, count in messages.items())
    return {phase: bytes_of[phase] // count for phase, count in messages.items()}


@pytest.mark.parametrize(("method", "evaluates"), [(FEDUL, True), (SCAFFOLD, False)])
def test_messages_grow_as_said(settings: Settings, method: dict[str, Any], evaluates: bool) -> None:
    small = metered(settings(**method, fraction_train=0.5), 4)
    down, up = one_of_each(small, "down"), one_of_each(small, "up")
    for clients in (10, 20):
        grid = metered(settings(**method, fraction_train=0.5), clients)
        plan = Plan(clients, clients // 2, 2, clients if evaluates else 0)
        assert plain(grid.messages) == exchanges(plan)
        assert plain(grid.down) == run_bytes(plan, down)
        assert plain(grid.up) == run_bytes(plan, up)


def test_a_round_of_xclp_has_the_bytes_of_its_formula(settings: Settings) -> None:
    for clients in (10, 20):
        config = settings(**XCLP)
        grid = metered(config, clients)
        path = Path(config.output) / "federation.json"
        known = json.loads(path.read_text())["clients"]
        labeled = [sum(client["labeled_counts"]) for client in known]
        sizes = [client["num_points"] for client in known]
        unlabeled = [n - own for n, own in zip(sizes, labeled, strict=True)]
        (line,) = metrics(Path(config.output))
        group = Group(labeled, unlabeled, num_bits=64)
        down, up = group.down(line["model_bytes"]), group.up()
        assert [grid.messages[phase] for phase in (COMPARE, SUM)] == [clients, clients]
        assert [grid.down[phase] for phase in (COMPARE, SUM)] == [down[COMPARE], down[SUM]]
        assert [grid.up[phase] for phase in (COMPARE, SUM)] == [up[COMPARE], up[SUM]]
        assert line["bytes_down_rows"] == down[ROWS]


def test_a_group_by_hand() -> None:
    # Two clients, one labeled and two unlabeled points each, 8 bits, 3 classes, a model of 100:
    # 2 (100 + 32 + 28 + 128); columns 4 · 4 · 2 and 2 (2 · 16 + 32 + 128); rows 8 · 3 · (4 + 2).
    group = Group((1, 1), (2, 2), num_bits=8, num_classes=3)
    assert group.down(100) == {COMPARE: 576, SUM: 32 + 384, ROWS: 144 + 256}
    # Codes 6 · (1 + 1); each sends a check row and the three rows of the other: 8 · 3 · (6 + 2).
    assert group.up() == {COMPARE: 12 + 512, SUM: 192 + 256}


def test_a_round_of_fedmatch_stays_below_its_bound(settings: Settings) -> None:
    config = settings(**{**QUICK, "method": "fedmatch", "labels.total": 60})
    grid = metered(config, 3)
    lines = metrics(Path(config.output))
    bound = 3 * (sparse_bytes(2, lines[0]["model_bytes"]) + 200)
    assert all(line["bytes_up"] <= bound for line in lines)
    assert all(line["bytes_down"] <= bound for line in lines)
    assert grid.messages == exchanges(Plan(3, 3, 2))
    held = list((Path(config.output) / "held").glob("*/*.safetensors"))
    assert {file.parent.name for file in held} == {"0", "1", "2"}
    # Two parts, with one header of the file in place of one of each array.
    assert all(abs(file.stat().st_size - 2 * lines[0]["model_bytes"]) < 2000 for file in held)
