"""The tables of FedMatch have the settings of the paper, and their rows can be compared."""

from __future__ import annotations

import pytest

from fedul_flwr.config.base import Scalar
from fedul_flwr.experiments.table_file import Size
from fedul_flwr.experiments.trial_plan import read_runs
from tests.support.paper_tables import (
    EXPERIMENTS,
    ROOT,
    changed_by_quick,
    column_settings,
    columns,
    row_settings,
    table,
)

SIZES: tuple[Size, ...] = ("full", "quick")
ALL = columns("fedmatch/")
RECIPE = "recipes/fedmatch-cifar10"
REDUCED = {
    *("model", "num-rounds", "points-per-client", "learning-rate", "local-epochs", "server.epochs"),
    *("evaluate-every", "fraction-train", "scenario.rounds-per-step", "labels.total"),
}
SERVER = {"l1-weight": 1e-5, "psi-cutoff": 1e-5, "difference-threshold": 1e-5}
CLIENTS = {"l1-weight": 1e-4, "psi-cutoff": 5e-6, "difference-threshold": 5e-5}
FEW_CLIENTS = {"fedmatch/figure-6c": 1, "fedmatch/figure-9": 10, "fedmatch/table-2": 10}


def num_clients(name: str, size: Size) -> int:
    """Clients in the paper, or in quick runs."""
    many = FEW_CLIENTS.get(name, 100)
    return 20 if size == "quick" and many == 100 else many


def settings_in_name(name: str, column: str, size: Size) -> dict[str, Scalar]:
    """Settings that the names of a table and a column state."""
    streams, covid = "Streaming" in column, name == "fedmatch/figure-9"
    at_server = "at server" in column
    found: dict[str, Scalar] = {
        "method": "fedmatch",
        "dataset": str(ROOT / "covid-radiography")
        if covid
        else "zalando-datasets/fashion_mnist"
        if streams
        else "uoft-cs/cifar10",
        "partition": "imbalanced" if "NonIID" in column else "iid",
        "scenario.labels-at": "server" if at_server else "clients",
        "scenario.streaming-steps": 10 if streams else 1,
        "evaluate": "local" if name == "fedmatch/table-2" else "global",
        "measure-forgetting": name == "fedmatch/figure-6c",
    }
    per_class = int(column.split()[0]) if name == "fedmatch/table-5" else 5
    if not at_server:
        found["labels.total"] = per_class * (3 if covid else 10) * num_clients(name, size)
    part = float(column.partition("F=")[2] or 0.05)
    if streams or name in ("fedmatch/figure-6c", "fedmatch/figure-9"):
        part = 1.0
    # 0.25 of 20 clients are five, as 0.05 of 100 are.
    found["fraction-train"] = part if size == "full" else min(5 * part, 1.0)
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "column"), ALL)
def test_given_a_column_then_its_settings_are_those_in_its_name(
    name: str, column: str, size: Size
) -> None:
    flat, expected = column_settings(name, column, size), settings_in_name(name, column, size)
    assert {key: flat[key] for key in expected} == expected
    assert table(name).num_clients(column, size) == num_clients(name, size)


@pytest.mark.parametrize(("name", "column"), ALL)
def test_given_any_column_then_it_has_the_papers_shared_settings(name: str, column: str) -> None:
    flat = column_settings(name, column)
    at_server = "at server" in column
    expected: dict[str, Scalar] = {
        **{"optimizer": "sgd", "learning-rate": 1e-3, "momentum": 0.0, "weight-decay": 0.0},
        **{"learning-rate-schedule": "plateau", "learning-rate-factor": 3.0},
        **{"learning-rate-patience-scope": "client", "ssl.randaugment": "release"},
        **{"ssl.operations": 6, "ssl.min-magnitude": 2, "ssl.max-magnitude": 5},
        **{"learning-rate-patience": 20 if at_server else 5, "local-epochs": 1},
        **{"batch-size": 100 if at_server else 10, "ssl.unlabeled-batch-size": 100},
        **{"ssl.supervised-weight": 10.0, "fedmatch.l2-weight": 10.0, "augment": "none"},
        **{"fedmatch.consistency-weight": 1e-2, "fedmatch.threshold": 0.75},
        **{"fedmatch.ties": "lowest", "fedmatch.evaluate-with": "both"},
        **{"fedmatch.helpers": 2, "fedmatch.helper-interval": 10, "client-weights": "uniform"},
        **{f"fedmatch.{key}": value for key, value in (SERVER if at_server else CLIENTS).items()},
        "points-per-client": 1050 if name == "fedmatch/figure-6c" else 0,
        "model": "alexnet-like" if name == "fedmatch/table-6" else "resnet9",
        "num-rounds": 200 if flat["fraction-train"] != 1.0 else 100,
        "evaluate-every": 1,
    }
    assert {key: flat[key] for key in expected} == expected


@pytest.mark.parametrize(("name", "column"), [f for f in ALL if f[0] != "fedmatch/figure-9"])
def test_given_a_column_then_validation_and_server_points_are_as_many_as_in_the_paper(
    name: str, column: str
) -> None:
    flat = column_settings(name, column)
    points, validation = (60_000, 3500) if "Streaming" in column else (50_000, 3000)
    server = 1000 if flat["scenario.labels-at"] == "server" else 0
    # Rounded up when points are set aside: 0.058333 · 60,000 = 3499.98, 0.016666 · 60,000 = 999.96.
    assert -1 < float(str(flat["validation-fraction"])) * points - validation <= 0
    assert -1 < float(str(flat["server-fraction"])) * points - server <= 0


@pytest.mark.parametrize(("name", "column"), ALL)
def test_given_quick_then_columns_are_smaller(name: str, column: str) -> None:
    changed = changed_by_quick(name, column)
    assert {"model", "num-rounds", "learning-rate", "evaluate-every"} <= changed <= REDUCED


@pytest.mark.parametrize(("name", "column"), [f for f in ALL if f[0] != "fedmatch/figure-6ab"])
def test_given_a_row_then_its_base_is_that_in_its_name(name: str, column: str) -> None:
    for row in table(name).rows_of(column, "full"):
        base = row.partition("-")[0].lower()
        assert row_settings(name, column, row)["base"] == (base if "-" in row else "fedavg")


@pytest.mark.parametrize(("name", "column"), [f for f in ALL if "figure-6" not in f[0]])
def test_given_a_table_then_it_has_the_papers_figures_of_its_rows(name: str, column: str) -> None:
    compared = table(name).rows_of(column, "full").keys()
    # Of the COVID images the paper has no ceiling.
    expected = compared - ({"FedProx-SL"} if name == "fedmatch/figure-9" else set())
    assert table(name).settings.paper["accuracy"][column].keys() == expected


def test_given_the_ablations_then_each_leaves_out_one_part_of_a_column_of_table_1() -> None:
    (column,) = table("fedmatch/figure-6ab").columns
    for size in SIZES:
        assert column_settings("fedmatch/figure-6ab", column, size) == column_settings(
            "fedmatch/table-1", column, size
        )
    rows = table("fedmatch/figure-6ab").rows()
    flat = {row: row_settings("fedmatch/figure-6ab", column, row) for row in rows}
    assert flat.pop("labels alone")["method"] == "given-labels"
    whole = flat.pop("FedMatch")
    changed = {row: {key for key in own if own[key] != whole[key]} for row, own in flat.items()}
    assert changed == {
        # Without helpers there is one vote, and no tie.
        "without inter-client consistency": {"fedmatch.helpers", "fedmatch.ties"},
        "sigma alone": {"fedmatch.evaluate-with"},
        "psi alone": {"fedmatch.evaluate-with"},
        "without decomposition": {"fedmatch.decomposition"},
        "without unlabeled points": {"fedmatch.consistency-weight"},
        "without decomposition; twice the first weights": {"fedmatch.decomposition", "init-scale"},
    }


@pytest.mark.parametrize("labels", ["labels at clients", "labels at server"])
def test_given_the_recipe_then_it_changes_the_named_settings_alone(labels: str) -> None:
    recipe, paper = (
        column_settings(RECIPE, labels),
        column_settings("fedmatch/table-1", f"Batch-IID {labels}"),
    )
    changed = {key for key in paper if paper[key] != recipe.get(key)}
    of_schedule = {"learning-rate-patience", "learning-rate-patience-scope"}
    of_release = {"ssl.randaugment", "fedmatch.threshold", "fedmatch.ties", "weight-decay"}
    assert changed - of_schedule == {"learning-rate-schedule", "selection"} | of_release
    assert (recipe["fedmatch.threshold"], recipe["weight-decay"]) == (0.85, 1e-4)
    quick = column_settings(RECIPE, labels, "quick")
    assert changed_by_quick(RECIPE, labels) <= {
        *("model", "num-rounds", "learning-rate", "points-per-client", "validation-fraction"),
        *("evaluate-every", "batch-size", "ssl.unlabeled-batch-size", "server.points"),
    }
    assert quick["learning-rate"] == 3 * float(str(recipe["learning-rate"]))
    rows = table(RECIPE).rows_of(labels, "quick")
    steps = {row_settings(RECIPE, labels, row, "quick")["learning-rate"] for row in rows}
    assert steps == {quick["learning-rate"]}


def test_given_the_recipe_then_it_has_the_papers_rows_and_the_ablations() -> None:
    runs = table(RECIPE).rows_of("labels at clients", "full")
    papers = read_runs(EXPERIMENTS / "fedmatch" / "methods.toml")
    shown = {row: {"method": "fedmatch", **own} for row, own in runs.items()}
    assert {row: shown[row] for row in papers} == papers
    labels = {"method": "given-labels"}
    parts = {"fedmatch.decomposition": False, "fedmatch.l1-weight": 1e-4}
    whole = {"method": "fedmatch", **parts, "fedmatch.psi-cutoff": 5e-6}
    assert {row: own for row, own in shown.items() if row not in papers} == {
        "labels alone": labels,
        "labels alone; first weights times 2": {**labels, "init-scale": 2.0},
        "FedMatch without decomposition": whole,
        "FedMatch without decomposition; first weights times 2": {**whole, "init-scale": 2.0},
        "FedMatch without unlabeled points": {
            "method": "fedmatch",
            "fedmatch.consistency-weight": 0.0,
        },
    }
