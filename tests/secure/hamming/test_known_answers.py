"""Stored messages of ring-LWE and of oblivious transfer, made twice: by the code, and slowly.

``known_answers.json`` has SHA-256 digests of all that is made of given codes and given entropy, and
a few numbers in full. The code's have to be these, and those of schoolbook arithmetic too.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes
from fedul_flwr.secure.hamming import rlwe
from fedul_flwr.secure.hamming.ot import OT
from fedul_flwr.secure.hamming.rlwe import N, Packing, carry
from fedul_flwr.secure.session import Entropy
from tests.support.hamming.pairs import plain_distances, play
from tests.support.hamming.reference import Ints, Q, aes_stream, integers, product, public, words
from tests.support.hamming.reference_ot import transfer

STORED: dict[str, Any] = json.loads((Path(__file__).parent / "known_answers.json").read_text())
SESSION = bytes.fromhex(STORED["session"])


def counted(label: str) -> Entropy:
    """Call k gives SHAKE256 of the label and k, 8 bytes, little-endian."""
    calls = 0

    def entropy(size: int) -> bytes:
        nonlocal calls
        calls += 1
        return hashlib.shake_256(label.encode() + (calls - 1).to_bytes(8, "little")).digest(size)

    return entropy


def codes_of(label: str, points: int, num_bytes: int) -> Bytes:
    data = hashlib.shake_256(label.encode()).digest(points * num_bytes)
    return np.frombuffer(data, np.uint8).reshape(points, num_bytes)


def digest(array: NDArray[Any]) -> str:
    """Of the shape and of the numbers, little-endian, row by row."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    form = f"{array.dtype.str[1:]} {array.shape} ".encode()
    return hashlib.sha256(form + little.tobytes()).hexdigest()


# Ring-LWE: two chunks, two ciphertexts each

LAYOUT = Packing(8, 16)
OWNERS, EVALUATORS = codes_of("owner", 513, 2), codes_of("evaluator", 3, 2)
MASK_KEY = bytes(range(100, 132))


def made(patch: pytest.MonkeyPatch) -> dict[str, NDArray[Any]]:
    """By the code; of answers also all digits, before two are dropped."""
    whole: list[NDArray[Any]] = []

    def recorded(digits: NDArray[Any]) -> NDArray[Any]:
        whole.append(carry(digits))
        return whole[-1]

    secrets, offer = rlwe.encrypt(LAYOUT, SESSION, OWNERS, counted("encrypt"))
    ones = np.unpackbits(EVALUATORS, axis=1).astype(float)
    patch.setattr(rlwe, "carry", recorded)
    a, (b,) = rlwe.evaluate([offer], SESSION, 1 - 2 * ones, counted("evaluate"))
    masked = b + rlwe.mask(MASK_KEY, b.shape)
    digits = rlwe.decrypt(LAYOUT, secrets, a, masked)
    return {
        "secrets": secrets,
        "keys": offer.keys,
        "bits": offer.bits,
        "a": a,
        "b": b,
        "whole a": whole[0],
        "whole b": whole[1],
        "masked b": masked,
        "digits": digits,
        "distances": rlwe.rounded(digits - rlwe.mask(MASK_KEY, b.shape)),
    }


def ternary(shape: tuple[int, ...], key: bytes) -> Ints:
    stream = aes_stream(key, 8 * int(np.prod(shape)))
    numbers = [int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8)]
    return np.array([number % 3 - 1 for number in numbers]).reshape(shape)


def noise(shape: tuple[int, ...], key: bytes) -> Ints:
    """The ones among the lowest 42 of 64 bits, less 21."""
    stream = aes_stream(key, 8 * int(np.prod(shape)))
    numbers = [int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8)]
    heads = [(number % 2**42).bit_count() - 21 for number in numbers]
    return np.array(heads).reshape(shape)


def slowly_made() -> dict[str, NDArray[Any]]:
    """By the definition in ``rlwe``, all in exact integers."""
    entropy, chunks = counted("encrypt"), [slice(0, 512), slice(512, 513)]
    plain = np.unpackbits(OWNERS, axis=1).tolist()
    publics = [public(SESSION, index) for index in range(3)]
    secrets = ternary((2, N), entropy(32))
    errors = noise((2, N), entropy(32))
    keys, bits = [], np.zeros((513, 16), dtype=object)
    for chunk, secret, error in zip(chunks, secrets, errors, strict=True):
        product_of = [integers(product(a, secret)) for a in publics]
        keys += [(p + e) % Q for p, e in zip(product_of[0], error.tolist(), strict=True)]
        drawn = noise((chunk.stop - chunk.start, 16), entropy(32)).tolist()
        for slot, point in enumerate(range(chunk.start, chunk.stop)):
            for k in range(16):
                whole = product_of[1 + k // 8][8 * slot + k % 8]
                bits[point, k] = (whole + drawn[slot][k] + (plain[point][k] << 83)) % Q

    entropy = counted("evaluate")
    u = ternary((3, N), entropy(32))
    first = noise((3, N), entropy(32))
    second = noise((3, 513), entropy(32)).tolist()
    low = np.frombuffer(aes_stream(entropy(32), 8 * 3 * 513), "<u4").reshape(2, 3, 513).tolist()
    high = np.frombuffer(aes_stream(entropy(32), 2 * 3 * 513), "<u2").reshape(3, 513).tolist()
    whole_a, whole_b = [], np.zeros((3, 513), dtype=object)
    for row, y in enumerate(np.unpackbits(EVALUATORS, axis=1).tolist()):
        total = product(publics[0], u[row])
        total[0] += first[row]
        for c in range(2):
            weights = np.zeros(N, np.int64)
            weights[0] = 1 - 2 * y[8 * c]
            for m in range(1, 8):  # X^-m = -X^(N - m)
                weights[N - m] = -(1 - 2 * y[8 * c + m])
            total += product(publics[1 + c], weights)
        whole_a += integers(total)
        for chunk, begin in zip(chunks, (0, N), strict=True):
            key = words(keys[begin : begin + N], (N,)).astype(np.int64)
            zeros = integers(product(key, u[row]))
            for slot, point in enumerate(range(chunk.start, chunk.stop)):
                number = sum((1 - 2 * y[k]) * bits[point, k] for k in range(16))
                number += zeros[8 * slot] + second[row][point]
                number += sum(y) << 83
                flood = low[0][row][point] + (low[1][row][point] << 32) + (high[row][point] << 64)
                whole_b[row, point] = (number + flood - 2**79) % Q

    a = np.array([number >> 64 for number in whole_a]).reshape(3, N)
    b = (whole_b >> 64).astype(np.int64)
    masks = np.frombuffer(aes_stream(MASK_KEY, 4 * 3 * 513), "<u4").reshape(3, 513).astype(np.int64)
    masked = (b + masks) % 2**32
    digits, distances = np.zeros((2, 3, 513), np.int64)
    for row in range(3):
        for chunk, secret in zip(chunks, secrets, strict=True):
            known = product(a[row], secret)[::8]
            for slot, point in enumerate(range(chunk.start, chunk.stop)):
                digits[row, point] = (masked[row, point] - known[slot]) % 2**32
                rest = (digits[row, point] - masks[row, point]) % 2**32
                distances[row, point] = (rest + 2**18 >> 19) % 2**13
    return {
        "secrets": secrets.astype(np.int8),
        "keys": words(keys, (2, N)),
        "bits": words(bits.ravel().tolist(), (513, 16)),
        "a": a.astype(np.uint32),
        "b": b.astype(np.uint32),
        "whole a": words(whole_a, (3, N)),
        "whole b": words(whole_b.ravel().tolist(), (3, 513)),
        "masked b": masked.astype(np.uint32),
        "digits": digits.astype(np.uint32),
        "distances": distances.astype(np.uint32),
    }


def shown(found: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """What is stored: digests, and the first and the last number of each, in full."""
    stored: dict[str, Any] = {name: digest(array) for name, array in found.items()}
    for name in ("keys", "bits", "whole a", "whole b"):
        numbers = integers(found[name])
        stored[f"ends of {name}"] = [f"{numbers[0]:024x}", f"{numbers[-1]:024x}"]
    for name in ("secrets", "a", "b", "masked b", "digits", "distances"):
        stored[f"ends of {name}"] = found[name].ravel()[[0, -1]].tolist()
    return stored


def test_ring_lwe_gives_the_stored_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(made(monkeypatch)) == STORED["rlwe"]


def test_schoolbook_arithmetic_gives_the_same_key_ciphertexts_answers_and_distances() -> None:
    found = slowly_made()
    assert shown(found) == STORED["rlwe"]
    np.testing.assert_array_equal(found["distances"].T, plain_distances(OWNERS, EVALUATORS))


# Oblivious transfer

CODES = {0: codes_of("owner", 2, 2), 1: codes_of("evaluator", 3, 2)}


def test_oblivious_transfer_gives_the_stored_messages() -> None:
    played = play(OT, CODES, session=SESSION, entropy=counted("ot"))
    inboxes = played.inboxes
    found = {
        "points": inboxes["offer"][1][0]["points"],
        "point": inboxes["answer"][0][1]["point"],
        "choices": inboxes["answer"][0][1]["choices"],
        "corrections": inboxes["reveal"][1][0]["corrections"],
        "owner's sums": played.server[0, 1][0]["sums"],
        "evaluator's sums": played.server[0, 1][1]["sums"],
    }
    assert {name: digest(array) for name, array in found.items()} == STORED["ot"]


def test_slow_transfers_give_the_same_messages() -> None:
    owner, evaluator = ([row.tobytes() for row in codes] for codes in CODES.values())
    slow = transfer(SESSION, owner, evaluator, counted("ot"))
    found = {
        "points": np.frombuffer(slow.points, np.uint8).reshape(128, 32),
        "point": np.frombuffer(slow.point, np.uint8),
        "choices": np.frombuffer(slow.choices, np.uint8).reshape(128, 6),
        "corrections": np.array(slow.corrections, np.uint16),
        "owner's sums": np.array(slow.owners_sums, np.uint16),
        "evaluator's sums": np.array(slow.evaluators_sums, np.uint16),
    }
    assert {name: digest(array) for name, array in found.items()} == STORED["ot"]
    distances = (found["evaluator's sums"] - found["owner's sums"]).astype(int)
    np.testing.assert_array_equal(distances, plain_distances(CODES[0], CODES[1]))
