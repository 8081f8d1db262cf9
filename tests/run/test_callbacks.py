"""Callbacks: what they see, what they add, how they end a run, and what they leave as it was."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedul_flwr as ff
from fedul_flwr.config.run_config import resolve
from fedul_flwr.run.callbacks import Callback, EvaluatedRound
from tests.support.refusals import refuses
from tests.support.runs import cut_off, metrics, train
from tests.support.settings import Settings

RUN: dict[str, Any] = {"method": "supervised", "model": "mlp", "num_rounds": 3, "local_epochs": 1}


class Recall(Callback):
    """Measures on data of its own, and draws from the global generators."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.ended: Mapping[str, Any] = {}

    def begin(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.seen.append(("begin", len(lines)))

    def after_round(self, round: EvaluatedRound) -> None:
        self.seen.append(("round", round.number))
        assert len(round.earlier) == round.number - 1
        assert isinstance(round.metrics["test_error"], float)
        torch.rand(3), np.random.rand(3)  # noqa: NPY002
        assert not round.model.training
        images = torch.zeros(5, 1, 8, 8)
        round.figures["top-class"] = int(round.model(images)[0].argmax())
        weights = round.model.state_dict()
        assert all(np.array_equal(weights[name], array) for name, array in round.arrays.items())

    def recorded(self, lines: Sequence[Mapping[str, Any]]) -> None:
        assert [line["round"] for line in lines] == [*range(1, self.seen[-1][1] + 1)]
        assert "top_class" in lines[-1]

    def end(self, summary: Mapping[str, Any]) -> None:
        self.ended = summary


class Stops(Callback):
    def after_round(self, round: EvaluatedRound) -> None:
        if round.number == 2:
            round.stop("two are enough")


class Fails(Callback):
    def after_round(self, round: EvaluatedRound) -> None:
        raise KeyError(round.number)

    def failed(self) -> None:
        raise KeyError("failed")


class Notes(Callback):
    waits = False

    def __init__(self) -> None:
        self.seen: list[str] = []

    def after_round(self, round: EvaluatedRound) -> None:
        self.seen.append(f"round {round.number}")

    def recorded(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.seen.append(f"line {len(lines)}")

    def end(self, summary: Mapping[str, Any]) -> None:
        self.seen.append(f"end {summary['rounds']}")

    def failed(self) -> None:
        self.seen.append("failed")


class Takes(Callback):
    def after_round(self, round: EvaluatedRound) -> None:
        round.figures["loss"] = 0.0


def test_its_numbers_join_the_line_and_nothing_else_changes(settings: Settings) -> None:
    plain = train(settings(**RUN), 3)
    recall = Recall()
    seen = train(settings(**RUN), 3, callbacks=[recall])
    assert recall.seen == [("begin", 0), ("round", 1), ("round", 2), ("round", 3)]
    assert recall.ended["rounds"] == 3
    lines = metrics(seen)
    assert {line.pop("top_class") for line in lines} <= set(range(10))
    for line, other in zip(lines, metrics(plain), strict=True):
        timed = {key for key in line if key.startswith("seconds")}
        assert {k: v for k, v in line.items() if k not in timed} == {
            k: v for k, v in other.items() if k not in timed
        }


def test_one_that_does_not_wait_sees_lines_alone(settings: Settings) -> None:
    notes = Notes()
    train(settings(**RUN), 3, callbacks=[notes])
    assert notes.seen == ["line 1", "line 2", "line 3", "end 3"]


def test_all_see_that_a_run_has_failed(settings: Settings) -> None:
    notes = Notes()
    with refuses("own-code-failed"):
        train(settings(**RUN), 3, callbacks=[Fails(), notes])
    assert notes.seen == ["failed"]


def test_it_ends_a_run(settings: Settings) -> None:
    assert len(metrics(train(settings(**RUN), 3, callbacks=[Stops()]))) == 2


def test_a_setting_names_it(settings: Settings) -> None:
    named = settings(**RUN, callback=f"{__name__}:Stops")
    assert len(metrics(train(named, 3))) == 2
    with refuses("own-method-wrong", setting="callback"):
        train(settings(**RUN, callback=f"{__name__}:RUN"), 3)


def test_a_run_that_was_cut_off_shows_it_what_was_before(settings: Settings) -> None:
    # Calls: two phases of registration, then one a round.
    cut, recall = cut_off(settings(**RUN), 3, 3), Recall()
    train(resolve({"resume": str(cut)}, Path.cwd()), 3, callbacks=[recall])
    assert recall.seen == [("begin", 1), ("round", 2), ("round", 3)]
    assert ["top_class" in line for line in metrics(cut)] == [False, True, True]


@pytest.mark.parametrize(
    ("kind", "code"), [(Fails, "own-code-failed"), (Takes, "own-method-wrong")]
)
def test_what_is_wrong_in_it_is_one_sentence(
    settings: Settings, kind: type[Callback], code: str
) -> None:
    with refuses(code):
        train(settings(**RUN), 3, callbacks=[kind()])


def test_what_cannot_take_an_object_says_what_to_write(tmp_path: Path) -> None:
    with refuses("argument-without-effect", match="my_module:Mine"):
        ff.simulate("supervised", engine="ray", callbacks=[Stops()], output=tmp_path / "run")
    with refuses("method-mismatch"):
        ff.simulate(
            "xclp-predict",
            engine="in-process",
            callbacks=[Stops()],
            output=tmp_path / "labels",
            clients=3,
            labels={"total": 60},
            xclp={"num_bits": 64},
        )
    result = ff.simulate(
        "supervised", clients=3, rounds=3, callbacks=[Stops()], output=tmp_path / "pool"
    )
    assert list(result.metrics.index) == [1, 2]
