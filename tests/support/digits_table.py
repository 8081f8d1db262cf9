"""A miniature table of digits with two methods and two columns, and the commands on it."""

import json
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from fedul_flwr.cli.main import app

FILE = Path("experiments/mini/table-1.toml")
RESULTS = Path("results/mini/table-1.json")
START = "runs/mini/table-1/base"
TABLE = """
title = "Digits"
source = "A paper, table 1"
measures = ["test-error"]
clients = 3
rows = "methods.toml"

[settings]
dataset = "digits"
points-per-client = 150
num-rounds = 2
model = "mlp"

[matrix.sets]
"M=10" = { fedul.num-sets = 10 }
"M=12" = { fedul.num-sets = 12 }

[paper.test-error]
"M=10" = { FedUL = [2.5, 0.5] }
"""
METHODS = '[FedUL]\nmethod = "fedul"\n\n["all labels"]\nmethod = "supervised"\n'
SEARCH = """
trials = 3
reduction-factor = 2
rungs = 1

[space]
step = [{ learning-rate = 0.01 }, { learning-rate = 1e-6 }]
decay = [{ weight-decay = 0.0 }, { weight-decay = 1e-3 }]
"""


def change_table(old: str, new: str) -> None:
    """Replace a part of the table's file, which must be there once."""
    text = FILE.read_text()
    assert text.count(old) == 1
    FILE.write_text(text.replace(old, new))


def start_from_another(setting: str = "") -> None:
    """Let column M=10 start from the model of a supervised run, with one setting of its own."""
    change_table("{ fedul.num-sets = 10 }", f'{{ fedul.num-sets = 10, start-from = "{START}" }}')
    FILE.write_text(FILE.read_text() + f'\n[start]\nmethod = "supervised"\n{setting}\n')


def invoke(command: str, *arguments: str) -> Result:
    """Run a command of ``fedul-flwr`` in this process, with the tables of the working directory."""
    more = ["--experiments", "experiments"] if command in ("reproduce", "tune") else []
    more += ["--engine", "in-process"] if command == "reproduce" else []
    return CliRunner().invoke(app, [command, *more, *arguments], terminal_width=200)


def output_of(result: Result) -> str:
    """The printed words without line breaks."""
    return " ".join(result.output.split())


def stored_results() -> list[dict[str, Any]]:
    """The stored results of full size."""
    return list(json.loads(RESULTS.read_text())["runs"])


def change_result(position: int, **parts: Any) -> None:
    """Replace parts of a stored result."""
    content = json.loads(RESULTS.read_text())
    content["runs"][position] |= parts
    RESULTS.write_text(json.dumps(content))
