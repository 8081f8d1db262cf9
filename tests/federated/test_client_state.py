"""What a client keeps between messages: in Flower's state on a device, in files in a simulation."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.data.types import Content
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import ClientState, state_directory
from tests.support.digits_settings import settings_of_client


def ones(value: float) -> dict[str, np.ndarray]:
    return {"a.weight": np.full((2, 3), value, dtype=np.float32), "b": np.array(value)}


KINDS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not contiguous
    "wide": np.array([1e-300, np.nan]),
    "labels": np.array([-1, 2**62]),
    "codes": np.array([2**64 - 1], dtype=np.uint64),
    "bytes": np.array([[255], [0]], dtype=np.uint8),
    "mask": np.array([True, False, True]),
    "count": np.array(7),
    "nothing": np.zeros((0, 3), dtype=np.float32),
}


def assert_same(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("simulated", [False, True])
def test_arrays_come_back_in_the_next_message(tmp_path: Path, simulated: bool) -> None:
    records, directory = RecordDict(), tmp_path / "3" if simulated else None
    assert ClientState(records, directory).load("control", 1) == {}
    ClientState(records, directory).save("control", 1, KINDS)
    ClientState(records, directory).save("other", 1, ones(5.0))
    assert_same(ClientState(records, directory).load("control", 4), KINDS)
    assert (len(records) == 0) == simulated


def test_a_round_begins_from_what_was_kept_before_it(tmp_path: Path) -> None:
    state = ClientState(RecordDict(), tmp_path)
    for server_round in (1, 4, 6):
        state.save("control", server_round, ones(server_round))
    # Round 6 was cut off and is done again: it must begin from round 4's.
    assert state.load("control", 6)["b"] == 4
    assert state.load("control", 7)["b"] == 6
    state.save("control", 6, ones(60))
    assert state.load("control", 7)["b"] == 60


# Secrets


@pytest.mark.parametrize("simulated", [False, True])
def test_secrets_lie_in_the_records_and_on_no_disk(tmp_path: Path, simulated: bool) -> None:
    records, directory = RecordDict(), tmp_path / "3" if simulated else None
    assert ClientState(records, directory).ephemeral("xclp") == {}
    ClientState(records, directory).set_ephemeral("xclp", KINDS)
    assert list(records) == ["xclp"]
    assert not [*tmp_path.rglob("*")]
    assert_same(ClientState(records, directory).ephemeral("xclp"), KINDS)
    assert ClientState(RecordDict(), directory).ephemeral("xclp") == {}


@pytest.mark.parametrize("simulated", [False, True])
def test_secrets_are_replaced_as_a_whole_and_forgotten(tmp_path: Path, simulated: bool) -> None:
    records = RecordDict()
    state = ClientState(records, tmp_path if simulated else None)
    state.set_values("xclp-values", {"a": 1})
    state.set_ephemeral("xclp", KINDS)
    state.set_ephemeral("xclp", {"other": np.array(1)})
    assert list(state.ephemeral("xclp")) == ["other"]
    state.set_ephemeral("xclp", {})
    assert state.ephemeral("xclp") == {}
    assert list(records) == ["xclp-values"]
    state.set_ephemeral("xclp", {})  # what is not there can be forgotten
    assert list(records) == ["xclp-values"]


def test_a_simulated_client_keeps_its_state_in_a_folder_of_its_own_and_an_owner_in_memory(
    tmp_path: Path,
) -> None:
    node = NodeConfig(partition_id=3, num_partitions=5)
    client = Client(settings_of_client({"method": "server-only"}), node, ClientState(RecordDict()))
    client.on_phase("setup", Content(values={"memory": str(tmp_path)}))
    assert client.state.directory == tmp_path / "3"
    assert state_directory({}, node) is None
    owner = NodeConfig(partition_id=3, num_partitions=5, data=str(tmp_path / "ward"))
    assert state_directory({"memory": str(tmp_path)}, owner) is None
