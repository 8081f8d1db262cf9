"""Objects sent between processes: equal at the other end, and nothing is left behind."""

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from fedul_flwr.engine import transfer
from fedul_flwr.engine.transfer import Packed, pack
from fedul_flwr.federated.messages import ARRAYS, to_arrays, to_record

SMALL, LARGE = 10, 100_000


def records(size: int) -> RecordDict:
    arrays = {"weight": np.arange(size, dtype=np.float32), "steps": np.asarray(3)}
    return RecordDict({ARRAYS: to_record(arrays), "values": ConfigRecord({"name": "x"})})


def through(packed: Packed, *, mapped: bool, times: int = 1) -> list[Any]:
    """What comes out at the other end of a connection."""
    here, there = multiprocessing.Pipe()
    with here, there:
        sender = threading.Thread(target=lambda: [packed.send(here) for _ in range(times)])
        sender.start()
        arrived = [Packed.receive(there) for _ in range(times)]
        found = [one.open_mapped() if mapped else one.open() for one in arrived]
        sender.join()
    return found


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("mapped", [False, True])
def test_given_records_then_they_arrive_equal(size: int, mapped: bool) -> None:
    sent = records(size)
    [found] = through(pack(sent), mapped=mapped)
    assert dict(found["values"]) == {"name": "x"}
    expected, arrays = to_arrays(sent[ARRAYS]), to_arrays(found[ARRAYS])
    assert list(arrays) == list(expected)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])
        assert array.dtype == expected[name].dtype
        assert not array.flags.writeable
    assert found[ARRAYS].object_id == sent[ARRAYS].object_id  # as bytes for the network


def test_without_room_the_folder_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")  # writing there fails as on a full file system
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    real = transfer.tempfile.TemporaryFile

    def temporary(dir: str | None) -> Any:
        return full.open("wb", buffering=0) if dir else real(dir=tmp_path)

    monkeypatch.setattr(transfer, "_IN_MEMORY", tmp_path)
    monkeypatch.setattr(transfer.tempfile, "TemporaryFile", temporary)
    [found] = through(pack(records(LARGE)), mapped=True)
    assert to_arrays(found[ARRAYS])["weight"][-1] == LARGE - 1
    assert list(tmp_path.iterdir()) == []  # a file without a name
