import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from fedul_flwr.data.run_files.parts import LabelScores
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.results.figure_style import draw_svg
from fedul_flwr.results.measure_plots import (
    accuracy_figure,
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
from fedul_flwr.run.measures import measures
from tests.support.synthetic_results import label_scores, write_json, write_label_run, write_run


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
    return Run.read(write_run(tmp_path / "run", rounds=6))


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
    error = run.lines[best]["test_error"]
    assert lines[f"best round: {best} (test error {error:.2f} %)"] == ([best], [error])
    assert axes.get_xlabel() == "round"
    assert axes.get_ylabel().startswith("error (%)")


def test_given_somebodys_style_then_the_pictures_are_the_same(run: Run) -> None:
    somebodys = {
        "text.usetex": True,
        "font.size": 20.0,
        "font.family": "monospace",
        "axes.facecolor": "black",
        "axes.grid.axis": "x",
        "savefig.bbox": "tight",
        "savefig.transparent": True,
        "figure.figsize": (2.0, 2.0),
        "lines.linewidth": 9.0,
        "xtick.labelsize": 30.0,
    }
    ours = {name: draw_svg(drawn()) for name, drawn in run_figures(run).items()}
    with rc_context(somebodys):
        theirs = {name: draw_svg(drawn()) for name, drawn in run_figures(run).items()}
        assert rcParams["font.size"] == 20.0  # theirs stays theirs
    assert theirs == ours


def test_priors_rows_are_the_sets_in_percent(run: Run) -> None:
    figure = priors_figure(run)
    assert run.federation is not None
    values = _mesh(figure)
    clients = run.clients
    # Between two clients lies one empty row as a gap.
    assert values.shape == (10 * 5 + 4, 10)
    np.testing.assert_allclose(values[:10], 100 * np.array(clients[0].priors))
    np.testing.assert_allclose(values[11:21], 100 * np.array(clients[1].priors))
    assert values[33:43].mask.all(), "client 3 shared no priors"
    sizes = [size for client in clients for size in client.set_sizes or ()]
    assert _bars(figure) == sizes
    ten = write_run(run.path / "ten", rounds=1, clients=10)  # gaps as high as rows
    assert len(_bars(priors_figure(Run.read(ten)))) == 100


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


def test_what_was_not_recorded_is_not_drawn(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"settings": {}, "data": {}})
    assert draw_plots(Run.read(tmp_path), tmp_path / "plots") == []
    for figure in (error_figure, loss_figure):
        assert "nothing recorded yet" in [
            text.get_text() for text in figure([Run.read(tmp_path)]).axes[0].texts
        ]


def _panels(run: Run) -> list[str]:
    """Labels of the axes of the summary from left to right, each y over x."""
    axes = run_figures(run)["summary"]().axes
    return [f"{one.get_ylabel()} / {one.get_xlabel()}" for one in axes]


def test_a_run_draws_one_picture_and_all_when_asked(run: Run) -> None:
    write_json(run.path / "measures.json", {"best": measured(10)})
    run = Run.read(run.path)
    plots = run.path / "plots"
    assert draw_plots(run, plots) == [plots / "summary.png"]
    assert [*plots.iterdir()] == [plots / "summary.png"]
    error, confusion, *time_traffic = _panels(run)
    assert error == "error (%) / round"
    assert confusion == "true class / predicted class"
    assert time_traffic == ["seconds per round / ", "MB per round / round"]
    everything = run.model_copy(update={"settings": {**run.settings, "figures": "all"}})
    names = ["error", "loss", "priors", "time_traffic", "confusion", "reliability", "summary"]
    drawn = draw_plots(everything, plots)
    assert {path.stem for path in drawn} == {*names, "client_accuracy"}
    assert {path.name for path in plots.iterdir()} == {path.name for path in drawn}


def test_given_no_validation_labels_then_the_summary_marks_the_best_round_by_its_loss(
    tmp_path: Path,
) -> None:
    directory = write_run(tmp_path, rounds=3, outcome={"selection": "heldout", "best_round": 2})
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        del row["validation_error"], row["test_error"]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Run.read(directory)
    first = run_figures(run)["summary"]().axes[0]
    assert first.get_ylabel() == "loss (nats)"
    (star,) = [label for label in _lines(first) if label.startswith("best round")]
    value = f"surrogate loss, held-out sets {rows[2]['heldout_loss']:.2f} nats"
    assert star == f"best round: 2 ({value}, which chose it)"


def test_a_run_that_labels_has_its_scores_in_its_picture(tmp_path: Path) -> None:
    scored = Run.read(write_label_run(tmp_path / "scored"))
    assert _panels(scored) == [
        " / points labeled rightly (%)",
        "labels that are wrong or missing (%) / share of points, the most confident first (%)",
    ]
    # Of points whose labels nobody knows there is what the server knows of the clients.
    unknown = Run.read(write_label_run(tmp_path / "unknown", scored=False))
    drawn = run_figures(unknown)
    assert draw_svg(drawn["summary"]()) == draw_svg(drawn["priors"]())


def test_clients_with_an_owner_have_its_name(tmp_path: Path) -> None:
    directory = write_label_run(tmp_path)
    federation = json.loads((directory / "federation.json").read_text())
    for client, name in zip(federation["clients"], ("North", "South"), strict=False):
        client["name"] = name
    write_json(directory / "federation.json", federation)
    (axes,) = run_figures(Run.read(directory))["label_clients"]().axes
    labels = {label.get_text() for label in axes.get_xticklabels()}
    assert labels == {"North", "South", "2", "3", "4", "5"}


def test_figures_of_labels_are_the_scores() -> None:
    scores = label_scores(6)
    parsed = LabelScores.model_validate(scores)
    (axes,) = accuracy_figure(parsed).axes
    plain, balanced = ([bar.get_width() for bar in group] for group in axes.containers)
    sources = scores["sources"].values()
    assert plain == [100 - source["error"] for source in sources]
    assert balanced == [source["balanced_accuracy"] for source in sources]
    (axes,) = coverage_figure(parsed).axes
    for line, source in zip(axes.get_lines(), sources, strict=True):
        np.testing.assert_allclose(line.get_xdata(), 100 * np.array(source["coverage"]["share"]))
        np.testing.assert_allclose(line.get_ydata(), source["coverage"]["error"])


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
    axes = confusion_figure([[999, 1], [0, 5]], ["0", "1"], "x").axes[0]
    assert [text.get_text() for text in axes.texts] == ["100", "<1", "100"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]


def test_given_predictions_before_and_after_scaling_then_both_are_there_with_their_ece() -> None:
    found = {"best": measured(3), "unscaled": measured(3, 0.2), "last": measured(3)}
    figure = measure_figures(Run.model_validate({"path": Path(), "measures": found}))[
        "reliability"
    ]()
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
