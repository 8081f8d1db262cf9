"""Stored results: the digest of their settings, and settings that make them invalid."""

from fedul_flwr.experiments.result_file import differences
from fedul_flwr.experiments.trial import digest


def test_given_another_order_of_keys_then_the_digest_is_the_same() -> None:
    # printf '{"a":1,"b":"x"}' | sha256sum
    expected = "ecf9e98ec0641e23113ff3ce8bdc78d0ddd249886517fd4a7f68cc83d4e65667"
    assert digest({"b": "x", "a": 1}) == digest({"a": 1, "b": "x"}) == expected


def test_given_a_changed_setting_of_the_starting_run_then_it_has_a_prefix() -> None:
    then = {"method": "xclp-predict", "l1": 0.5, "start-from:l1": 0.0}
    now = {"method": "xclp-predict", "l1": 0.5, "start-from:l1": 0.25}
    assert differences(then, now) == [("start-from:l1", 0.0, 0.25)]


def test_given_a_setting_newer_than_the_result_then_its_default_is_no_difference() -> None:
    assert differences({}, {"momentum": 0.0}) == []
    assert differences({}, {"momentum": 0.9}) == [("momentum", 0.0, 0.9)]


def test_given_names_of_the_version_before_then_they_are_no_difference() -> None:
    then = {"method": "perclient-lp", "fedadam.eta": 0.5, "start-from:fedadam.eta": 0.25}
    now = {"method": "local-lp", "fedopt.eta": 0.5, "start-from:fedopt.eta": 0.25}
    assert differences(then, now) == []


def test_given_a_setting_that_is_gone_then_another_value_than_now_is_a_difference() -> None:
    assert differences({"fedpl.mix-weight": 0.3, "semi.top-fraction": 1.0}, {}) == []
    assert differences({"fedpl.mix-weight": 0.5}, {}) == [("fedpl.mix-weight", 0.5, 0.3)]
    then = {"fedpl.mix": "outputs", "fedpl.pairing": "shorter", "fedpl.labels": "drawn"}
    assert differences(then, {"fedpl.recipe": "release"}) == []
    assert [key for key, *_ in differences(then, {"fedpl.recipe": "paper"})] == ["fedpl.recipe"]
