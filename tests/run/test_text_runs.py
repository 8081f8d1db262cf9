"""Texts as points, which a user's extractor turns into vectors: runs, tables, predictions."""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer

from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.data.local_data import load_unlabeled_sets
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.tables import MAX_BYTES, TableOptions
from fedul_flwr.results.predict import load_model, predict
from tests.support.deploy_checks import WHERE, ready
from tests.support.points import load_points
from tests.support.refusals import refuses
from tests.support.runs import metrics, summary, train
from tests.support.settings import Settings

WORDS = {
    "sport": ["goal", "match", "cup", "team", "Äquator-Lauf"],
    "money": ["bank", "loan", "price", "€ rate", "stock"],
    "food": ["soup", "bread", "crêpe", "salt", "apple"],
}
NAMES = sorted(WORDS)
TEXTS: dict[str, Any] = {
    **{"text_column": "review", "features": "somebodys:hashed", "model": "linear"},
    **{"optimizer": "adam", "learning_rate": 0.05, "local_epochs": 2, "num_rounds": 4},
}


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that the extractor got so far: scikit-learn's hashing of words, without any state."""
    texts: list[str] = []
    vectorizer = HashingVectorizer(n_features=64, norm="l2")

    def hashed(points: NDArray[np.str_]) -> NDArray[np.float64]:
        texts.extend(map(str, points))
        found: NDArray[np.float64] = vectorizer.transform(points).toarray()
        return found

    module = ModuleType("somebodys")
    module.hashed = hashed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somebodys", module)
    return texts


def reviews(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts of three to eight words of one class, with commas and line breaks, and the class."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        name = NAMES[number % 3]
        words = rng.choice(WORDS[name], rng.integers(3, 9))
        found.append((",\n".join(words), name))
    return found


def write(file: Path, rows: Sequence[tuple[str, ...]], header: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for split, count, seed in (("train", 300, 0), ("test", 60, 1)):
        rows = [(str(n), text, name) for n, (text, name) in enumerate(reviews(count, seed))]
        write(tmp_path / "data" / f"{split}.csv", rows, ["id", "review", "label"])
    return tmp_path / "data"


@pytest.mark.parametrize(
    "method",
    [
        {"method": "fedul", "fedul.num-sets": 3},
        {"method": "fedmatch", "labels.total": 60},
        {"method": "xclp", "labels.total": 60, "xclp.num-bits": 64, "semi.labels-only-rounds": 2},
    ],
)
def test_given_texts_then_a_method_learns_from_their_features(
    settings: Settings, data: Path, method: dict[str, Any], seen: list[str]
) -> None:
    directory = train(settings(dataset=str(data), **{**TEXTS, **method}), 3)
    assert metrics(directory)[-1]["test_error"] < 20  # chance is 67 %
    assert sorted({text for text in seen if text})[0].startswith(("Äq", "apple", "bank"))
    found = json.loads((directory / "config.json").read_text())["data"]
    assert found["input_shape"] == []
    assert found["class_names"] == NAMES


def test_the_model_labels_texts(settings: Settings, data: Path, tmp_path: Path) -> None:
    directory = train(settings(dataset=str(data), method="supervised", **TEXTS), 3)
    file = tmp_path / "new.csv"
    fresh = reviews(30, 2)
    write(file, [("x", text) for text, _ in fresh], ["note", "review"])
    with predict(directory, file, tmp_path / "out.csv").open() as stream:
        found = [row["class"] for row in csv.DictReader(stream)]
    assert np.mean([a == name for a, (_, name) in zip(found, fresh, strict=True)]) > 0.8
    source = load_source(str(data), table=TableOptions(text="review"))
    labels = load_model(directory).predict(np.asarray(source.test.inputs))
    error = 100 * np.mean(labels != source.test.labels)
    assert error == pytest.approx(summary(directory)["test_error"])
    with refuses("points-shape"):
        load_model(directory).predict(np.zeros((2, 3), dtype=np.float32))


def test_an_owner_of_sets_can_check_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = reviews(30, 0)
    write(tmp_path / "ward" / "one.csv", [(text,) for text, _ in rows[:10]], ["review"])
    write(tmp_path / "ward" / "two.csv", [(text * 3,) for text, _ in rows[10:]], ["review"])
    (tmp_path / "ward" / "priors.csv").write_text("set,food,money\none,0.7,0.3\ntwo,0.2,0.8\n")
    described = {"dataset": "none", "class-names": "food,money", "input-shape": ""}
    base = {"text-column": "review", "features": "somebodys:hashed", "model": "linear"}
    read = load_unlabeled_sets(
        tmp_path / "ward", ["food", "money"], 2, (), table=TableOptions(text="review")
    )
    # The second set's texts are the longest.
    wanted = sorted([text for text, _ in rows[:10]] + [text * 3 for text, _ in rows[10:]])
    assert sorted(cell.decode() for cell in read.inputs) == wanted
    allowed = f'{WHERE} allow-methods="fedul,somebodys:hashed"'
    told = ready("fedul", allowed, **base, **described)
    assert "30 points in 2 sets, 2 classes" in told


@pytest.mark.parametrize(
    ("rows", "options", "code"),
    [
        ([("1", "a")], TableOptions(text="none"), "column-missing"),
        ([("1", ""), ("2", "NA")], TableOptions(text="review"), "text-wrong"),
        ([("1", "a" * (MAX_BYTES + 1))], TableOptions(text="review"), "text-wrong"),
    ],
)
def test_columns_that_are_refused(
    tmp_path: Path, rows: list[tuple[str, str]], options: TableOptions, code: str
) -> None:
    write(tmp_path / "texts.csv", rows, ["id", "review"])
    with refuses(code):
        load_points(tmp_path / "texts.csv", (), options)


@pytest.mark.parametrize("features", ["", "efficientnet-lite0", "torchvision:resnet18", "run:a"])
def test_texts_need_an_extractor_of_texts(features: str) -> None:
    assert parse_flat({}).text_column == ""
    with refuses("settings-contradict", match="text-column.*package"):
        parse_flat({"text-column": "review", "features": features})
