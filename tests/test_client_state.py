"""What a client keeps between messages: in Flower's state on a device, in files in a simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from fedul_flwr.client_state import ClientState


def ones(value: float) -> dict[str, np.ndarray]:
    return {"a.weight": np.full((2, 3), value, dtype=np.float32), "b": np.array(value)}


@pytest.mark.parametrize("simulated", [False, True])
def test_arrays_come_back_in_the_next_message(tmp_path: Path, simulated: bool) -> None:
    records, directory = RecordDict(), tmp_path / "3" if simulated else None
    assert ClientState(records, directory).recall("control", 1) == {}
    ClientState(records, directory).keep("control", 1, ones(1.0))
    ClientState(records, directory).keep("other", 1, ones(5.0))
    found = ClientState(records, directory).recall("control", 4)
    for name, array in ones(1.0).items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert (len(records) == 0) == simulated


def test_a_round_begins_from_what_was_kept_before_it(tmp_path: Path) -> None:
    state = ClientState(RecordDict(), tmp_path)
    for server_round in (1, 4, 6):
        state.keep("control", server_round, ones(server_round))
    # Round 6 was cut off and is done again: it must begin from round 4's.
    assert state.recall("control", 6)["b"] == 4
    assert state.recall("control", 7)["b"] == 6
    state.keep("control", 6, ones(60))
    assert state.recall("control", 7)["b"] == 60


def test_old_versions_are_removed(tmp_path: Path) -> None:
    state = ClientState(RecordDict(), tmp_path)
    for server_round in range(1, 20, 2):
        state.keep("control", server_round, ones(server_round))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"control-17.safetensors", "control-19.safetensors"}
