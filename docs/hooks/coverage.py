"""Print ``docs/coverage.md``: which columns of the papers' tables ran, at which size.

``python -m docs.hooks.coverage`` prints the page. A test compares it.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from docs.hooks.results import runs_of
from fedul_flwr.experiments.metrics import METRICS
from fedul_flwr.experiments.paper_table import KINDS, figures
from fedul_flwr.experiments.statistics import Estimate
from fedul_flwr.experiments.table import Table, read_table, table_names
from fedul_flwr.experiments.text_tables import markdown_table, markdown_text

EXPERIMENTS = Path("experiments")
PAPERS = {
    "bi-objective": "FedUL + M1",
    "fedmatch": "FedMatch",
    "fedul": "FedUL",
    "semifl": "SemiFL",
    "xclp": "XCLP",
}
"""The row of each paper's own method, or a part of its name."""
SECONDS = {
    "cnn6": 0.0030,
    "resnet18-fedul": 0.0085,
    "resnet9": 0.0185,
    "cnn13": 0.0367,
    "wrn28-2": 0.0135,
    "alexnet-like": 0.0018,
}
"""Seconds of one core for a training step, an image of 28 or 32 pixels: the fastest of four steps
of the batch of the papers, float32, torch 2.15, an Intel Xeon with AVX-512."""
OURS = {"closed form"}
"""Rows that no paper has."""
IMAGES = {
    "ylecun/mnist": 60_000,
    "zalando-datasets/fashion_mnist": 60_000,
    "uoft-cs/cifar10": 50_000,
    "uoft-cs/cifar100": 50_000,
}
"""Training images."""
DAY = 24 * 3600


def tables() -> Iterator[Table]:
    """The papers' tables."""
    for name in table_names(EXPERIMENTS):
        if name.partition("/")[0] in PAPERS:
            yield read_table(EXPERIMENTS, name)


def lines(table: Table) -> Iterator[dict[str, str]]:
    """A line for each column of a table."""
    stored = {kind: runs_of(table.name, *kind) for kind in KINDS}
    for name in table.names:
        rows = table.column(name).rows
        own = PAPERS[table.name.partition("/")[0]]
        alike = [one for one in rows if own in one]
        row = own if own in rows else next(iter([*alike, *rows]))
        ran = {
            kind: runs[runs["column"] == name]
            for kind, runs in stored.items()
            if (runs["column"] == name).any()
        }
        kind = next((kind for kind in _ORDER if kind in ran), None)
        measure = table.measures[0]
        digits = METRICS[measure].digits
        ours, theirs = Estimate(), Estimate(*table.figure(measure, name, row))
        if kind is not None and row in set(ran[kind]["row"]):
            of_row = ran[kind][ran[kind]["row"] == row]
            shown = figures(table, of_row, [row], [name])[kind]
            ours = next(iter(shown))
        yield {
            "table": table.name,
            "column": name,
            "state": _state(table, ran, len({*rows} - OURS)),
            "row": row,
            "ours": ours.text(digits),
            "paper": theirs.text(digits),
            "cost": _cost(table, name, row),
        }


_ORDER = (("full", True), ("full", False), ("quick", True), ("quick", False))


def _state(table: Table, ran: dict[Any, pd.DataFrame], rows: int) -> str:
    """What ran of a column, the nearest to the paper."""
    if table.benchmark:
        return "a benchmark"
    for kind in _ORDER:
        if kind in ran:
            count = len({*ran[kind]["row"]} - OURS)
            of = "" if count == rows else f", {count} of {rows} rows"
            return f"{kind[0]}{', tuned' if kind[1] else ''}{of}"
    return "not run"


def _cost(table: Table, name: str, row: str) -> str:
    """Time of one core for a run of a row at full size."""
    column = table.column(name)
    if table.benchmark:
        return "–"
    flat: dict[str, Any] = {**column.settings, **column.rows[row]}
    seconds = SECONDS.get(str(flat.get("model")), math.nan)
    points = int(flat.get("points-per-client", 0)) * column.clients or IMAGES.get(
        str(flat["dataset"]), math.nan
    ) * (1 - flat.get("validation-fraction", 0.1) - flat.get("server-fraction", 0.0))
    rounds = flat.get("num-rounds", math.nan) * flat.get("fraction-train", 1.0)
    total = points * rounds * flat.get("local-epochs", 1) * seconds
    if math.isnan(total):
        return "not measured"
    return f"{total / 3600:.1f} h" if total < 3 * DAY else f"{total / DAY:.0f} days"


def page() -> str:
    """The page."""
    every = [line for table in tables() for line in lines(table)]
    shown = pd.DataFrame(every).map(markdown_text)
    states = [line["state"] for line in every]
    full, none = (sum(s.startswith(word) for s in states) for word in ("full", "not run"))
    benchmarks = states.count("a benchmark")
    text = [
        "# Coverage",
        "",
        "Written by `make docs` from `experiments/` and `results/`: every column of the papers' "
        f"tables, {len(every)} of them. {full} ran at full size,",
        f"{len(every) - full - none - benchmarks} at quick size alone, {none} did not run, "
        f"{benchmarks} are of a benchmark. A line is made by `fedul-flwr reproduce TABLE "
        "--columns COLUMN`,",
        "with `--quick` or `--tuned` where its state says so.",
        "",
        "- *State*: `full` is the paper's size; `quick` is for two cores, so that its figure is "
        "none of the paper's experiment. All rows ran where none are",
        "  counted.",
        "- *Ours* and *paper*: of the paper's own method, in the unit of the table, ± half of a "
        "95 % interval (standard deviation). XCLP's figures were not in the text",
        "  from which the files were written.",
        "- *Cost*: at least this time of one core for one run of this row at full size: rounds "
        "times points of a round times epochs times measured",
        "  seconds an image, once a point. Methods with several views of a point take some times "
        "as long. A card was not measured but for FedUL on MNIST:",
        "  3 to 9 minutes, nine runs at a time.",
        "",
        *markdown_table(shown, numbers=3),
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    print(page(), end="")
