"""A self-contained HTML page about runs, or about a comparison."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from fedul_flwr.data.run_files.records import Run, distinct_labels, read_run
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.results.figure_style import DPI, draw_svg
from fedul_flwr.results.plots import (
    error_figure,
    has_error,
    has_loss,
    loss_figure,
    run_figures,
    save_plots,
)
from fedul_flwr.results.report_comparison import is_comparison, read_comparison
from fedul_flwr.results.report_tables import settings_rows, summaries, tables_of

__all__ = ["report"]

_CAPTIONS = {
    "error": "Errors after each round, in percent. A star marks the best round, which was chosen "
    "without test data.",
    "loss": "Losses over rounds. They are different functions of different points: compare their "
    "course, not their height.",
    "pseudo_labels": "How many unlabeled points had a pseudo label in each round, and how many of "
    "these labels were wrong, which a simulation knows.",
    "priors": "What is known of the clients' points: classes in the columns, and how many points "
    "there are.",
    "time_traffic": "Seconds of each round, and bytes of its messages from and to all clients "
    "together.",
    "confusion": "Which classes the best round's model named the test points of each class, in "
    "percent of that class's points.",
    "reliability": "Of the points whose named class has a probability in one of 15 bins, how many "
    "are right. ECE is the mean distance from the diagonal over all points.",
    "client_accuracy": "Accuracy of the best round's model at each client: recalls of the "
    "classes on the test points, weighted by the client's class shares.",
    "label_confusion": "Which classes the points of each class were labeled, in percent of that "
    "class's points.",
    "label_accuracy": "Accuracy of labels by their source, over points and as mean over classes.",
    "label_clients": "Accuracy of labels at each client, from labels across clients and within it.",
    "label_coverage": "Error among the labels held most confident, over the share of points that "
    "these are.",
}
_COMPARED = (
    "Left the mean over seeds after each round with a band of one standard deviation, if any run "
    "trains; right every seed, and mean and standard deviation of each run."
)
_OVER_ROUNDS = ("error", "loss")
_PIXELS_PER_POINT = 94 / 72  # a little smaller than CSS's 96


def report(dirs: list[Path], output: Path | None = None) -> Path:
    """Redraw the plots of runs and write one HTML page about them.

    Parameters
    ----------
    dirs : output directories of runs, finished or not, or that of one comparison.
    output : the page; by default ``report.html`` in the one directory, or in the folder that
        several runs share. The working directory takes the place of the root of the file system.

    Returns
    -------
    The page. It needs no other file and no network, as it contains the figures.

    Raises
    ------
    UserError
        Without a directory, for one that is not a run or is corrupt, for a comparison together with
        others, or if the output cannot be written.
    """
    if not dirs:
        raise UserError("A report needs the directory of at least one run.")
    compared = [directory for directory in dirs if is_comparison(directory)]
    if compared and len(dirs) > 1:
        raise UserError(
            f"{compared[0]} is a comparison, which has a page of its own: name it alone."
        )
    if output is None:
        shared = Path(os.path.commonpath([path.absolute() for path in dirs]))
        output = (dirs[0] if len(dirs) == 1 else shared) / "report.html"
        if output.parent == output.parent.parent:
            output = Path(output.name)
    if output.is_dir():
        raise UserError(f"Cannot write {output}: it is a directory.")
    page = _comparison_page(dirs[0]) if compared else _page([read_run(path) for path in dirs])
    write_atomically(output, page)
    return output


def _comparison_page(directory: Path) -> str:
    found = read_comparison(directory)
    picture = None if found.picture is None else _png(found.picture)
    return _render("report_comparison.html.template.md", found=found, picture=picture)


def _page(runs: Sequence[Run]) -> str:
    figures = [run_figures(run) for run in runs]
    for run, drawn in zip(runs, figures, strict=True):
        save_plots(drawn, run.directory / "plots")
    labels = distinct_labels(runs)
    several = len(runs) > 1
    settings, of_note = settings_rows(runs, labels if several else ["value"])
    rows = summaries(runs)
    return _render(
        "report.html.template.md",
        title=f"{len(runs)} runs" if several else labels[0],
        labels=labels,
        summaries=[{"run": label} | row for label, row in zip(labels, rows, strict=True)]
        if several
        else rows,
        trains=any(run.trains for run in runs),
        labels_points=not all(run.trains for run in runs),
        over_rounds=_pictures(_over_rounds(runs, figures)),
        settings=settings,
        told=[settings[row] for row in of_note],
        differing=of_note if several else [],
        sections=[
            tables_of(run) | {"figures": _pictures(_own(drawn))}
            for run, drawn in zip(runs, figures, strict=True)
        ],
    )


def _render(template: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values)


def _over_rounds(runs: Sequence[Run], figures: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    """Errors and losses, with several runs in common figures."""
    if len(runs) == 1:
        return {name: figures[0][name] for name in _OVER_ROUNDS if name in figures[0]}
    drawn = {}
    if any(map(has_error, runs)):
        drawn["error"] = error_figure(runs)
    if any(map(has_loss, runs)):
        drawn["loss"] = loss_figure(runs)
    return drawn


def _own(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """Figures of a single run; those of its labels, which are its outcome, come first."""
    names = [name for name in figures if name not in _OVER_ROUNDS]
    names.sort(key=lambda name: not name.startswith("label_"))
    return {name: figures[name] for name in names}


def _pictures(figures: Mapping[str, Figure]) -> list[dict[str, Any]]:
    return [
        {
            "src": _address("svg+xml", draw_svg(figure)),
            "width": round(72 * figure.get_figwidth() * _PIXELS_PER_POINT),
            "alt": re.sub(r"\s+", " ", figure.get_suptitle()),
            "caption": _CAPTIONS[name],
        }
        for name, figure in figures.items()
    ]


def _png(png: bytes) -> dict[str, Any]:
    return {
        "src": _address("png", png),
        # Bytes 16 to 19 of a PNG are its width in pixels.
        "width": round(int.from_bytes(png[16:20]) * 72 * _PIXELS_PER_POINT / DPI),
        "alt": "Test error over rounds and at the end, of every run",
        "caption": _COMPARED,
    }


def _address(kind: str, picture: bytes) -> str:
    """A figure as ``data:`` address, which needs no other file."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode("ascii")
