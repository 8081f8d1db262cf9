"""One trial: the digest of its settings."""

from __future__ import annotations

from fedul_flwr.experiments.trial import digest


def test_given_another_order_of_keys_then_the_digest_is_the_same() -> None:
    # printf '{"a":1,"b":"x"}' | sha256sum
    expected = "ecf9e98ec0641e23113ff3ce8bdc78d0ddd249886517fd4a7f68cc83d4e65667"
    assert digest({"b": "x", "a": 1}) == digest({"a": 1, "b": "x"}) == expected
