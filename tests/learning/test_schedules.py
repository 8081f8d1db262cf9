"""Weights that grow over the rounds."""

from __future__ import annotations

import math

import pytest

from fedul_flwr.learning.schedules import ramp_up


def test_a_ramp_by_hand() -> None:
    # t = .1: exp(-5·.81); t = .5: exp(-5·.25)
    assert ramp_up(1, 10) == pytest.approx(math.exp(-4.05))
    assert ramp_up(5, 10) == pytest.approx(math.exp(-1.25))
    assert [ramp_up(number, 10) for number in (10, 11, 99)] == [1.0, 1.0, 1.0]


def test_no_ramp_is_the_whole_weight_at_once() -> None:
    assert ramp_up(1, 0) == ramp_up(1, 1) == 1.0


def test_a_ramp_only_rises() -> None:
    values = [ramp_up(number, 30) for number in range(1, 40)]
    assert values == sorted(values)
    assert 0 < values[0] < 0.01
