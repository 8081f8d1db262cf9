"""Keys for pairs of clients, and end-to-end encrypted messages between them.

Clients communicate only through the server, which forwards their messages. X25519 gives two clients
a secret (RFC 7748), HKDF-SHA256 derives one key per message from it (RFC 5869), and AES-256-GCM
encrypts. Key and ciphertext are bound to the message's place: in another session, round, attempt or
step, or between other clients, it cannot be decrypted. Public keys are authentic if the server is
semi-honest, which is assumed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedul_flwr.data.types import Bytes
from fedul_flwr.errors import UserError
from fedul_flwr.secure.randomness import KEY_BYTES, Entropy
from fedul_flwr.secure.similarity import Arrays

NONCE_BYTES, TAG_BYTES = 12, 16
FEWEST_BYTES = NONCE_BYTES + TAG_BYTES
"""Length of a sealed message without content."""
MOST_BYTES = 2**31 - 1
"""Largest message that the library can encrypt."""

EVERYBODY = -1
"""Destination of messages that several clients get."""

_DOMAIN = b"fedul-flwr secure 1"


@dataclass(frozen=True)
class Place:
    """Context of a message, to which its key is bound.

    Attributes
    ----------
    session : 32 bytes unique to the session.
    attempt : number of the attempt at a step that may be repeated.
    step : name of the step.
    source, destination : clients; :data:`EVERYBODY` for several. For a key that both need, the
        lower one first.
    """

    session: bytes
    attempt: int
    step: str
    source: int
    destination: int

    def info(self, purpose: str) -> bytes:
        """Unambiguous encoding as bytes, with lengths first."""
        parts = [_DOMAIN, purpose.encode(), self.session, self.step.encode()]
        numbers = struct.pack("<qqq", self.attempt, self.source, self.destination)
        return b"".join(struct.pack("<q", len(part)) + part for part in parts) + numbers


def new_private_key(entropy: Entropy) -> bytes:
    """A private key of X25519, 32 bytes."""
    return entropy(KEY_BYTES)


def public_key(private: bytes) -> bytes:
    """The public key, 32 bytes, of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pair_secret(private: bytes, peer_public: bytes, peer: int) -> bytes:
    """The secret of two clients, 32 bytes.

    Raises
    ------
    UserError
        For a public key that makes the secret predictable, or of another length.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer_public))
    except ValueError as error:
        raise UserError(f"Client {peer} sent a public key that is none of X25519.") from error


def is_public_key(public: bytes) -> bool:
    """Whether 32 bytes are a key of X25519 with which a secret is one: not of small order."""
    try:
        pair_secret(bytes(KEY_BYTES), public, 0)
    except UserError:
        return False
    return True


def derive(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 without salt: 32 bytes."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def seal(arrays: Arrays, secret: bytes, place: Place, entropy: Entropy) -> Bytes:
    """Encrypt named arrays for the owner of ``secret``: nonce, ciphertext, tag.

    The nonce is random although each key encrypts one message: if a new process creates the message
    again, it must not reuse key and nonce.

    Raises
    ------
    UserError
        For more than :data:`MOST_BYTES`, with client and step.
    """
    plain = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    if len(plain) > MOST_BYTES:
        raise UserError(
            f"Client {place.source}'s message of step {place.step!r} has {len(plain):,} bytes; "
            f"at most {MOST_BYTES:,} can be sealed."
        )
    nonce = entropy(NONCE_BYTES)
    cipher = AESGCM(derive(secret, place.info("key")))
    sealed = np.empty(NONCE_BYTES + len(plain) + TAG_BYTES, dtype=np.uint8)
    sealed[:NONCE_BYTES] = np.frombuffer(nonce, dtype=np.uint8)
    cipher.encrypt_into(nonce, plain, place.info("seal"), sealed[NONCE_BYTES:].data)
    return sealed


def unseal(sealed: NDArray[Any] | None, secret: bytes, place: Place) -> dict[str, NDArray[Any]]:
    """Decrypt named arrays that were encrypted for this place.

    Raises
    ------
    UserError
        If it is missing, was changed, or belongs to another place, with client and step.
    """
    who = f"Client {place.source}'s message of step {place.step!r}"
    if sealed is None:
        raise UserError(f"{who} is missing.")
    if sealed.dtype != np.uint8 or sealed.ndim != 1 or len(sealed) < FEWEST_BYTES:
        raise UserError(f"{who} is no sealed message.")
    cipher = AESGCM(derive(secret, place.info("key")))
    nonce, rest = sealed[:NONCE_BYTES].tobytes(), np.ascontiguousarray(sealed[NONCE_BYTES:])
    try:
        return load(cipher.decrypt(nonce, rest.data, place.info("seal")))
    except InvalidTag as error:
        raise UserError(f"{who} does not open: it was changed, or belongs elsewhere.") from error
    except (SafetensorError, KeyError):  # a type that numpy does not have is a KeyError
        # Without the cause, which quotes the decrypted content.
        raise UserError(f"{who} holds no arrays.") from None
