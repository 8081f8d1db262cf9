"""Oblivious transfer of 128 pairs of random keys over Curve25519 (Bellare and Micali 1989).

The receiver sends first. With a point C of unknown discrete logarithm, it sends for each pair a
public key PK_0, where PK_0 + PK_1 = C: it can know the private key of only one of the two, and its
message does not reveal which. The sender answers with one point R = r G for all pairs (Naor, Pinkas
2001, section 3.1); keys of a pair are hashes of r PK_0 and r PK_1. Parties are semi-honest.

The receiver's choices are hidden computationally, like discrete logarithms, not perfectly: the
scalars of RFC 7748 reach half of the group, and whoever could recognize this half would learn the
choices. Scalars are multiples of 8, so components of small order in a peer's points have no effect.
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.hamming.edwards import (
    Point,
    add,
    compress,
    decompress,
    hashed_point,
    negative,
    to_montgomery,
)
from fedul_flwr.secure.randomness import KEY_BYTES, Entropy, fresh


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
    common = hashed_point(context)
    seeds = fresh(KEY_BYTES * len(choices), entropy).reshape(-1, KEY_BYTES)
    known = [_public_point(seed.tobytes()) for seed in seeds]
    # Compute both, so that the time does not depend on the choice.
    others = [compress(add(common, negative(decompress(point)))) for point in known]
    return seeds, np.where(choices[:, np.newaxis] == 1, _array(others), _array(known))


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
        If a point is not on the curve, or PK_0 or PK_1 is of small order.
    """
    common = hashed_point(context)
    seed = entropy(KEY_BYTES)
    private, message = _private(seed), _public_point(seed)
    keys = np.empty((2, len(points), KEY_BYTES), dtype=np.uint8)
    for index, row in enumerate(points):
        first = decompress(row.tobytes())
        for choice, point in enumerate((first, add(common, negative(first)))):
            key = _key(context, index, message, row, _shared(private, point))
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
        If R is not on the curve, or of small order.
    """
    sent = message.tobytes()
    point = decompress(sent)
    return _array(
        [
            _key(context, index, sent, row, _shared(_private(seed.tobytes()), point))
            for index, (seed, row) in enumerate(zip(seeds, points, strict=True))
        ]
    )


def _public_point(seed: bytes) -> bytes:
    """Ed25519's public key: the full point of a private key, as X25519 omits its sign."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _private(seed: bytes) -> X25519PrivateKey:
    """The same private key for Diffie-Hellman: its scalar (RFC 8032, 5.1.5)."""
    return X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:KEY_BYTES])


def _shared(private: X25519PrivateKey, point: Point) -> bytes:
    """The u coordinate of their product; ``ValueError`` for a point of small order."""
    return private.exchange(X25519PublicKey.from_public_bytes(to_montgomery(point)))


def _key(context: bytes, index: int, message: bytes, point: Bytes, shared: bytes) -> bytes:
    position = index.to_bytes(8, "little")
    hashed = hashlib.shake_128(context + position + message + point.tobytes() + shared)
    return hashed.digest(KEY_BYTES)


def _array(rows: list[bytes]) -> Bytes:
    """Points or keys, of 32 bytes both, as ``(k, 32)``."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, KEY_BYTES)
