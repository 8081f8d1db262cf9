"""Tables as data: what a column means, decided once; the same vectors from every kind of file."""

import copy
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedul_flwr.data.columns import Column, Columns, parse_columns, read_columns
from fedul_flwr.data.encode import Cells, codes, fit, infer_column, numbers
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import Missing, Table, TableOptions, in_memory
from fedul_flwr.errors import UserError
from tests.support.points import load_points
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
        ([{"name": "a"}, {"name": "b", "called": ["a"]}], "name-twice", None),
        ([{"name": "a", "categories": ["x", "x"]}], "name-twice", None),
        *(
            ([{"name": "a", **entry}], "columns-file-wrong", "olumn 'a'")
            for entry in (
                *({"units": {"m": 2}}, {"scale": 0}, {"mean": "1"}, {"mean": 10**400}),
                *({"fill": "x"}, {"fill": 1e39}, {"other": True}, {"categories": [1]}),
                *({"categories": ["x"], **more} for more in ({"fill": "y"}, {"other": 1})),
                *({"categories": ["x"], "mean": 1}, {"categories": ["x", "NA"]}),
                *({"size": 1}, {"unit": "m", "units": {"km": 0}}, {"bounds": [2, 1]}),
                *({"synonyms": {"w": "f"}}, {"categories": ["x"], "unit": "m"}),
                *(
                    {"categories": ["x", "y"], "synonyms": {w: "z" if w == "w" else "y"}}
                    for w in "wx"
                ),
            )
        ),
    ],
)
def test_columns_files_that_are_refused(content: Any, code: str, named: str | None) -> None:
    with refuses(code, match=named) as caught:
        parse_columns(json.dumps({"columns": content}))
    assert "\n" not in str(caught.value)


def cells(values: Any) -> Cells:
    """A column of a table called t."""
    array = pa.array(values) if isinstance(values, list) else values
    return Cells("c", "t", pa.chunked_array([array]))


def said(function: Any, *arguments: Any) -> str:
    """The one sentence of a refusal."""
    with pytest.raises(UserError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, None, 3], [1, np.nan, 3]),
        ([True, None, False], [1, np.nan, 0]),
        (["1", "+2.5", "1e+06", " -.5 ", "NA", "", None], [1, 2.5, 1e6, -0.5] + [np.nan] * 3),
        (["00.5", "01", "2.25"], [0.5, 1, 2.25]),  # decimals are no codes
        ([Decimal("1.25"), None], [1.25, np.nan]),
        (pa.array([2**64 - 1, 0], pa.uint64()), [2.0**64, 0]),
        (pa.array([None, None]), [np.nan, np.nan]),
        (pa.array(np.array([1.5, np.nan], np.float16)), [1.5, np.nan]),
    ],
)
def test_given_any_type_of_numbers_then_they_are_numbers(values: Any, wanted: list[float]) -> None:
    column = cells(values)
    assert infer_column([column]) == Column("c")
    np.testing.assert_array_equal(numbers(column), wanted)


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        (["m", "f", None, "m"], ("f", "m")),
        (["007", "012", "100"], ("007", "012", "100")),  # codes, not 7, 12 and 100
        ([" a", "a "], ("a",)),
        (pa.array(["b", "a"]).dictionary_encode(), ("a", "b")),
        (pa.array([10, 2, None]).dictionary_encode(), ("10", "2")),  # a categorical of pandas
        (["<18", "18-65", ">65"], ("18-65", "<18", ">65")),
        (["w", "x", "y", "z", "true", "True", "1.0"], ("1", "true", "w", "x", "y", "z")),
        (["ma\u0308nnlich", "m\u00e4nnlich"], ("m\u00e4nnlich",)),  # as macOS writes it
    ],
)
def test_given_texts_codes_or_categoricals_then_they_are_categories(
    values: Any, categories: tuple[str, ...]
) -> None:
    column = cells(values)
    assert infer_column([column]) == Column("c", categories)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["61.5", "70", "?"], ["'?'", "where a number is needed"]),
        (["1.2", "<0.3", "<0.5", "2"], ["'<0.3' and 1 more such cells"]),
        (["1,5", "2,25", "3"], ["with a point", "'1,5'"]),
        (["2024-01-31", "2024-02-01 10:00"], ["dates or times", "'2024-01-31'"]),
        (["10:20 AM", "1:05 pm"], ["dates or times"]),
        (["2024-01", "2024-12"], ["dates or times"]),
        # A cell of another kind is the odd one: it makes no category of the others.
        (["2024-01-31", "unknown", "2024-02-01", "2024-02"], ["dates or times", "'2024-01-31'"]),
        (["5 %", "12.5 %", "unknown"], ["no unit", "'5 %'"]),
        (["1,5", "2,25", "?"], ["with a point", "'1,5'"]),
        (["<0.3", "0.4", "<0.5"], ["'<0.3' and 1 more such cells"]),
        (["01-FEB-24", "3 Mar 2024", "1. März 2024"], ["dates or times"]),
        (["5 %", "12.5 %"], ["no unit", "'5 %'"]),
        ([f"P{row}" for row in range(30)], ["another one in every row", "'P0'"]),
        ([[1, 2], [3]], ["has the type list<item: int64>"]),
        ([f"{row:05}" for row in range(300)], ["300 different texts", "make it one"]),
    ],
)
def test_given_what_is_no_feature_then_a_sentence_names_column_cell_and_remedy(
    values: Any, words: list[str]
) -> None:
    text = said(infer_column, [cells(values)])
    assert text.startswith("Column 'c' of t h")
    assert all(word in text for word in words), text


def test_given_a_number_then_the_training_file_decides_and_a_later_text_is_refused() -> None:
    assert infer_column([cells(["1", "2"]), cells(["?"])]) == Column("c")
    assert "'?', where a number is needed" in said(numbers, cells(["?"]))
    assert "'TRUE', where a number is needed" in said(numbers, cells(["37.5", "TRUE"]))
    assert infer_column([cells(["a", "b"]), cells([1, 2])]) == Column("c", ("1", "2", "a", "b"))


@pytest.mark.parametrize(
    "values",
    [
        ["1", "3", None, "2"],
        ["1.0", "3.0", "", "2e0"],
        [1, 3, None, 2],
        [1.0, 3.0, np.nan, 2.0],
        [Decimal("1.0"), Decimal("3"), None, Decimal("2")],
        pa.array([1, 3, None, 2]).dictionary_encode(),
    ],
)
def test_given_categories_then_equal_values_of_any_type_have_the_same_places(values: Any) -> None:
    column = cells(values)
    for categories in (("1", "2", "3"), ("1.0", "2.0", "3.0")):  # as another file wrote them
        assert codes(column, Column("c", categories)).tolist() == [0, 2, -1, 1]


def test_given_codes_with_leading_zeros_then_a_number_is_none_of_them() -> None:
    column = Column("c", ("007", "7"))
    assert codes(cells(["007", "7"]), column).tolist() == [0, 1]
    assert codes(cells([7]), column).tolist() == [1]
    assert re.search(r"'7', .*\(007\)", said(codes, cells([7]), Column("c", ("007",))))


def test_given_other_then_an_unknown_category_becomes_it() -> None:
    column = Column("icd", ("I10", "E11"), other=True)
    assert column.features == ("icd=I10", "icd=E11", "icd=other")
    assert codes(cells(["E11", "Z99", None, "A00"]), column).tolist() == [1, 2, -1, 2]
    listed = Column("icd", ("other", "I10"), other=True)  # the file's own word
    assert listed.features == ("icd=other", "icd=I10")
    assert codes(cells(["Z99", "I10", "other"]), listed).tolist() == [0, 1, 0]
    assert "'Z99', " in said(codes, cells(["Z99"]), Column("icd", ("I10",)))


def test_a_columns_file_keeps_fills_and_others() -> None:
    columns = Columns(
        (
            Column("age", fill=61.5, mean=60.0, scale=2.0),
            Column("icd", ("I10",), other=True, fill="other"),
            Column("sex", ("f", "m"), fill="m"),
        )
    )
    assert parse_columns(columns.to_json()) == columns
    assert columns.fills() == [61.5, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("values", "is_lost"),
    [
        (1_700_000_000_000_000_000 + np.arange(60) * 10**13, False),  # a week of them
        (1_700_000_000 + np.arange(60), True),  # a minute in seconds
        (1e6 + np.arange(60) % 2, False),
        (np.full(60, 10**17 + 1), False),  # constant: there is nothing to tell apart
        # float64 has no number between 2^63 and 2^63 + 2048: lost before float32 sees them.
        (np.uint64(2**63) + np.arange(60, dtype=np.uint64), True),
        (1e-320 * np.arange(60), True),  # float32 has 0 for all, and their squares are 0 in float64
    ],
)
def test_numbers_that_differ_too_little_for_float32_are_refused(values: Any, is_lost: bool) -> None:
    named = in_memory("t", {"when": values})
    for table in (named, Table("t", vectors=values[:, np.newaxis])):
        column = Columns((Column("when"),))
        if is_lost:
            assert "'when'" in said(fit, [table], column, "refuse")
        else:
            assert fit([table], column, "refuse") == column


def test_texts_and_decimals_are_compared_before_they_are_rounded() -> None:
    for cells_ in (
        [str(10**20 + row) for row in range(60)],
        [Decimal(10**20 + row) for row in range(60)],
    ):
        assert "'id'" in said(
            fit, [in_memory("t", {"id": cells_})], Columns((Column("id"),)), "mean"
        )


def test_the_order_of_a_columns_file_of_a_run_is_that_of_its_model(tmp_path: Path) -> None:
    as_trained = Columns(
        (
            Column("age", mean=61.5, scale=12.0),
            Column("sex", ("f", "m"), fill="m"),
            Column("code", ("I10", "E11"), other=True),
        )
    )
    config = {"data": {"columns": as_trained.features}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    written = json.loads(as_trained.to_json())

    def read(change: Callable[[list[dict[str, Any]]], object]) -> Columns:
        columns = copy.deepcopy(written)
        change(columns["columns"])
        (tmp_path / "columns.json").write_text(json.dumps(columns))
        return read_columns(tmp_path)

    assert read(list.reverse) == as_trained
    assert read(lambda columns: columns[1]["categories"].reverse()) == as_trained
    assert read(lambda columns: columns[2]["categories"].reverse()) == as_trained
    assert read(lambda columns: columns[0].update(mean=60.0)).columns[0].mean == 60
    for change in (
        lambda columns: columns[0].update(name="Age"),
        lambda columns: columns[1]["categories"].append("x"),
        lambda columns: columns[2].pop("other"),
        lambda columns: columns.pop(),
    ):
        with refuses("columns-file-wrong"):
            read(change)


CONTENT = {
    "n": [1.5, None, 3.0, -2.0],
    "i": [1, 2, 3, 4],
    "b": [True, False, True, True],
    "s": ["f", "m", None, "m"],
    "z": ["007", "012", "007", "012"],
    "label": [0, 1, 0, 1],
}


@pytest.mark.parametrize("later", ["csv", "parquet"])
@pytest.mark.parametrize("first", ["csv", "parquet"])
def test_the_same_content_has_the_same_vectors_in_every_kind_of_file(
    first: str, later: str, tmp_path: Path
) -> None:
    frame = pd.DataFrame(CONTENT).astype({"b": "boolean"})

    def write(kind: str, name: str, rows: pd.DataFrame) -> Path:
        file = tmp_path / f"{name}.{kind}"
        rows.to_csv(file, index=False) if kind == "csv" else rows.to_parquet(file, index=False)
        return file

    for name in ("train", "test"):
        write(first, name, frame)
    source = load_source(str(tmp_path), table=TableOptions("mean"))
    assert source.columns is not None
    assert source.columns.features == ("n", "i", "b", "s=f", "s=m", "z=007", "z=012")
    # The mean of 1.5, 3 and -2, and the most frequent text.
    assert source.columns.fills()[:3] == [pytest.approx(2.5 / 3), 2.5, 0.75]
    filled = [[1.5, 1, 1, 1, 0, 1, 0], [2.5 / 3, 2, 0, 0, 1, 0, 1]]
    filled += [[3, 3, 1, 0, 1, 1, 0], [-2, 4, 1, 0, 1, 0, 1]]
    np.testing.assert_allclose(source.train.inputs, filled, rtol=1e-6)
    known = TableOptions(columns=source.columns, trained=True)
    odd = frame.iloc[[1]].assign(i=2.0, b=["False"])  # as other programs write them
    _, found = load_points(write(later, "patient", odd), (7,), known)
    np.testing.assert_allclose(found, filled[1:2], rtol=1e-6)


def test_an_index_of_pandas_and_the_group_are_no_features(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [3.0, 1.0, 2.0], "site": [10, 2, 10], "label": [0, 1, 1]})
    for index in ("number", "patient", "again"):
        folder = tmp_path / index
        folder.mkdir()
        for split in ("train", "test"):
            rows = frame.sort_values("a")
            if index == "patient":
                rows = rows.set_index(pd.Index([7, 8, 9], name="patient"))
            if index == "again":  # to_csv and read_csv leave the row number behind
                rows.to_csv(folder / f"{split}.csv")
                pd.read_csv(folder / f"{split}.csv").to_csv(folder / f"{split}.csv", index=False)
            else:
                rows.to_parquet(folder / f"{split}.parquet")
        source = load_source(str(folder), table=TableOptions(group="site"))
        assert source.columns is not None
        assert source.columns.names == ("a",)
        assert source.train.columns["site"].tolist() == [2, 10, 10]
        every = load_source(str(folder)).columns
        assert every is not None
        assert every.names == ("a", "site")
