"""Key pairs of clients, for secrets of two of them: X25519 and ML-KEM-768 together.

A public key is one of X25519 (RFC 7748) followed by one of ML-KEM-768 (FIPS 203). Two clients'
X25519 keys give both a common secret. For ML-KEM the sender of a message makes a capsule, which
holds a fresh secret that its reader alone can take out. Keys are derived from both: who records
messages and has a quantum computer one day breaks X25519 alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import (
    MLKEM768PrivateKey,
    MLKEM768PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedul_flwr.errors import UserError
from fedul_flwr.secure.randomness import KEY_BYTES, Entropy

PRIVATE_BYTES = KEY_BYTES + 64
"""Length of a private key: X25519's scalar, and the seed of ML-KEM's."""
PUBLIC_BYTES = KEY_BYTES + 1184
CAPSULE_BYTES = 1088


class Sealed(NamedTuple):
    """A capsule, and the secret of 32 bytes in it."""

    capsule: bytes
    secret: bytes


def new_private_key(entropy: Entropy) -> bytes:
    """A private key, :data:`PRIVATE_BYTES`."""
    return entropy(PRIVATE_BYTES)


def public_key(private: bytes) -> bytes:
    """The public key, :data:`PUBLIC_BYTES`, of a private one.

    Raises
    ------
    UserError
        If the installed ``cryptography`` has no ML-KEM.
    """
    point = X25519PrivateKey.from_private_bytes(private[:KEY_BYTES]).public_key()
    return point.public_bytes_raw() + _decapsulator(private).public_key().public_bytes_raw()


def pair_secret(private: bytes, peer_public: bytes, peer: int) -> bytes:
    """X25519's secret of two clients, 32 bytes.

    Raises
    ------
    UserError
        For a public key that makes the secret predictable, or of another length.
    """
    own = X25519PrivateKey.from_private_bytes(private[:KEY_BYTES])
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer_public[:KEY_BYTES]))
    except ValueError as error:
        raise UserError(f"Client {peer} sent a public key that is none of X25519.") from error


def encapsulate(peer_public: bytes, peer: int) -> Sealed:
    """A fresh secret for the owner of a public key.

    Raises
    ------
    UserError
        For a public key that is none, or of another length.
    """
    try:
        key = MLKEM768PublicKey.from_public_bytes(peer_public[KEY_BYTES:])
    except ValueError as error:
        raise UserError(f"Client {peer} sent a public key that is none of ML-KEM-768.") from error
    secret, capsule = key.encapsulate()
    return Sealed(capsule, secret)


def capsule_opener(private: bytes) -> Callable[[bytes], bytes]:
    """What takes the secret out of a capsule of :data:`CAPSULE_BYTES`; of a changed one, another.

    Raises
    ------
    UserError
        If the installed ``cryptography`` has no ML-KEM.
    """
    return _decapsulator(private).decapsulate


def is_public_key(public: bytes) -> bool:
    """Whether secrets can be made with a key: it is a whole one, and not of small order."""
    try:
        pair_secret(bytes(PRIVATE_BYTES), public, 0)
        encapsulate(public, 0)
    except UserError:
        return False
    return True


def _decapsulator(private: bytes) -> MLKEM768PrivateKey:
    try:
        return MLKEM768PrivateKey.from_seed_bytes(private[KEY_BYTES:])
    except UnsupportedAlgorithm:
        raise UserError(
            "The Python package cryptography has no ML-KEM-768 here, as its OpenSSL is older than "
            "3.5: install it from PyPI."
        ) from None
