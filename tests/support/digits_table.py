"""A miniature table of digits with two methods and two columns, and the commands on it."""

import json
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from docs.hooks import tables
from fedul_flwr.cli.main import app

FILE = Path("experiments/mini/table_1.py")
RESULTS = Path("results/mini/table-1.jsonl")
START = "runs/mini/table-1/base"
TABLE = """
from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table import Column, Table

from .methods import ROWS

SETTINGS = {"dataset": "digits", "points-per-client": 150, "num-rounds": 2, "model": "mlp"}
START = None


def columns(quick):
    for sets in (10, 12):
        settings = {**SETTINGS, "fedul.num-sets": sets}
        start = START and sets == 10 and {**settings, **START} or None
        if start:
            settings["start-from"] = "runs/mini/table-1/base"
        yield Column(f"M={sets}", settings, ROWS, 3, start)


TABLE = Table(
    title="Digits",
    source="A paper, table 1",
    measures=["test-error"],
    columns=columns,
    paper={"test-error": {"M=10": {"FedUL": (2.5, 0.5)}}},
    unranked=[],
    search=Search(
        trials=3,
        seeds=1,
        rungs=1,
        space={
            "step": [{"learning-rate": 0.01}, {"learning-rate": 1e-6}],
            "decay": [{"weight-decay": 0.0}, {"weight-decay": 1e-3}],
        },
    ),
)
"""
METHODS = 'ROWS = {"FedUL": {"method": "fedul"}, "all labels": {"method": "supervised"}}\n'


def change_table(old: str, new: str) -> None:
    """Replace a part of the table's file, which must be there once."""
    text = FILE.read_text()
    assert text.count(old) == 1
    FILE.write_text(text.replace(old, new))


def start_from_another(**settings: Any) -> None:
    """Let column M=10 start from the model of a supervised run with settings of its own."""
    own = {key.replace("_", "-"): value for key, value in settings.items()}
    change_table("START = None", f"START = { ({'method': 'supervised', **own})!r}")


def invoke(command: str, *arguments: str) -> Result:
    """Run a command of ``fedul-flwr`` in this process, with the tables of the working directory."""
    more = ["--experiments", "experiments"] if command in ("reproduce", "tune") else []
    more += ["--engine", "in-process"] if command == "reproduce" else []
    return CliRunner().invoke(app, [command, *more, *arguments], terminal_width=200)


def render() -> str:
    """All tables as Markdown."""
    return tables.rendered(Path("experiments"), Path("results"))


def output_of(result: Result) -> str:
    """The printed words without line breaks."""
    return " ".join(result.output.split())


def stored_runs(size: str = "full", tuned: bool = False) -> list[dict[str, Any]]:
    """The stored runs of a kind."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    runs = [json.loads(line) for line in lines]
    return [run for run in runs if (run["size"], run["tuned"]) == (size, tuned)]


def change_run(position: int, **parts: Any) -> None:
    """Replace parts of a stored run."""
    runs = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    runs[position] |= parts
    RESULTS.write_text("".join(json.dumps(run) + "\n" for run in runs))
