"""Files of arrays: what was written comes back, and no other bytes do."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedul_flwr.data.safe_files import load_arrays_of, require_whole, save_arrays
from tests.support.refusals import refuses

ARRAYS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(7), "e": np.zeros(0)}


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_arrays(file, ARRAYS, {"round": 3})
    arrays, about = load_arrays_of(file)
    assert about == {"round": 3}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
    save_arrays(tmp_path / "again.safetensors", ARRAYS, {"round": 3})
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_each_other_byte_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_arrays(file, ARRAYS)
    written = file.read_bytes()
    mark = written.index(b'crc32\\": \\"') - 2, written.index(b'crc32\\": \\"') + 11
    for position in range(8, len(written)):  # the first 8 bytes are the header's length
        if mark[0] <= position < mark[1]:
            continue  # the name of the checksum, without which a file is another program's
        changed = bytearray(written)
        changed[position] ^= 1
        file.write_bytes(changed)
        with refuses("file-damaged"):
            load_arrays_of(file)


@pytest.mark.parametrize("about", [None, {"fedul": '{"round": 3}'}])
def test_a_file_of_another_program_has_no_checksum(
    tmp_path: Path, about: dict[str, str] | None
) -> None:
    file = tmp_path / "a.safetensors"
    save_file(ARRAYS, file, metadata=about)
    require_whole(file)
    assert load_arrays_of(file)[1] == ({"round": 3} if about else {})
