"""Labels of every kind: what is no label, which classes there are, and what is refused."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedul_flwr.data.class_labels import class_labels, class_of_cell, labels_of_cells
from fedul_flwr.data.sources import load_source
from tests.support.refusals import refuses

TEXTS = ["cat", None, "dog", "cat"]
NUMBERS = [20, None, 30, 20]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (TEXTS, ("cat", "dog")),
        (["cat", float("nan"), "dog", "cat"], ("cat", "dog")),
        (["cat", pd.NA, "dog", "cat"], ("cat", "dog")),
        (["cat", -1, "dog", "cat"], ("cat", "dog")),
        ([" cat", "", "dog ", "cat"], ("cat", "dog")),
        (["k\u00e4 se", "", "x", "ka\u0308\u00a0\u200bse"], ("k\u00e4 se", "x")),
        (["A", "", "a", "A"], ("A", "a")),  # classes may be letters
        (pd.Series(TEXTS, dtype="string"), ("cat", "dog")),
        (pd.Series(pd.Categorical(TEXTS, categories=["emu", "dog", "cat"])), ("cat", "dog")),
        (pd.Series(TEXTS, dtype=pd.ArrowDtype(pa.string())), ("cat", "dog")),
        (pa.chunked_array([TEXTS[:1], TEXTS[1:]]).dictionary_encode(), ("cat", "dog")),
        (NUMBERS, ("20", "30")),
        (np.array([20, -1, 30, 20]), ("20", "30")),
        (np.array([20, np.nan, 30, 20], dtype=np.float32), ("20", "30")),
        (np.ma.masked_equal([20, 7, 30, 20], 7), ("20", "30")),
        (pd.Series(NUMBERS, dtype="Int64"), ("20", "30")),
        (pd.DataFrame({"y": NUMBERS}), ("20", "30")),
        (pa.array([20.0, float("nan"), 30.0, 20.0]), ("20", "30")),
        (torch.tensor([20, -1, 30, 20]), ("20", "30")),
        ([torch.tensor(20), torch.tensor(-1), torch.tensor(30), torch.tensor(20)], ("20", "30")),
        ([Decimal(20), None, Decimal(30), Decimal(20)], ("20", "30")),
        (pd.Series([False, None, True, False], dtype="boolean"), ("False", "True")),
        (["01", None, "1", "01"], ("01", "1")),
        ([2**63, None, 2**64, 2**63], ("9223372036854775808", "18446744073709551616")),
    ],
)
def test_given_values_of_any_type_then_the_second_is_no_label_and_classes_are_those_that_occur(
    values: Any, names: tuple[str, ...]
) -> None:
    found = class_labels(values, "y", 4)
    assert found.names == names
    assert found.numbers.tolist() == [0, -1, 1, 0]
    assert found.numbers.dtype == np.int64
    # What is written to disk reads as the same classes.
    again = class_labels(found.cells(), "y")
    assert (again.names, again.numbers.tolist()) == (names, [0, -1, 1, 0])


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([0.5, 1.0], "labels-wrong"),
        (np.array([0, -2]), "labels-wrong"),
        ([[0], [0, 1]], "labels-type"),
        (pd.Series([[0], [1]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), "labels-type"),
        (np.eye(2), "labels-type"),
        ([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], "labels-type"),
        ([1, "a"], "labels-type"),
        ([True, 2], "labels-type"),
        (["Yes", "yes"], "class-names-wrong"),
        (["?", "mild"], "label-unknown"),
        ([object(), object()], "labels-type"),
        ("ab", "labels-type"),
        ({"a", "b"}, "labels-type"),
        ([0, 1, 1], "points-and-labels-differ"),
    ],
)
def test_given_values_that_are_no_labels_then_a_sentence_says_so(values: Any, code: str) -> None:
    with refuses(code):
        class_labels(values, "y", 2)


@pytest.mark.parametrize(
    ("cells", "names", "numbers"),
    [
        (["2", None, "10", "2"], ("2", "10"), [0, -1, 1, 0]),
        (["2.0", "-1.0", "10.0", "2"], ("2", "10"), [0, -1, 1, 0]),
        (["01", "", "10", "01"], ("01", "10"), [0, -1, 1, 0]),
        (["yes", "-1", "no", "yes"], ("no", "yes"), [1, -1, 0, 1]),
        (["1", "nan", "1a", "1"], ("1", "1a"), [0, -1, 1, 0]),
    ],
)
def test_given_cells_without_types_then_they_are_numbers_only_if_all_are_written_so(
    cells: list[Any], names: tuple[str, ...], numbers: list[int]
) -> None:
    found = labels_of_cells(pa.array(cells, pa.string()), "y")
    assert (found.names, found.numbers.tolist()) == (names, numbers)


def test_given_a_cell_of_an_owners_file_then_it_is_a_class_no_label_or_neither() -> None:
    classes = {"1": 0, "NA": 1}
    cells = ["1", "1.0", "NA", "nan", "", "-1", "-1.0", "None", "01", "2", "-2.0"]
    found = [class_of_cell(cell, classes) for cell in cells]
    assert found == [0, 0, 1, -1, -1, -1, -1, -1, None, None, None]


def write(folder: Path, kind: str, train: list[Any], test: list[Any]) -> str:
    folder.mkdir()
    for name, labels in (("train", train), ("test", test)):
        points = np.arange(len(labels), dtype=np.float64)
        if kind == "npz":
            np.savez(folder / f"{name}.npz", vectors=points[:, np.newaxis], labels=labels)
        elif kind == "csv":
            frame = pd.DataFrame({"a": points, "label": pd.Series(labels, dtype=object)})
            frame.to_csv(folder / f"{name}.csv", index=False)
        else:
            pq.write_table(pa.table({"a": points, "label": labels}), folder / f"{name}.parquet")
    return str(folder)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_given_class_numbers_with_holes_in_one_split_each_then_both_count_the_same_classes(
    tmp_path: Path, kind: str
) -> None:
    source = load_source(write(tmp_path / "d", kind, [10, 2021, -1, 10], [2021, 300]))
    assert source.class_names == ("10", "300", "2021")
    assert source.train.labels.tolist() == [0, 2, -1, 0]
    assert source.test.labels.tolist() == [2, 1]
    if kind != "npz":  # texts, of which one is missing
        source = load_source(write(tmp_path / "t", kind, ["01", None, "1", "1"], ["1", "02"]))
        assert source.class_names == ("01", "02", "1")
        assert source.train.labels.tolist() == [0, -1, 2, 2]
        assert source.test.labels.tolist() == [2, 1]
