from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from fedul_flwr.data.run_files.records import read_run
from fedul_flwr.results.measure_plots import (
    accuracy_figure,
    clients_figure,
    coverage_figure,
    label_figures,
)
from fedul_flwr.results.plots import draw_plots
from tests.support.synthetic_results import label_scores, write_label_run

NAMES = ["label_accuracy.png", "label_clients.png", "label_coverage.png"]


def ticks(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_xticklabels()]


def test_bars_are_the_scores() -> None:
    scores = label_scores()
    (axes,) = accuracy_figure(scores).axes
    plain, balanced = ([bar.get_width() for bar in group] for group in axes.containers)
    sources = scores["sources"].values()
    assert plain == [100 - found["error"] for found in sources]
    assert balanced == [found["balanced_accuracy"] for found in sources]
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "across clients",
        "from others' labels (all points)",
        "within each client",
        "by the model itself",
    ]


@pytest.mark.parametrize("clients", [6, 100])
def test_dots_of_a_client_are_above_each_other(clients: int) -> None:
    scores = label_scores(clients)
    figure = clients_figure(scores)
    (axes,) = figure.axes
    within, across = (np.array(line.get_xydata()) for line in axes.get_lines())
    of_source = {
        name: {client["id"]: 100 - client["error"] for client in found["clients"]}
        for name, found in scores["sources"].items()
    }
    order = sorted(of_source["xclp"], key=lambda client: of_source["xclp"][client])
    np.testing.assert_allclose(across[:, 1], [of_source["xclp"][client] for client in order])
    np.testing.assert_allclose(within[:, 1], [of_source["local-lp"][c] for c in order])
    np.testing.assert_array_equal(within[:, 0], across[:, 0])
    figure.draw_without_rendering()
    if clients <= 40:
        assert ticks(axes) == [str(client) for client in order]
        boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
        assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))
    else:
        assert axes.get_xlabel() == "100 clients, by accuracy"


def test_lines_are_the_coverage() -> None:
    scores = label_scores()
    (axes,) = coverage_figure(scores).axes
    for line, found in zip(axes.get_lines(), scores["sources"].values(), strict=True):
        np.testing.assert_allclose(line.get_xdata(), 100 * np.array(found["coverage"]["share"]))
        np.testing.assert_allclose(line.get_ydata(), found["coverage"]["error"])


@pytest.mark.parametrize(
    "scores", [{}, {"points": "unlabeled", "sources": {"xclp": {"clients": []}}}]
)
def test_without_scores_nothing_is_drawn(scores: dict[str, object]) -> None:
    assert label_figures(scores) == {}


def test_plots_of_a_run_that_labels(tmp_path: Path) -> None:
    run = read_run(write_label_run(tmp_path / "run"))
    assert not run.trains
    names = [path.name for path in draw_plots(run, tmp_path / "plots")]
    assert names == ["priors.png", *NAMES]
