"""The level of Flower's log comes back."""

from __future__ import annotations

import logging

import pytest

from fedul_flwr.engine.flower_logs import flower_logs


def test_given_an_error_within_then_the_level_is_as_before() -> None:
    flower = logging.getLogger("flwr")
    before = flower.level

    def fail() -> None:
        with flower_logs(logging.CRITICAL):
            assert flower.level == logging.CRITICAL
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert flower.level == before
