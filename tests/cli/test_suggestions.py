"""A wrong value of an option or setting is answered with the nearest right one."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from tests.support.refusals import code_of

ROOT = Path(__file__).parents[2]
TABLES = ["--experiments", str(ROOT / "experiments"), "--results", str(ROOT / "results")]


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["run", "-c", "method=fedmach"], "fedmatch"),
        (["run", "-c", "test-prior=uniforn"], "uniform"),
        (["run", "-c", "fedul.num-set=3"], "fedul.num-sets"),
        (["compare", "--methods", "fedul,fedmach"], "fedmatch"),
        (["methods", "fedmach"], "fedmatch"),
        (["reproduce", "fedul/table-1", "--columns", "MNIST IIDD M=10", *TABLES], "MNIST IID M=10"),
        (
            ["deploy", "init", "x", "--address", "a:1", "--owner", "b", "--method", "fedull"],
            "fedul",
        ),
    ],
)
def test_given_a_wrong_value_then_the_nearest_right_one_is_suggested(
    arguments: list[str], right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert code_of(result.stderr)
    assert f"{right!r}? [" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        (["run", "--method", "fedmatch"], "-c 'method=…'"),
        (["run", "method=fedmatch"], "-c 'method=fedmatch'"),
        (["compare", "--learning_rate=0.1"], "-c 'learning-rate=…'"),
        (["run", "--clients", "5"], "The number of clients is --num-supernodes."),
    ],
)
def test_given_a_setting_as_an_option_then_the_way_out(arguments: list[str], way_out: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert way_out in " ".join(result.stderr.replace("│", "").split())
