"""Word vectors of the package ``wordllama``: of texts, and first weights by the classes' names."""

import csv
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from experiments.ag_news import write_news
from experiments.recipes import texts
from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.extractors.find import find_extractor
from fedul_flwr.extractors.word_vectors import NAME_LENGTH, WordVectors
from fedul_flwr.run.setup import load_starting_weights
from tests.support.refusals import refuses
from tests.support.runs import summary, train
from tests.support.settings import Settings

pytest.importorskip("wordllama")

NEWS = {
    "World": ["the government and the war", "a minister spoke of peace", "the president's vote"],
    "Sports": ["the team won the match", "a goal in the second half", "the coach and his players"],
    "Business": ["shares fell at the market", "the bank's profit", "oil prices and the economy"],
    "Sci/Tech": ["a new computer chip", "software of the internet", "scientists saw a planet"],
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and "127.0.0.1" not in str(address):
            raise AssertionError(f"a connection to {address}")
        connect(self, address)

    connect = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", refuse)


def stored(*words: str) -> np.ndarray:
    return np.char.encode(np.array(words), "utf-8")


@pytest.fixture
def news(tmp_path: Path) -> Path:
    """A table of made news: sentences of two of a class's texts."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(400):
        name = [*NEWS][number % 4]
        rows.append((". ".join(rng.choice(NEWS[name], 2)) + f" {number}", name))
    for split, part in (("train", rows[:320]), ("test", rows[320:])):
        with (tmp_path / f"{split}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([("text", "label"), *part])
    return tmp_path


def test_a_vector_is_the_mean_of_the_packages_rows_of_length_1() -> None:
    from tokenizers import Tokenizer

    weights, tokenizer = WordVectors().files
    rows = load_file(weights)["embedding.weight"].astype(np.float64)
    texts_ = ["Crêpe and soup", "a " * 300, "x"]
    found = find_extractor("wordllama", "cpu", "auto").compute(stored(*texts_))
    for text, vector in zip(texts_, found, strict=True):
        tokens = Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids
        mean = rows[tokens].mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_a_vector_depends_on_its_text_alone() -> None:
    vectors = WordVectors()
    among = vectors(stored("", "short", "a text of many words, " * 50))
    np.testing.assert_array_equal(among[1], vectors(stored("short"))[0])
    assert not among[0].any()  # a text without a token
    assert find_extractor("wordllama", "cpu", "auto").num_features(()) == 256


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("names", ["sports team", "World"]),
        ("names:news of {}", ["news of sports team", "news of World"]),
        ("names:goal|war", ["goal", "war"]),
    ],
)
def test_first_weights_are_the_vectors_of_names(source: str, named: list[str]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 2))
    assert load_starting_weights(model, source, ["sports_team", "World"], "wordllama") == []
    weight, bias = (array.detach().numpy() for array in model.parameters())
    np.testing.assert_array_equal(weight, NAME_LENGTH * WordVectors().of_texts(named))
    assert not bias.any()


@pytest.mark.parametrize(
    ("flat", "code"),
    [
        ({"features": "wordllama"}, "settings-contradict"),  # of which column?
        ({"features": "wordllama@64", "text-column": "text"}, "setting-not-allowed"),
        ({"features": "wordlama", "text-column": "text"}, "setting-not-allowed"),
        ({"start-from": "names", "model": "linear"}, "settings-contradict"),
    ],
)
def test_settings_that_are_refused(flat: dict[str, Any], code: str) -> None:
    with refuses(code):
        parse_flat(flat)


def test_given_a_package_without_weights_then_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = "fedul_flwr.extractors.word_vectors.find_spec"
    other = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(module, lambda name: other)
    with refuses("file-missing"):
        WordVectors()


@pytest.mark.parametrize("method", ["fedul", "closed-form", "fixmatch"])
def test_names_and_methods_learn_from_texts(settings: Settings, news: Path, method: str) -> None:
    base: dict[str, Any] = {**texts.SETTINGS, "dataset": str(news), "method": method}
    del base["validation-fraction"]
    if method == "fixmatch":
        base |= {"labels.total": 0}
        del base["fedul.num-sets"]
    start = {} if method == "closed-form" else {"start-from": texts.WORDS}
    directory = train(settings(**{**base, **start, "num-rounds": 2}), 3)
    assert summary(directory)["test_error"] < 15  # chance is 75 %
    if start:
        assert summary(directory)["start_test_error"] < 30


def test_the_news_are_split_once(tmp_path: Path) -> None:
    source = tmp_path / "test.csv"
    with source.open("w", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(
            [str(1 + n % 4), f"title {n}", 'a "text", of two\\lines'] for n in range(2500)
        )
    write_news(source, tmp_path / "news")
    rows = {}
    for split in ("train", "test"):
        with (tmp_path / "news" / f"{split}.csv").open(newline="") as stream:
            rows[split] = [*csv.DictReader(stream)]
    assert [len(rows["train"]), len(rows["test"])] == [100, 2400]
    found = {row["text"]: row["label"] for part in rows.values() for row in part}
    assert len(found) == 2500
    assert found['title 6. a "text", of two\\lines'] == "Business"
