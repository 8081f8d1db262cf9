"""Clients with sets whose shared class priors do not tell the classes apart."""

from typing import Any

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content
from fedul_flwr.federated.policies import SetAdmission
from tests.support.fake_registry import registry_of
from tests.support.refusals import refuses
from tests.support.settings import Settings

SHARED: dict[str, Any] = {"fedul.share-priors": True}
FEW: dict[str, Any] = {"fedul.fewer-sets": True}
A, B, C = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
"""Class priors of sets of one class each."""


def admission(config: RunConfig) -> SetAdmission:
    return SetAdmission(registry_of(config, 1))


def told(*priors: list[float]) -> Content:
    """An answer with priors, whose sets have one point each."""
    values: dict[str, Any] = {"condition-number": 2.0, "reason": "", "num-sets": len(priors)}
    values["priors"] = [value for row in priors for value in row]
    return Content(values=values | {"set-sizes": [1] * len(priors)})


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
