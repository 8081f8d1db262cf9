"""``fedul-flwr reproduce TABLE --print COLUMN``: the settings of a row as a flat TOML file."""

import tomllib
from pathlib import Path

import pytest

from fedul_flwr.config.run_config import resolve
from fedul_flwr.config.user_files import flatten, parse_overrides
from fedul_flwr.experiments.table import Size, read_table
from fedul_flwr.experiments.table_plan import Device, plan_columns
from fedul_flwr.experiments.trial_plan import Overrides
from tests.support.digits_table import START, invoke, start_from_another
from tests.support.refusals import code_of

ROOT = Path(__file__).parents[2]
EXPERIMENTS = Path("experiments")


def printed(*arguments: str) -> tuple[str, Overrides]:
    """The comments of a printed file, and its settings as the commands read them."""
    result = invoke("reproduce", *arguments)
    assert result.exit_code == 0, result.output
    Path("cell.toml").write_text(result.output)
    comments = [line for line in result.output.splitlines() if line.startswith("#")]
    return "\n".join(comments), parse_overrides(["cell.toml"])


def test_given_a_row_then_its_file_has_its_settings_in_the_column(digits_table: Path) -> None:
    comments, settings = printed("mini/table-1", "--print", "M=12", "--rows", "FedUL")
    assert settings == {
        "dataset": "digits", "points-per-client": 150, "num-rounds": 2, "model": "mlp",
        "fedul.num-sets": 12, "method": "fedul",
    }  # fmt: skip
    assert comments == (
        "# mini/table-1, M=12, FedUL.\n"
        "# Digits. A paper, table 1.\n"
        "# fedul-flwr run -c FILE --num-supernodes 3\n"
        "# flwr run . --run-config FILE --federation-config 'num-supernodes=3' --stream"
    )


def test_given_a_column_that_starts_from_a_run_then_both_are_printed(digits_table: Path) -> None:
    start_from_another(learning_rate=0.25)
    comments, settings = printed("mini/table-1", "--print", "M=10", "--rows", "FedUL")
    assert settings["start-from"] == START
    command = "fedul-flwr reproduce mini/table-1 --print M=10 --rows start"
    assert command in comments
    comments, first = printed("mini/table-1", "--print", "M=10", "--rows", "start")
    assert first == {
        "dataset": "digits", "points-per-client": 150, "num-rounds": 2, "model": "mlp",
        "fedul.num-sets": 10, "method": "supervised", "learning-rate": 0.25, "output": START,
    }  # fmt: skip
    assert "Run first" not in comments


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["mini/table-1", "--print", "M=1"], "unknown-name"),
        (["mini/table-1", "--print", "M=10,M=12"], "option-not-allowed"),
        (["mini/table-1", "--print", "M=10", "--seeds", "1"], "option-without-effect"),
    ],
)
def test_names_that_are_not_printed(digits_table: Path, arguments: list[str], code: str) -> None:
    assert code_of(invoke("reproduce", *arguments).output) == code


@pytest.mark.parametrize("size", ["full", "quick"])
@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("fedul/table-1", "CIFAR-10 Non-IID M=20"),
        ("fedmatch/table-2", "Streaming-NonIID labels at server"),
        ("xclp/table-5", "Mini-ImageNet 5000 labels 50 clients"),
    ],
)
def test_given_a_table_of_a_paper_then_each_rows_file_is_what_reproduce_runs(
    name: str, column: str, size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for trial in plan_columns(read_table(EXPERIMENTS, name), [column], size, (0,), Device()):
        quick = ["--quick"] if size == "quick" else []
        text = invoke("reproduce", name, "--print", column, "--rows", trial.row, *quick).output
        settings = flatten(tomllib.loads(text))
        found = resolve({**settings, "seed": 0}, ROOT).to_flat() | {"output": ""}
        assert found == trial.config.to_flat() | {"output": ""}
        assert f"--num-supernodes {trial.clients}\n" in text
