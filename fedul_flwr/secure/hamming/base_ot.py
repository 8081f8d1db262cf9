"""Oblivious transfer of 128 pairs of random keys over Curve25519 (Bellare and Micali 1989).

The receiver sends first. With a point C of unknown discrete logarithm, it sends for each pair a
public key PK_0, where PK_0 + PK_1 = C: it can know the private key of only one of the two, and its
message does not reveal which. The sender answers with one point R = r G for all pairs (Naor, Pinkas
2001, section 3.1); keys of a pair are hashes of r PK_0 and r PK_1. Parties are semi-honest.

The receiver's choices are hidden computationally, like discrete logarithms, not perfectly: the
scalars of RFC 7748 reach half of the group, and whoever could recognize this half would learn the
choices. Points and shared secrets are libsodium's, in constant time.
"""

from __future__ import annotations

import hashlib

import numpy as np
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_sub,
    crypto_scalarmult,
    crypto_scalarmult_ed25519_base,
    crypto_sign_ed25519_pk_to_curve25519,
)

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.randomness import KEY_BYTES, Entropy, fresh

POINT_BYTES = 32
"""A point of edwards25519: y, little-endian, and the lowest bit of x as the highest of all."""

_CANDIDATES = 256


def choose(context: bytes, choices: Bytes, entropy: Entropy) -> tuple[Bytes, Bytes]:
    """The receiver's message.

    Parameters
    ----------
    context : bytes unique to this run of the two parties, known to both.
    choices : ``(k,)``, 0 or 1 for each pair.
    entropy : source of private keys.

    Returns
    -------
    uint8 ``(k, 32)`` seeds of private keys, to keep, and ``(k, 32)`` PK_0, to send.
    """
    common = common_point(context)
    seeds = fresh(KEY_BYTES * len(choices), entropy).reshape(-1, KEY_BYTES)
    chosen = [crypto_scalarmult_ed25519_base(_scalar(seed.tobytes())) for seed in seeds]
    # Compute both, so that the time does not depend on the choice.
    others = [crypto_core_ed25519_sub(common, point) for point in chosen]
    return seeds, np.where(choices[:, np.newaxis] == 1, _array(others), _array(chosen))


def sender_keys(context: bytes, points: Bytes, entropy: Entropy) -> tuple[Bytes, Bytes]:
    """The sender's message and both keys of each pair.

    Parameters
    ----------
    context, entropy : as for :func:`choose`; R is a fresh point in every call.
    points : uint8 ``(k, 32)``, PK_0 of each pair.

    Returns
    -------
    uint8 ``(32,)`` R, to send, and ``(2, k, 32)`` keys, unique to this call.

    Raises
    ------
    ValueError
        If PK_0 or PK_1 is not of prime order, or not encoded as RFC 8032 has it.
    """
    common = common_point(context)
    scalar = _scalar(entropy(KEY_BYTES))
    message = crypto_scalarmult_ed25519_base(scalar)
    keys = np.empty((2, len(points), KEY_BYTES), dtype=np.uint8)
    for index, row in enumerate(points):
        first = row.tobytes()
        # PK_1 is computed once PK_0 is checked.
        secrets = _shared(scalar, first), _shared(scalar, crypto_core_ed25519_sub(common, first))
        for choice, secret in enumerate(secrets):
            key = _key(context, index, message, row, secret)
            keys[choice, index] = np.frombuffer(key, dtype=np.uint8)
    return np.frombuffer(message, dtype=np.uint8), keys


def receiver_keys(context: bytes, seeds: Bytes, points: Bytes, message: Bytes) -> Bytes:
    """The chosen key of each pair.

    Parameters
    ----------
    context : as for :func:`choose`.
    seeds, points : from :func:`choose`.
    message : uint8 ``(32,)``, R.

    Returns
    -------
    uint8 ``(k, 32)``

    Raises
    ------
    ValueError
        If R is not of prime order, or not encoded as RFC 8032 has it.
    """
    sent = message.tobytes()
    return _array(
        [
            _key(context, index, sent, row, _shared(_scalar(seed.tobytes()), sent))
            for index, (seed, row) in enumerate(zip(seeds, points, strict=True))
        ]
    )


def common_point(context: bytes) -> bytes:
    """C: a point of prime order with unknown discrete logarithm, by try and increment, times 8."""
    for counter in range(_CANDIDATES):
        point = hashlib.shake_128(context + counter.to_bytes(8, "little")).digest(POINT_BYTES)
        try:
            for _ in range(3):
                point = crypto_core_ed25519_add(point, point)
        except RuntimeError:  # about every second candidate is not on the curve
            continue
        return point
    raise AssertionError("no candidate is a point, as once in 2^256 times")


def _scalar(seed: bytes) -> bytes:
    """Ed25519's private scalar (RFC 8032, 5.1.5), which libsodium clamps where it multiplies."""
    return hashlib.sha512(seed).digest()[:KEY_BYTES]


def _shared(scalar: bytes, point: bytes) -> bytes:
    """The u coordinate of their product; ``ValueError`` for a point that is not of prime order."""
    if not crypto_core_ed25519_is_valid_point(point):
        raise ValueError("not a point of prime order on edwards25519")
    return crypto_scalarmult(scalar, crypto_sign_ed25519_pk_to_curve25519(point))


def _key(context: bytes, index: int, message: bytes, point: Bytes, shared: bytes) -> bytes:
    position = index.to_bytes(8, "little")
    hashed = hashlib.shake_128(context + position + message + point.tobytes() + shared)
    return hashed.digest(KEY_BYTES)


def _array(rows: list[bytes]) -> Bytes:
    """Points or keys, of 32 bytes both, as ``(k, 32)``."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, KEY_BYTES)
