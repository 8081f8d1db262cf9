"""``fedul-flwr deploy columns a.json b.json``: proposals of owners as one columns file."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.data.columns import Column, read_columns
from fedul_flwr.deploy.merge_columns import Merged, merge_columns
from fedul_flwr.deploy.propose_columns import propose_columns
from tests.support.refusals import code_of, refuses

AGE = {"name": "age"}


def merged(folder: Path, **owners: list[dict[str, Any]]) -> Merged:
    files = [folder / f"{owner}.json" for owner in owners]
    for file, columns in zip(files, owners.values(), strict=True):
        file.write_text(json.dumps({"columns": columns}))
    return merge_columns(files)


def test_what_follows_from_the_files_is_merged_without_a_question(tmp_path: Path) -> None:
    whole = merged(
        tmp_path,
        a=[
            {"name": "Leukozyten", "unit": "/µl"},
            {"name": "sex", "categories": ["w", "m"]},
            {"name": "icd", "categories": ["I10"], "other": True},
        ],
        b=[
            {"name": "icd", "categories": ["E11"], "other": True},
            {
                **{"name": "leukocytes", "unit": "G/l", "units": {"/\u03bcL": 0.001}},
                **{"called": ["Leukozyten"], "bounds": [0, 500], "below": 0.5},
            },
            {"name": "sex", "categories": ["f", "m"], "synonyms": {"w": "f"}, "fill": "f"},
        ],
        c=[
            {"name": "leukocytes", "unit": "G/L"},
            {"name": "sex", "categories": ["m", "f"]},
            {"name": "icd", "categories": ["I10", "E11"], "other": True},
        ],
    )
    assert whole.undecided == []
    assert whole.columns.columns[1:] == (
        Column("sex", ("f", "m"), fill="f", synonyms={"w": "f"}),
        Column("icd", ("I10", "E11"), other=True),
    )
    leukocytes = whole.columns.columns[0]
    assert (leukocytes.name, leukocytes.called) == ("leukocytes", ("Leukozyten",))
    assert (leukocytes.bounds, leukocytes.below) == ((0, 500), 0.5)


@pytest.mark.parametrize(
    ("other", "word", "columns"),
    [
        ([AGE, {"name": "x", "unit": "kg"}], "unit", 2),
        ([AGE, {"name": "x", "unit": "mg", "bounds": [0, 2]}], "bounds", 2),
        ([AGE, {"name": "x", "unit": "mg", "units": {"g": 10}}], "factor", 2),
        ([AGE, {"name": "x"}], "unit", 2),
        ([AGE, {"name": "x", "categories": ["y"]}], "number at a, category at b", 1),
        ([AGE, {"name": "X", "unit": "mg"}], "called", 1),
    ],
)
def test_what_a_person_decides_is_listed(
    other: list[dict[str, Any]], word: str, columns: int, tmp_path: Path
) -> None:
    mine = {"name": "x", "unit": "mg", "bounds": [0, 1], "units": {"g": 1000}}
    whole = merged(tmp_path, a=[AGE, mine], b=other)
    assert any(word in line for line in whole.undecided)
    assert len(whole.columns.columns) == columns


def test_a_category_of_one_owner_may_be_a_synonym(tmp_path: Path) -> None:
    def sex(*categories: str, **more: Any) -> list[dict[str, Any]]:
        return [{"name": "sex", "categories": [*categories], **more}]

    whole = merged(tmp_path, a=sex("f", "m"), b=sex("w", "m"))
    assert len(whole.undecided) == 2  # f and w
    assert whole.columns.columns[0].categories == ("f", "m", "w")
    whole = merged(tmp_path, a=sex("f", "m"), b=sex("w", "m"), c=sex("f", "m", synonyms={"w": "f"}))
    assert whole.undecided == []
    odd = merged(
        tmp_path, a=sex("f", "m", synonyms={"x": "m"}), b=sex("f", "m", synonyms={"x": "f"})
    )
    assert len(odd.undecided) == 1


def test_a_proposal_has_the_units_of_headers(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    frame = pd.DataFrame({"CRP [mg/l]": [1.5, 2.5], "sex (m/f)": ["m", "f"], "y [a]": [1, 2.5]})
    frame.assign(y=[1.5, 3.5]).to_csv(tmp_path / "a" / "x.csv", index=False)
    found = propose_columns([tmp_path / "a"]).columns
    assert found.columns[0] == Column("CRP", unit="mg/l")
    assert {*found.names} == {"CRP", "sex (m/f)", "y [a]", "y"}  # two would be called y


def test_the_command_writes_the_file_and_its_exit_code_says_whether_it_is_decided(
    tmp_path: Path,
) -> None:
    def command(*more: str) -> Any:
        files = [str(tmp_path / name) for name in ("a.json", "b.json")]
        return CliRunner().invoke(app, ["deploy", "columns", *files, *more])

    merged(tmp_path, a=[AGE], b=[AGE])
    done = command()
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"columns": [AGE]})
    merged(tmp_path, a=[AGE], b=[AGE, {"name": "x"}])
    done = command("-o", str(tmp_path / "c.json"))
    assert (done.exit_code, read_columns(tmp_path / "c.json").names) == (1, ("age",))
    assert "'x'" in done.stdout
    assert code_of(command("--label-column", "x").stderr) == "option-without-effect"


def test_files_that_cannot_be_one_are_refused(tmp_path: Path) -> None:
    with refuses("column-missing"):
        merged(tmp_path, a=[AGE], b=[{"name": "x"}])
    with refuses("name-twice"):  # b has both, which a says are one
        merged(tmp_path, a=[{**AGE, "called": ["Alter"]}], b=[AGE, {"name": "Alter"}])
