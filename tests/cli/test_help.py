"""Help of every command, and its lists, at several widths."""

from collections.abc import Iterator

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fedul_flwr.cli.main import app

runner = CliRunner()
WIDTHS = (40, 200)


def commands() -> Iterator[tuple[str, ...]]:
    """Names of all commands, groups included."""
    root = get_command(app)
    assert isinstance(root, click.Group)
    for name, command in root.commands.items():
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, sub) for sub in command.commands)


COMMANDS = [(), *commands()]


def said(*arguments: str, width: int = 80) -> str:
    result = runner.invoke(
        app, list(arguments), prog_name="fedul-flwr", env={"COLUMNS": str(width)}
    )
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("typed", "right"), [("methds", "methods"), ("setings", "settings"), ("predct", "predict")]
)
def test_given_a_misspelt_command_then_the_right_one_is_named(typed: str, right: str) -> None:
    result = runner.invoke(app, [typed])
    assert result.exit_code == 2
    assert result.output.count("Did you mean") == 1
    assert f"'{right}'?" in result.output
