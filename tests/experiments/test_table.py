"""A table's file: names, columns, and what is refused in it."""

import sys
from pathlib import Path

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table import figures_of, pick, read_table, table_names, tables_of
from tests.support.digits_table import FILE, change_table, invoke, output_of, start_from_another
from tests.support.refusals import refuses

EXPERIMENTS = Path("experiments")


def test_a_table_is_named_by_its_path_with_dashes(digits_table: Path) -> None:
    (FILE.parent / "notes.py").write_text("NAMES = ['no table']\n")
    assert table_names(EXPERIMENTS) == ["mini/table-1"]
    for name in ("mini/table-1", "mini/table_1", str(FILE)):
        assert read_table(EXPERIMENTS, name).names == ["M=10", "M=12"]
    assert tables_of(EXPERIMENTS, "mini") == ["mini/table-1"]
    with refuses("unknown-name"):
        read_table(EXPERIMENTS, "mini/methods")


def test_given_a_path_outside_of_all_tables_then_it_runs_from_there(digits_table: Path) -> None:
    own = Path("mine/my_table.py")
    own.parent.mkdir()
    own.write_text(FILE.read_text())
    (own.parent / "methods.py").write_text('ROWS = {"mine": {"method": "supervised"}}\n')
    change_table('"M=10": {"FedUL"', '"M=10": {"FedUL"')
    own.write_text(own.read_text().replace('"FedUL": (2.5, 0.5)', '"mine": 2.5'))
    done = invoke("reproduce", str(own), "--device", "cpu", "--columns", "M=12")
    assert done.exit_code == 0, done.output
    assert "my-table: Digits" in output_of(done)
    assert Path("results/my-table.jsonl").exists()


def test_a_changed_file_counts_at_once_and_leaves_nothing(
    digits_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert read_table(EXPERIMENTS, "mini/table-1").column("M=10").clients == 3
    change_table("ROWS, 3, start", "ROWS, 5, start")  # in the same second, of the same size
    assert read_table(EXPERIMENTS, "mini/table-1").column("M=10").clients == 5
    assert not list(EXPERIMENTS.rglob("*.pyc"))
    assert not sys.dont_write_bytecode


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("SETTINGS = {", "SETTINGS = {,", "SyntaxError: "),
        ("for sets in", "for sets in unknown, ", "NameError: "),
        ('title="Digits",', "", "TypeError: "),
        ("TABLE = Table(", "TABLE = dict(", "must define TABLE, a Table."),
        ('f"M={sets}"', 'f"M, {sets}"', "The column 'M, 10': a comma separates columns"),
        ('f"M={sets}"', '"M"', "Columns 'M' and 'M' would share the directory"),
        ('f"M={sets}"', 'f"M={sets + quick}"', "Quick runs have other columns than full size."),
        ('{"FedUL": (2.5', '{"FedLU": (2.5', "Unknown name 'FedLU'; there are FedUL, all labels"),
        ("unranked=[]", 'unranked=["FedPL"]', "Unknown name 'FedPL'"),
        ("seeds=1", "seeds=0", "Search: seeds must be at least 1."),
        ('"runs/mini/table-1/base"', '""', "Column 'M=10' starts from a run that start-from does"),
    ],
)
def test_what_is_wrong_is_named(digits_table: Path, old: str, new: str, words: str) -> None:
    start_from_another()
    change_table(old, new)
    with pytest.raises(UserError) as refused:
        read_table(EXPERIMENTS, "mini/table-1")
    assert str(FILE) in str(refused.value)
    assert words in str(refused.value)


def test_picked_names_have_the_order_of_the_table() -> None:
    assert pick("c, a", ["a", "b", "c"], "row") == ["a", "c"]
    assert pick(None, ["a", "b"], "row") == ["a", "b"]


def test_figures_are_those_of_the_rows_in_order() -> None:
    assert figures_of(["a", "b"], {"x": [1.0, (2.0, 0.5)]}) == {"x": {"a": 1.0, "b": (2.0, 0.5)}}
