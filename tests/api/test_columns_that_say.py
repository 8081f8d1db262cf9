"""Columns of a table that say who has a point, its class or its row are no features."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedul_flwr as ff
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


def test_given_vectors_then_a_column_that_says_clients_or_classes_is_refused() -> None:
    rng = np.random.default_rng(0)
    owners, labels = np.arange(60) % 3, rng.integers(0, 2, 60)
    x = rng.normal(size=(60, 3))
    for said in (owners * 2.5, labels + 1.0):
        with refuses("array-wrong", UserError):
            ff.simulate("supervised", (np.c_[x, said], labels), clients=owners, **QUICK)
