"""Help of commands, and commands that are misspelt."""

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app

runner = CliRunner()


def test_help_describes_arguments_and_has_examples() -> None:
    said = runner.invoke(app, ["deploy", "rotate", "--help"], env={"COLUMNS": "200"}).stdout
    assert "An owner's key, the server's certificate, or the authority and it." in said
    assert "fedul-flwr deploy rotate consortium key north" in said
    assert "fedul-flwr deploy rotate consortium authority" in said


@pytest.mark.parametrize(
    ("typed", "right"), [("methds", "methods"), ("setings", "settings"), ("predct", "predict")]
)
def test_given_a_misspelt_command_then_the_right_one_is_named(typed: str, right: str) -> None:
    result = runner.invoke(app, [typed])
    assert result.exit_code == 2
    assert result.output.count("Did you mean") == 1
    assert f"'{right}'?" in result.output
