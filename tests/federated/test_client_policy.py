"""Which clients with sets take part: refused sets, the ways out, and ranks of shared priors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content
from fedul_flwr.data.set_check import ILL_CONDITIONED
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


@pytest.mark.parametrize(
    "values",
    [
        {"condition-number": "2.0"},
        {"reason": None},
        {"condition-number": None, "reason": None},
    ],
)
def test_given_half_a_result_then_it_is_missing(settings: Settings, values: dict[str, Any]) -> None:
    found = checked(**{"condition-number": 2.0, "reason": ""} | values)
    with refuses("message-incomplete", BadMessageError, match="result"):
        admission(settings()).accept(ClientReport(0), found)


@pytest.mark.parametrize(
    ("condition", "kept", "warning"),
    [
        (2.5, 2.5, None),
        (np.inf, None, "Client 7: its class priors have rank below K"),
        (ILL_CONDITIONED, ILL_CONDITIONED, None),
        (1234.5, 1234.5, "Client 7: condition number 1.23e+03"),
    ],
)
def test_given_a_condition_number_then_it_is_kept_and_bad_ones_are_warned_about(
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    condition: float,
    kept: float | None,
    warning: str | None,
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    report = ClientReport(7)
    admission(settings()).accept(report, checked(**{"condition-number": float(condition)}))
    assert report.condition_number == kept
    assert report.reason == ""
    assert report.priors is None
    assert report.set_sizes is None
    assert [line.getMessage() for line in caplog.records] == ([warning] if warning else [])


def test_given_shared_priors_then_the_report_has_them_and_sizes_of_empty_sets_too(
    settings: Settings,
) -> None:
    report = ClientReport(0, num_points=5)
    answer = told(A, B, set_sizes=[0, 5], reason="set 0 is empty")
    admission(settings(**SHARED, **{"on_client_failure": "continue"})).accept(report, answer)
    assert report.priors == [A, B]
    assert report.set_sizes == [0, 5]
    assert report.reason == 'it says "set 0 is empty"'


@pytest.mark.parametrize(("sizes", "points"), [([-1, 6], 5), ([2, 2], 5), ([], 5)])
def test_given_sizes_that_are_not_those_of_its_points_then_they_are_refused(
    settings: Settings, sizes: list[int], points: int
) -> None:
    with refuses("message-contradicts", BadMessageError, match="sizes"):
        admission(settings(**SHARED)).accept(
            ClientReport(0, num_points=points), told(A, B, set_sizes=sizes)
        )


DROP = "on-client-failure = 'continue' leaves such clients out"
WAYS_OUT = (
    "Ways out: 3 sets or more (fedul.num-sets in a simulation); method = 'fedllp', for which one "
    "set is enough; fedul.fewer-sets = true, if clients' sets together tell all classes apart; "
    f"or {DROP}."
)


@pytest.mark.parametrize(
    ("options", "num_sets", "ways"),
    [
        ({}, 2, WAYS_OUT),
        ({}, 3, f"Setting {DROP}."),
        ({}, "2", f"Setting {DROP}."),
        (FEW, 1, f"Setting {DROP}."),
        ({"method": "fedllp"}, 2, f"Setting {DROP}."),
    ],
)
def test_given_a_refusal_then_the_run_ends_with_the_ways_out(
    settings: Settings, options: dict[str, Any], num_sets: Any, ways: str
) -> None:
    answer = checked(**{"reason": "it has too few sets.", "num-sets": num_sets})
    with refuses("client-refused", match=rf"Client 2 \(st-mary\) .*{re.escape(ways)}$"):
        admission(settings(**options)).accept(ClientReport(2, "st-mary"), answer)


def test_given_a_refusal_that_drops_then_it_is_warned_about_alone(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    answer = checked(**{"reason": "it has too few sets", "condition-number": float("inf")})
    report = ClientReport(2, "st-mary")
    admission(settings(**{"on_client_failure": "continue"})).accept(report, answer)
    (line,) = caplog.records
    words = 'it says "it has too few sets"'
    assert line.getMessage() == f"Client 2 (st-mary) cannot take part: {words}."
    assert report.reason == words


# All clients' sets


@pytest.mark.parametrize(
    ("options", "level", "more"),
    [
        ({}, "INFO", ""),
        (
            FEW,
            "WARNING",
            " Whether their sets together tell the classes apart is for the owners to know.",
        ),
    ],
)
def test_given_priors_that_are_not_shared_then_the_server_says_so(
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    level: str,
    more: str,
) -> None:
    caplog.set_level("INFO", logger="flwr")
    admission(settings(**options)).changed({0: checked()})
    (line,) = caplog.records
    text = "Rank of all clients' priors not checked: they are not shared."
    assert (line.levelname, line.getMessage()) == (level, text + more)


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
