"""Print ``docs/results.md``: what the stored runs hold, each sentence with what would refute it.

``python -m docs.hooks.results`` prints the page. It refuses a claim that the runs contradict, and
a test compares the page.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fedul_flwr.data.run_files.store import DIRTY
from fedul_flwr.experiments.runs_file import RunsFile
from fedul_flwr.experiments.search_space import label
from fedul_flwr.experiments.statistics import Estimate, estimates
from fedul_flwr.experiments.studies import best_of, read_studies
from fedul_flwr.experiments.table import Size, table_names

RESULTS, EXPERIMENTS = Path("results"), Path("experiments")
IMAGES = {
    "ylecun/mnist": 60_000,
    "zalando-datasets/fashion_mnist": 60_000,
    "uoft-cs/cifar10": 50_000,
}
"""Training images of data sets, of which a part are for validation."""
IN_FORM = "all labels in closed form"
DEAD = ("chest X-rays Dirichlet 0.1", "chest X-rays two classes")
"""Columns on which no claim rests, and the error of the answer that is always the same."""
CONSTANT = 47.1


@cache
def runs_of(table: str, size: Size, tuned: bool) -> pd.DataFrame:
    """The stored runs of a table, of one kind."""
    return RunsFile(RESULTS, table, size, tuned).read()


@dataclass(frozen=True)
class Cells:
    """Columns of a table, whose rows are compared; of several each is another data set."""

    table: str
    columns: Sequence[str]
    size: Size = "quick"
    tuned: bool = True

    def errors(self, column: str) -> pd.DataFrame:
        """Test errors by row and seed."""
        runs = runs_of(self.table, self.size, self.tuned)
        of_column = runs[runs["column"] == column].reset_index(drop=True)
        wide = of_column.pivot(index="row", columns="seed", values="test_error")
        return wide.astype(float)

    def of(self, column: str, row: str) -> Estimate:
        """The mean of a row."""
        return one(self.errors(column).loc[[row]])

    def best(self, column: str, less: Sequence[str]) -> str:
        """The row of the lowest mean, but for those ``less``."""
        return str(self.errors(column).drop(index=[*less], errors="ignore").mean(axis=1).idxmin())

    def gap(self, worse: str | Sequence[str], better: str) -> Estimate:
        """By how many points row ``better`` errs less: over seeds of one column, over data sets
        of several. Row ``worse`` may be another one in each column."""
        rows = [worse] * len(self.columns) if isinstance(worse, str) else worse
        tables = [self.errors(column) for column in self.columns]
        gaps = [of.loc[row] - of.loc[better] for of, row in zip(tables, rows, strict=True)]
        values = gaps[0] if len(gaps) == 1 else pd.Series([gap.mean() for gap in gaps])
        return one(values.dropna().to_frame().T)

    @property
    def command(self) -> str:
        """The command that makes the runs."""
        seeds = sorted(set().union(*(self.errors(column).columns for column in self.columns)))
        words = ["--columns", ",".join(self.columns), "--seeds", ",".join(map(str, seeds))]
        command = RunsFile(RESULTS, self.table, self.size, self.tuned).command()
        return f"{command} {shlex.join(words)}"

    @property
    def number(self) -> str:
        """Seeds and data sets, and the size."""
        counts = sorted({len(self.errors(column).columns) for column in self.columns})
        many = len(self.columns)
        seeds = " or ".join(map(str, counts))
        size = f"{self.size} size"
        return f"{seeds} seeds, {many} data set{'s' * (many > 1)}, {size}"

    @property
    def chosen_by(self) -> str:
        """How many validation labels chose steps, where they were searched, and rounds."""
        runs = runs_of(self.table, self.size, self.tuned)
        of_columns = runs[runs["column"].isin(self.columns)]["settings"]
        labels = {round(IMAGES[one["dataset"]] * one["validation-fraction"]) for one in of_columns}
        what = "steps and rounds" if self.tuned else "rounds"
        return f"{' or '.join(f'{count:,}' for count in sorted(labels))} validation labels: {what}"


def one(errors: pd.DataFrame) -> Estimate:
    """The estimate of a single row."""
    mean, std, half, seeds = estimates(errors).iloc[0]
    return Estimate(mean, std, half, int(seeds))


def figure(estimate: Estimate) -> str:
    """``2.1 ± 0.9``; small ones have two digits."""
    digits = 2 if abs(estimate.mean) < 1 else 1
    return f"{estimate.mean:.{digits}f} ± {estimate.half_width:.{digits}f}"


Kind = Literal["less", "same"]
_REFUTED = {
    "less": "new seeds of which this interval reaches 0",
    "same": "new seeds of which this interval leaves 0",
}


@dataclass(frozen=True)
class Claim:
    """A sentence, and the gaps from which it follows; ``kind`` says what all of them have to be.

    ``says`` has ``{0}`` for the first gap, and names of ``values``.
    """

    says: str
    cells: Cells
    gaps: Sequence[tuple[str | Sequence[str], str]]
    kind: Kind = "less"
    ceiling: str = "all labels"
    values: dict[str, Any] = field(default_factory=dict)

    def measured(self) -> list[Estimate]:
        """The gaps."""
        return [self.cells.gap(*gap) for gap in self.gaps]

    def holds(self) -> bool:
        """Whether the runs do not contradict the sentence."""
        is_less = [gap.mean > gap.half_width for gap in self.measured()]
        is_more = [-gap.mean > gap.half_width for gap in self.measured()]
        return all(is_less) if self.kind == "less" else not any(is_less + is_more)

    def sentence(self) -> str:
        """The sentence with its figures."""
        return self.says.format(*map(figure, self.measured()), **self.values).replace(" -", " −")

    def lines(self) -> Iterator[str]:
        """The sentence, and what belongs to it."""
        yield f"**{self.sentence()}**"
        cells, ceiling = self.cells, ""
        for row, name in ((self.ceiling, "trained as long"), (IN_FORM, "in closed form")):
            figures = [
                figure(cells.of(column, row)) if row in cells.errors(column).index else "–"
                for column in cells.columns
            ]
            ceiling += f" All labels, {name}: {', '.join(figures)}." * any(
                f != "–" for f in figures
            )
        yield f"{cells.number}. {cells.chosen_by}.{ceiling} Refuted by {_REFUTED[self.kind]}."
        yield f"`{cells.command}`"


def claims() -> Iterator[Claim]:
    """All that is claimed, at most fifteen."""
    paper = Cells("fedul/table-1", ["MNIST Non-IID M=10"], "full", tuned=False)
    yield Claim(
        "FedUL at its paper's size (MNIST, 5 clients, Non-IID) has {fedul} % errors without a "
        "label, where the paper has 2.98 %; FedPL has {0} points more.",
        paper,
        [("FedPL", "FedUL")],
        ceiling="FedAvg 100 %",
        values={"fedul": figure(paper.of(paper.columns[0], "FedUL"))},
    )
    yield Claim(
        "The same, IID: FedUL has {0} points less errors than training on a tenth of the labels.",
        Cells("fedul/table-1", ["MNIST IID M=10"], "full", tuned=False),
        [("FedAvg 10 %", "FedUL")],
        ceiling="FedAvg 100 %",
    )
    few = _sets("two classes")
    one_of_them = Cells("reference/sets", ["Fashion-MNIST two classes"])
    yield Claim(
        "With class shares alone and two classes a client (Fashion-MNIST), the closed form has {0} "
        "points less errors than the best trained row, which its test errors chose.",
        one_of_them,
        [(_rivals(one_of_them), "closed form")],
    )
    even = _sets("IID", "CIFAR-10")
    yield Claim(
        "With class shares and IID splits (MNIST, Fashion-MNIST, features, CIFAR-10) it is not "
        "told apart from that row over data sets: a difference of {0} points.",
        even,
        [(_rivals(even), "closed form")],
        kind="same",
    )
    every = [("closed form", IN_FORM)]
    yield Claim(
        "Fashion-MNIST, two classes a client: all labels in closed form are not told apart from "
        "class shares in closed form, by {0} points.",
        Cells("reference/sets", ["Fashion-MNIST two classes"]),
        every,
        kind="same",
    )
    yield Claim(
        "IID, where class shares of sets differ less, all labels in closed form have {0} points "
        "less errors than class shares.",
        Cells("reference/sets", ["Fashion-MNIST IID"]),
        every,
    )
    yield Claim(
        "With 5 clients of 8,000 points (features, IID), FedUL has {0} points less errors than the "
        "closed form.",
        Cells("recipes/fedul-cifar10-features", ["IID M=10"], "full"),
        [("closed form", "FedUL")],
        ceiling="FedAvg 100 %",
    )
    yield Claim(
        "A last head in closed form takes {0} points of errors from FedUL with two classes a "
        "client (MNIST, Fashion-MNIST, features).",
        few,
        [("FedUL", "FedUL with a last head")],
    )
    yield Claim(
        "IID that head changes nothing that the runs could tell: a difference of {0} points.",
        _sets("IID"),
        [("FedUL", "FedUL with a last head")],
        kind="same",
    )
    yield Claim(
        "With sets of 64 points (Fashion-MNIST, features) FedUL has {0} points less errors than "
        "LLP-PVC, which matches shares of whole sets.",
        Cells(
            "recipes/set-sizes",
            ["Fashion-MNIST 64 points", "CIFAR-10 features 64 points"],
            "full",
        ),
        [("LLP-PVC", "FedUL")],
    )
    steps = Cells("reference/equal-steps", ["CIFAR-10 features IID"])
    alone = "labels alone"
    yield Claim(
        "With 25 labels a client and equal steps (features, IID), unlabeled points help: labels "
        "alone have {0} points more errors than the closed form, {1} more than ProxyFL, {2} more "
        "than CBAFed, {3} more than XCLP, {4} more than FixMatch.",
        steps,
        [(alone, row) for row in ("closed form", "ProxyFL", "CBAFed", "XCLP", "FixMatch")],
    )
    yield Claim(
        "There FedMatch, with twice the steps, is not told apart from labels alone: a difference "
        "of {0} points.",
        steps,
        [(alone, "FedMatch")],
        kind="same",
    )
    yield Claim(
        "FedMatch has not been seen to learn from unlabeled points: a difference of {0} points on "
        "CIFAR-10 with five labels a class at 100 clients.",
        Cells("recipes/fedmatch-cifar10", ["labels at clients"]),
        [("FedMatch without unlabeled points", "FedMatch")],
        kind="same",
    )
    server = Cells("reference/server", ["CIFAR-10 features IID 40 labels"])
    yield Claim(
        "With 40 labels at the server (features, IID), (FL)² has {0} points less errors than these "
        "alone, and FedUL with mixing, which has class shares besides, {1}.",
        server,
        [(alone, "(FL)²"), (alone, "FedUL with mixing")],
    )
    yield Claim(
        "Class shares add to 12,000 labels at the server: FedUL with M1 has {0} points less "
        "errors than these alone (MNIST, Non-IID).",
        Cells("bi-objective/table-1", ["MNIST Non-IID"]),
        [("server only", "FedUL + M1")],
    )


def _sets(split: str, *more: str) -> Cells:
    data = ("MNIST", "Fashion-MNIST", "CIFAR-10 features", *more)
    return Cells("reference/sets", [f"{name} {split}" for name in data])


def _rivals(cells: Cells) -> list[str]:
    """The best row of each column that is trained."""
    less = ("closed form", "all labels", IN_FORM)
    return [cells.best(column, less) for column in cells.columns]


def stored() -> pd.DataFrame:
    """All stored runs."""
    kinds = [(name, size, tuned) for name in table_names(EXPERIMENTS)
             for size in ("full", "quick") for tuned in (False, True)]  # fmt: skip
    return pd.concat([runs_of(*kind) for kind in kinds])


def searches() -> Iterator[Any]:
    """All stored searches."""
    for name in table_names(EXPERIMENTS):
        yield from read_studies(RunsFile(RESULTS, name, "quick").searches).values()


def steps_on_the_edge() -> tuple[int, int]:
    """How many step sizes that searches chose are the largest or smallest that they tried of the
    optimizer, and of how many; where a row's own was chosen, it counts as none of these."""
    edge = every = 0
    for study in searches():
        best, space = best_of(study), study.user_attrs["definition"]["search"]["space"]
        if best is None or "step" not in best.params:
            continue
        every += 1
        options = [one for one in space["step"] if "learning-rate" in one]
        for option in (one for one in options if label(one) == best.params["step"]):
            alike = [one for one in options if one.get("optimizer") == option.get("optimizer")]
            rates = [one["learning-rate"] for one in alike]
            edge += option["learning-rate"] in (min(rates), max(rates))
    return edge, every


UNTRAINED = ("closed form", "AFL", "GH-OFL")
"""Rows of heads in closed form on what nobody has trained."""


def dead_runs() -> tuple[int, int]:
    """How many trained runs of :data:`DEAD` columns are no better than a constant; and of all."""
    tables = [runs_of(f"reference/{name}", "quick", True) for name in ("sets", "clients")]
    runs = pd.concat(tables)
    runs = runs[runs["column"].isin(DEAD) & ~runs["row"].isin(UNTRAINED)]
    worse = runs["test_error"].astype(float) > CONSTANT - 0.1
    return int(worse.sum()), len(worse)


def page() -> str:
    """The page."""
    (edge, steps), (worse, trained), runs = steps_on_the_edge(), dead_runs(), stored()
    changed = int(runs["commit"].str.endswith(DIRTY, na=False).sum())
    trials = [len(study.trials) for study in searches()]
    lines = [
        "# Results",
        "",
        "Written by `make docs` from the runs in `results/`; it refuses a sentence that they "
        "contradict. Figures are test errors in percent,",
        "and points are differences of two of them. ± is half of a 95 % interval by Student's t: "
        "over seeds, or over data sets where there are",
        "several. Features are those of CIFAR-10 by a pretrained network. `python -m "
        "docs.hooks.tables NAME` prints a table with all its rows, searches "
        "and the paper's figures. [Coverage](coverage.md) says",
        "which of the papers' columns ran, [measurements](measurements.md) is the log.",
        "",
        "Read these with it:",
        "",
        "- **Labels that chose.** In rows that train, validation labels at the server chose steps "
        "and rounds, also where a row is said to have no label.",
        "  Each sentence has their number.",
        f"- **Searches.** They had {min(trials)} to {max(trials)} trials. Of {steps} steps that "
        f"they chose, {edge} are the largest or smallest tried of their optimizer.",
        "- **Ceilings.** *All labels, trained as long* is no bound: with few classes a client, "
        "more rounds would lower it.",
        "- **Seeds.** No comparison was named before its runs, and with three to five seeds few "
        "differences below two points can be seen.",
        f"- **X-rays.** No sentence rests on them. They have 238 test images, and {worse} of "
        f"{trained} trained runs on uneven splits are no better",
        f"  than the answer that is always the same ({CONSTANT} %).",
        "- **Filters.** Closed forms of clients' images have [filters that fit these]"
        "(closed-form.md), the default; where all labels are at the server, random ones.",
        f"- **Code.** {changed} of {len(runs):,} stored runs are of code with changes that no "
        "commit has. CIFAR-10 is a copy in JPEG: compare its",
        "  errors with each other alone.",
    ]
    for number, claim in enumerate(claims(), start=1):
        if not claim.holds():
            raise SystemExit(f"The runs contradict claim {number}: {claim.sentence()}")
        sentence, about, command = claim.lines()
        lines += ["", f"{number}. {sentence}", f"   {about}", f"   {command}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
