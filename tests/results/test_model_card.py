"""The card beside a trained model: what is in it, and what is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.results.model_file import model_card
from fedul_flwr.results.report import report
from tests.support.runs import summary, train

QUICK = {"model": "mlp", "num_rounds": 1, "local_epochs": 1}


@pytest.fixture
def run(settings: Callable[..., Any]) -> Path:
    return train(settings(**QUICK, seed=4), 2)


def test_given_a_finished_run_then_its_card_says_what_the_model_is(run: Path) -> None:
    card = (run / "model-card.md").read_text()
    assert card == model_card(Run.read(run))
    found = summary(run)
    points = found["measures"]["best"]["points"]
    assert card.startswith("# Model card: fedul on digits\n")
    for line in (
        "| architecture | mlp |",
        "| input | uint8 images, height x width x channels: 8 x 8 x 1 |",
        "| 10 classes | 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 |",
        f"| class priors that it is for | {', '.join(['0.1'] * 10)} (uniform) |",
        f"| paper | {METHODS['fedul'].paper} |",
        "| clients | 2 |",
        "| `num-rounds` | 1 |",
        "| `seed` | 4 |",
        f"On {points} test points, in one run with seed 4:",
        f"| error (%) | {found['test_error']:.2f} ± ",
    ):
        assert line in card, line


def test_given_an_error_then_its_interval_is_that_of_the_binomial(run: Path) -> None:
    found = summary(run)
    found["test_error"], found["measures"]["best"]["points"] = 20.0, 100
    (run / "summary.json").write_text(json.dumps(found))
    # 1.96 * sqrt(0.2 * 0.8 / 100) = 1.96 * 0.04 = 0.0784
    assert "| error (%) | 20.00 ± 7.84 " in model_card(Run.read(run))


def test_given_paths_and_odd_names_then_the_card_has_no_folder_and_stays_a_table(run: Path) -> None:
    content = json.loads((run / "config.json").read_text())
    content["settings"] |= {"dataset": "/home/ann/secret/ward", "client-data": "/home/ann/clients"}
    content["data"]["class_names"][0] = "a|b\nc"
    (run / "config.json").write_text(json.dumps(content))
    found = summary(run) | {"dataset": "/home/ann/secret/ward"}
    (run / "summary.json").write_text(json.dumps(found))
    card = model_card(Run.read(run))
    assert "/home" not in card
    assert "secret" not in card
    assert str(run) not in card
    assert "| data set | ward |" in card
    assert "| `client-data` | clients |" in card
    assert "| 10 classes | a\\|b c, 1, " in card


@pytest.mark.usefixtures("undrawn")
def test_given_files_of_points_and_labels_then_neither_page_opens_them(run: Path) -> None:
    for name in ("clients/0/labels.csv", "split.npz"):
        file = run / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.mkdir()  # what opens it fails
    page = report([run]).read_text()
    assert "Confusion matrix" in page
    assert "Model card" in model_card(Run.read(run))
