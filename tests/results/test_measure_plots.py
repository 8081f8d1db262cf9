"""The confusion matrix and the reliability diagram: what they show, for few classes and many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.results.measure_plots import confusion_figure, measure_figures
from fedul_flwr.results.plots import save_plots
from fedul_flwr.run.measures import measures


def measured(num_classes: int, temperature: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, 30 * num_classes)
    logits = rng.standard_normal((len(labels), num_classes))
    logits[np.arange(len(labels)), labels] += 2
    found = np.exp(logits / temperature)
    return {"round": 4, **measures(found / found.sum(axis=1, keepdims=True), labels)}


def test_given_few_classes_then_cells_have_percent_of_each_classs_points() -> None:
    figure = confusion_figure([[3, 1], [200, 0], [0, 0]], ["a", "b", "c"], "x")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["75", "25", "100"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert "no points of that class" in axes.get_xlabel()


def test_given_points_without_a_label_then_they_have_a_column() -> None:
    axes = confusion_figure([[3, 0, 1], [0, 4, 0]], ["a", "b"], "x").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "none"]
    assert axes.get_xlabel() == "named"


def test_given_a_rare_confusion_then_it_is_not_written_as_nothing() -> None:
    axes = confusion_figure([[999, 1], [0, 5]], None, "x").axes[0]
    assert [text.get_text() for text in axes.texts] == ["100", "<1", "100"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]


@pytest.mark.parametrize("num_classes", [2, 41])
def test_given_any_number_of_classes_then_both_figures_are_drawn(
    num_classes: int, tmp_path: Path
) -> None:
    names = [f"$class\n{k} with a long name" for k in range(num_classes)]
    figures = measure_figures({"best": measured(num_classes)}, names)
    assert list(figures) == ["confusion", "reliability"]
    for path in save_plots(figures, tmp_path):
        assert path.read_bytes().startswith(b"\x89PNG")
    named = len(figures["confusion"].axes[0].get_yticks())
    assert named == num_classes if num_classes <= 40 else named <= 14
    assert bool(figures["confusion"].axes[0].texts) == (num_classes <= 20)
    assert max(figures["confusion"].get_size_inches()) <= 8.6


def test_given_predictions_before_and_after_scaling_then_the_diagram_has_both_with_their_ece() -> (
    None
):
    found = {"best": measured(3), "unscaled": measured(3, 0.2), "last": measured(3)}
    figure = measure_figures(found, None)["reliability"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "accuracy = confidence",
        f"best round: ECE {found['best']['ece']:.2f} %",
        f"before temperature scaling: ECE {found['unscaled']['ece']:.2f} %",
    ]
    # A point for each bin with points, at its mean confidence and its accuracy.
    bins = found["best"]["reliability"]
    x, y = figure.axes[0].get_lines()[1].get_data()
    assert list(x) == [value for value in bins["confidence"] if value is not None]
    assert list(y) == [value for value in bins["accuracy"] if value is not None]
