"""Settings for images are refused with vectors, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest

from fedul_flwr.config.point_kinds import refuse_other_kind, resolve_standardize
from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.errors import UserError
from tests.support.refusals import refuses

IMAGE, VECTOR = (8, 8, 1), (30,)


@pytest.mark.parametrize(
    ("key", "value", "shape", "others"),
    [
        ("image-size", 8, VECTOR, {}),
        ("missing", "mean", IMAGE, {}),
        ("columns", "x", IMAGE, {}),
        ("standardize", "owner", IMAGE, {}),
        ("noise", 0.1, IMAGE, {"method": "uda"}),
        ("feature-dropout", 0.1, IMAGE, {"method": "uda"}),
        ("mixup", 0.1, IMAGE, {"method": "uda"}),
        ("mixup", 0.2, IMAGE, {"augment": "mixup"}),
        ("ssl.operations", 2, VECTOR, {"method": "fixmatch"}),
        ("semi.operations", 2, VECTOR, {"method": "xclp"}),
        # Of the right kind, but without an augmentation or a method that takes it.
        ("mixup", 0.1, VECTOR, {}),
        ("noise", 0.1, VECTOR, {}),
        ("feature-dropout", 0.1, VECTOR, {"augment": "noise"}),
        ("measure-forgetting", True, VECTOR, {"method": "uda", "standardize": "owner"}),
        ("augment", "flip", VECTOR, {}),
        ("augment", "noise", IMAGE, {}),
    ],
)
def test_settings_of_the_other_kind(
    key: str, value: Any, shape: tuple[int, ...], others: dict[str, Any]
) -> None:
    with pytest.raises(UserError) as caught:
        refuse_other_kind(parse_flat({**others, key: value}), shape)
    assert caught.value.values["setting"] == key


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, IMAGE),
        ({}, VECTOR),
        ({"augment": "noise", "noise": 0.5}, VECTOR),
        ({"method": "fixmatch", "noise": 0.5, "feature-dropout": 0.0}, VECTOR),
        ({"augment": "mixup", "mixup": 0.5}, VECTOR),
        ({"method": "fedmatch", "mixup": 0.2}, VECTOR),
        ({"method": "fedul-consistency", "feature-dropout": 0.0}, VECTOR),
        ({"augment": "affine", "image-size": 8}, IMAGE),
        ({"standardize": "none"}, IMAGE),
    ],
)
def test_settings_that_have_an_effect(settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    refuse_other_kind(parse_flat(settings), shape)


def test_auto_standardizes_vectors_by_the_federation_and_images_not_at_all() -> None:
    assert resolve_standardize(parse_flat({}), IMAGE).standardize == "none"
    assert resolve_standardize(parse_flat({}), VECTOR).standardize == "federation"
    alone = parse_flat({"method": "server-only"})
    assert resolve_standardize(alone, VECTOR).standardize == "owner"
    chosen = parse_flat({"standardize": "owner"})
    assert resolve_standardize(chosen, VECTOR).standardize == "owner"


@pytest.mark.parametrize(
    ("given", "shape", "how"),
    [
        ({}, VECTOR, "plaintext"),
        ({}, IMAGE, "auto"),
        ({"standardize": "owner"}, VECTOR, "auto"),
        ({"standardize-sum": "masked"}, VECTOR, "masked"),
        ({"method": "xclp"}, VECTOR, "masked"),
        ({"method": "xclp-predict", "xclp.secure": "ot"}, VECTOR, "masked"),
        ({"method": "xclp", "xclp.secure": "plaintext"}, VECTOR, "plaintext"),
        ({"method": "xclp", "standardize-sum": "plaintext"}, VECTOR, "plaintext"),
        ({"method": "local-lp"}, VECTOR, "plaintext"),  # its table `xclp` has no `secure`
    ],
)
def test_columns_are_summed_under_masks_where_labels_are(
    given: dict[str, Any], shape: tuple[int, ...], how: str
) -> None:
    settings = parse_flat(given)
    assert settings.standardize_sum == given.get("standardize-sum", "auto")
    once = resolve_standardize(settings, shape)
    assert once.standardize_sum == how
    assert resolve_standardize(once, shape) == once


@pytest.mark.parametrize("kind", ["none", "owner", "constants"])
def test_a_sum_of_columns_that_nobody_makes_is_refused(kind: str) -> None:
    with refuses("setting-without-effect", setting="standardize-sum"):
        parse_flat({"standardize": kind, "standardize-sum": "masked"})
    with refuses("setting-without-effect", setting="standardize-sum"):
        resolve_standardize(parse_flat({"standardize-sum": "masked"}), IMAGE)


def test_without_clients_the_federation_cannot_standardize() -> None:
    settings = parse_flat({"method": "server-only", "standardize": "federation"})
    with refuses("setting-needs-clients", setting="standardize"):
        resolve_standardize(settings, VECTOR)


def test_private_codes_refuse_unprotected_means_of_columns() -> None:
    settings = parse_flat({"method": "xclp-predict", "xclp.codes-epsilon": 4.0})
    with refuses("setting-breaks-privacy", setting="standardize"):
        resolve_standardize(settings, VECTOR)
    assert resolve_standardize(settings, IMAGE).standardize == "none"


@pytest.mark.parametrize("value", ["auto", "federation"])
def test_differential_privacy_refuses_unprotected_means_of_columns(value: str) -> None:
    settings = parse_flat({"dp.clipping": "server", "standardize": value})
    with refuses("setting-breaks-privacy", setting="standardize"):
        resolve_standardize(settings, VECTOR)


def test_mixup_without_a_share_is_refused() -> None:
    assert parse_flat({}).mixup == 0
    with refuses("settings-contradict"):
        parse_flat({"augment": "mixup"})
