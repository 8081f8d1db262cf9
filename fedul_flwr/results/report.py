"""One self-contained HTML page about runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedul_flwr.errors import UserError
from fedul_flwr.results.figure_style import DPI
from fedul_flwr.results.label_names import source_in_words
from fedul_flwr.results.label_plots import scored_sources
from fedul_flwr.results.plots import (
    draw_plots,
    draw_png,
    error_figure,
    format_bytes,
    has_error,
    has_loss,
    loss_figure,
)
from fedul_flwr.results.records import (
    Client,
    Run,
    distinct_labels,
    number,
    read_run,
    write_atomically,
)
from fedul_flwr.results.summary import duration

__all__ = ["report"]


_LABEL_PLOTS = {
    "label_accuracy.png": "Accuracy and balanced accuracy of labels by their source",
    "label_clients.png": "Accuracy of labels at each client, across clients and within it",
    "label_coverage.png": "Error among the most confident labels, over their share",
}


@dataclass(frozen=True)
class _Setting:
    """One row of the table of settings: its value in every run, in the order of the runs."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def report(dirs: list[Path], output: Path | None = None) -> Path:
    """Redraw the plots of runs and write one HTML page about them.

    Parameters
    ----------
    dirs : output directories of runs, finished or not.
    output : the page; by default ``report.html`` in the run's directory, and in the working
        directory for several runs.

    Returns
    -------
    The page. It needs no other file and no network: pictures are inside.

    Raises
    ------
    UserError
        No directory, one that is no run or is corrupt, or an output that cannot be written.
    """
    if not dirs:
        raise UserError("A report needs the directory of at least one run.")
    if output is None:
        output = dirs[0] / "report.html" if len(dirs) == 1 else Path("report.html")
    if output.is_dir():
        raise UserError(f"Cannot write {output}: it is a directory.")
    runs = [read_run(directory) for directory in dirs]
    pictures = [
        {path.name: path.read_bytes() for path in draw_plots(run, run.directory / "plots")}
        for run in runs
    ]
    write_atomically(output, _page(runs, pictures))
    return output


def _page(runs: Sequence[Run], pictures: Sequence[dict[str, bytes]]) -> str:
    if len(runs) == 1:
        error, loss = (pictures[0].get(name) for name in ("error.png", "loss.png"))
    else:
        error = draw_png(error_figure(runs)) if any(map(has_error, runs)) else None
        loss = draw_png(loss_figure(runs)) if any(map(has_loss, runs)) else None
    labels = distinct_labels(runs)
    settings = _settings(runs)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=labels[0] if len(runs) == 1 else f"{len(runs)} runs",
        labels=labels,
        summaries=[_summary(run) for run in runs],
        trains=any(run.trains for run in runs),
        labels_points=not all(run.trains for run in runs),
        error=_image(error),
        loss=_image(loss),
        settings=settings,
        differing=[setting for setting in settings if setting.differs],
        sections=[_section(*pair) for pair in zip(runs, pictures, strict=True)],
    )


def _summary(run: Run) -> dict[str, str]:
    """One row of the table of runs; what no summary says comes from settings and metrics."""
    known = run.summary or {}
    last = run.metrics[-1]["round"] if run.metrics else 0
    clients = run.federation.clients if run.federation is not None else None
    rounds, errors = run.series("test_error")
    best = run.best_round()
    best_error = errors[rounds.index(best)] if best in rounds else None
    seconds = run.series("seconds")[1]
    total = number(known.get("seconds_total", sum(seconds) if seconds else None))
    per_round = number(known.get("seconds_per_round", total / last if total and last else None))
    planned = run.settings.get("num-rounds")
    of_rounds = f", {last} of {planned} rounds" if planned and run.trains else ""
    rounds_done = known.get("rounds", last) if run.trains else None
    return {
        "status": str(known.get("status", "finished"))
        if run.finished
        else f"unfinished{of_rounds}",
        "method": str(known.get("method", run.settings.get("method", ""))),
        "dataset": str(known.get("dataset", run.settings.get("dataset", ""))),
        "partition": str(known.get("partition", run.settings.get("partition", ""))),
        "clients": _text(known.get("num_clients", None if clients is None else len(clients))),
        "rounds": _text(rounds_done),
        "seed": _text(known.get("seed", run.settings.get("seed"))),
        "best round": _text(best),
        "error at best (%)": _percent(number(known.get("test_error", best_error))),
        "error at end (%)": _percent(
            number(known.get("final_test_error", errors[-1] if errors else None))
        ),
        "time": duration(total),
        "per round": duration(per_round),
        "up": _traffic(run, "bytes_up"),
        "down": _traffic(run, "bytes_down"),
    }


def _traffic(run: Run, key: str) -> str:
    recorded = run.series(key)[1]
    total = number((run.summary or {}).get(key, sum(recorded) if recorded else None))
    return "–" if total is None else format_bytes(total)


def _settings(runs: Sequence[Run]) -> list[_Setting]:
    names = sorted(
        {name for run in runs for name in run.settings}, key=lambda name: ("." in name, name)
    )
    return [
        _Setting(
            name,
            tuple(_text(run.settings[name]) if name in run.settings else "–" for run in runs),
        )
        # Shared settings first, then the table of each method.
        for name in sorted(names, key=lambda name: ("." in name, name))
    ]


def _section(run: Run, pictures: dict[str, bytes]) -> dict[str, Any]:
    clients = run.federation.clients if run.federation is not None else ()
    shape, names = run.data.get("image_shape"), run.data.get("class_names")
    return {
        "shape": " × ".join(map(str, shape)) if isinstance(shape, list) else "",
        "test_prior": _test_prior(run),
        "class_names": [str(name) for name in names] if isinstance(names, list) else [],
        "directory": str(run.directory),
        "finished": run.finished,
        "error": run.error,
        "trains": run.trains,
        "sources": _sources(run.labels or {}),
        "label_plots": [
            {"image": _image(pictures[name]), "alt": alt}
            for name, alt in _LABEL_PLOTS.items()
            if name in pictures
        ],
        "pseudo_labels": _image(pictures.get("pseudo_labels.png")),
        "rounds": run.metrics[-1]["round"] if run.metrics else 0,
        "priors": _image(pictures.get("priors.png")),
        "time": _image(pictures.get("time_traffic.png")),
        "clients": [_client(client) for client in clients],
        "dropped": sum(client.status == "dropped" for client in clients),
        "environment": _flat(run.environment or {}),
    }


def _sources(scores: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row per source of labels: on how many points, and how good they are."""
    return [
        {
            "labels": source_in_words(name, scores["points"]),
            "points": f"{found['points']:,}",
            "right (%)": f"{100 - found['error']:.2f}",
            "right, mean over classes (%)": f"{found['balanced_accuracy']:.2f}",
            "without a label (%)": f"{found['unreached']:.2f}",
        }
        for name, found in scored_sources(scores).items()
    ]


def _test_prior(run: Run) -> str:
    """Class priors of a finished run's posterior, with ``em`` also what came of it; or nothing."""
    known = run.summary or {}
    if known.get("test_prior_source") in (None, "uniform"):
        return ""
    values = known.get("test_prior_estimate", known.get("test_prior"))
    words = f"{known['test_prior_source']}: " + ", ".join(f"{p:.3g}" for p in values or ())
    reweighed = number(known.get("test_error_reweighed"))
    return words if reweighed is None else f"{words}; test error re-weighed {reweighed:.2f} %"


def _client(client: Client) -> dict[str, str]:
    sizes = client.set_sizes
    return {
        "client": str(client.id),
        "points": _text(client.num_points),
        "sets": "–" if sizes is None else str(len(sizes)),
        "labels": "–" if client.labelled_counts is None else str(sum(client.labelled_counts)),
        "priors": "–" if client.priors is None else "shared",
        "condition number": "–"
        if client.condition_number is None
        else f"{client.condition_number:.3g}",
        "status": client.status,
        "reason": client.reason,
    }


def _image(png: bytes | None) -> dict[str, Any] | None:
    """A picture as ``data:`` address with its width on the page, or None where there is none."""
    if png is None:
        return None
    # Bytes 16 to 19 of a PNG are its width. Shown smaller than it is: screens have up to two dots
    # a pixel.
    width = round(int.from_bytes(png[16:20]) * 94 / DPI)
    return {"src": "data:image/png;base64," + base64.b64encode(png).decode("ascii"), "width": width}


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _text(value)))
    return rows


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value if value else '""'
    return json.dumps(value, ensure_ascii=False)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
