"""Columns of a table that say who has a point, its class or its row are no features."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedul_flwr as ff
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.errors import UserError
from tests.support.refusals import refuses

QUICK: dict[str, Any] = {
    **{"rounds": 1, "engine": "in-process", "model": "linear", "learning_rate": 0.05},
    "verbose": False,
}


def hospitals(rows: int = 90) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    names = np.array(["north", "east", "south"])[np.arange(rows) % 3]
    frame = pd.DataFrame({"age": rng.normal(60, 10, rows), "ward": names, "code": names})
    frame["code"] = frame["code"].map({"east": 7, "north": 3, "south": 5})
    return frame, rng.integers(0, 2, rows)


def columns(run: Any) -> list[str]:
    described = json.loads((run.directory / "columns.json").read_text())["columns"]
    return [column["name"] for column in described]


def clients(run: Any) -> list[str]:
    listed = json.loads((run.directory / "federation.json").read_text())["clients"]
    return [client["name"] for client in listed]


@pytest.mark.parametrize("form", ["series", "list", "array"])
def test_given_clients_in_the_table_then_no_column_that_says_them_is_a_feature(
    tmp_path: Path, form: str
) -> None:
    frame, labels = hospitals()
    frame["label"] = labels
    given = {"series": frame["ward"], "list": [*frame["ward"]], "array": frame["ward"].to_numpy()}
    run = ff.simulate("supervised", frame, clients=given[form], output=tmp_path / "r", **QUICK)
    assert columns(run) == ["age"]  # neither the names nor their codes
    assert clients(run) == ["east", "north", "south"]


def test_given_labels_from_the_table_then_their_column_is_no_feature(tmp_path: Path) -> None:
    frame, labels = hospitals()
    frame["diagnosis"] = np.where(labels == 1, "ill", "sound")
    frame["icd"] = labels + 10  # the same in other words
    frame["number"] = np.arange(len(frame))
    data = frame, frame["diagnosis"]
    run = ff.simulate("supervised", data, clients=3, output=tmp_path / "r", **QUICK)
    assert columns(run) == ["age", "ward", "code"]


def test_given_measurements_that_all_differ_then_they_stay(tmp_path: Path) -> None:
    frame, labels = hospitals()
    frame["rank"] = np.random.default_rng(1).permutation(len(frame))  # no number of a row
    run = ff.simulate("supervised", (frame, labels), clients=3, output=tmp_path / "r", **QUICK)
    assert columns(run) == ["age", "ward", "code", "rank"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_given_a_folder_then_no_column_that_says_clients_classes_or_rows_is_a_feature(
    tmp_path: Path, kind: str
) -> None:
    n = 90
    rng = np.random.default_rng(0)
    ward = np.arange(n) % 3
    ill = rng.integers(0, 2, n)
    table = pd.DataFrame(
        {
            **{"age": rng.normal(60, 9, n), "sex": rng.choice(["f", "m"], n), "row": np.arange(n)},
            **{"ward": ward, "house": np.array(["A", "B", "C"])[ward]},
            **{"outcome": np.where(ill, "died", "lives"), "label": ill},
        }
    )
    for split in ("train", "test"):
        part = table if split == "train" else table.iloc[:30]
        path = tmp_path / f"{split}.{kind}"
        part.to_csv(path, index=False) if kind == "csv" else part.to_parquet(path, index=False)
    source = load_source(str(tmp_path), table=TableOptions(group="ward"))
    assert source.columns is not None
    assert source.columns.names == ("age", "sex")
    assert len(source.notes) >= 3
    assert source.train.columns["ward"].tolist() == ward.tolist()
    # Who names the columns in a file decides.
    stated = TableOptions(columns=Columns((Column("age"), Column("row"))))
    assert load_source(str(tmp_path), table=stated).train.inputs.shape == (n, 2)


def test_given_nothing_but_a_column_that_tells_the_classes_apart_then_it_is_the_feature(
    tmp_path: Path,
) -> None:
    table = pd.DataFrame({"a": np.arange(60) % 2 + 0.1, "label": np.arange(60) % 2})
    for split in ("train", "test"):
        table.to_csv(tmp_path / f"{split}.csv", index=False)
    source = load_source(str(tmp_path))
    assert source.columns is not None
    assert source.columns.names == ("a",)
    run = ff.simulate(
        "supervised", (table[["a"]], table["label"]), clients=2, output=tmp_path / "r", **QUICK
    )
    assert columns(run) == ["a"]


def test_given_the_number_of_each_set_as_a_column_then_an_estimator_refuses_it() -> None:
    rng = np.random.default_rng(0)
    sets = np.arange(60) % 3
    points = np.column_stack([rng.normal(size=60), 7.0 * sets])
    priors = np.array([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]])
    with pytest.raises(ValueError, match="column 1 of X"):
        ff.FedULClassifier(rounds=1).fit(points, sets, priors)
    with pytest.raises(ValueError, match="column 1 of X"):
        ff.ClosedFormClassifier().fit(points, sets)


def test_given_vectors_then_a_column_that_says_clients_or_classes_is_refused() -> None:
    rng = np.random.default_rng(0)
    owners, labels = np.arange(60) % 3, rng.integers(0, 2, 60)
    x = rng.normal(size=(60, 3))
    for said in (owners * 2.5, labels + 1.0):
        with refuses("array-wrong", UserError):
            ff.simulate("supervised", (np.c_[x, said], labels), clients=owners, **QUICK)
