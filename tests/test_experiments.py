"""The files in experiments/: rows are what their paths say, quick twins differ as they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fedul_flwr.comparison.plan import make_plan, read_runs
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.split import split_settings
from fedul_flwr.methods import METHODS, PARTLY_LABELED
from fedul_flwr.reproduction.tables import read_table, table_names

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "experiments"
OVERVIEW = PLACE / "overview"
RECIPES = PLACE / "recipes"
XCLP = PLACE / "xclp"
FEDMATCH = PLACE / "fedmatch"
"""Checked in test_fedmatch_experiments.py."""
EVERY = sorted(
    file
    for file in PLACE.rglob("*.toml")
    if file.name not in ("table.toml", "search.toml")
    and not {OVERVIEW, RECIPES} & set(file.parents)
)
FILES = [file for file in EVERY if not {XCLP, FEDMATCH} & set(file.parents)]
COMPARISONS = [file for file in FILES if file.stem.startswith(("methods", "bases"))]
ROWS = [file for file in FILES if file not in COMPARISONS]
FULL = [file for file in ROWS if file.parent.name != "quick"]
REDUCED = {
    *("model", "num-rounds", "evaluate-every", "points-per-client", "learning-rate", "image-size"),
}
ROW_OF = {"fedul": "table-1/mnist-iid-m10.toml", "bi-objective": "table-1/iid.toml"}
"""A row of each paper, to lay what is compared over."""

MNIST_L1 = {10: 1e-5, 20: 5e-6, 40: 2e-6}
CIFAR_L1 = {10: 2e-5, 20: 1e-5, 40: 4e-6}
HOSPITAL_L1 = {12: 2e-6, 24: 8e-7, 48: 4e-7}

OF_XCLP = {
    name
    for name, method in METHODS.items()
    if method.data == "partly-labeled" and "scenario" not in method.sections
}
"""XCLP and what its paper compares with: methods without FedMatch's scenarios."""
XCLP_COMPARISONS = sorted(XCLP.glob("methods*.toml"))
XCLP_ROWS = [file for file in EVERY if XCLP in file.parents and file not in XCLP_COMPARISONS]
XCLP_FULL = [file for file in XCLP_ROWS if file.parent.name != "quick"]
XCLP_TRAINED = [file for file in XCLP_ROWS if {"table-4", "table-5"} & set(file.parts)]
XCLP_REDUCED = {
    "table-4": {
        *("model", "num-rounds", "semi.labels-only-rounds", "evaluate-every", "local-epochs"),
        *("points-per-client", "learning-rate", "learning-rate-rounds", "fraction-train"),
    },
    "isic": {"image-size", "points-per-client", "start-from"},
    "isic-training": {
        *("image-size", "points-per-client"),
        *("num-rounds", "evaluate-every", "learning-rate"),
    },
    "femnist": {"dataset", "xclp-predict.groups", "start-from"},
    "femnist-training": {"dataset", "num-rounds", "evaluate-every", "fraction-train"},
}
"""What quick twins change, by the kind of row."""
XCLP_WORDS = {
    "model": "{}",
    "num-rounds": "{} rounds",
    "semi.labels-only-rounds": "the first {} on labels alone",
    "local-epochs": "{} local epochs",
    "points-per-client": "{} points per client",
    "learning-rate": "step size {}",
    "learning-rate-rounds": "a cosine over {} rounds",
    "image-size": "{} x {} pixels",
    "fraction-train": "{} of the clients in a round",
    "xclp-predict.groups": "{} groups",
}
"""How the header of a quick twin says what it changes."""
XCLP_CLIENTS = {"table-1": 6, "table-2": 6, "table-3": 6, "table-4": 100, "table-6": 3597}


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
    if "bi-objective" in file.parts:
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
    # It is the sum of a draw for each client.
    clients = 10 if "table-e13" in file.parts else 5
    assert flat["fedul.prior-draws"] == (clients if is_shared else 1)


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


@pytest.mark.parametrize("file", sorted((PLACE / "fedul").glob("methods*.toml")), ids=name)
def test_what_fedul_is_compared_with_is_as_in_the_authors_code(file: Path) -> None:
    runs = read_runs(file)
    found = {row: resolve({"l1": 1e-5, **runs[row]}, ROOT).to_flat() for row in runs}
    released = {"labels": "drawn", "relabel": True, "mix": "outputs", "pairing": "shorter"}
    assert {key: found["FedPL"][f"fedpl.{key}"] for key in released} == released
    assert found["FedPL"]["l1"] == 0
    others = {row: flat["l1"] for row, flat in found.items() if row != "FedPL"}
    assert set(others.values()) == {1e-5}
    assert found["FedLLP"]["fedllp.dropout"] == found["FedLLP-VAT"]["fedllp.dropout"] == 0.2
    steps = "sets" if file.stem.endswith("quick") else "labeled"
    assert found["FedAvg 10 %"]["supervised.steps"] == steps


@pytest.mark.parametrize("kind", ["methods", "methods-cifar10"])
def test_quick_runs_of_feduls_rivals_differ_in_steps_and_evaluation(kind: str) -> None:
    full, quick = (
        dict(read_runs(PLACE / "fedul" / f"{found}.toml")) for found in (kind, f"{kind}-quick")
    )
    assert list(full) == list(quick)
    for row in full:
        changed = {
            "FedAvg 10 %": {"supervised.steps": "sets"},
            "FedPL": {"evaluate-every": 1},
        }.get(row, {})
        assert quick[row] == {**full[row], **changed}


def test_quick_rows_are_compared_with_quick_runs() -> None:
    for file in ROWS:
        named = re.findall(r"--runs (\S+)", file.read_text())
        for runs in named:
            if "FedAvg 10 %" in read_runs(ROOT / runs):
                assert runs.endswith("-quick.toml") == (file.parent.name == "quick")
    for table in table_names(PLACE):
        found = read_table(PLACE, table)
        for column in found.columns:
            full, quick = found.rows_of(column, "full"), found.rows_of(column, "quick")
            if "FedAvg 10 %" in quick:
                assert quick["FedAvg 10 %"]["supervised.steps"] == "sets"
                assert quick["FedLLP-VAT"] == full["FedLLP-VAT"]  # the weight of its data set


def test_the_overview_has_every_method_on_one_split(tmp_path: Path) -> None:
    runs = read_runs(OVERVIEW / "runs.toml")
    shared = parse_overrides([str(OVERVIEW / "mnist-noniid.toml")])
    plan = make_plan(runs, shared, (0, 1), 5, tmp_path)
    on_sets = {name for name, method in METHODS.items() if method.data not in PARTLY_LABELED}
    assert {cell.config.method for cell in plan.cells} == on_sets
    assert plan.split_warnings == ()


def test_private_runs_differ_in_their_noise_alone(tmp_path: Path) -> None:
    plan = make_plan(read_runs(OVERVIEW / "private-runs.toml"), {}, (0,), 20, tmp_path)
    plain, *private = [cell.config.to_flat() for cell in plan.cells]
    of_noise = {"dp.clipping", "dp.norm", "dp.noise-multiplier", "output"}
    for flat in private:
        assert {key for key in flat if flat[key] != plain[key]} <= of_noise
    assert [flat["dp.noise-multiplier"] for flat in private] == [0.3, 1.0]


@pytest.mark.parametrize(
    ("runs", "shared"),
    [("xclp-runs", "xclp-mnist"), ("xclp-runs", "xclp-cifar10"), ("labeling-runs", "labeling")],
)
def test_overviews_of_partly_labeled_data_share_a_split(
    runs: str, shared: str, tmp_path: Path
) -> None:
    found = read_runs(OVERVIEW / f"{runs}.toml")
    over = parse_overrides([str(OVERVIEW / f"{shared}.toml")])
    plan = make_plan(found, over, (0, 1), 20, tmp_path)
    trains = runs == "xclp-runs"
    expected = {found for found in OF_XCLP if METHODS[found].trains == trains}
    assert {cell.config.method for cell in plan.cells} == expected
    assert plan.split_warnings == ()


# XCLP


def table_of(file: Path) -> str:
    return file.relative_to(XCLP).parts[0]


def said_of_xclp(file: Path) -> dict[str, Scalar]:
    """What the path of a row of XCLP's says of its settings."""
    table, (kind, *words) = table_of(file), file.stem.split("-")
    if table in ("table-4", "table-5"):
        split, labels, clients = words
        many = int(clients.removeprefix("clients"))
        return {
            "method": "xclp",
            "dataset": {
                "cifar10": "uoft-cs/cifar10",
                "cifar100": "uoft-cs/cifar100",
                "miniimagenet": str(ROOT / "mini-imagenet"),
            }[kind],
            "partition": {"iid": "iid", "noniid": "pathological"}[split],
            # Non-IID clients have labels "according to their own distribution".
            "labels.sampling": {"iid": "balanced", "noniid": "random"}[split],
            "labels.total": int(labels.removeprefix("labels")),
            "labels.labeled-clients": many / 100 if table == "table-4" else 1.0,
        }
    found: dict[str, Scalar] = {
        "method": "labels-only" if kind == "training" else "xclp-predict",
        "labels.fraction": 1.0,
        "labels.new-fraction": 0.0 if table == "table-2" else 0.2,
        "partition": "natural",
        "natural.column": "writer_id" if table == "table-6" else "center",
    }
    if kind != "training":
        found["xclp-predict.features"] = "pixels" if kind == "identity" else "model"
        found["xclp-predict.use-unlabeled"] = table != "table-1"
        found["xclp-predict.leave-one-out"] = (table, kind) == ("table-2", "pretrained")
    for word in words:
        if table == "table-2":
            found["labels.without-client"] = int(word.removeprefix("client"))
        else:
            found["labels.fraction"] = float(word)
    return found


@pytest.mark.parametrize("file", XCLP_ROWS, ids=name)
def test_a_row_of_xclp_is_what_its_path_says(file: Path) -> None:
    flat, said = settings(file), said_of_xclp(file)
    assert {key: flat[key] for key in said} == said
    text = file.read_text()
    assert f"-c {name(file)}" in text
    assert f"table {table_of(file).removeprefix('table-')}" in text or file.parent.name == "quick"
    clients = XCLP_CLIENTS.get(table_of(file)) or int(file.stem.rpartition("clients")[2])
    if file.parent.name == "quick":
        clients = {"table-6": 100, "table-4": 20, "table-5": 20}.get(table_of(file), clients)
    assert {int(count) for count in re.findall(r"--num-supernodes (\d+)", text)} == {clients}
    assert all((ROOT / found).exists() for found in re.findall(r"--runs (\S+)", text))
    # The paper's figures are lost; none may be made up.
    assert "Error %" not in text


@pytest.mark.parametrize("file", [file for file in XCLP_FULL if file in XCLP_TRAINED], ids=name)
def test_what_xclp_trains_with_in_every_row(file: Path) -> None:
    flat, text = settings(file), file.read_text()
    clients = 100 if table_of(file) == "table-4" else int(file.stem.rpartition("clients")[2])
    expected = {
        **{"optimizer": "sgd", "momentum": 0.0, "weight-decay": 2e-4, "batch-size": 50},
        **{"num-rounds": 3000, "semi.labels-only-rounds": 1500, "local-epochs": 5},
        **{"learning-rate-schedule": "cosine", "learning-rate-rounds": 2000},
        **{"validation-fraction": 0.1, "client-weights": "uniform", "points-per-client": 0},
        **{"xclp.k": 10, "xclp.num-bits": 4096, "xclp.alpha": 0.99, "semi.labeled-share": 0.6},
    }
    assert {key: flat[key] for key in expected} == expected
    total, part = flat["labels.total"], flat["labels.labeled-clients"]
    assert isinstance(total, int)
    assert isinstance(part, float)
    batch = min(50, total / (part * clients))
    assert flat["learning-rate"] == (0.3 if batch >= 50 else 0.1 if batch >= 20 else 0.05)
    assert f"{batch:g} in a batch" in text or f"{batch:g} labels in a batch" in " ".join(
        line.lstrip("# ") for line in text.splitlines()
    )
    assert float(str(flat["fraction-train"])) * clients == 5
    if "noniid" in file.stem:
        assert flat["pathological.classes-per-client"] == 5
    form = (flat["model"], flat["augment"], flat["image-size"])
    is_mini = file.stem.startswith("mini")
    cifar = ("cnn13", "translate-flip", 0)
    assert form == (("resnet18", "rotate-flip", 84) if is_mini else cifar)


@pytest.mark.parametrize("file", XCLP_FULL, ids=name)
def test_a_quick_twin_of_xclp_differs_in_what_it_says(file: Path) -> None:
    twin = file.parent / "quick" / file.name
    flat, quick = settings(file), settings(twin)
    changed = {key for key in flat if flat[key] != quick[key] and key != "output"}
    assert flat.keys() == quick.keys()
    if table_of(file) in ("table-4", "table-5"):
        # Full Mini-ImageNet has larger images; its twins and CIFAR's have 32 x 32 pixels.
        mini = {"image-size"} if file.stem.startswith("mini") else set()
        reduced = XCLP_REDUCED["table-4"] | mini
        # 0.25 of 20 clients are five, as 0.05 of 100 are.
        assert float(str(quick["fraction-train"])) * 20 == 5
    else:
        data = "femnist" if table_of(file) == "table-6" else "isic"
        training = "-training" if file.stem.startswith("training") else ""
        reduced = XCLP_REDUCED[data + training]
    assert changed <= reduced
    assert changed
    lines = [line for line in twin.read_text().splitlines() if line.startswith("#")]
    header = " ".join(line.lstrip("# ") for line in lines).partition("fedul-flwr")[0]
    assert f"Quick twin of ../{file.name}, for two cores:" in header
    for key, words in XCLP_WORDS.items():
        said = words.replace("{}", str(quick.get(key, "")))
        assert (said in header) == (key in changed), key
    # No copy of these data was at hand.
    assert ("Not run" in header) == (table_of(file) != "table-4")


def test_every_row_of_xclp_has_a_quick_twin_and_every_twin_a_row() -> None:
    twins = {file.parent.parent / file.name for file in XCLP_ROWS if file.parent.name == "quick"}
    assert twins == set(XCLP_FULL)
    of_table = {f"table-{number}": 0 for number in range(1, 7)}
    for file in XCLP_FULL:
        of_table[table_of(file)] += 1
    assert list(of_table.values()) == [3 * 4, 1 + 2 * 6, 3, 8, 4, 3 * 3]


@pytest.mark.parametrize(
    "file", [file for file in XCLP_ROWS if file.stem.startswith(("finetuned", "linear"))], ids=name
)
def test_features_come_from_a_row_with_the_same_points_and_labels(file: Path) -> None:
    start = Path(str(parse_overrides([str(file)])["start-from"]))
    training = PLACE / start.relative_to("runs").with_name(f"{start.name}.toml")
    assert f"--output {start}" in training.read_text()
    one, other = (resolve(parse_overrides([str(path)]), ROOT) for path in (file, training))
    assert other.method == "labels-only"
    assert split_settings(one) == split_settings(other)
    shared = ("dataset", "image_size", "model", "seed")
    assert {key: getattr(one, key) for key in shared} == {
        key: getattr(other, key) for key in shared
    }


@pytest.mark.parametrize("file", XCLP_COMPARISONS, ids=name)
@pytest.mark.parametrize("row", XCLP_TRAINED, ids=name)
def test_what_xclp_is_compared_with_fits_every_row(file: Path, row: Path, tmp_path: Path) -> None:
    plan = make_plan(read_runs(file), parse_overrides([str(row)]), (0,), 20, tmp_path)
    trained = {name for name in OF_XCLP if METHODS[name].trains}
    assert {cell.config.method for cell in plan.cells} == trained | {"fedmatch"}
    assert plan.split_warnings == ()
    heads = [cell.config.model for cell in plan.cells if cell.config.model.endswith("+head")]
    assert len(heads) == 1


def test_a_row_of_xclp_is_compared_on_its_own_model() -> None:
    for row in XCLP_TRAINED:
        named = re.findall(r"--runs (\S+)", row.read_text())
        model = str(settings(row)["model"])
        fitting = {"cnn13": "methods", "resnet18": "methods-resnet18", "lenet": "methods-quick"}
        assert [Path(found).stem for found in named] == [fitting[model]]


def test_the_guide_names_every_folder() -> None:
    guide = (PLACE / "README.md").read_text()
    assert "`overview/`" in guide
    for folder in {file.parent for file in [*FULL, *XCLP_FULL]}:
        assert f"`{folder.relative_to(PLACE)}/" in guide
    for file in [*COMPARISONS, *XCLP_COMPARISONS]:
        assert f"`{file.relative_to(PLACE)}`" in guide
