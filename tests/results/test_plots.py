import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from PIL import Image

from fedul_flwr.data.run_files.records import Run, read_run
from fedul_flwr.results.measure_plots import (
    accuracy_figure,
    client_accuracies,
    clients_figure,
    confusion_figure,
    coverage_figure,
    measure_figures,
)
from fedul_flwr.results.plots import (
    draw_plots,
    error_figure,
    loss_figure,
    priors_figure,
    run_figures,
    time_traffic_figure,
)
from fedul_flwr.results.report import tables_of
from fedul_flwr.run.measures import measures
from tests.support.synthetic_results import label_scores, write_json, write_run


def _lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))  # type: ignore[arg-type]
        for line in axes.get_lines()
    }


def _mesh(figure: Figure) -> np.ma.MaskedArray:
    (mesh,) = (
        item
        for axes in figure.axes
        for item in axes.collections
        if isinstance(item, QuadMesh) and axes.get_xlabel() == "class"
    )
    values = mesh.get_array()
    assert values is not None
    return np.ma.asarray(values)


def _bars(figure: Figure) -> list[float]:
    (axes,) = (axes for axes in figure.axes if axes.get_xlabel().startswith("points"))
    return [patch.get_width() for patch in axes.patches]  # type: ignore[attr-defined]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return read_run(write_run(tmp_path / "run", rounds=6))


def test_lines_of_errors_and_losses_are_the_metrics(run: Run) -> None:
    losses = _lines(loss_figure([run]).axes[0])
    assert losses["surrogate loss, training sets"] == run.series("surrogate_loss")
    assert losses["surrogate loss, held-out sets"] == run.series("heldout_loss")
    assert [2.3026, 2.3026] in [y for _, y in losses.values()]  # ln 10, of ten sets a client
    (axes,) = error_figure([run]).axes
    lines = _lines(axes)
    for key, name in (("test_error", "test error"), ("validation_error", "validation error")):
        assert lines[name] == run.series(key)
    best = run.best_round()
    assert best is not None
    error = run.metrics[best]["test_error"]
    assert lines[f"best round: {best} (test error {error:.2f} %)"] == ([best], [error])
    assert axes.get_xlabel() == "round"
    assert axes.get_ylabel().startswith("error (%)")


def test_priors_rows_are_the_sets_in_percent(run: Run) -> None:
    figure = priors_figure(run)
    assert run.federation is not None
    values = _mesh(figure)
    clients = run.federation.clients
    # Between two clients lies one empty row as a gap.
    assert values.shape == (10 * 5 + 4, 10)
    np.testing.assert_allclose(values[:10], 100 * np.array(clients[0].priors))
    np.testing.assert_allclose(values[11:21], 100 * np.array(clients[1].priors))
    assert values[33:43].mask.all(), "client 3 shared no priors"
    sizes = [size for client in clients for size in client.set_sizes or ()]
    assert _bars(figure) == sizes
    ten = write_run(run.directory / "ten", rounds=1, clients=10)  # gaps as high as rows
    assert len(_bars(priors_figure(read_run(ten)))) == 100


def test_time_and_traffic_are_stacked(run: Run) -> None:
    above, below = time_traffic_figure(run).axes
    fit, rest, waiting = ([bar.get_height() for bar in group] for group in above.containers)
    assert fit == run.series("seconds_fit")[1]
    assert waiting == run.series("seconds_waiting")[1]
    known = np.add(fit, waiting)
    np.testing.assert_allclose(known + rest, np.maximum(known, run.series("seconds")[1]))
    up, down = ([bar.get_height() for bar in group] for group in below.containers)
    np.testing.assert_allclose(1e6 * np.array(up), run.series("bytes_up")[1])
    np.testing.assert_allclose(1e6 * np.array(down), run.series("bytes_down")[1])
    assert below.get_ylabel() == "MB per round"


def test_a_legend_fits_and_names_what_was_sent(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", rounds=2)
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    names = ("model", "phases", "a rather long name", "other", "none")
    for line in lines:
        line |= {f"bytes_down_{name}": 5_000_000 * (name != "none") for name in names}
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = time_traffic_figure(read_run(directory))
    figure.canvas.draw()
    legends = [axes.get_legend() for axes in figure.axes]
    for legend in filter(None, legends):
        assert legend.get_window_extent().x1 <= figure.bbox.x1
    words = [text.get_text() for legend in filter(None, legends) for text in legend.get_texts()]
    assert any(word.startswith("phases (15 MB") for word in words)
    assert not any(word.startswith("none") for word in words)  # zero bytes


def test_draw_plots_writes_pictures_and_does_not_touch_pyplot(run: Run, tmp_path: Path) -> None:
    import matplotlib._pylab_helpers as helpers

    paths = draw_plots(run, tmp_path / "new" / "plots")
    assert [path.name for path in paths] == [
        "error.png",
        "loss.png",
        "priors.png",
        "time_traffic.png",
    ]
    for path in paths:
        with Image.open(path) as picture:
            # Not one color: something was drawn.
            assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 10
    assert helpers.Gcf.figs == {}


def test_what_was_not_recorded_is_not_drawn(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"settings": {}, "data": {}})
    assert draw_plots(read_run(tmp_path), tmp_path / "plots") == []
    for figure in (error_figure, loss_figure):
        assert "nothing recorded yet" in [
            text.get_text() for text in figure([read_run(tmp_path)]).axes[0].texts
        ]


def test_names_are_no_formulas(tmp_path: Path) -> None:
    names = ("$\\frac{", "a\nb", "_hidden", "x" * 99)
    run = read_run(write_run(tmp_path / "run", class_names=names, dataset="$\\oops{"))
    two = [run, read_run(write_run(tmp_path / "other", dataset="$\\oops{"))]
    figures = [*run_figures(run).values(), error_figure(two)]
    assert len(figures) == 5
    for figure in figures:
        figure.draw_without_rendering()


@pytest.mark.parametrize("classes", [10, 100, 1000])
def test_given_any_number_of_classes_then_names_are_apart(tmp_path: Path, classes: int) -> None:
    names = tuple(f"a long name {k}" for k in range(classes))
    figure = priors_figure(read_run(write_run(tmp_path, rounds=1, sets=2, class_names=names)))
    figure.canvas.draw()
    (axes,) = (axes for axes in figure.axes if axes.get_xlabel().startswith("class"))
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(boxes) >= 10
    if axes.get_xticklabels()[0].get_rotation() == 90:
        assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
    assert figure.get_figwidth() <= 12.4  # 1,160 pixels, as wide as a page shows it


def test_given_a_confusion_then_a_clients_accuracy_has_class_shares(tmp_path: Path) -> None:
    directory = write_run(tmp_path, clients=0, class_names=("a", "b"))
    best: dict[str, Any] = {"round": 3, "recall": [90.0, 50.0], "confusion": [[9, 1], [5, 5]]}
    best["precision"] = [64.29, 83.33]
    write_json(directory / "measures.json", {"best": best})
    clients = [
        {"id": 0, "class_counts": [3, 1]},  # 0.75 * 90 + 0.25 * 50 = 80
        {"id": 1, "priors": [[1, 0], [0, 1]], "set_sizes": [1, 3]},  # 0.25 * 90 + 0.75 * 50 = 60
        {"id": 2, "num_points": 5},
    ]
    write_json(directory / "federation.json", {"clients": clients})
    run = read_run(directory)
    assert client_accuracies(run) == {0: 80.0, 1: 60.0}
    (axes,) = run_figures(run)["client_accuracy"].axes
    assert _lines(axes).popitem()[1] == ([0, 1], [60.0, 80.0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "0"]
    shown = {row["client"]: row.get("estimated accuracy (%)") for row in tables_of(run)["clients"]}
    assert shown == {"0": "80.00", "1": "60.00", "2": "–"}


def test_figures_of_labels_are_the_scores() -> None:
    scores = label_scores(6)
    (axes,) = accuracy_figure(scores).axes
    plain, balanced = ([bar.get_width() for bar in group] for group in axes.containers)
    sources = scores["sources"].values()
    assert plain == [100 - source["error"] for source in sources]
    assert balanced == [source["balanced_accuracy"] for source in sources]
    (axes,) = coverage_figure(scores).axes
    for line, source in zip(axes.get_lines(), sources, strict=True):
        np.testing.assert_allclose(line.get_xdata(), 100 * np.array(source["coverage"]["share"]))
        np.testing.assert_allclose(line.get_ydata(), source["coverage"]["error"])


def test_dots_of_a_client_are_above_each_other() -> None:
    scores = label_scores(6)
    figure = clients_figure(scores)
    (axes,) = figure.axes
    across, within = (np.array(line.get_xydata()) for line in axes.get_lines())
    of_source = {
        name: {client["id"]: 100 - client["error"] for client in found["clients"]}
        for name, found in scores["sources"].items()
    }
    order = sorted(of_source["xclp"], key=lambda client: of_source["xclp"][client])
    np.testing.assert_allclose(across[:, 1], [of_source["xclp"][client] for client in order])
    np.testing.assert_allclose(within[:, 1], [of_source["local-lp"][c] for c in order])
    np.testing.assert_array_equal(within[:, 0], across[:, 0])
    figure.draw_without_rendering()
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(c) for c in order]
    boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))


def measured(num_classes: int, temperature: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, 30 * num_classes)
    logits = rng.standard_normal((len(labels), num_classes))
    logits[np.arange(len(labels)), labels] += 2
    found = np.exp(logits / temperature)
    return {"round": 4, **measures(found / found.sum(axis=1, keepdims=True), labels)}


def test_given_a_confusion_then_cells_have_percent_of_each_classs_points() -> None:
    figure = confusion_figure([[3, 1], [200, 0], [0, 0]], ["a", "b", "c"], "x")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["75", "25", "100"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert "no points of that class" in axes.get_xlabel()
    # No label is a column, and a rare confusion is shown.
    axes = confusion_figure([[3, 0, 1], [0, 4, 0]], ["a", "b"], "x").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "none"]
    axes = confusion_figure([[999, 1], [0, 5]], None, "x").axes[0]
    assert [text.get_text() for text in axes.texts] == ["100", "<1", "100"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]


def test_given_predictions_before_and_after_scaling_then_both_are_there_with_their_ece() -> None:
    found = {"best": measured(3), "unscaled": measured(3, 0.2), "last": measured(3)}
    figure = measure_figures(found, None)["reliability"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "accuracy = confidence",
        f"best round: ECE {found['best']['ece']:.2f} %",
        "bin of fewer than 10 points",
        f"before temperature scaling: ECE {found['unscaled']['ece']:.2f} %",
    ]
    # A point for each bin with points, at its mean confidence and its accuracy; no line leads to
    # bins of few.
    bins = found["best"]["reliability"]
    places = zip(bins["points"], bins["confidence"], bins["accuracy"], strict=True)
    filled = [place for place in places if place[0]]
    line, hollow = figure.axes[0].get_lines()[1:3]
    assert line.get_linestyle() == "-"
    assert hollow.get_linestyle() == "None"
    for dots, shown in (
        (line, [(x, y) for n, x, y in filled if n >= 10]),
        (hollow, [(x, y) for n, x, y in filled if n < 10]),
    ):
        assert shown
        assert list(zip(*dots.get_data(), strict=True)) == shown
