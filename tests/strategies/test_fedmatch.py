"""FedMatch as a whole: what is saved, bases, resumed runs; an example has a plain twin of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedul_flwr.config.run_config import resolve
from fedul_flwr.federated.strategy import validate
from fedul_flwr.learning.parts import PSI, SIGMA, flatten
from fedul_flwr.run.evaluation import Recorder
from tests.support.fedmatch_exchanges import (
    LC,
    LS,
    TINY,
    Exchange,
    assert_in_step,
    parts_after,
    watched,
)
from tests.support.refusals import refuses
from tests.support.runs import Cut, last_model, metrics, summary, train
from tests.support.settings import Settings

CLIENTS = 4


def assert_same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        np.testing.assert_array_equal(array, other[name])


# What is saved


@pytest.mark.parametrize("used", ["both", "sigma"])
def test_the_model_is_the_sum_without_small_values_of_psi(settings: Settings, used: str) -> None:
    cutoff = {"fedmatch.psi-cutoff": 0.02, "fedmatch.evaluate-with": used}
    directory = train(settings(**LC, **cutoff, selection="last"), 3)
    parts = parts_after(directory, 3)
    small = 0
    for name, array in load_file(directory / "model.safetensors").items():
        psi = np.where(np.abs(parts[PSI][name]) < 0.02, np.float32(0), parts[PSI][name])
        small += int((psi == 0).sum())
        sigma = parts[SIGMA][name]
        expected = {"both": sigma + psi, "sigma": sigma}[used]
        np.testing.assert_array_equal(array, expected)
        np.testing.assert_array_equal(array, last_model(directory)[name])
    assert small > 100
    # What is evaluated changes nothing that is trained.
    plain = parts_after(train(settings(**LC), 3), 3)
    assert_same_bits(flatten(parts), flatten(plain))


def test_it_starts_from_the_model_that_is_asked_for(settings: Settings) -> None:
    """Its first parts add up to it."""
    first = train(settings(**LC), 3)
    start = last_model(first)
    exchanges: list[Exchange] = []
    plan = {**LC, "num_rounds": 1}
    train(settings(**plan, start_from=str(first / "last.safetensors")), 3, **watched(exchanges))
    for name, array in start.items():
        sigma, psi = (exchanges[0].down[part][name] for part in (SIGMA, PSI))
        np.testing.assert_allclose(sigma + psi, array, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(psi, 0.2 * sigma, rtol=1e-6)


# Bases


@pytest.mark.parametrize(("momentum", "limit"), [(0.0, 0.1), (0.5, 0.15)])
def test_steps_that_overshoot_sigma_are_refused(
    settings: Settings, momentum: float, limit: float
) -> None:
    """λ_L2 = 10: with a step of 0.1 psi lands as far behind sigma as it was before it."""

    def check(rate: float, **options: Any) -> None:
        validate(settings(**{**LC, "learning_rate": rate, "momentum": momentum, **options}))

    with refuses("setting-out-of-range", setting="learning-rate", match=f"{limit}.$"):
        check(limit)
    check(0.99 * limit)
    check(limit, optimizer="adam", momentum=0.0)
    check(limit, **{"fedmatch.l2-weight": 0.0})
    check(9.0, **{"fedmatch.decomposition": False})
    # What follows from the size of the data is not known yet.
    validate(settings(**{**LC, "learning_rate": "auto", "momentum": momentum}))


# Resumed runs and the same numbers twice


RESUMED = {
    "at clients": {**LC, "fedmatch.keep-helpers": True, "fraction_train": 0.75},
    "at server": LS,
    "batch norm": {**LC, "model": TINY, "base": "fedadam"},
}


@pytest.mark.parametrize(
    ("options", "place"),
    [*zip(RESUMED.values(), ["among clients", "after them", "among clients"], strict=True)],
    ids=RESUMED,
)
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], place: str
) -> None:
    """Cut off inside round 4: some clients, or all and the server, have moved on."""
    plan = {**options, "num_rounds": 5}
    whole = train(settings(**plan), CLIENTS)
    config = settings(**plan)
    begun: list[int] = []

    def fate(number: int, _: int) -> str:
        begun.append(number)
        if place == "among clients" and begun.count(4) == 3:
            raise Cut
        return "answers"

    record = Recorder.record

    def keep(self: Recorder, line: Any, *others: Any) -> None:
        if line["round"] == 4:
            raise Cut
        record(self, line, *others)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "record", keep)
        with pytest.raises(Cut):
            train(config, CLIENTS, **watched([], fate=fate))
    directory = Path(config.output)
    assert [line["round"] for line in metrics(directory)] == [1, 2, 3]
    train(resolve({"resume": str(directory)}, Path.cwd()), CLIENTS)
    assert metrics(directory) == metrics(whole)
    assert_same_bits(last_model(directory), last_model(whole))
    assert_in_step(directory, 5)
    keys = [key for key in summary(whole) if not key.startswith("seconds")]
    assert {k: summary(directory)[k] for k in keys} == {k: summary(whole)[k] for k in keys}
