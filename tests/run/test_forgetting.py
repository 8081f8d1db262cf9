"""Errors on the labeled training points: whose they are, and where nobody knows them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.local import load_arrays
from fedul_flwr.models import build_model
from fedul_flwr.results.plots import error_figure
from tests.support.refusals import refuses
from tests.support.runs import last_model, metrics, train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 3, "local_epochs": 1, "precision": "float32"},
    "measure_forgetting": True,
}
SOURCE = load_source("digits")


def percent_wrong(directory: Path, points: Any) -> float:
    """Of rows of the training data, by the run's last model."""
    model = build_model("mlp", SOURCE.input_shape, 10)
    load_arrays(model, last_model(directory))
    inputs = to_input(torch.from_numpy(np.asarray(SOURCE.train.inputs)[points]))
    with torch.no_grad():
        guess = model(inputs).argmax(dim=1).numpy()
    return 100 * float(np.mean(guess != np.asarray(SOURCE.train.labels)[points]))


def test_of_labels_at_clients(settings: Settings) -> None:
    options = {"method": "pseudo-label", "labels.total": 40, "semi.labels-only-rounds": 1}
    directory = train(settings(**QUICK, **options, evaluate_every=2), 2)
    with np.load(directory / "split.npz") as split:
        given = split["points"][split["labels"] != -1]
    assert len(given) == 40
    lines = metrics(directory)
    assert [line["labeled_error"] is None for line in lines] == [True, False, False]
    assert lines[-1]["labeled_error"] == pytest.approx(percent_wrong(directory, given))
    assert lines[-1]["labeled_error"] != lines[-1]["test_error"]
    (axes,) = error_figure([Run.read(directory)]).axes
    (curve,) = [c for c in axes.get_lines() if "labeled training points" in str(c.get_label())]
    assert curve.get_linestyle() != "-"


@pytest.mark.parametrize("method", ["server-only", "fedul-finetune"])
def test_of_labels_at_the_server(settings: Settings, method: str) -> None:
    config = settings(**QUICK, method=method, server_fraction=0.1)
    directory = train(config, 2)
    rows = build_split(source_directory("digits"), 2, config).server
    assert metrics(directory)[-1]["labeled_error"] == pytest.approx(percent_wrong(directory, rows))


@pytest.mark.parametrize("method", ["fedul", "supervised"])
def test_nobody_knows(settings: Settings, method: str) -> None:
    with refuses("setting-needs-labels", setting="measure-forgetting"):
        train(settings(**QUICK, method=method), 2)
