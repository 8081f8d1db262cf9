"""Tables as data: CSV, parquet and .npz become the same vectors; what cannot is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedul_flwr.data.columns import Column, Columns, parse_columns, read_columns
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.tables import Missing, TableOptions
from fedul_flwr.errors import UserError
from tests.support.refusals import refuses

TRAIN = "age,sex,dose,label\n30,f,1.5,sick\n40,m,2.5,well\n50,f,-1,sick\n"
TEST = "age,sex,dose,label\n35,x,0,ill\n"


def write_csv(folder: Path, train: str = TRAIN, test: str = TEST) -> str:
    """A data set of two CSV files; returns its name."""
    folder.mkdir(exist_ok=True)
    (folder / "train.csv").write_text(train)
    (folder / "test.csv").write_text(test)
    return str(folder)


def refused(dataset: str, **options: Any) -> str:
    """The one sentence with which a data set is refused."""
    with pytest.raises(UserError) as caught:
        load_source(dataset, table=TableOptions(**options))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_numbers_stay_and_categories_are_one_hot_in_the_order_of_the_columns(
    tmp_path: Path,
) -> None:
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
    ("missing", "number", "category"),
    # Of the training split: (1 + 2 + 2 + 7)/4 = 3, the middle of 1, 2, 2, 7 is 2.
    [("mean", 3.0, "m"), ("median", 2.0, "m"), ("most-frequent", 2.0, "m")],
)
def test_missing_values_are_filled_by_the_training_split(
    missing: Missing, number: float, category: str, tmp_path: Path
) -> None:
    train = "x,s,label\n1,f,0\n2,m,1\n,m,0\n2,,1\n7,m,0\n"
    test = "x,s,label\n,,0\n100,f,1\n100,f,1\n"
    source = load_source(write_csv(tmp_path / "d", train, test), table=TableOptions(missing))
    filled = [number, float(category == "f"), float(category == "m")]
    assert source.train.inputs[2].tolist() == [number, 0, 1]
    assert source.train.inputs[3].tolist() == [2, *filled[1:]]
    assert source.test.inputs.tolist() == [filled, [100, 1, 0], [100, 1, 0]]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            "x,label\n1,0\n,1\nNA,1\n",
            "Column 'x' of {train} has 2 values that are missing: fill them, train with missing = "
            "'mean', 'median' or 'most-frequent', or give the column a \"fill\" in the columns "
            "file.",
        ),
        (
            "x,label\n1,0\ninf,1\n",
            "Column 'x' of {train} has 1 value that is infinite or too large for float32: all "
            "values must be finite.",
        ),
        (
            "x,label\n1,0\n1e39,1\n",
            "Column 'x' of {train} has 1 value that is infinite or too large for float32: all "
            "values must be finite.",
        ),
        (
            "y,label\n1,0\n2,1\n",
            "The columns of {train} and {test} differ in column 'x'; both must have the same, "
            "in any order.",
        ),
        ("x\n1\n2\n", "{train} has no label column, such as 'label'; its columns are: x."),
        ("label\n1\n2\n", "{train} has no column of features beside the label."),
        ("", "{train} is empty; a row of column names must come first."),
        (
            "x,x,label\n1,2,0\n",
            "Several columns of {train} are called 'x': rename them, or name the columns that the "
            "run uses in a columns file.",
        ),
        ("x,label\n", "{train} holds no rows; each split needs one or more."),
        (
            "x,label\n2020-01-01,0\n2020-01-02,1\n",
            "Column 'x' of {train} holds dates or times, such as '2020-01-01': turn it into a "
            "number, such as an age or days since a date, or leave it out.",
        ),
        (
            "x,label\n1,0\n1,2,3\n",
            "{train} cannot be read: its header has 2 cells separated by commas and line 3 has 3: "
            "each row needs as many cells as the header; a cell with a comma, such as 1,5, has to "
            "be in quotes.",
        ),
    ],
)
def test_tables_that_are_refused(train: str, message: str, tmp_path: Path) -> None:
    name = write_csv(tmp_path / "d", train, "x,label\n1,0\n2,1\n")
    where = {split: f"{name}/{split}.csv" for split in ("train", "test")}
    assert refused(name) == message.format(**where)


def test_given_a_column_without_any_value_it_cannot_be_filled(tmp_path: Path) -> None:
    name = write_csv(tmp_path / "d", "x,y,label\n1,,0\n2,,1\n", "x,y,label\n1,1,0\n")
    assert refused(name, missing="mean") == (
        f"Column 'y' of {name}/train.csv holds no value at all, so its missing values cannot be "
        'filled: leave it out, or give it a "fill" in the columns file.'
    )


def test_free_text_is_refused_as_a_category(tmp_path: Path) -> None:
    rows = "".join(f"name{row},{row % 2}\n" for row in range(300))
    name = write_csv(tmp_path / "d", f"who,label\n{rows}", "who,label\nname0,0\n")
    assert refused(name) == (
        f"Column 'who' of {name}/train.csv holds 300 different texts, too many for a category (at "
        "most 256): leave it out, or name it in a columns file, with its categories or as a number."
    )


def test_a_columns_file_chooses_columns_categories_and_order(tmp_path: Path) -> None:
    columns = Columns((Column("dose"), Column("sex", ("x", "m", "f", "other"))))
    source = load_source(write_csv(tmp_path / "d"), table=TableOptions(columns=columns))
    assert source.train.inputs[0].tolist() == [1.5, 0, 0, 1, 0]
    assert source.columns == columns
    # A column that is no feature remains for natural partitions.
    assert source.train.columns["age"].tolist() == [30, 40, 50]


def test_an_unknown_category_or_a_text_among_numbers_is_refused(tmp_path: Path) -> None:
    name = write_csv(tmp_path / "d")
    assert refused(name, columns=Columns((Column("sex", ("f", "m")),))) == (
        f"Column 'sex' of {name}/test.csv holds 'x', which is none of its categories (f, m): "
        'correct it, or train with a columns file that has it, or "other": true for all that are '
        "none."
    )
    assert refused(name, columns=Columns((Column("sex"),))) == (
        f"Column 'sex' of {name}/train.csv holds 'f' and 2 more such cells, where a number is "
        "needed: write it with a decimal point, or leave the cell empty."
    )
    assert refused(name, columns=Columns((Column("height"),))) == (
        f"{name}/train.csv has no column 'height'; its columns are: age, sex, dose, label."
    )


def test_categories_that_a_file_holds_as_numbers_are_found(tmp_path: Path) -> None:
    name = write_csv(tmp_path / "d", "grade,label\n1,0\n3,1\n", "grade,label\n2,0\n")
    columns = Columns((Column("grade", ("1", "2", "3")),))
    source = load_source(name, table=TableOptions(columns=columns))
    assert source.train.inputs.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_another_label_column_can_be_chosen(tmp_path: Path) -> None:
    rows = "x,label,verdict\n1,5,yes\n2,6,no\n"
    name = write_csv(tmp_path / "d", rows, rows)
    source = load_source(name, table=TableOptions(label="verdict"))
    assert source.class_names == ("no", "yes")
    assert source.train.inputs.tolist() == [[1, 5], [2, 6]]
    assert refused(name, label="diagnosis") == (
        f"{name}/train.csv has no column 'diagnosis', which setting label-column names; its "
        "columns are: x, label, verdict."
    )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"vectors": np.zeros((2, 3, 4))}, "has type float64 and shape (2, 3, 4); numbers (n, d)"),
        ({"vectors": np.array([["a"], ["b"]])}, "has type <U1 and shape (2, 1); numbers (n, d)"),
        ({"vectors": np.zeros((2, 3), complex)}, "has type complex128 and shape (2, 3); numbers"),
        ({"vectors": np.zeros((2, 0))}, "holds vectors of 0 numbers; 1 to 100,000 are allowed"),
        ({"vectors": np.zeros((2, 100_001), np.uint8)}, "holds vectors of 100001 numbers; 1 to"),
        ({"vectors": np.array([[1.0] * 3, [np.nan] * 3])}, "Column 'x0' of"),
        ({"images": np.zeros((2, 4, 4), np.uint8)}, "holds the arrays 'images' and 'vectors'"),
    ],
)
def test_npz_files_that_are_refused(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"vectors": np.ones((2, 3)), "labels": np.array([0, 1])}
    np.savez(tmp_path / "test.npz", **good)
    np.savez(tmp_path / "train.npz", **{**good, **arrays})
    assert message in refused(str(tmp_path))


def test_demo_tables_have_fixed_stratified_splits() -> None:
    for name, sizes, width, classes in (
        # 20 % of 212 and 357 points, and of 59, 71 and 48, rounded.
        ("breast-cancer", (42 + 71, 569), 30, ("malignant", "benign")),
        ("wine", (12 + 14 + 10, 178), 13, ("class_0", "class_1", "class_2")),
    ):
        source = load_source(name)
        assert (len(source.test), len(source.train) + len(source.test)) == sizes
        assert source.input_shape == (width,)
        assert source.class_names == classes
        assert source.columns is not None
        assert len(source.columns.features) == width


def test_other_rules_for_tables_get_another_folder(tmp_path: Path) -> None:
    name = write_csv(tmp_path / "d")
    folders = {
        source_directory(name, table=options)
        for options in (
            TableOptions(),
            TableOptions("mean"),
            TableOptions(label="label"),
            TableOptions(columns=Columns((Column("age"),))),
        )
    }
    assert len(folders) == 4


def test_a_columns_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    columns = Columns((Column("age", mean=60.5, scale=2.0), Column("sex", ("f", "m"))))
    (tmp_path / "columns.json").write_text(columns.to_json())
    assert read_columns(tmp_path) == columns
    assert read_columns(tmp_path / "columns.json") == columns
    assert columns.constants() == ([60.5, 0.0, 0.0], [2.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, ' must hold {"columns": […]} with one column or more.'),
        ({"columns": []}, ' must hold {"columns": […]} with one column or more.'),
        ({"columns": [{"name": ""}]}, ': every column needs a "name".'),
        ({"columns": [{"name": "a", "unit": "m"}]}, ": column 'a' has the unknown key 'unit'."),
        ({"columns": [{"name": "a"}, {"name": "a"}]}, " names 'a' more than once."),
        (
            {"columns": [{"name": "a", "categories": ["x", "x"]}]},
            ", column 'a' names 'x' more than once.",
        ),
        (
            {"columns": [{"name": "a", "categories": [1]}]},
            ": the categories of column 'a' must be a list of texts.",
        ),
        (
            {"columns": [{"name": "a", "categories": ["x"], "mean": 1}]},
            ": column 'a' has categories, so it has no mean or scale.",
        ),
        (
            {"columns": [{"name": "a", "scale": 0}]},
            ": the scale of column 'a' must be a finite number above 0.",
        ),
        (
            {"columns": [{"name": "a", "mean": "1"}]},
            ": the mean of column 'a' must be a finite number.",
        ),
    ],
)
def test_columns_files_that_are_refused(content: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_columns(json.dumps(content))
    assert str(caught.value) == f"The description of the columns{message}"


def test_given_columns_in_another_order_in_the_test_file_then_they_are_found_by_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.csv").write_text("a,b,label\n1,2,0\n3,4,1\n")
    (tmp_path / "test.csv").write_text("label,b,a\n1,6,5\n")
    source = load_source(str(tmp_path))
    assert source.train.inputs.tolist() == [[1, 2], [3, 4]]
    assert source.test.inputs.tolist() == [[5, 6]]


def test_given_parquet_with_views_then_it_holds_what_usual_texts_hold(tmp_path: Path) -> None:
    for split in ("train", "test"):
        texts = pa.array(["m", "f"], pa.string_view())
        label = pa.array(["ill", "well"], pa.string_view())
        pq.write_table(pa.table({"sex": texts, "label": label}), tmp_path / f"{split}.parquet")
    source = load_source(str(tmp_path))
    assert source.train.inputs.tolist() == [[0, 1], [1, 0]]
    assert source.class_names == ("ill", "well")


def test_given_parquet_with_labels_as_bytes_then_they_are_no_images(tmp_path: Path) -> None:
    for split in ("train", "test"):
        table = pa.table({"a": [1.0, 2.0], "label": pa.array([b"ill", b"well"])})
        pq.write_table(table, tmp_path / f"{split}.parquet")
    assert load_source(str(tmp_path)).class_names == ("ill", "well")


def test_given_parquet_with_two_columns_of_one_name_then_the_name_is_refused(
    tmp_path: Path,
) -> None:
    for split in ("train", "test"):
        table = pa.table([[1.0, 2.0], [3.0, 4.0], [0, 1]], names=["a", "a", "label"])
        pq.write_table(table, tmp_path / f"{split}.parquet")
    with refuses("column-missing"):
        load_source(str(tmp_path))


def test_given_a_column_of_lists_beside_others_then_one_line_says_what_is_left_out(
    tmp_path: Path,
) -> None:
    for split in ("train", "test"):
        table = pa.table({"x": [[1.0, 2.0], [3.0, 4.0]], "age": [1, 2], "label": [0, 1]})
        pq.write_table(table, tmp_path / f"{split}.parquet")
    source = load_source(str(tmp_path))
    assert source.train.inputs.tolist() == [[1, 2], [3, 4]]
    assert source.notes == ("train.parquet, test.parquet: vectors of column 'x'; left out: 'age'",)
