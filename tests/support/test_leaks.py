"""The search for secrets finds them in usual forms, and in a message log without protection."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.sources import load_source
from fedul_flwr.engine.message_log import read_message_log
from fedul_flwr.learning.local import pixel_features
from fedul_flwr.propagation.codes import encode
from fedul_flwr.propagation.solve import one_hot
from fedul_flwr.secure.rowsums import to_words
from tests.support.leaks import contains, messages_with
from tests.support.runs import train

SECRET = bytes([7, 0, 255, 16, 33, 128, 9, 200, 61, 14])
BYTES = np.frombuffer(SECRET, dtype=np.uint8)
AROUND = np.array([[1, 2], [3, 4]])

FORMS: dict[str, Any] = {
    "bytes": b"before" + SECRET + b"after",
    "backwards": SECRET[::-1],
    "hexadecimal": f"key: {SECRET.hex()}.",
    "capitals": SECRET.hex().upper(),
    "base 64": base64.b64encode(SECRET).decode(),
    "base 64 after a byte": base64.b64encode(b"x" + SECRET + b"yz").decode(),
    "base 64 after two": base64.urlsafe_b64encode(b"xx" + SECRET + b"y").decode(),
    "a list": [SECRET.hex()[:5], SECRET.hex()[5:]],
    "a list of bytes": [SECRET[:3], SECRET[3:]],
    "a list of numbers": [1, *SECRET, 2],
    "an array": BYTES,
    "wide numbers": BYTES.astype(np.int64),
    "big-endian numbers": BYTES.astype(">u4"),
    "numbers": BYTES.astype(np.float32),
    "numbers beside others": np.concatenate([[np.nan, np.inf, -1e30], BYTES]),
    "fixed point": to_words(BYTES.astype(np.float64)),
    "a row": np.stack([BYTES, BYTES + 1]),
    "a column": np.stack([BYTES, BYTES + 1], axis=1),
    "bits": np.unpackbits(BYTES).astype(bool),
    "bits the other way": np.unpackbits(BYTES, bitorder="little").astype(np.int32),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_finds_a_secret_but_not_another(form: Any) -> None:
    assert contains([AROUND, "no", form], SECRET)
    for position in range(len(SECRET)):
        other = bytearray(SECRET)
        other[position] ^= 1
        assert not contains([AROUND, "no", form], bytes(other))


LABELS = np.array([3, -1, 4, 1, 5, 9, -1, 6, 5, 3])
ONES = one_hot(LABELS, 10)


@pytest.mark.parametrize("held", [LABELS, ONES], ids=["labels", "one-hot"])
@pytest.mark.parametrize("form", [np.int64, np.float32, to_words, np.ndarray.tolist])
def test_finds_labels(held: Any, form: Callable[[Any], Any]) -> None:
    secret = held.astype(np.int8).tobytes()
    assert contains([form(held.astype(np.float64))], secret)
    assert not contains([form(np.roll(held, 1, axis=0).astype(np.float64))], secret)


@pytest.mark.parametrize("secret", [b"", b"seven b", bytes(32), b"\xff" * 9])
def test_refuses_what_would_be_found_by_chance(secret: bytes) -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        contains([], secret)


def test_a_message_log_without_protection(
    settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Codes and who is labeled are there; labels not as such, though shares tell of them."""
    options = {"method": "xclp-predict", "xclp.num-bits": 256}
    config = settings(**options, **{"labels.total": 60, "points_per_client": 80})
    directory = train(config, 3, message_log=tmp_path / "t")
    images, seed = load_source("digits").train.inputs, stream(0, "codes", 0).bytes(32)
    with np.load(directory / "split.npz") as split:
        cuts = split["bounds"][1:-1]
        points, labels = (np.split(split[name], cuts) for name in ("points", "labels"))
    compared = [m.number for m in read_message_log(tmp_path / "t") if m.phase == "xclp-compare"]
    assert numbers(tmp_path / "t", seed) == compared[::2]
    for client in range(3):
        features = pixel_features(images, points[client])
        codes = encode(features, seed, 256)
        answer = [compared[1::2][client]]
        for row in (0, 40, 79):
            assert numbers(tmp_path / "t", codes[row].tobytes()) == answer
            assert numbers(tmp_path / "t", features[row].tobytes()) == []
        own = labels[client]
        given = own[own >= 0]
        assert numbers(tmp_path / "t", (own >= 0).tobytes()) == answer
        for secret in (own, given, one_hot(given, 10), one_hot(own, 10)):
            assert numbers(tmp_path / "t", secret.astype(np.int8).tobytes()) == []


def numbers(message_log: Path, secret: bytes) -> list[int]:
    return [message.number for message in messages_with(message_log, secret)]
