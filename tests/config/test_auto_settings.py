"""Settings that follow from the size and the kind of the data, and those of another kind."""

from dataclasses import replace
from typing import Any

import pytest

from fedul_flwr.config.auto_settings import (
    DataSize,
    auto_values,
    kind_of,
    resolve_standardize,
    unresolved,
    with_auto_values,
)
from fedul_flwr.config.base import AUTO
from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.models import build_model
from tests.support.refusals import refuses

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
    assert auto_values(DIGITS, "resnet9")["learning-rate"].value == 1e-3
    assert auto_values(DIGITS, "mlp-linear+head")["learning-rate"].value == 3e-3


@pytest.mark.parametrize(
    ("points", "batch", "epochs"),
    [
        (None, 16, 2),  # unknown
        (47, 16, 20),  # 2 steps an epoch, 40 in all
        (115, 16, 6),  # 7 steps an epoch: 42
        (4800, 16, 2),  # 2 * 4800 / 16 = 600 steps, the most
        (4801, 16, 1),
        (40_000, 128, 1),  # 40,000 / 64 = 625 steps
    ],
)
def test_a_round_has_40_to_600_steps(points: float | None, batch: int, epochs: int) -> None:
    found = values(DataSize((28, 28, 3), points))
    assert (found["batch-size"], found["local-epochs"]) == (batch, epochs)


@pytest.mark.parametrize(
    ("points", "epochs"),
    [(None, 6), (1600, 6), (1601, 5), (4801, 1)],  # 6 * 1600 / 16 = 600
)
def test_gray_images_have_more_epochs_in_as_many_steps(points: float | None, epochs: int) -> None:
    assert values(DataSize((28, 28, 1), points))["local-epochs"] == epochs


@pytest.mark.parametrize(
    ("shape", "noise", "model", "augment"),
    [
        ((30,), False, "linear", "none"),
        ((28, 28, 1), False, "whitened-filters", "none"),
        ((28, 28, 1), True, "random-features", "none"),
        ((32, 32, 3), False, "whitened-filters", "flip"),
    ],
)
def test_what_trains_nothing_has_fixed_features(
    shape: tuple[int, ...], noise: bool, model: str, augment: str
) -> None:
    chosen = auto_values(replace(DIGITS, shape=shape), updates=False, noise=noise)
    assert (chosen["model"].value, chosen["augment"].value) == (model, augment)


@pytest.mark.parametrize(
    ("shape", "model", "augment"),
    [
        ((30,), "mlp", "none"),
        ((15, 15, 3), "cnn-small", "flip"),
        ((16, 16, 1), "cnn2", "affine"),
        ((32, 16, 3), "cnn6-quarter", "flip"),
        ((33, 16, 1), "cnn2", "affine"),
    ],
)
def test_the_shape_chooses_a_model(shape: tuple[int, ...], model: str, augment: str) -> None:
    found = values(replace(DIGITS, shape=shape))
    assert (found["model"], found["augment"]) == (model, augment)
    assert found["learning-rate-schedule"] == ("constant" if model == "cnn-small" else "cosine")
    build_model(model, shape, 2)


@pytest.mark.parametrize("clipping", ["server", "client"])
@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (32, 32, 3), (224, 224, 1), (30,)])
def test_given_privacy_then_there_is_no_batch_norm(shape: tuple[int, ...], clipping: str) -> None:
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


IMAGE, VECTOR = (8, 8, 1), (30,)


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, IMAGE),
        ({}, VECTOR),
        ({"augment": "noise", "noise": 0.5}, VECTOR),
        ({"method": "fedmatch", "mixup": 0.2}, VECTOR),
        ({"augment": "affine", "image-size": 8}, IMAGE),
    ],
)
def test_settings_that_have_an_effect(settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    parse_flat(settings).require_effect(dict.fromkeys(("points", "inputs"), kind_of(shape)))


@pytest.mark.parametrize(
    ("chosen", "shape", "by", "how"),
    [
        ({}, VECTOR, "federation", "plaintext"),
        ({}, IMAGE, "none", "auto"),
        ({"standardize": "owner"}, VECTOR, "owner", "auto"),
        ({"method": "server-only"}, VECTOR, "owner", "auto"),
        ({"standardize-sum": "masked"}, VECTOR, "federation", "masked"),
        ({"method": "xclp"}, VECTOR, "federation", "masked"),
        ({"method": "xclp", "xclp.secure": "plaintext"}, VECTOR, "federation", "plaintext"),
        ({"method": "local-lp"}, VECTOR, "federation", "plaintext"),  # its `xclp` has no `secure`
    ],
)
def test_given_settings_and_a_shape_then_who_standardizes_and_what_is_masked(
    chosen: dict[str, Any], shape: tuple[int, ...], by: str, how: str
) -> None:
    settings = parse_flat(chosen)
    assert settings.standardize_sum == chosen.get("standardize-sum", "auto")
    once = resolve_standardize(settings, shape)
    assert (once.standardize, once.standardize_sum) == (by, how)
    assert resolve_standardize(once, shape) == once


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ({"method": "server-only", "standardize": "federation"}, "method-mismatch"),
        ({"method": "xclp-predict", "xclp.codes-epsilon": 4.0}, "setting-breaks-privacy"),
        ({"dp.clipping": "server"}, "setting-breaks-privacy"),
    ],
)
def test_columns_that_are_not_to_be_standardized(chosen: dict[str, Any], code: str) -> None:
    settings = parse_flat(chosen)
    with refuses(code, setting="standardize"):
        resolve_standardize(settings, VECTOR)
