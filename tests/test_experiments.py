"""The files in experiments/: rows are what their paths say, quick twins differ as they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedul_flwr.comparison.plan import make_plan, read_runs
from fedul_flwr.config import resolve
from fedul_flwr.methods import METHODS
from fedul_flwr.overrides import parse_overrides
from fedul_flwr.settings.base import Scalar

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "experiments"
OVERVIEW = PLACE / "overview"
FILES = sorted(file for file in PLACE.rglob("*.toml") if file.parent != OVERVIEW)
COMPARISONS = [file for file in FILES if file.stem.startswith(("methods", "bases"))]
ROWS = [file for file in FILES if file not in COMPARISONS]
FULL = [file for file in ROWS if file.parent.name != "quick"]
REDUCED = {
    *("model", "num-rounds", "evaluate-every", "points-per-client", "learning-rate", "image-size"),
}
ROW_OF = {"fedul": "table1/mnist-iid-m10.toml", "bi_objective": "iid.toml"}
"""A row of each paper, to lay what is compared over."""

MNIST_L1 = {10: 1e-5, 20: 5e-6, 40: 2e-6}
CIFAR_L1 = {10: 2e-5, 20: 1e-5, 40: 4e-6}
HOSPITAL_L1 = {12: 2e-6, 24: 8e-7, 48: 4e-7}


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def settings(file: Path) -> dict[str, Scalar]:
    """All settings of a row."""
    return resolve(parse_overrides([str(file)]), ROOT).to_flat()


def said(file: Path) -> dict[str, Scalar]:
    """What a row's path says of its settings."""
    words = file.stem.split("-")
    found: dict[str, Scalar] = {}
    for word in words:
        if word in ("iid", "noniid"):
            found["partition"] = "majority" if word == "noniid" else "iid"
        elif match := re.fullmatch(r"m(\d+)", word):
            found["fedul.num-sets"] = int(match[1])
        elif match := re.fullmatch(r"e(\d+)", word):
            found["local-epochs"] = int(match[1])
        elif match := re.fullmatch(r"b(\d+|all)", word):
            found["batch-size"] = 0 if match[1] == "all" else int(match[1])
        elif words[0] == "hospitals" and word != "hospitals":
            found["fedul.num-sets"] = int(word)
        elif words[0] == "epsilon" and word != "epsilon":
            found["fedul.prior-noise"] = float(word)
    if "table-e10" in file.parts:
        found["points-per-client"] = 500
    if "table-e12" in file.parts:
        found |= {"fedul.num-sets": 10, "fedul.num-sets-max": 50, "fedul.num-sets-spread": "even"}
    if "bi_objective" in file.parts:
        found |= {"batch-size": 100, "server-fraction": 0.2}
    return found


@pytest.mark.parametrize("file", ROWS, ids=name)
def test_a_row_is_what_its_path_says(file: Path) -> None:
    given, flat = parse_overrides([str(file)]), settings(file)
    assert {key: flat[key] for key in said(file)} == said(file)
    # Another method may be laid over it: nothing but shared settings and those of sets.
    assert {key.partition(".")[0] for key in given if "." in key} == {"fedul"}
    text = file.read_text()
    assert f"-c {name(file)}" in text
    many = re.search(r"clients-(\d+)", file.stem)
    clients = int(many[1]) if many else 10 if "table-e13" in file.parts else 5
    assert {int(count) for count in re.findall(r"--num-supernodes (\d+)", text)} == {clients}
    assert all((ROOT / found).exists() for found in re.findall(r"--runs (\S+)", text))


@pytest.mark.parametrize("file", FULL, ids=name)
def test_what_the_paper_has_the_same_in_every_row(file: Path) -> None:
    flat = settings(file)
    defaults = {"batch-size": 128, "local-epochs": 1, "fedul.prior-noise": 0.0}
    defaults |= {"points-per-client": 0, "server-fraction": 0.0, "fedul.num-sets-max": 0}
    for key, value in defaults.items():
        assert flat[key] == said(file).get(key, value), key
    assert (flat["num-rounds"], flat["learning-rate"], flat["optimizer"]) == (100, 1e-4, "adam")
    assert (flat["fedul.overlap"], flat["validation-fraction"]) == ("shared", 0.2)
    sets = flat["fedul.num-sets"] if "table-e12" not in file.parts else 20
    kind = file.stem.split("-")[0]
    form = (flat["model"], flat["augment"], flat["fedul.priors"], flat["image-size"])
    assert isinstance(sets, int)
    if kind == "hospitals":
        assert (*form, flat["l1"]) == ("resnet18", "none", "uniform", 224, HOSPITAL_L1[sets])
        assert flat["partition"] == "iid"
    elif kind == "cifar10":
        assert (*form, flat["l1"]) == ("resnet18", "flip", "dominant", 0, CIFAR_L1[sets])
        assert "from scratch" in file.read_text()
    else:
        assert (*form, flat["l1"]) == ("cnn6", "rotate", "dominant", 0, MNIST_L1[sets])
    # The authors' code shares one matrix of priors among the clients of MNIST, IID.
    is_shared = str(flat["dataset"]).endswith("mnist") and flat["partition"] == "iid"
    assert flat["fedul.same-priors"] == is_shared


@pytest.mark.parametrize("file", FULL, ids=name)
def test_a_quick_twin_differs_in_what_it_says(file: Path) -> None:
    twin = file.parent / "quick" / file.name
    flat, quick = settings(file), settings(twin)
    changed = {key for key in flat if flat[key] != quick[key] and key != "output"}
    assert changed <= REDUCED
    assert {"model", "num-rounds", "evaluate-every"} <= changed
    header = " ".join(line.lstrip("# ") for line in twin.read_text().splitlines()[:2])
    assert f"Quick twin of ../{file.name}" in header
    assert f"{quick['model']}, {quick['num-rounds']} rounds" in header
    for key, words in {
        "points-per-client": f"{quick['points-per-client']} points per client",
        "learning-rate": f"step size {float(str(quick['learning-rate'])):.0e}".replace("e-0", "e-"),
        "image-size": f"{quick['image-size']} x {quick['image-size']} pixels",
    }.items():
        assert (words in header) == (key in changed), key


def test_every_row_has_a_quick_twin_and_every_twin_a_row() -> None:
    twins = {file.parent.parent / file.name for file in ROWS if file.parent.name == "quick"}
    assert twins == set(FULL)
    assert len(FULL) == 12 + 3 + 5 + 5 + 9 + 10 + 4 + 12 + 2


@pytest.mark.parametrize("file", COMPARISONS, ids=name)
def test_compared_runs_are_tables_with_a_method(file: Path) -> None:
    tables = tomllib.loads(file.read_text())
    assert len(tables) > 1
    kind = file.parent.name
    row = parse_overrides([str(PLACE / kind / ROW_OF[kind])])
    for table in tables:
        own = {
            key.removeprefix(f"{table}."): value
            for key, value in parse_overrides([str(file)]).items()
            if key.startswith(f"{table}.")
        }
        assert "method" in own, table
        assert resolve({**row, **own}, ROOT).method == own["method"]


def test_the_overview_has_every_method_on_one_split(tmp_path: Path) -> None:
    runs = read_runs(OVERVIEW / "runs.toml")
    shared = parse_overrides([str(OVERVIEW / "mnist-noniid.toml")])
    plan = make_plan(runs, shared, (0, 1), 5, tmp_path)
    on_sets = {name for name, method in METHODS.items() if method.data != "partly-labeled"}
    assert {cell.config.method for cell in plan.cells} == on_sets
    assert plan.split_warnings == ()


def test_the_guide_names_every_folder() -> None:
    guide = (PLACE / "README.md").read_text()
    assert "`overview/`" in guide
    for folder in {file.parent for file in FULL}:
        assert f"`{folder.relative_to(PLACE)}/" in guide
    for file in COMPARISONS:
        assert f"`{file.relative_to(PLACE)}`" in guide
