"""Runs on vectors: every method, standardizing by the federation, resuming, owners' own tables."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.config.auto_settings import AUTO_KEYS
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.columns import Columns, read_columns
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.data.standardize import MEANS, SCALES
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import COLUMNS, CONFIG, PART, SETUP, phase_of
from fedul_flwr.federated.stages.columns import check_moments
from fedul_flwr.results.predict import load_model, predict
from tests.support.fake_fleet import run_fleet
from tests.support.refusals import refuses
from tests.support.runs import assert_same_arrays, last_model, metrics, summary, train
from tests.support.settings import Settings

QUICK = {"dataset": "wine", "model": "mlp", "model_width": 8, "num_rounds": 2, "local_epochs": 1}
SETS = {"fedul.num-sets": 4}
SOME = {"labels.total": 30}
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("fedul-mix", {**SETS, "server-fraction": 0.3, "augment": "dropout"}),
    ("fedpl", SETS),
    ("fedllp-dc", {**SETS, "fedllp.bag-size": 8}),
    ("server-only", {"server-fraction": 0.3}),
    ("xclp", {**SOME, "semi.labels-only-rounds": 1}),
    ("fedsiam", {**SOME, "semi.labels-only-rounds": 1}),
    ("fedmatch", {**SOME, "fedmatch.helper-interval": 1, "fedmatch.threshold": 0.0}),
    ("fixmatch", {**SOME, "fixmatch.threshold": 0.0}),
]


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_all_kinds_of_methods(method: str, options: dict[str, Any], settings: Settings) -> None:
    directory = train(settings(**QUICK, method=method, **options), 3)
    lines = metrics(directory)
    assert len(lines) == 2
    assert lines[0]["test_error"] is not None


def test_labels_are_propagated_on_standardized_vectors(settings: Settings) -> None:
    base = {"dataset": "wine", "method": "xclp-predict", **SOME}
    errors = {}
    for kind in ("none", "federation"):
        directory = train(settings(**base, standardize=kind), 3)
        found = json.loads((directory / "labels.json").read_text())
        errors[kind] = found["sources"]["xclp"]["error"]
    # Proline, in the hundreds, decides every raw comparison.
    assert errors["federation"] < 20 < errors["none"]


@pytest.mark.parametrize("kind", ["federation", "owner"])
def test_the_scaling_is_that_of_clients_or_else_the_server(kind: str, settings: Settings) -> None:
    config = settings(**QUICK, **SETS, standardize=kind)
    columns = read_columns(train(config, 3)).columns
    split = build_split(source_directory("wine"), 3, config)
    clients = np.concatenate([client.points for client in split.clients])
    rows = clients if kind == "federation" else split.validation
    inputs = np.asarray(load_source("wine").train.inputs[rows], dtype=np.float64)
    assert [column.mean for column in columns] == pytest.approx(inputs.mean(axis=0))
    assert [column.scale for column in columns] == pytest.approx(inputs.std(axis=0))


@pytest.mark.parametrize("how", ["plaintext", "masked"])
def test_a_run_that_resumes_ends_with_the_same_bits(how: str, settings: Settings) -> None:
    options = {**QUICK, **SETS, "fraction_train": 0.5, "standardize_sum": how}
    whole = train(settings(**options), 4)
    part = train(settings(**{**options, "num_rounds": 1}), 4)
    before = read_columns(part)
    train(settings(resume=str(part), output=str(part), num_rounds=2), 4)
    assert read_columns(part) == before == read_columns(whole)
    assert_same_arrays(last_model(whole), last_model(part))


@pytest.mark.parametrize("kind", ["none", "owner", "federation"])
def test_predictions_are_standardized_too(kind: str, settings: Settings, tmp_path: Path) -> None:
    config = settings(**{**QUICK, "num_rounds": 4}, **SETS, standardize=kind, selection="last")
    directory = train(config, 3)
    source = load_source("wine")
    inputs, labels = np.asarray(source.test.inputs), np.asarray(source.test.labels)
    found = load_model(directory).predict(inputs)
    error = metrics(directory)[-1]["test_error"]
    assert 100 * np.mean(found != labels) == pytest.approx(error)
    assert source.columns is not None
    file = tmp_path / "patients.csv"
    rows = [["note", *source.columns.names[::-1]], *(["=x", *row[::-1]] for row in inputs.tolist())]
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    output = predict(directory, file, tmp_path / "out.csv")
    with output.open() as stream:
        assert [int(row["label"]) for row in csv.DictReader(stream)] == found.tolist()


def test_constants_of_an_earlier_run_can_be_used_again(settings: Settings) -> None:
    first = train(settings(**QUICK, **SETS), 3)
    again = settings(**QUICK, **SETS, standardize="constants", columns=str(first))
    second = train(again, 3)
    assert read_columns(second) == read_columns(first)
    assert_same_arrays(last_model(first), last_model(second))


def write_owners(top: Path, owners: int = 3) -> tuple[Path, Columns, dict[str, Any]]:
    """Owners with three sets of wine each, as CSV files whose columns are in other orders.

    Their folder, the columns, and settings of a run with them and no data at the server.
    """
    source, root = load_source("wine"), top / "owners"
    columns = source.columns
    assert columns is not None
    (top / "columns.json").write_text(columns.to_json())
    inputs, labels = np.asarray(source.train.inputs), np.asarray(source.train.labels)
    rng = np.random.default_rng(0)
    for owner in range(owners):
        folder = root / f"owner{owner}"
        folder.mkdir(parents=True)
        lines = ["set,class_0,class_1,class_2"]
        for number in range(3):
            weights = np.where(labels == number, 4.0, 1.0)
            rows = rng.choice(len(labels), 25, replace=False, p=weights / weights.sum())
            shares = np.bincount(labels[rows], minlength=3) / len(rows)
            lines.append(f"month{number},{','.join(map(str, shares))}")
            order = rng.permutation(len(columns.names))
            with (folder / f"month{number}.csv").open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow([columns.names[place] for place in order])
                writer.writerows(inputs[rows][:, order].tolist())
        (folder / "priors.csv").write_text("\n".join(lines))
    alone = {"dataset": "none", "class_names": "class_0,class_1,class_2"}
    return root, columns, {**QUICK, **alone, "columns": str(top / "columns.json")}


@pytest.mark.parametrize("kind", ["owner", "federation"])
def test_owners_with_tables_of_theirs_train(kind: str, settings: Settings, tmp_path: Path) -> None:
    place, columns, alone = write_owners(tmp_path)
    more = {"client_data": str(place), "num_rounds": 6, "standardize": kind, "local_epochs": 5}
    directory = train(settings(**QUICK | more), 3)
    assert metrics(directory)[-1]["test_error"] < 20
    directory = train(settings(**alone | more), 3)
    found = json.loads((directory / "config.json").read_text())["data"]
    assert found["input_shape"] == [13]
    assert found["columns"] == list(columns.features)


@pytest.mark.parametrize("how", ["plaintext", "masked"])
def test_given_gaps_then_means_fill_them(how: str, settings: Settings, tmp_path: Path) -> None:
    place, columns, alone = write_owners(tmp_path)
    for file in place.glob("*/month1.csv"):  # a gap in the first cell
        header, row, *rows = file.read_text().splitlines()
        file.write_text("\n".join([header, row[row.index(",") :], *rows]))
    base = {**alone, "client_data": str(place), "standardize_sum": how}
    directory = train(settings(**base, missing="mean"), 3)
    known = read_columns(directory).columns
    assert [column.fill for column in known] == [column.mean for column in known]
    gap = tmp_path / "gap.csv"
    named = ",".join(columns.names)
    first = str(known[0].mean)  # an empty row at the end of a file is none
    gap.write_text(f"{named}\n{first}{',' * (len(columns.names) - 1)}\n")
    filled = tmp_path / "filled.csv"
    filled.write_text(f"{named}\n{','.join(str(column.mean) for column in known)}\n")
    answers = [predict(directory, f, f.with_suffix(".out")).read_text() for f in (gap, filled)]
    assert answers[0] == answers[1]
    # With medians, by the mean of the owners', who have 75 points each.
    directory = train(settings(**base, missing="median"), 3)
    of_owners = [
        np.nanmedian(np.concatenate([table(f) for f in sorted(owner.glob("m*.csv"))]), axis=0)
        for owner in sorted(place.iterdir())
    ]
    found = [column.fill for column in read_columns(directory).columns]
    assert found == pytest.approx(np.mean(of_owners, axis=0), rel=1e-6)
    predict(directory, gap, tmp_path / "median.csv")
    for bad in ({"missing": "most-frequent"}, {"missing": "median", "standardize": "owner"}):
        plan = {key: value for key, value in base.items() if key != "standardize_sum"}
        with refuses("columns-file-needed", setting="missing"):
            train(settings(**plan | bad), 3)


@pytest.mark.parametrize(("how", "first"), [("plaintext", 2), ("masked", 3)])
def test_a_client_that_is_late(how: str, first: int, settings: Settings, tmp_path: Path) -> None:
    place, _, alone = write_owners(tmp_path, owners=first + 1)
    for owner in range(first + 1):
        (place / f"owner{owner}").rename(place / str(owner))
    more = {"num_rounds": 3, "connect_timeout": 0.05, "standardize_sum": how}
    config = settings(**{**alone, **more, "on_client_failure": "continue"})
    there = lambda number: range(first + (number > 1))  # noqa: E731
    directory, flock = run_fleet(config, place, partitions=range(first + 1), there=there)
    assert [(line["clients"], line["failures"]) for line in metrics(directory)] == [
        *((first, 0), (first + 1, 0), (first + 1, 0))
    ]
    own = [
        np.concatenate([table(file) for file in sorted((place / str(owner)).glob("m*.csv"))])
        for owner in range(first)
    ]
    known = read_columns(directory)  # of those who were there before round 1
    wanted = np.concatenate(own).mean(axis=0)
    assert [column.mean for column in known.columns] == pytest.approx(wanted)
    (setup,) = [
        message.content[CONFIG]
        for message in flock.told
        if phase_of(message) == SETUP and message.metadata.dst_node_id == FIRST_NODE_ID + first
    ]
    assert setup[MEANS] == [column.mean for column in known.columns]
    assert setup[SCALES] == [column.scale for column in known.columns]
    assert flock.asked(2, COLUMNS) == []  # nobody is told twice
    assert flock.asked(2, PART) == []


def table(file: Path) -> NDArray[np.float64]:
    """Columns of a file in the order of wine's."""
    source = load_source("wine")
    assert source.columns is not None
    with file.open() as stream:
        rows = list(csv.DictReader(stream))
    return np.array([[float(row[name] or "nan") for name in source.columns.names] for row in rows])


def test_what_follows_from_the_data(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    given = dict.fromkeys(AUTO_KEYS, "auto")
    given |= {"dataset": "wine", "method": "supervised", "num-rounds": 1, "batch-size": 5}
    # 142 points, 20 % of each class for validation (29), half of 113 / 2 labeled: 28.25.
    directory = train(settings(**given, **{"supervised.label-fraction": 0.5}), 2)
    assert (
        "because points are vectors of 13 numbers; a client has about 28 points; the model is mlp."
        in caplog.messages
    )
    kept = json.loads((directory / "config.json").read_text())["settings"]
    assert {key: kept[key] for key in AUTO_KEYS} == {
        **{"model": "mlp", "augment": "none", "batch-size": 5, "local-epochs": 20},
        **{"learning-rate": 3e-3, "learning-rate-schedule": "cosine"},
    }
    again = resolve({"resume": str(directory), "num-rounds": 60}, directory.parent)
    assert {key: again.to_flat()[key] for key in AUTO_KEYS} == {key: kept[key] for key in AUTO_KEYS}


@pytest.mark.parametrize(
    ("means", "variances", "code"),
    [
        ([1.0, float("nan")], [1.0, 1.0], "message-form"),
        ([1.0, 1.0], [1.0, -1.0], "message-out-of-range"),
        ([1.0, 1.0], [1.0, 1e308], "message-out-of-range"),
    ],
)
def test_malformed_moments(means: list[float], variances: list[float], code: str) -> None:
    answer = Content(values={"column-means": means, "column-variances": variances})
    with refuses(code, BadMessageError):
        check_moments(answer, 2)


def test_weights_of_an_earlier_run_begin_with_its_error(settings: Settings) -> None:
    """The clients are the same, and so are the means and scales that they pool in round 1."""
    plan = {"dataset": "wine", "method": "supervised", "model": "linear", "num_rounds": 1}
    earlier = train(settings(**plan), 3)
    again = train(settings(**plan, start_from=str(earlier)), 3)
    for part in ("test_error", "validation_error"):
        assert metrics(again)[0][f"start_{part}"] == metrics(earlier)[0][part]
    assert summary(again)["start_test_error"] == summary(earlier)["test_error"]
