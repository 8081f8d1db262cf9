"""Headers, units, bounds and synonyms of a columns file, applied by every reader of tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedul_flwr.api.input_data import stored_points
from fedul_flwr.data.columns import Column, Columns, parse_columns
from fedul_flwr.data.headers import same_unit, split_header
from fedul_flwr.data.local_data import load_partly_labeled, load_unlabeled_sets
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import TableOptions
from tests.support.points import load_points
from tests.support.refusals import refuses

COLUMNS = parse_columns(
    json.dumps(
        {
            "columns": [
                {
                    **{"name": "leukocytes", "called": ["Leukozyten", "WBC"], "below": 0.5},
                    **{"unit": "G/l", "units": {"/µl": 0.001}, "bounds": [0.1, 500]},
                },
                {"name": "hba1c", "unit": "%", "units": {"mmol/mol": [0.0915, 2.15]}},
                {"name": "sex", "categories": ["f", "m"], "synonyms": {"w": "f", "W": "f"}},
            ]
        }
    )
)
OPTIONS = TableOptions(columns=COLUMNS)
PLAIN = pd.DataFrame({"leukocytes": [6.8, 12.0], "hba1c": [6.542, 2.15], "sex": ["f", "m"]})
# HbA1c by IFCC and by NGSP: 0.0915 · 48 + 2.15 = 6.542.
OTHER = pd.DataFrame(
    {"Leukozyten [/µl]": [6800, 12000], "sex": ["w", "m"], "hba1c (mmol/mol)": [48, 0]}
)
WITHOUT = OTHER.rename(columns=lambda header: split_header(header)[0])
UNITS = "column,unit\nleukocytes,/\u03bcl\nhba1c,mmol/mol\n"  # the Greek letter, not the sign


def read_file(folder: Path, frame: pd.DataFrame, name: str = "new.csv") -> Any:
    write = frame.to_parquet if name.endswith("parquet") else frame.to_csv
    write(folder / name, index=False)
    return load_points(folder / name, (4,), OPTIONS)[1]


def read_sets(folder: Path, frame: pd.DataFrame) -> Any:
    for name in ("jan", "feb"):
        frame.to_csv(folder / f"{name}.csv", index=False, sep=";", decimal=",")
    (folder / "priors.csv").write_text("set,a,b\njan,0.7,0.3\nfeb,0.2,0.8\n")
    return load_unlabeled_sets(folder, ("a", "b"), 2, (4,), table=OPTIONS).inputs[:2]


def read_points(folder: Path, frame: pd.DataFrame) -> Any:
    frame.to_csv(folder / "all.csv", index=False)
    return load_partly_labeled(folder, ("a", "b"), (4,), table=OPTIONS).inputs


def read_source(folder: Path, frame: pd.DataFrame) -> Any:
    for name in ("train", "test"):
        frame.assign(label=["a", "b"]).to_csv(folder / f"{name}.csv", index=False)
    return load_source(str(folder), table=OPTIONS).train.inputs


def read_frame(folder: Path, frame: pd.DataFrame) -> Any:
    del folder
    return stored_points(frame, (4,), OPTIONS)


def read_parquet(folder: Path, frame: pd.DataFrame) -> Any:
    return read_file(folder, frame, "new.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of an owner."""
    (tmp_path / "ward").mkdir()
    return tmp_path / "ward"


FILES = (read_file, read_parquet, read_sets, read_points, read_source)


@pytest.mark.parametrize("read", [*FILES, read_frame])
def test_other_names_units_and_words_have_the_same_vectors(
    read: Callable[[Path, pd.DataFrame], Any], folder: Path
) -> None:
    wanted = [[6.8, 6.542, 1, 0], [12, 2.15, 0, 1]]
    np.testing.assert_allclose(read(folder, PLAIN), wanted, rtol=1e-6)
    np.testing.assert_allclose(read(folder, OTHER), wanted, rtol=1e-6)


@pytest.mark.parametrize("read", FILES)
def test_a_file_beside_the_tables_says_units_and_a_changed_one_is_read_anew(
    read: Callable[[Path, pd.DataFrame], Any], folder: Path
) -> None:
    in_percent = WITHOUT.assign(Leukozyten=[6.8, 12.0])
    read(folder, in_percent)  # 48 % and 0 %: nothing says another unit
    (folder / "UNITS.csv").write_text(UNITS.replace("/\u03bcl", "G/L"))
    assert read(folder, in_percent)[0].tolist() == pytest.approx([6.8, 6.542, 1, 0])
    (folder / "UNITS.csv").write_text(UNITS)
    assert read(folder, WITHOUT)[0].tolist() == pytest.approx([6.8, 6.542, 1, 0])


def test_a_cell_below_what_is_measured_is_in_the_unit_of_the_file(folder: Path) -> None:
    texts = OTHER.astype({"Leukozyten [/µl]": str}).replace("6800", "<400")
    assert read_file(folder, texts)[0, 0] == pytest.approx(0.2)  # half of 400, thousandth


def test_numbers_outside_bounds_are_counted_and_none_is_shown(folder: Path) -> None:
    with refuses("cell-out-of-bounds", match="1 of 2") as caught:
        read_file(folder, PLAIN.assign(leukocytes=[6.8, 777.25]))
    assert "777" not in str(caught.value)
    assert read_file(folder, PLAIN.assign(leukocytes=[0.1, 500]))[:, 0].tolist() == [
        *np.float32([0.1, 500])
    ]
    at_bound = parse_columns('{"columns": [{"name": "x", "bounds": [0, 100.1]}]}')
    assert stored_points(pd.DataFrame({"x": [100.1]}), (1,), TableOptions(columns=at_bound)).size
    # 100100 · 0.001 is 100.10000000000001
    assert read_file(folder, OTHER.assign(**{"Leukozyten [/µl]": [100_100, 1000]})).size
    with refuses("cell-out-of-bounds"):  # vectors without names
        stored_points(np.array([[0.0, 5, 1, 0]]), (4,), OPTIONS)


@pytest.mark.parametrize(
    ("change", "units", "code"),
    [
        ({"WBC": [6800, 7000]}, "", "name-twice"),
        ({"leukocytes": [6.8, 7]}, "", "name-twice"),
        ({"hba1c [g]": [1, 2]}, "", "name-twice"),
        ({}, UNITS.replace("mmol/mol", "mol"), "files-contradict"),
        ({}, "column,unit\nleucocytes,G/l\n", "unit-unknown"),
        ({}, "column;unit\nleukocytes;\n", "unit-unknown"),
        ({}, "name,unit\nleukocytes,/µl\n", "unit-unknown"),
    ],
)
def test_headers_that_contradict_are_refused(
    change: dict[str, Any], units: str, code: str, folder: Path
) -> None:
    if units:
        (folder / "units.csv").write_text(units)
    with refuses(code):
        read_file(folder, OTHER.assign(**change))


def test_units_that_nothing_turns_into_that_of_the_column_are_refused(folder: Path) -> None:
    with refuses("unit-unknown"):
        read_file(folder, PLAIN.rename(columns={"hba1c": "hba1c [g]"}))
    with refuses("column-missing"):  # a category has no unit
        read_file(folder, PLAIN.rename(columns={"sex": "sex [m/f]"}))
    (folder / "units.csv").write_text("column,unit\nsex,m\n")
    with refuses("unit-unknown"):
        read_file(folder, PLAIN)
    with refuses("columns-file-needed"):
        load_points(folder / "new.csv", (4,), TableOptions())


def test_a_header_with_brackets_may_be_the_name_itself(folder: Path) -> None:
    named = Columns((Column("length (cm)"), Column("width", unit="cm")))
    frame = pd.DataFrame({"length (cm)": [1], "width (cm)": [2]})
    frame.to_csv(folder / "x.csv", index=False)
    points = load_points(folder / "x.csv", (2,), TableOptions(columns=named))[1]
    assert points[:].tolist() == [[1, 2]]


def test_units_are_one_in_both_ways_to_write_liter_and_micro() -> None:
    assert same_unit("mg/dL", "mg/dl")
    assert same_unit("/\u00b5l", "/\u03bcL")
    assert not same_unit("mg", "Mg")
