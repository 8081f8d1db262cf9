"""The files in experiments/fedmatch: rows are what their paths say, and can be compared."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedul_flwr.comparison.plan import Plan, make_plan, read_runs
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.run_config import resolve

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "experiments" / "fedmatch"
RECIPE = ROOT / "experiments" / "recipes" / "fedmatch-cifar10"
COMPARISONS = sorted(PLACE.glob("*.toml"))
ROWS = sorted({*PLACE.rglob("*.toml")} - {*COMPARISONS, *PLACE.rglob("table.toml")})
FULL = [file for file in ROWS if file.parent.name != "quick"]
COUNTS = {"figure-6c": 1, "figure-9": 2, "table-1": 4, "table-2": 2, "table-5": 4, "table-6": 5}
REDUCED = {
    "model": "{}",
    "num-rounds": "{} rounds",
    "points-per-client": "{} points per client",
    "learning-rate": "a larger step size",
    "local-epochs": "{} local epochs",
    "server.epochs": "{} epochs at the server",
    "evaluate-every": "evaluated every {} rounds",
    "fraction-train": "clients in a round",
    "scenario.rounds-per-step": "steps of {} rounds",
    "labels.total": "20 clients",
}
"""What quick twins change, and how their headers say it."""
SERVER = {"l1-weight": 1e-5, "psi-cutoff": 1e-5, "difference-threshold": 1e-5}
CLIENTS = {"l1-weight": 1e-4, "psi-cutoff": 5e-6, "difference-threshold": 5e-5}


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def table_of(file: Path) -> str:
    return file.relative_to(PLACE).parts[0]


def settings(file: Path) -> dict[str, Scalar]:
    """All settings of a row."""
    return resolve(parse_overrides([str(file)]), ROOT).to_flat()


def num_clients(file: Path) -> int:
    """Clients in the paper, or in a quick twin."""
    table = table_of(file)
    many = {"figure-6c": 1, "figure-9": 10, "table-2": 10}.get(table, 100)
    return 20 if file.parent.name == "quick" and many == 100 else many


def compared_in(file: Path) -> Path:
    """The file of named runs that a row's header names."""
    found = re.findall(r"--runs (\S+)", file.read_text())
    assert len(found) == 1
    return ROOT / found[0]


def plan_of(row: Path, runs: Path, place: Path) -> Plan:
    over = parse_overrides([str(row)])
    return make_plan(read_runs(runs), over, (0,), num_clients(row), place)


def said(file: Path) -> dict[str, Scalar]:
    """What the path of a row says of its settings."""
    table, words = table_of(file), file.stem.split("-")
    streams, covid = "streaming" in words, "covid" in words
    found: dict[str, Scalar] = {
        "method": "fedmatch",
        "dataset": str(ROOT / "covid-radiography")
        if covid
        else "zalando-datasets/fashion_mnist"
        if streams
        else "uoft-cs/cifar10",
        "partition": "imbalanced" if streams or "noniid" in words else "iid",
        "scenario.labels-at": "server" if "server" in words else "clients",
        "scenario.streaming-steps": 10 if streams else 1,
        "evaluate": "local" if table == "table-2" else "global",
        "measure-forgetting": table == "figure-6c",
    }
    per_class = int(words[1]) if words[0] == "labels" else 5
    if found["scenario.labels-at"] == "clients":
        found["labels.total"] = per_class * (3 if covid else 10) * num_clients(file)
    part = float(words[-1]) if "fraction" in words else 0.05
    if streams or table.startswith("figure"):
        part = 1.0
    # 0.25 of 20 clients are five, as 0.05 of 100 are.
    found["fraction-train"] = part if file.parent.name != "quick" else min(5 * part, 1.0)
    return found


@pytest.mark.parametrize("file", ROWS, ids=name)
def test_a_row_is_what_its_path_says(file: Path) -> None:
    flat, expected = settings(file), said(file)
    assert {key: flat[key] for key in expected} == expected
    text = file.read_text()
    assert len(re.findall(rf"-c {name(file)}", text)) == 2
    assert set(re.findall(r"--num-supernodes (\d+)", text)) == {str(num_clients(file))}
    assert compared_in(file).exists()


@pytest.mark.parametrize("file", FULL, ids=name)
def test_what_the_paper_has_the_same_in_every_row(file: Path) -> None:
    flat = settings(file)
    at_server = flat["scenario.labels-at"] == "server"
    expected: dict[str, Scalar] = {
        **{"optimizer": "sgd", "learning-rate": 1e-3, "momentum": 0.0, "weight-decay": 0.0},
        **{"learning-rate-schedule": "plateau", "learning-rate-factor": 3.0},
        **{"learning-rate-patience-scope": "client", "ssl.randaugment": "release"},
        **{"ssl.operations": 6, "ssl.least-magnitude": 2, "ssl.most-magnitude": 5},
        **{"learning-rate-patience": 20 if at_server else 5, "local-epochs": 1},
        **{"batch-size": 100 if at_server else 10, "ssl.unlabeled-batch-size": 100},
        **{"ssl.supervised-weight": 10.0, "fedmatch.l2-weight": 10.0, "augment": "none"},
        **{"fedmatch.consistency-weight": 1e-2, "fedmatch.threshold": 0.75},
        **{"fedmatch.ties": "lowest", "fedmatch.evaluate-with": "both"},
        **{"fedmatch.helpers": 2, "fedmatch.helper-interval": 10, "client-weights": "uniform"},
        **{f"fedmatch.{key}": value for key, value in (SERVER if at_server else CLIENTS).items()},
        "points-per-client": 1050 if table_of(file) == "figure-6c" else 0,
        "model": "alexnet-like" if table_of(file) == "table-6" else "resnet9",
        "num-rounds": 200 if flat["fraction-train"] != 1.0 else 100,
        "evaluate-every": 1,
    }
    assert {key: flat[key] for key in expected} == expected
    kind, number = table_of(file).removesuffix("c").split("-")
    assert f"FedMatch paper, {kind} {number}" in file.read_text()


@pytest.mark.parametrize("file", [f for f in FULL if table_of(f) != "figure-9"], ids=name)
def test_points_set_aside_are_as_many_as_in_the_paper(file: Path) -> None:
    flat = settings(file)
    points, validation = (60_000, 3500) if "streaming" in file.stem else (50_000, 3000)
    server = 1000 if flat["scenario.labels-at"] == "server" else 0
    # Rounded up when points are set aside: 0.058333 · 60,000 = 3499.98, 0.016666 · 60,000 = 999.96.
    assert -1 < float(str(flat["validation-fraction"])) * points - validation <= 0
    assert -1 < float(str(flat["server-fraction"])) * points - server <= 0


@pytest.mark.parametrize("file", FULL, ids=name)
def test_a_quick_twin_differs_in_what_it_says(file: Path) -> None:
    twin = file.parent / "quick" / file.name
    flat, quick = settings(file), settings(twin)
    changed = {key for key in flat if flat[key] != quick[key] and key != "output"}
    assert flat.keys() == quick.keys()
    assert {"model", "num-rounds", "learning-rate", "evaluate-every"} <= changed <= REDUCED.keys()
    lines = [line.lstrip("# ") for line in twin.read_text().splitlines() if line[0:1] == "#"]
    header = " ".join(lines).partition("fedul-flwr")[0]
    assert f"Quick twin of ../{file.name}, for two cores:" in header
    for key, words in REDUCED.items():
        if key != "labels.total":
            assert (words.replace("{}", str(quick[key])) in header) == (key in changed), key
    assert ("20 clients" in header) == (num_clients(twin) == 20)


def test_every_row_has_a_quick_twin_and_every_twin_a_row() -> None:
    twins = {file.parent.parent / file.name for file in ROWS if file.parent.name == "quick"}
    assert twins == set(FULL)
    of_table = [table_of(file) for file in FULL]
    assert {table: of_table.count(table) for table in of_table} == COUNTS


@pytest.mark.parametrize("file", ROWS, ids=name)
def test_what_fedmatch_is_compared_with_fits_the_row(file: Path, tmp_path: Path) -> None:
    plan = plan_of(file, compared_in(file), tmp_path)
    assert plan.split_warnings == ()
    for cell in plan.cells:
        base = cell.run.partition("-")[0].lower()
        assert cell.config.base == (base if "-" in cell.run else "fedavg")


@pytest.mark.parametrize("file", [f for f in FULL if table_of(f)[:8] != "figure-6"], ids=name)
def test_a_table_has_the_papers_figures_of_what_is_compared(file: Path) -> None:
    columns = tomllib.loads((file.parent / "table.toml").read_text())["columns"].values()
    (column,) = (column for column in columns if column["file"] == file.name)
    compared = read_runs(compared_in(file)).keys()
    # Of the COVID images the paper has no ceiling.
    expected = compared - ({"FedProx-SL"} if table_of(file) == "figure-9" else set())
    assert column["paper"]["accuracy"].keys() == expected


def test_ablations_leave_one_part_out_each(tmp_path: Path) -> None:
    plan = plan_of(PLACE / "table-1" / "iid-clients.toml", PLACE / "ablations.toml", tmp_path)
    flat = {cell.run: cell.config.to_flat() for cell in plan.cells}
    assert plan.split_warnings == ()
    assert flat.pop("labels alone")["method"] == "given-labels"
    whole = flat.pop("FedMatch")
    changed = {
        run: {key for key in own if own[key] != whole[key] and key != "output"}
        for run, own in flat.items()
    }
    assert changed == {
        # Without helpers there is one vote, and no tie.
        "without inter-client consistency": {"fedmatch.helpers", "fedmatch.ties"},
        "sigma alone": {"fedmatch.evaluate-with"},
        "psi alone": {"fedmatch.evaluate-with"},
        "without decomposition": {"fedmatch.decomposition"},
        "without unlabeled points": {"fedmatch.consistency-weight"},
        "without decomposition; twice the first weights": {"fedmatch.decomposition", "init-scale"},
    }


@pytest.mark.parametrize("place", ["clients", "server"])
def test_the_recipe_changes_what_it_says(place: str, tmp_path: Path) -> None:
    recipe, row = settings(RECIPE / f"{place}.toml"), settings(PLACE / f"table-1/iid-{place}.toml")
    changed = {key for key in row if row[key] != recipe.get(key)}
    of_schedule = {"learning-rate-patience", "learning-rate-patience-scope"}
    of_release = {"ssl.randaugment", "fedmatch.threshold", "fedmatch.ties", "weight-decay"}
    assert changed - of_schedule == {"learning-rate-schedule", "selection"} | of_release
    assert (recipe["fedmatch.threshold"], recipe["weight-decay"]) == (0.85, 1e-4)
    twin = RECIPE / "quick" / f"{place}.toml"
    quick = settings(twin)
    smaller = {key for key in recipe if recipe[key] != quick[key]}
    assert smaller <= {
        *("model", "num-rounds", "learning-rate", "points-per-client", "validation-fraction"),
        *("evaluate-every", "batch-size", "ssl.unlabeled-batch-size", "server.points"),
    }
    header = " ".join(line.lstrip("# ") for line in twin.read_text().splitlines()[:4])
    assert f"{quick['num-rounds']} rounds with three times the step size (200)" in header
    assert quick["learning-rate"] == 3 * float(str(recipe["learning-rate"]))
    assert f"{quick['points-per-client']} points per client" in header
    over = parse_overrides([str(twin)])
    plan = make_plan(read_runs(RECIPE / "methods.toml"), over, (0, 1), 100, tmp_path)
    assert plan.split_warnings == ()
    assert {cell.config.learning_rate for cell in plan.cells} == {quick["learning-rate"]}


def test_the_recipe_has_the_papers_rows_and_says_where_the_gain_comes_from() -> None:
    runs = read_runs(RECIPE / "methods.toml")
    papers = read_runs(PLACE / "methods.toml")
    assert {name: runs[name] for name in papers} == papers
    labels = {"method": "given-labels"}
    parts = {"fedmatch.decomposition": False, "fedmatch.l1-weight": 1e-4}
    whole = {"method": "fedmatch", **parts, "fedmatch.psi-cutoff": 5e-6}
    assert {name: own for name, own in runs.items() if name not in papers} == {
        "labels alone": labels,
        "labels alone; first weights times 2": {**labels, "init-scale": 2.0},
        "FedMatch without decomposition": whole,
        "FedMatch without decomposition; first weights times 2": {**whole, "init-scale": 2.0},
        "FedMatch without unlabeled points": {
            "method": "fedmatch",
            "fedmatch.consistency-weight": 0.0,
        },
    }


def test_the_guide_names_every_folder() -> None:
    guide = (PLACE.parent / "README.md").read_text()
    for folder in {file.parent for file in FULL}:
        assert f"`{folder.relative_to(PLACE.parent)}/" in guide
    for file in COMPARISONS:
        assert f"`{file.relative_to(PLACE.parent)}`" in guide
