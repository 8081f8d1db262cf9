"""Runs of all kinds give the numbers that were recorded, and on the same machine the same bits."""

from pathlib import Path

import pytest

from tests.golden.runs import IN_CI, differences, fingerprint, outcome, recording


@pytest.mark.parametrize("name", IN_CI)
def test_a_run_gives_what_was_recorded(name: str, tmp_path: Path) -> None:
    recorded = recording()
    bits = recorded["fingerprint"] == fingerprint()
    assert differences(outcome(name, tmp_path), recorded["runs"][name], bits=bits) == []


def test_a_learning_rate_that_is_a_thousandth_larger_is_noticed(tmp_path: Path) -> None:
    now = outcome("server-only", tmp_path, "learning-rate=3.003e-3")
    lines = differences(now, recording()["runs"]["server-only"], bits=False)
    assert {"round 1 server_loss", "last.safetensors 5.weight norm"} <= {
        line.partition(":")[0] for line in lines
    }


def test_other_bits_are_noticed_where_they_must_be_equal(tmp_path: Path) -> None:
    then = recording()["runs"]["server-only"]
    now = {**then, "digests": {**then["digests"], "last.safetensors": "0"}}
    assert differences(now, then, bits=True) == ["last.safetensors: other bits"]
    assert differences(now, then, bits=False) == []
