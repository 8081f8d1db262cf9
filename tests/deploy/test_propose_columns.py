"""A columns file is proposed from owners' tables, and nothing else of them is said."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.data.columns import Column, Columns, parse_columns, read_columns
from fedul_flwr.data.encode import encode, fit
from fedul_flwr.data.table_files import read_table
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.deploy.propose_columns import propose_columns
from tests.support.refusals import refuses

HEADER = "patient_id;age;dose;sex;visit;site;note;unit;lab;empty;time;plz"


def write_owner(folder: Path, sexes: str = "fm", more: str = "") -> Path:
    """An owner with two files of 30 rows, as Excel writes them in German."""
    folder.mkdir()
    (folder / "priors.csv").write_text("set;ill;sound\njan;0,8;0,2\nfeb;0,2;0,8\n")
    for month, first in (("jan", 0), ("feb", 30)):
        lines = [HEADER + (f";{more}" if more else "")]
        for row in range(first, first + 30):
            cells = [
                str(1000 + row),
                str(20 + row * 7 % 50),
                f"{row % 9},5",
                sexes[row % len(sexes)],
                f"{row % 27 + 1:02}.01.2024",
                folder.name,
                f"secret {row}",
                "mg",
                "?" if row % 10 == 0 else str(row % 4),
                "",
                f"12.{10 + row % 40}",
                f"0{row % 3}123",
            ]
            lines.append(";".join([*cells, "A" if row % 2 else "B"] if more else cells))
        (folder / f"{month}.CSV").write_text("\n".join(lines), encoding="cp1252")
    return folder


def test_one_owner_gets_numbers_and_categories_and_reasons_for_all_others(tmp_path: Path) -> None:
    found = propose_columns([write_owner(tmp_path / "north")])
    assert found.columns.columns == (
        Column("age"),
        Column("dose"),
        Column("sex", ("f", "m")),
        Column("plz", ("00123", "01123", "02123")),
    )
    assert found.left_out == {
        "patient_id": "an identifier: every row has another value",
        "visit": "dates or times",
        "site": "constant: all rows have the same value",
        "note": "free text or an identifier: every row has another value",
        "unit": "constant: all rows have the same value",
        "lab": "6 of 60 cells are no numbers, such as '?' (digits are 0 here): write plain "
        "numbers, leave these cells empty, or name categories in the columns file",
        "empty": "empty",
        "time": "its numbers can be read in two ways, or are written otherwise than others",
    }
    assert found.rows == 60


def test_several_owners_share_columns_and_differ_by_name(tmp_path: Path) -> None:
    north = write_owner(tmp_path / "north", "fmx", "ward")
    south = write_owner(tmp_path / "south")
    found = propose_columns([north, south])
    assert found.columns.names == ("age", "dose", "sex", "plz")
    assert found.columns.columns[2].categories == ("f", "m", "x")
    assert found.left_out["ward"] == "not at south"
    assert found.left_out["site"].startswith("constant")
    assert list(found.differences) == ["'sex': x only at north", "'ward': only at north"]


def test_given_a_column_of_other_kinds_then_it_is_left_out_with_the_owners(tmp_path: Path) -> None:
    for owner, grades in (("a", [1, 2, 3, 3]), ("b", ["low", "high", "low", "high"])):
        (tmp_path / owner).mkdir()
        table = pa.table({"grade": grades, "age": [30, 40, 50, 30], "label": [0, 1, 0, 1]})
        pq.write_table(table, tmp_path / owner / "JAN.PARQUET")
    found = propose_columns([tmp_path / "a", tmp_path / "b"])
    assert found.columns.names == ("age",)
    assert found.left_out == {"grade": "not the same at all owners", "label": "the label"}
    assert list(found.differences) == ["'grade': number at a, category at b"]
    assert propose_columns([tmp_path / "a"], "grade").columns.names == ("age", "label")


def write_table(folder: Path, columns: dict[str, list[str]]) -> Path:
    folder.mkdir()
    pd.DataFrame(columns).to_csv(folder / "a.csv", index=False)
    return folder


def test_words_beside_truth_values_are_categories_at_all_owners(tmp_path: Path) -> None:
    north = write_table(tmp_path / "a", {"smoker": ["True", "False", "unknown"] * 3})
    south = write_table(tmp_path / "b", {"smoker": ["true", "false", "False"] * 3})
    [column] = propose_columns([north, south]).columns.columns
    assert column == Column("smoker", ("false", "true", "unknown"))
    [column] = propose_columns([south]).columns.columns
    assert column == Column("smoker")


def test_cells_below_a_bound_become_half_of_it(tmp_path: Path) -> None:
    cells = ["<0.5", "1.5", "> 9", "2.5", "<= 0.5", "3", "4"]
    found = propose_columns([write_table(tmp_path / "a", {"crp": cells})])
    assert found.columns.columns == (Column("crp", below=0.5),)
    table = read_table(tmp_path / "a" / "a.csv", TableOptions())[1]
    [points] = encode([table], parse_columns(found.columns.to_json()))
    assert points.values[:, 0].tolist() == [0.25, 1.5, 9, 2.5, 0.25, 3, 4]
    with refuses("cell-not-a-number", match='"below"'):
        encode([table], Columns((Column("crp"),)))
    with refuses("columns-file-wrong"):
        parse_columns('{"columns": [{"name": "crp", "below": 2}]}')


def test_codes_get_other_for_the_rare_ones(tmp_path: Path) -> None:
    codes = [f"I{10 + row % 8}.{row % 2}" for row in range(80)] + ["E11", "J18.9", "C50", "Z00"]
    found = propose_columns([write_table(tmp_path / "a", {"icd": codes})])
    [column] = found.columns.columns
    assert column.other
    # 8 codes, as row % 8 decides row % 2, with 10 rows each; the other four have one.
    assert column.categories == tuple(sorted({f"I{10 + row}.{row % 2}" for row in range(8)}))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_given_cells_of_any_form_then_they_are_what_later_commands_read(
    kind: str, tmp_path: Path
) -> None:
    texts = {
        "sex": ["f", "m ", " m", " NA", "NaT", "<NA>"],
        "crp": ["1", " 2.5", "2.5", " NA", "<NA>", "4e0"],
        "ward": ["a\u0308", "\u00e4", "1", "1.0", "b", "b"],
        "day": ["01-FEB-24", "2-MAR-24", "01-FEB-24", "NaT", "01-FEB-24", "01-FEB-24"],
        "share": ["5 %", "6 %", "5 %", "5 %", "5 %", "5 %"],
        "huge": ["inf", "1", "2.5", "1e39", "1", "1"],
    }
    frame = pd.DataFrame(texts).rename(columns={"sex": "sex "})
    file = tmp_path / f"jan.{kind}"
    frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file, index=False)
    found = propose_columns([tmp_path])
    ward = Column("ward", ("1", "b", "\u00e4"))
    assert found.columns.columns == (Column("sex", ("f", "m")), Column("crp"), ward)
    assert [*found.left_out] == ["day", "share", "huge"]
    assert found.left_out["day"] == "dates or times"
    columns = parse_columns(found.columns.to_json())
    table = read_table(file, TableOptions(columns=columns))[1]
    [points] = encode([table], fit([table], columns, "mean"))
    # The mean of 1, 2.5, 2.5 and 4, and the most frequent category.
    assert points.values[3].tolist() == [0, 1, 2.5, 1, 0, 0]


def test_the_command_writes_a_columns_file_and_prints_no_cell_of_others(tmp_path: Path) -> None:
    owner = write_owner(tmp_path / "north", "f" * 59 + "m")
    result = CliRunner().invoke(app, ["deploy", "columns", str(owner), "-o", f"{tmp_path}/c.json"])
    assert result.exit_code == 0
    assert "secret" not in result.output
    assert "2024" not in result.output
    assert "5 rows of m" in result.output
    assert read_columns(tmp_path / "c.json").names == ("age", "dose", "sex", "plz")
    again = CliRunner().invoke(app, ["deploy", "columns", str(owner), "-o", f"{tmp_path}/c.json"])
    assert again.exit_code != 0
    printed = CliRunner().invoke(app, ["deploy", "columns", str(owner)]).stdout
    assert json.loads(printed) == json.loads((tmp_path / "c.json").read_text())


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("a.npz", "", "folder-layout"), ("a.csv", "id\n1\n2\n", "column-missing")],
)
def test_folders_without_any_feature(name: str, content: str, code: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with refuses(code):
        propose_columns([tmp_path])
