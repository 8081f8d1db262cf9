"""Stored results: the settings that make them invalid."""

from __future__ import annotations

from fedul_flwr.experiments.result_file import differences


def test_given_a_changed_setting_of_the_starting_run_then_it_has_a_prefix() -> None:
    then = {"method": "xclp-predict", "l1": 0.5, "start-from:l1": 0.0}
    now = {"method": "xclp-predict", "l1": 0.5, "start-from:l1": 0.25}
    assert differences(then, now) == [("start-from:l1", 0.0, 0.25)]


def test_given_a_setting_newer_than_the_result_then_its_default_is_no_difference() -> None:
    assert differences({}, {"momentum": 0.0}) == []
    assert differences({}, {"momentum": 0.9}) == [("momentum", 0.0, 0.9)]


def test_given_names_of_the_version_before_then_they_are_no_difference() -> None:
    then = {"method": "perclient-lp", "semi.surest": 0.5, "start-from:semi.surest": 0.25}
    now = {"method": "local-lp", "semi.top-fraction": 0.5, "start-from:semi.top-fraction": 0.25}
    assert differences(then, now) == []
