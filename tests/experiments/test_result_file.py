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


def test_given_a_setting_that_is_gone_then_it_is_a_difference() -> None:
    then = {"fedpl.mix-weight": 0.5, "start-from:fedopt.eta": 0.25}
    now = {"start-from:fedopt.eta": 0.5}
    assert differences(then, now) == [
        ("fedpl.mix-weight", 0.5, None),
        ("start-from:fedopt.eta", 0.25, 0.5),
    ]
