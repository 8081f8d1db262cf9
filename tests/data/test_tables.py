"""Tables as data: CSV, parquet and .npz become the same vectors; what cannot is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedul_flwr.data.columns import Column, Columns, parse_columns
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import Missing, TableOptions
from tests.support.refusals import refuses

TRAIN = "age,sex,dose,label\n30,f,1.5,sick\n40,m,2.5,well\n50,f,-1,sick\n"
TEST = "age,sex,dose,label\n35,x,0,ill\n"


def write_csv(folder: Path, train: str = TRAIN, test: str = TEST) -> str:
    """A data set of two CSV files; returns its name."""
    folder.mkdir(exist_ok=True)
    (folder / "train.csv").write_text(train)
    (folder / "test.csv").write_text(test)
    return str(folder)


def test_numbers_stay_and_categories_are_one_hot_in_the_columns_order(tmp_path: Path) -> None:
    source = load_source(write_csv(tmp_path / "d"))
    # The categories are those of both splits, sorted: f, m, x.
    assert source.train.inputs.tolist() == [
        [30, 1, 0, 0, 1.5],
        [40, 0, 1, 0, 2.5],
        [50, 1, 0, 0, -1],
    ]
    assert source.test.inputs.tolist() == [[35, 0, 0, 1, 0]]
    assert source.train.inputs.dtype == np.float32
    assert source.input_shape == (5,)
    assert source.columns is not None
    assert source.columns.features == ("age", "sex=f", "sex=m", "sex=x", "dose")
    # Classes are the sorted texts of both splits: ill, sick, well.
    assert source.class_names == ("ill", "sick", "well")
    assert source.train.labels.tolist() == [1, 2, 1]
    assert source.test.labels.tolist() == [0]


def test_parquet_csv_lists_and_npz_hold_the_same_vectors(tmp_path: Path) -> None:
    vectors = np.array([[1.5, -2.0], [0.25, 4.0], [3.0, 0.0]])
    labels = [0, 1, 1]
    for kind in ("npz", "columns", "lists", "fixed", "csv"):
        folder = tmp_path / kind
        folder.mkdir()
        for split in ("train", "test"):
            columns: dict[str, Any] = {"a": vectors[:, 0], "b": vectors[:, 1], "label": labels}
            if kind == "npz":
                np.savez(folder / f"{split}.npz", vectors=vectors, labels=np.array(labels))
            elif kind == "csv":
                rows = [f"{a},{b},{k}" for (a, b), k in zip(vectors, labels, strict=True)]
                (folder / f"{split}.csv").write_text("\n".join(["a,b,label", *rows]))
            else:
                if kind != "columns":
                    width = 2 if kind == "fixed" else -1
                    lists = pa.array(vectors.tolist(), pa.list_(pa.float32(), width))
                    columns = {"embedding": lists, "label": labels}
                pq.write_table(pa.table(columns), folder / f"{split}.parquet")
        source = load_source(str(folder))
        np.testing.assert_array_equal(source.train.inputs, vectors.astype(np.float32))
        assert source.train.labels.tolist() == labels
        names = source.columns.features if source.columns else None
        assert names == (("a", "b") if kind in ("columns", "csv") else None)


@pytest.mark.parametrize(
    ("missing", "number"),
    # Of the training split: (1 + 2 + 2 + 7)/4 = 3, the middle of 1, 2, 2, 7 is 2.
    [("mean", 3.0), ("median", 2.0), ("most-frequent", 2.0)],
)
def test_missing_cells_get_training_values(missing: Missing, number: float, tmp_path: Path) -> None:
    train = "x,s,label\n1,f,0\n2,m,1\n,m,0\n2,,1\n7,m,0\n"
    test = "x,s,label\n,,0\n100,f,1\n100,f,1\n"
    source = load_source(write_csv(tmp_path / "d", train, test), table=TableOptions(missing))
    assert source.train.inputs[2:4].tolist() == [[number, 0, 1], [2, 0, 1]]
    assert source.test.inputs.tolist() == [[number, 0, 1], [100, 1, 0], [100, 1, 0]]


def test_a_columns_file_chooses_columns_categories_and_order(tmp_path: Path) -> None:
    columns = Columns((Column("dose"), Column("sex", ("x", "m", "f", "other"))))
    source = load_source(write_csv(tmp_path / "d"), table=TableOptions(columns=columns))
    assert source.train.inputs[0].tolist() == [1.5, 0, 0, 1, 0]
    assert source.columns == columns
    # A column that is no feature remains for natural partitions.
    assert source.train.columns["age"].tolist() == [30, 40, 50]


def test_another_label_column_can_be_chosen(tmp_path: Path) -> None:
    rows = "x,label,verdict\n1,5,yes\n2,6,no\n"
    name = write_csv(tmp_path / "d", rows, rows)
    source = load_source(name, table=TableOptions(label="verdict"))
    assert source.class_names == ("no", "yes")
    assert source.train.inputs.tolist() == [[1, 5], [2, 6]]


@pytest.mark.parametrize(
    ("content", "code", "named"),
    [
        ([], "columns-file-wrong", None),
        ([{"name": ""}], "columns-file-wrong", None),
        ([{"name": "a"}, {"name": "a"}], "name-twice", None),
        ([{"name": "a", "categories": ["x", "x"]}], "name-twice", None),
        *(
            ([{"name": "a", **entry}], "columns-file-wrong", "olumn 'a'")
            for entry in (
                *({"unit": "m"}, {"scale": 0}, {"mean": "1"}, {"mean": 10**400}),
                *({"fill": "x"}, {"fill": 1e39}, {"other": True}, {"categories": [1]}),
                *({"categories": ["x"], **more} for more in ({"fill": "y"}, {"other": 1})),
                *({"categories": ["x"], "mean": 1}, {"categories": ["x", "NA"]}),
            )
        ),
    ],
)
def test_columns_files_that_are_refused(content: Any, code: str, named: str | None) -> None:
    with refuses(code, match=named) as caught:
        parse_columns(json.dumps({"columns": content}))
    assert "\n" not in str(caught.value)
