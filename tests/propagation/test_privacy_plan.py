"""How much noise a run's settings ask for, what the log says of it, and settings that are none."""

from __future__ import annotations

from typing import Any

import pytest

import fedul_flwr.propagation.server
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.references import load_reference
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.errors import UserError
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.propagation.privacy import gaussian_sigma, privacy_plan
from tests.support.refusals import refuses


def parse(method: str = "xclp", **options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": method, **options})


EPSILON = {"xclp.codes-epsilon": 10.0}


@pytest.mark.parametrize(
    ("method", "options", "releases"),
    [
        ("xclp", {}, 20),  # 30 rounds, 10 of them on labels alone
        ("xclp", {"num-rounds": 12}, 2),
        ("xclp", {"semi.labels-only-rounds": 0, "num-rounds": 7}, 7),
        ("xclp", {"num-rounds": 5}, 1),  # no propagation at all
        ("xclp-predict", {}, 1),
        ("xclp-predict", {"num-rounds": 300}, 1),
    ],
)
def test_releases(method: str, options: dict[str, Any], releases: int) -> None:
    plan = privacy_plan(parse(method, **EPSILON, **options))
    assert plan.releases == releases
    assert plan.sigma == gaussian_sigma(10, 1e-5, 2, releases)


def test_delta() -> None:
    plan = privacy_plan(parse("xclp-predict", **EPSILON, **{"xclp.dp-delta": 1e-3}))
    assert plan.sigma == gaussian_sigma(10, 1e-3, 2)


def test_off() -> None:
    plan = privacy_plan(parse())
    assert (plan.sigma, plan.labels_epsilon, list(plan.in_words())) == (0, 0, [])


CODES = (
    "xclp.codes-epsilon = 10: all codes of the run together are (10, 1e-05)-differentially "
    "private, for one point of a client replaced: Gaussian noise of sigma {} on directions of "
    "features (sensitivity 2, releases {})."
)
GIVEN = (
    "xclp.labels-epsilon = 2: every label is (2, 0)-differentially private in all propagations of "
    "the run together: randomized response, once. Which points have labels is not hidden."
)
NOT_COVERED = (
    "Not covered: numbers of points and labels, which points have labels, and a model that "
    "features are made with, if it was trained on these points."
)
UPDATES = "Model updates that clients send in training are NOT differentially private."
LABELS = {"xclp.labels-epsilon": 2.0}


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("xclp", {}, []),
        ("xclp-predict", EPSILON, [CODES.format("0.9998", 1), NOT_COVERED]),
        # √20 times as much.
        ("xclp", EPSILON, [CODES.format("4.471", 20), UPDATES]),
        ("xclp-predict", LABELS, [GIVEN]),
        ("xclp", {**EPSILON, **LABELS}, [CODES.format("4.471", 20), GIVEN, UPDATES]),
    ],
)
def test_the_log_says_what_holds(
    method: str, options: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(fedul_flwr.propagation.server, "log", lambda level, text: said.append(text))
    strategy: type[MethodStrategy] = load_reference(find_method(method).strategy, "method")
    strategy.validate(parse(method, **{"xclp.secure": "rlwe"}, **options))
    assert said == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"xclp.codes-epsilon": -1.0}, "xclp.codes-epsilon = -1.0: must be at least 0.0."),
        ({"xclp.labels-epsilon": -1.0}, "xclp.labels-epsilon = -1.0: must be at least 0.0."),
        ({"xclp.codes-epsilon": float("inf")}, "xclp.codes-epsilon = inf: must be a finite number"),
        ({**EPSILON, "xclp.dp-delta": 0.0}, "xclp.dp-delta = 0.0: must be greater than 0.0."),
        ({**EPSILON, "xclp.dp-delta": 1.0}, "xclp.dp-delta = 1.0: must be less than 1.0."),
        (
            {**LABELS, "xclp.dp-delta": 1e-3},
            "xclp.dp-delta = 0.001 has an effect only with xclp.codes-epsilon other than 0: leave "
            "it out.",
        ),
    ],
)
def test_settings_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        parse(**options)
    assert str(error.value).removesuffix(".") == f"Setting {message}".removesuffix(".")


def test_propagation_within_clients_needs_no_noise() -> None:
    with refuses("setting-without-effect", setting="xclp.codes-epsilon"):
        parse("local-lp", **EPSILON)
