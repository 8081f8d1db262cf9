"""End-to-end encrypted messages between clients, which communicate only through the server.

HKDF-SHA256 derives one key per message from the secrets of two clients (RFC 5869, see
:mod:`fedul_flwr.secure.key_pairs`), and AES-256-GCM encrypts. Key and ciphertext are bound to the
message's place: in another session, round, attempt or step, or between other clients, it cannot be
decrypted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from cryptography.exceptions import InvalidTag
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
    who = _called(place)
    sealed = checked_seal(sealed, place, FEWEST_BYTES)
    cipher = AESGCM(derive(secret, place.info("key")))
    nonce, rest = sealed[:NONCE_BYTES].tobytes(), np.ascontiguousarray(sealed[NONCE_BYTES:])
    try:
        return load(cipher.decrypt(nonce, rest.data, place.info("seal")))
    except InvalidTag as error:
        raise UserError(f"{who} does not open: it was changed, or belongs elsewhere.") from error
    except (SafetensorError, KeyError):  # a type that numpy does not have is a KeyError
        # Without the cause, which quotes the decrypted content.
        raise UserError(f"{who} holds no arrays.") from None


def checked_seal(sealed: NDArray[Any] | None, place: Place, fewest: int) -> Bytes:
    """A sealed message, after a check of its form.

    Raises
    ------
    UserError
        If it is missing, or no array of ``fewest`` bytes or more, with client and step.
    """
    if sealed is None:
        raise UserError(f"{_called(place)} is missing.")
    if not is_sealed(sealed, fewest):
        raise UserError(f"{_called(place)} is no sealed message.")
    return sealed


def is_sealed(message: NDArray[Any] | None, fewest: int) -> TypeGuard[Bytes]:
    """Whether a message has the form of a sealed one: ``fewest`` bytes or more in one row."""
    return (
        message is not None
        and message.dtype == np.uint8
        and message.ndim == 1
        and len(message) >= fewest
    )


def _called(place: Place) -> str:
    return f"Client {place.source}'s message of step {place.step!r}"
