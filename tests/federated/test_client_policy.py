"""Which clients with sets take part: refused sets, the ways out, and ranks of shared priors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.client_policy import SetAdmission
from fedul_flwr.federated.nodes import ClientReport
from tests.support.fake_registry import registry_of
from tests.support.refusals import refuses

Settings = Callable[..., RunConfig]
SHARED: dict[str, Any] = {"fedul.share-priors": True}
FEW: dict[str, Any] = {"fedul.fewer-sets": True}
A, B, C = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
"""Class priors of sets of one class each."""


def admission(config: RunConfig) -> SetAdmission:
    return SetAdmission(config, registry_of(config, 1), num_classes=3)


def checked(**values: Any) -> Content:
    return Content(values={"condition-number": 2.0, "reason": "", "num-sets": 2} | values)


def told(*priors: list[float], **values: Any) -> Content:
    """An answer with priors, whose two or more sets have one point each."""
    flat, sizes = [value for row in priors for value in row], [1] * len(priors)
    more = {"num-sets": len(priors), "priors": flat, "set-sizes": sizes}
    return checked(**more | {key.replace("_", "-"): value for key, value in values.items()})


# Sets


@pytest.mark.parametrize(("sizes", "points"), [([-1, 6], 5), ([2, 2], 5), ([], 5)])
def test_given_sizes_that_are_not_those_of_its_points_then_they_are_refused(
    settings: Settings, sizes: list[int], points: int
) -> None:
    with refuses("message-contradicts", BadMessageError, match="sizes"):
        admission(settings(**SHARED)).accept(
            ClientReport(0, num_points=points), told(A, B, set_sizes=sizes)
        )


# All clients' sets


def test_given_stacked_priors_below_rank_k_then_they_are_refused(settings: Settings) -> None:
    answers = {0: told(A, B), 1: told(B, A)}
    with refuses("priors-rank", match="rank 2, .* 3 "):
        admission(settings(**SHARED)).changed(answers)


def test_given_fewer_sets_then_two_of_them_must_tell_the_classes_apart(settings: Settings) -> None:
    # A client of M sets has M - 1 equations: {A, B} and {B, C} have 1 + 1 of the 2 needed, {A, B}
    # and {C} have 1 + 0.
    both = {0: told(A, B), 1: told(B, C)}
    too_few = {0: told(A, B), 1: told(C)}
    admission(settings(**SHARED, **FEW)).changed(both)
    with refuses("priors-rank", match="1 of the 2 "):
        admission(settings(**SHARED, **FEW)).changed(too_few)
    # Without `fewer-sets` each client has checked its own sets: the stack's rank is enough.
    admission(settings(**SHARED)).changed(too_few)


def test_given_as_many_priors_as_announced_then_no_others_go(settings: Settings) -> None:
    answer = told(A, B, num_sets=3)
    with refuses("message-form", BadMessageError, match="6 .* 3 x 3"):
        admission(settings(**SHARED)).changed({0: answer})
