"""Settings that follow from the size of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedul_flwr.config.auto_settings import (
    DataSize,
    auto_values,
    unresolved,
    with_auto_values,
)
from fedul_flwr.config.base import AUTO
from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.models import build_model

DIGITS = DataSize((8, 8, 1), 115)
"""1,438 points, a fifth of them for validation, ten clients."""
TODAY = {
    "model": "cnn-small",
    "batch-size": 16,
    "local-epochs": 2,
    "learning-rate": 3e-3,
    "learning-rate-schedule": "constant",
    "augment": "none",
}


def values(size: DataSize) -> dict[str, Any]:
    return {key: choice.value for key, choice in auto_values(size).items()}


def test_given_the_digits_then_the_values_are_those_that_were_tuned_on_them() -> None:
    assert values(DIGITS) == TODAY
    for clients in (1, 2, 10, 100):
        assert values(replace(DIGITS, points=1150 / clients)) == TODAY


@pytest.mark.parametrize(
    ("points", "batch", "epochs"),
    [
        (None, 16, 2),  # unknown
        (47, 16, 20),  # 2 steps an epoch, 40 in all
        (48, 16, 14),  # 3 steps an epoch: 42
        (79, 16, 10),  # 4 steps an epoch, 40 in all
        (115, 16, 6),  # 7 steps an epoch: 42
        (319, 16, 3),  # 19 steps an epoch: two epochs have 38
        (4800, 16, 2),  # 2 * 4800 / 16 = 600 steps, the most
        (4801, 16, 1),
        (9601, 32, 1),
        (40_000, 128, 1),  # 40,000 / 64 = 625 steps
    ],
)
def test_given_a_number_of_points_then_a_round_has_40_to_600_steps_if_twenty_epochs_do(
    points: float | None, batch: int, epochs: int
) -> None:
    found = values(DataSize((28, 28, 1), points))
    assert (found["batch-size"], found["local-epochs"]) == (batch, epochs)


@pytest.mark.parametrize(
    ("shape", "model", "augment"),
    [
        ((30,), "mlp", "none"),
        ((15, 40, 1), "cnn-small", "none"),
        ((15, 15, 3), "cnn-small", "flip"),
        ((16, 16, 1), "cnn6-quarter", "affine"),
        ((32, 16, 3), "cnn6-quarter", "flip"),
        ((33, 16, 1), "cnn2", "affine"),
        ((224, 300, 3), "cnn2", "flip"),
    ],
)
def test_the_shape_chooses_a_model_that_takes_it(
    shape: tuple[int, ...], model: str, augment: str
) -> None:
    found = values(replace(DIGITS, shape=shape))
    assert (found["model"], found["augment"]) == (model, augment)
    build_model(model, shape, 2)


def test_the_step_size_follows_from_the_model_and_its_schedule_from_the_shape() -> None:
    assert values(replace(DIGITS, shape=(32, 32, 3)))["learning-rate"] == 3e-3
    assert values(replace(DIGITS, shape=(30,)))["learning-rate"] == 3e-3
    assert values(replace(DIGITS, shape=(16, 16, 1)))["learning-rate-schedule"] == "cosine"
    assert auto_values(DIGITS, "resnet9")["learning-rate"].value == 1e-3
    assert auto_values(DIGITS, "mlp-linear+head")["learning-rate"].value == 3e-3


@pytest.mark.parametrize("clipping", ["server", "client"])
@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (32, 32, 3), (224, 224, 1), (30,)])
def test_given_differential_privacy_then_the_model_has_no_batch_norm(
    shape: tuple[int, ...], clipping: str
) -> None:
    private = parse_flat({"dp.clipping": clipping})
    settled, chosen = with_auto_values(private, DataSize(shape, 600))
    assert not list(build_model(settled.model, shape, 2).buffers())
    chose_other = settled.model == "lenet"
    assert ("batch norm" in chosen["model"].reason) == chose_other


def test_given_a_setting_of_the_user_then_it_is_kept() -> None:
    given = parse_flat({"batch-size": 5, "augment": "none", "model": "linear"})
    settled, chosen = with_auto_values(given, DIGITS)
    assert (settled.batch_size, settled.model) == (5, "linear")
    assert set(chosen) == {"local-epochs", "learning-rate", "learning-rate-schedule"}
    again, nothing = with_auto_values(settled, DIGITS)
    assert again == settled
    assert nothing == {}


@pytest.mark.parametrize("method", ["fedul", "fedmatch", "xclp", "fedsiam"])
def test_given_any_size_then_the_settled_settings_are_accepted_and_plain(method: str) -> None:
    for shape in [(2,), (4, 4, 1), (8, 8, 3), (28, 28, 1), (32, 32, 3), (224, 300, 3)]:
        for points in (None, 1, 600, 601, 1e6):
            given = parse_flat({"method": method})
            settled, chosen = with_auto_values(given, DataSize(shape, points))
            assert unresolved(settled) == ()
            assert AUTO not in [settled.to_flat()[key] for key in chosen]
            assert parse_flat(settled.to_flat()) == settled
