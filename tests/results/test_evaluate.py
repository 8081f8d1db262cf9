"""The page about a model on an owner's labeled points: figures by hand, groups, refusals."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fedul_flwr as ff
from fedul_flwr.cli.main import app
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.results import evaluate as module
from fedul_flwr.results.evaluate import (
    area_in_words,
    at_threshold,
    calibrated,
    groups,
    net_benefit,
    share,
    threshold_for,
)
from fedul_flwr.results.predict import Predictor
from tests.support.refusals import refuses

# Of four ill points three are above 0.5, of four others one. Pairs in order: 0.9 beats 4, 0.8 beats
# 4, 0.6 beats 3, 0.2 beats 2: 13 of 16.
SCORES = np.array([0.9, 0.8, 0.6, 0.2, 0.7, 0.4, 0.1, 0.05])
ILL = np.array([True] * 4 + [False] * 4)


class Says(nn.Module):
    """Takes its first input as the probability of the first class."""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return torch.stack([points[:, 0].log(), (1 - points[:, 0]).log()], dim=1)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model of column ``p`` for classes ill and sound."""
    table = TableOptions(label="outcome", columns=Columns((Column("p"),)), trained=True)
    predictor = Predictor(Says(), (1,), ("ill", "sound"), table=table)
    monkeypatch.setattr(module, "load_model", lambda *_, **__: predictor)
    (tmp_path / "model.zip").touch()
    return tmp_path / "model.zip"


def write(file: Path, **columns: Any) -> Path:
    cells = {"p": SCORES, "outcome": np.where(ILL, "ill", "sound"), **columns}
    pd.DataFrame(cells).to_csv(file, index=False)
    return file


def test_given_few_points_then_shares_and_area_are_those_by_hand() -> None:
    # Wilson for 3 of 4: (0.75 + z²/8 ± z √(0.75·0.25/4 + z²/64)) / (1 + z²/4), z = 1.96.
    assert share(3, 4) == "75.0 % (30.1 to 95.4; 3 of 4)"
    assert share(0, 0) == "–"
    assert at_threshold(SCORES, ILL, 0.5) == dict.fromkeys(
        [
            *("sensitivity", "specificity"),
            *("positive predictive value", "negative predictive value"),
        ],
        share(3, 4),
    )
    assert at_threshold(SCORES, ILL, 0.6)["sensitivity"] == share(3, 4)  # from 0.6 on
    assert area_in_words(SCORES, ILL) == "0.812 (no interval)"
    # Acting from 0.25 on: 3 right and 2 wrong of 8, and a wrong one costs a third of a right one.
    assert net_benefit(SCORES, ILL, 0.25) == pytest.approx(3 / 8 - 2 / 8 / 3)


def test_given_a_wanted_sensitivity_then_the_threshold_is_the_highest_that_has_it() -> None:
    assert [threshold_for(SCORES, ILL, wanted) for wanted in (0.25, 0.5, 0.51, 0.75, 0.95)] == [
        *(0.9, 0.8, 0.6, 0.6, 0.2)
    ]
    # It is written with four digits, and rounded down: no point is lost to that.
    assert threshold_for(np.array([0.123456, 0.1]), np.array([True, False]), 1.0) == 0.1234


def test_given_many_points_then_the_interval_is_delongs() -> None:
    rng = np.random.default_rng(3)
    ill = rng.random(600) < 0.3
    scores = 1 / (1 + np.exp(-rng.normal(ill * 1.2, 1)))
    # DeLong et al. 1988: variances of each point's share of pairs in order.
    wins = (scores[ill][:, None] > scores[~ill]).astype(float)
    variance = wins.mean(1).var(ddof=1) / ill.sum() + wins.mean(0).var(ddof=1) / (~ill).sum()
    parts = [part.strip("()") for part in area_in_words(scores, ill).split() if part != "to"]
    area, low, high = map(float, parts)
    assert area == pytest.approx(wins.mean(), abs=5e-4)
    assert low == pytest.approx(wins.mean() - 1.96 * math.sqrt(variance), abs=0.01)
    assert high == pytest.approx(wins.mean() + 1.96 * math.sqrt(variance), abs=0.01)


def test_an_area_of_1_has_an_exact_interval_and_one_of_few_points_none() -> None:
    apart = np.array([0.9] * 10 + [0.1] * 30)
    # Ten pairs without a common point, all in order: the least p with p^10 >= 0.025 is 0.6915.
    assert pytest.approx(0.6915, abs=5e-5) == 0.025 ** (1 / 10)
    assert area_in_words(apart, apart > 0.5) == "1.000 (0.692 to 1.000)"
    # All in the other order: the largest p with (1 - p)^10 >= 0.025 is 0.3085.
    assert area_in_words(1 - apart, apart > 0.5) == "0.000 (0.000 to 0.308)"
    assert area_in_words(apart[1:], apart[1:] > 0.5) == "1.000 (no interval)"
    assert area_in_words(apart[:19], apart[:19] > 0.5) == "1.000 (no interval)"
    # One pair of 300 is in the other order: resamples differ.
    apart[0], apart[-1] = 0.4, 0.5
    assert area_in_words(apart, np.arange(40) < 10).startswith("0.997 (0.9")


def test_given_probabilities_off_by_a_line_in_logits_then_recalibration_finds_it() -> None:
    rng = np.random.default_rng(1)
    odds = rng.normal(0, 2, 40_000)
    ill = rng.random(40_000) < 1 / (1 + np.exp(-(0.5 + 0.7 * odds)))
    rows, fitted = calibrated(1 / (1 + np.exp(-odds)), ill)
    assert fitted is not None
    assert [float(text) for text in fitted] == pytest.approx([0.5, 0.7], abs=0.05)
    values = {key: float(text) for key, text in rows.items()}
    assert values["Brier score after recalibration"] < values["Brier score"]
    # All told apart, or all alike: no line can be fitted.
    assert calibrated(np.array([0.9, 0.8, 0.1]), np.array([True, True, False]))[1] is None
    assert calibrated(np.full(4, 0.5), np.array([True, False] * 2))[1] is None


def test_given_columns_then_groups_are_values_or_quarters_and_their_counts_add_up() -> None:
    sex = pd.Series(["f", "m", "f", None, "m", "m", "f", "f"], name="sex")
    rows = list(groups(sex, SCORES, ILL, 0.5))
    assert [(row["group"], row["points"], row["of the class"]) for row in rows] == [
        ("sex: f", "4", "2"),
        ("sex: m", "3", "1"),
        ("sex: no value", "1", "1"),
    ]
    assert rows[0]["sensitivity"] == share(2, 2)
    assert rows[1]["AUC"] == "1.000 (no interval)"  # one ill point
    assert rows[2]["AUC"] == "–"
    ages = pd.Series(np.arange(40) + 20.0, name="age")
    quarters = list(groups(ages, np.tile(SCORES, 5), np.tile(ILL, 5), 0.5))
    assert [row["points"] for row in quarters] == ["10"] * 4
    with refuses("column-of-identifiers"):
        list(groups(pd.Series([f"w{n}" for n in range(50)], name="w"), *[np.ones(50)] * 2, 0.5))


def test_given_one_file_then_the_page_has_it_all_and_no_point(model: Path, tmp_path: Path) -> None:
    labels = tmp_path / "y.csv"
    text = "patient;p;outcome;age\n" + "".join(
        f"secret-{n};{str(p).replace('.', ',')};{'ill' if ill else 'sound'};{50 + n},5\n"
        for n, (p, ill) in enumerate(zip(SCORES, ILL, strict=True))
    )
    labels.write_text(text + "secret-9;0,3;;40,5\n")  # without a label
    lines = module.evaluate(model, labels, None, tmp_path / "e.html", by=["age"], positive="ill")
    assert lines[0].startswith("Class ill: 50.0 % (21.5 to 78.5; 4 of 8); AUC 0.812 (no interval)")
    page = (tmp_path / "e.html").read_text()
    assert "8; left out: 1 without a label, and 0 labels without a point" in page
    assert "age: 50.5" in page.replace("<wbr>", "")  # few numbers are values of their own
    assert "secret" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_given_points_apart_then_names_join_them(model: Path, tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(8)
    write(tmp_path / "points.csv", patient=[f"id{n}" for n in range(8)])
    y = pd.DataFrame(
        {"patient": [f"id{n}" for n in order], "outcome": np.where(ILL, "ill", "sound")[order]}
    )
    y.replace(y.patient[0], "id99").to_csv(tmp_path / "y.csv", index=False)
    how = {"id_column": "patient", "positive": "ill"}
    files = (tmp_path / "y.csv", tmp_path / "points.csv", tmp_path / "e.html")
    module.evaluate(model, *files, **how)
    assert (
        "7; left out: 1 without a label, and 1 labels without a point"
        in (tmp_path / "e.html").read_text()
    )
    y.to_csv(tmp_path / "y.csv", index=False)
    assert "AUC 0.812" in module.evaluate(model, *files, **how)[0]
    pd.concat([y, y]).to_csv(tmp_path / "y.csv", index=False)
    with refuses("name-twice"):
        module.evaluate(model, *files, **how)


def test_given_no_class_then_it_is_the_rarest_one(model: Path, tmp_path: Path) -> None:
    labels = write(tmp_path / "y.csv", outcome=["ill"] * 6 + ["sound"] * 2)
    assert module.evaluate(model, labels, None, tmp_path / "e.html")[0].startswith(
        "Class sound: 25"
    )
    how = {"positive": "ill", "sensitivity": 1.0}
    said = module.evaluate(model, labels, None, tmp_path / "e.html", **how)
    assert said[1].startswith("At threshold 0.1999")  # a model computes with 24 bits
    assert "The threshold was chosen on this file" in (tmp_path / "e.html").read_text()


@pytest.mark.parametrize(
    ("columns", "options", "code"),
    [
        ({"outcome": ["ill"] * 8}, {}, "labels-missing"),
        ({"outcome": [None] * 8}, {}, "labels-missing"),
        ({"outcome": ["ill"] * 7 + ["dead"]}, {}, "label-unknown"),
        ({}, {"by": ["ward"]}, "column-missing"),
        ({}, {"label_column": "death"}, "column-missing"),
        ({}, {"positive": "dead"}, "unknown-name"),
        ({}, {"threshold": 0.3, "sensitivity": 0.9}, "options-contradict"),
        ({}, {"sensitivity": 0.0}, "argument-not-allowed"),
    ],
)
def test_what_is_refused(
    model: Path, tmp_path: Path, columns: Mapping[str, Any], options: Any, code: str
) -> None:
    labels = write(tmp_path / "y.csv", **columns)
    with refuses(code):
        module.evaluate(model, labels, None, tmp_path / "e.html", **options)
    assert not (tmp_path / "e.html").exists()


def test_from_training_to_a_page_and_to_predictions_at_a_threshold(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ill = rng.random(200) < 0.3
    frame = pd.DataFrame(
        {"age": rng.normal(60 + 8 * ill, 8).round(), "sex": rng.choice(["f", "m"], 200)}
    ).assign(label=np.where(ill, "ill", "sound"))
    ff.simulate(
        *("supervised", frame),
        **{"clients": 2, "rounds": 3, "model": "linear", "output": tmp_path / "run"},
        engine="in-process",
    )
    frame.to_csv(tmp_path / "y.csv", index=False)

    def said(*words: object) -> str:
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 0, done.output
        return done.output

    said("pack", tmp_path / "run", "-o", tmp_path / "model.zip")
    page = tmp_path / "page.html"
    words = ("--model", tmp_path / "model.zip", "--labels", tmp_path / "y.csv", "--by", "sex,age")
    out = said("evaluate", *words, "--sensitivity", "0.95", "-o", page)
    assert "Class ill: " in out
    text = page.read_text()
    for part in ("sex: f", "age: (", "Calibration", "Thresholds", "decision curve"):
        assert part in text
    at = float(text.split("--threshold ")[1].split("<")[0])
    words = ("--model", tmp_path / "model.zip", "--input", tmp_path / "y.csv")
    said("predict", *words, "--positive", "ill", "--threshold", at, "-o", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert (row["class"] == "ill") == (float(row["p_ill"]) >= at - 1e-6)
    found = sum(row["class"] == "ill" for row, is_ill in zip(rows, ill, strict=True) if is_ill)
    assert found >= 0.95 * ill.sum()
    done = CliRunner().invoke(app, ["predict", *map(str, words), "--threshold", "0.3"])
    assert done.exit_code == 1
    assert "[option-missing]" in done.stderr
