"""Every method end to end in process, and that its settings do what they say."""

import json
from typing import Any

import pytest

from tests.support.runs import metrics, same, train
from tests.support.settings import Settings

SHORT: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 200}
}


@pytest.mark.parametrize("method", ["fedpl", "fedllp"])
def test_one_set_is_enough_where_nothing_is_inverted(settings: Settings, method: str) -> None:
    directory = train(settings(**SHORT, method=method, **{"fedul.num-sets": 1}), 2)
    clients = json.loads((directory / "federation.json").read_text())["clients"]
    assert [client["status"] for client in clients] == ["accepted"] * 2
    assert metrics(directory)[-1]["loss"] > 0


def test_vat_of_weight_zero_is_fedllp(settings: Settings) -> None:
    plain = train(settings(**SHORT, method="fedllp"), 2)
    zero = {"fedllp-vat.alpha": 0.0}
    assert same(plain, train(settings(**SHORT, method="fedllp-vat", **zero), 2))
    some = {"fedllp-vat.alpha": 10.0}
    directory = train(settings(**SHORT, method="fedllp-vat", **some), 2)
    assert not same(plain, directory)
    # Every setting counts.
    for key, value in (("radius", 1.0), ("recipe", "release")):
        other = {**some, f"fedllp-vat.{key}": value}
        assert not same(directory, train(settings(**SHORT, method="fedllp-vat", **other), 2)), key


def test_a_step_of_fedllp_is_a_set(settings: Settings) -> None:
    for batch_size in (16, 0):
        config = settings(**SHORT, method="fedllp", batch_size=batch_size, **{"fedul.num-sets": 13})
        assert [line["steps"] for line in metrics(train(config, 2))] == [13, 13]


def test_consistency_of_weight_zero_is_fedul(settings: Settings) -> None:
    # Rotation too: what is drawn for batches must not depend on what views draw.
    short = {**SHORT, "augment": "rotate"}
    plain = train(settings(**short, method="fedul"), 2)
    zero = {"fedul-consistency.weight": 0.0}
    nothing = train(settings(**short, method="fedul-consistency", **zero), 2)
    assert same(plain, nothing)
    assert metrics(plain) == metrics(nothing)
    # Nor is there a difference where no target is sure enough: strong views alone change nothing.
    sure = {"fedul-consistency.threshold": 0.999999999}
    masked = train(settings(**short, method="fedul-consistency", **sure), 2)
    assert metrics(masked)[-1]["confident_share"] == 0
    assert same(plain, masked)


def test_consistency_reports_its_parts(settings: Settings) -> None:
    options = {"fedul-consistency.threshold": 0.3, "fedul-consistency.ramp-up-rounds": 0}
    directory = train(settings(**SHORT, method="fedul-consistency", **options), 3)
    line = metrics(directory)[-1]
    assert 0 < line["confident_share"] < 1
    assert line["consistency_loss"] > 0
    assert 1 < line["surrogate_loss"] < 3  # of 10 sets: log 10 = 2.3 at most, but for overfitting
    # Settings count.
    for key, value in (("threshold", 0.4), ("weight", 2.0), ("ramp-up-rounds", 3)):
        more = {**options, f"fedul-consistency.{key}": value}
        assert not same(
            directory, train(settings(**SHORT, method="fedul-consistency", **more), 3)
        ), key


FEDPL: dict[str, Any] = {
    **{"method": "fedpl", "num_rounds": 3, "points_per_client": 0},
    **{"fedpl.warm-up-rounds": 2, "fedpl.threshold": 0.6},
}


def test_fedpl_warms_up_on_the_likeliest_classes(settings: Settings) -> None:
    plain = train(settings(**{**SHORT, **FEDPL, "fedpl.warm-up-rounds": 3}), 2)
    others: list[dict[str, Any]] = [{}, {"fedpl.threshold": 0.7}, {"fedpl.relabel": True}]
    runs = [train(settings(**{**SHORT, **FEDPL, **other}), 2) for other in others]
    for run in runs:  # the first two rounds are the same, the third is not
        assert metrics(run)[:2] == metrics(plain)[:2]
        assert metrics(run)[2]["loss"] != metrics(plain)[2]["loss"]
    for i, run in enumerate(runs):
        assert not any(same(run, other) for other in runs[:i])
