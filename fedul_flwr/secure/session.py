"""A session of clients: randomness, key pairs, channels between two of them, who is in it.

A public key is one of X25519 (RFC 7748) followed by one of ML-KEM-768 (FIPS 203). Two clients'
X25519 keys give both a common secret. For ML-KEM the sender of a message makes a capsule, which
contains a fresh secret that its reader alone can take out. Keys are derived from both: who records
messages and has a quantum computer one day breaks X25519 alone.

HKDF-SHA256 (RFC 5869) derives one key per message from the secrets of two clients, and AES-256-GCM
encrypts. Key and ciphertext are bound to the message's context: in another session, round, attempt
or step, or between other clients, it cannot be decrypted.

The server selects the participants and forwards their messages. The session's number is a hash of
all that the server says about them: if it says different things to two clients, they cannot decrypt
each other's messages. Public keys are authentic if owners have identities
(:mod:`fedul_flwr.secure.identities`), or else if the server is semi-honest.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import (
    MLKEM768PrivateKey,
    MLKEM768PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedul_flwr.arrays import Bytes, Ints
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.identities import SIGNATURE_BYTES, UNSIGNED, Identities, Purpose
from fedul_flwr.secure.messages import (
    checked_array,
    errors_of_peers,
    listed_clients,
    messages_from,
)
from fedul_flwr.secure.similarity import Arrays
from fedul_flwr.secure.stored import Counts, Rows, Stored

Entropy = Callable[[int], bytes]
"""Function that returns the given number of unpredictable bytes; ``os.urandom`` except in tests."""

KEY_BYTES = 32

_COUNTER = bytes(16)  # each key is used for one stream, so the first counter can be constant


class KeyStream:
    """AES-256 in counter mode (NIST SP 800-38A) under a key used only once, read piece by piece."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(AES256(key), CTR(_COUNTER)).encryptor()

    def read_into(self, stream: Bytes) -> None:
        """Replace the content of ``stream``, one contiguous row, by the next bytes."""
        stream.fill(0)
        self._encryptor.update_into(stream.data, stream.data)  # zeros XOR stream


def keystream(key: bytes, size: int) -> Bytes:
    """The first ``size`` bytes of a :class:`KeyStream`."""
    stream = np.empty(size, dtype=np.uint8)
    KeyStream(key).read_into(stream)
    return stream


def fresh(size: int, entropy: Entropy = os.urandom) -> Bytes:
    """``size`` unpredictable bytes, expanded from 32 bytes of ``entropy``."""
    return keystream(entropy(KEY_BYTES), size)


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
    """The public key, :data:`PUBLIC_BYTES`, of a private one."""
    point = X25519PrivateKey.from_private_bytes(private[:KEY_BYTES]).public_key()
    return point.public_bytes_raw() + _decapsulator(private).public_key().public_bytes_raw()


def pair_secret(private: bytes, peer_public: bytes, peer: int) -> bytes:
    """X25519's secret of two clients, 32 bytes."""
    private_key = X25519PrivateKey.from_private_bytes(private[:KEY_BYTES])
    try:
        return private_key.exchange(X25519PublicKey.from_public_bytes(peer_public[:KEY_BYTES]))
    except ValueError as error:
        raise UserError(
            f"Client {peer} sent a public key that is none of X25519.", "key-unsafe"
        ) from error


def encapsulate(peer_public: bytes, peer: int) -> Sealed:
    """A fresh secret for the owner of a public key."""
    try:
        key = MLKEM768PublicKey.from_public_bytes(peer_public[KEY_BYTES:])
    except ValueError as error:
        raise UserError(
            f"Client {peer} sent a public key that is none of ML-KEM-768.", "key-unsafe"
        ) from error
    secret, capsule = key.encapsulate()
    return Sealed(capsule, secret)


def capsule_opener(private: bytes) -> Callable[[bytes], bytes]:
    """Takes the secret out of a capsule of :data:`CAPSULE_BYTES`; of a changed one, another."""
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
            "3.5: install it from PyPI.",
            "package-missing",
        ) from None


NONCE_BYTES, TAG_BYTES = 12, 16
FEWEST_BYTES = NONCE_BYTES + TAG_BYTES
"""Length of a sealed message without content."""
MOST_BYTES = 2**31 - 1
"""Largest message that the library can encrypt."""

EVERYBODY = -1
"""Destination of messages that several clients get."""

_DOMAIN = b"fedul-flwr secure 1"


@dataclass(frozen=True)
class Address:
    """Context of a message, to which its key is bound.

    Attributes
    ----------
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


def seal(arrays: Arrays, secret: bytes, address: Address, entropy: Entropy) -> Bytes:
    """Encrypt named arrays for the owner of ``secret``: nonce, ciphertext, tag.

    The nonce is random although each key encrypts one message: if a new process creates the message
    again, it must not reuse key and nonce.
    """
    plain = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    if len(plain) > MOST_BYTES:
        raise UserError(
            f"Client {address.source}'s message of step {address.step!r} has {len(plain):,} bytes; "
            f"at most {MOST_BYTES:,} can be sealed.",
            "message-out-of-range",
        )
    nonce = entropy(NONCE_BYTES)
    cipher = AESGCM(derive(secret, address.info("key")))
    sealed = np.empty(NONCE_BYTES + len(plain) + TAG_BYTES, dtype=np.uint8)
    sealed[:NONCE_BYTES] = np.frombuffer(nonce, dtype=np.uint8)
    cipher.encrypt_into(nonce, plain, address.info("seal"), sealed[NONCE_BYTES:].data)
    return sealed


def unseal(sealed: NDArray[Any] | None, secret: bytes, address: Address) -> dict[str, NDArray[Any]]:
    """Decrypt named arrays that were encrypted for this place."""
    sender = _sender(address)
    sealed = checked_seal(sealed, address, FEWEST_BYTES)
    cipher = AESGCM(derive(secret, address.info("key")))
    nonce, rest = sealed[:NONCE_BYTES].tobytes(), np.ascontiguousarray(sealed[NONCE_BYTES:])
    try:
        return load(cipher.decrypt(nonce, rest.data, address.info("seal")))
    except InvalidTag as error:
        raise UserError(
            f"{sender} does not open: it was changed, or belongs elsewhere.", "message-not-opened"
        ) from error
    except (SafetensorError, KeyError):  # a type that numpy does not have is a KeyError
        # Without the cause, which quotes the decrypted content.
        raise UserError(f"{sender} holds no arrays.", "message-form") from None


def checked_seal(sealed: NDArray[Any] | None, address: Address, fewest: int) -> Bytes:
    """A sealed message, after a check of its form."""
    if sealed is None:
        raise UserError(f"{_sender(address)} is missing.", "message-incomplete")
    if not is_sealed(sealed, fewest):
        raise UserError(f"{_sender(address)} is no sealed message.", "message-form")
    return sealed


def is_sealed(message: NDArray[Any] | None, fewest: int) -> TypeGuard[Bytes]:
    """Whether a message has the form of a sealed one: ``fewest`` bytes or more in one row."""
    return (
        message is not None
        and message.dtype == np.uint8
        and message.ndim == 1
        and len(message) >= fewest
    )


def _sender(address: Address) -> str:
    return f"Client {address.source}'s message of step {address.step!r}"


NONCE, PUBLIC, SIGNATURES = "nonce", "public-keys", "signatures"
PARTICIPANTS, SIZES = "participants", "sizes"

TO, FROM = "to/", "from/"
"""Prefixes of arrays that are sealed for a client, and that come from one."""

FEWEST_SEALED = CAPSULE_BYTES + FEWEST_BYTES
"""Length of a message that is sealed for one client, without content."""

FEWEST = 3
"""Fewest participants: with two, each one could compute the other's part of a sum."""


class Session(Stored):
    """A client's data about a session with fixed participants.

    Attributes
    ----------
    public : public keys of all participants, in ascending order of their numbers.
    """

    client: int
    private: bytes
    public: Rows
    sizes: Counts
    nonce: bytes
    server_round: int

    @property
    def peers(self) -> list[int]:
        """The other participants."""
        return [client for client in self.public if client != self.client]

    @cached_property
    def number(self) -> bytes:
        """32 bytes, a hash of everything that the server says about participants."""
        digest = hashlib.sha256(b"fedul-flwr session 2" + self.nonce)
        digest.update(self.server_round.to_bytes(8, "little"))
        for client, key in self.public.items():
            numbers = np.array([client, self.sizes[client]], dtype="<i8")
            digest.update(numbers.tobytes() + key)
        return digest.digest()

    def seal(self, peer: int, step: str, arrays: Arrays, entropy: Entropy) -> Bytes:
        """Encrypt a message for ``peer`` only, in a step that is done once.

        It begins with a capsule, whose secret the key is derived from, too.
        """
        with messages_from(peer):
            capsule, fresh = encapsulate(self.public[peer], peer)
        address = self._address(step, self.client, peer)
        sealed = seal(arrays, self._secret(peer) + fresh, address, entropy)
        return np.concatenate([bytes_array(capsule), sealed])

    def unseal(self, peer: int, step: str, sealed: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
        """Decrypt a message from ``peer`` to this client only."""
        address = self._address(step, peer, self.client)
        with messages_from(peer):
            whole = checked_seal(sealed, address, FEWEST_SEALED)
            fresh = self._open(whole[:CAPSULE_BYTES].tobytes())
            return unseal(whole[CAPSULE_BYTES:], self._secret(peer) + fresh, address)

    def seal_for_several(self, step: str, arrays: Arrays, entropy: Entropy) -> tuple[bytes, Bytes]:
        """A new key, to be sent encrypted to each reader, and the message encrypted with it."""
        key = entropy(KEY_BYTES)
        return key, seal(arrays, key, self._address(step, self.client, EVERYBODY), entropy)

    def unseal_for_several(
        self, peer: int, step: str, sealed: NDArray[Any] | None, key: bytes
    ) -> dict[str, NDArray[Any]]:
        """Decrypt a message from ``peer`` to several clients, with the key that it sent them."""
        with messages_from(peer):
            return unseal(sealed, key, self._address(step, peer, EVERYBODY))

    def mask_share(self, peer: int) -> Bytes:
        """32 bytes that go into the masks with ``peer``, to be sealed for it: always the same."""
        address = self._address("sum", self.client, peer)
        return bytes_array(derive(self.private, address.info("mask share")))

    def mask_roots(self, shares: Mapping[int, bytes]) -> Rows:
        """Secrets for masks with those who have sent their ``shares`` of them."""
        return {peer: self._mask_root(peer, shares[peer]) for peer in self.public if peer in shares}

    def _mask_root(self, peer: int, share: bytes) -> bytes:
        lower, upper = sorted((self.client, peer))
        shares = {self.client: self.mask_share(peer).tobytes(), peer: share}
        address = Address(self.number, 0, "sum", lower, upper)
        together = self._secret(peer) + shares[lower] + shares[upper]
        return derive(together, address.info("masks"))

    def seed(self, shares: Mapping[int, bytes]) -> bytes:
        """The participants' seed, 32 bytes, from the shares of the remaining ones."""
        require_enough(shares)
        clients = np.array(sorted(shares), dtype="<i8")
        address = Address(self.number, 0, "seed", EVERYBODY, EVERYBODY)
        together = b"".join(shares[client] for client in clients.tolist())
        return derive(together, address.info("seed") + clients.tobytes())

    def _secret(self, peer: int) -> bytes:
        if peer not in self._secrets:
            with messages_from(peer):
                secret = pair_secret(self.private, self.public[peer], peer)
            self._secrets[peer] = secret
        return self._secrets[peer]

    @cached_property
    def _secrets(self) -> dict[int, bytes]:
        """X25519's secrets with peers, once they are computed."""
        return {}

    @cached_property
    def _open(self) -> Callable[[bytes], bytes]:
        return capsule_opener(self.private)

    def _address(self, step: str, source: int, destination: int) -> Address:
        return Address(self.number, 0, step, source, destination)


def new_key(
    purpose: Purpose, identities: Identities | None
) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """A client's private key for a session, and its answer: the public one, signed by the owner's
    identity if there is one."""
    private = new_private_key(os.urandom)
    public = public_key(private)
    signature = identities.sign(purpose, public) if identities else UNSIGNED
    return private, {PUBLIC: bytes_array(public), SIGNATURES: signature}


def check_key(origin: str, answer: Arrays) -> None:
    """Refuse what is no answer of :func:`new_key`, at the server."""
    key = checked_array(origin, answer, PUBLIC, np.uint8, (PUBLIC_BYTES,))
    if not is_public_key(key.tobytes()):
        raise BadMessageError(
            f"{origin} a public key of small order or of another form, with which nothing is "
            "secret.",
            "key-unsafe",
        )
    checked_array(origin, answer, SIGNATURES, np.uint8, (SIGNATURE_BYTES,))


def mask_key(root: bytes, attempt: int) -> bytes:
    """A key for one attempt at a sum, from the secret of two clients for all attempts."""
    address = Address(b"", attempt, "sum", EVERYBODY, EVERYBODY)
    return derive(root, address.info("mask"))


def participants_message(
    keys: Mapping[int, Arrays], sizes: Mapping[int, int]
) -> dict[str, NDArray[Any]]:
    """The server's message to all clients about the participants."""
    clients = sorted(keys)
    return {
        PARTICIPANTS: np.array(clients, dtype=np.int64),
        PUBLIC: np.stack([keys[client][PUBLIC] for client in clients]),
        SIGNATURES: np.stack([keys[client][SIGNATURES] for client in clients]),
        SIZES: np.array([sizes[client] for client in clients], dtype=np.int64),
    }


def join(
    number: int,
    private: bytes,
    message: Arrays,
    num_points: int,
    purpose: Purpose,
) -> Session:
    """Join a session with the participants that the server names, or refuse.

    Before anything is sealed for them, :func:`require_signed` looks at who they are.
    """
    clients, origin = listed_clients(message, PARTICIPANTS), "The server sent"
    keys = checked_array(origin, message, PUBLIC, np.uint8, (len(clients), PUBLIC_BYTES))
    checked_array(origin, message, SIGNATURES, np.uint8, (len(clients), SIGNATURE_BYTES))
    sizes = checked_array(origin, message, SIZES, np.int64, (len(clients),))
    require_enough(clients)
    session = Session(
        client=number,
        private=private,
        public={client: key.tobytes() for client, key in zip(clients, keys, strict=True)},
        sizes=dict(zip(clients, sizes.tolist(), strict=True)),
        nonce=purpose.nonce,
        server_round=purpose.server_round,
    )
    if (
        session.public.get(number) != public_key(private)
        or session.sizes[number] != num_points
        or len(set(session.public.values())) < len(clients)
        or (sizes < 0).any()
    ):
        raise UserError(
            f"The server's list of participants has no client {number} as it is, or two with one "
            "public key.",
            "server-names-others",
        )
    return session


def require_signed(
    session: Session,
    message: Arrays,
    purpose: Purpose,
    identities: Identities | None,
    strangers: Collection[int] = (),
) -> None:
    """Refuse keys that their owners have not signed, if these have identities.

    Nothing is shared with ``strangers``, whatever their keys are.
    """
    if identities is None:
        return
    with errors_of_peers() as read:
        signed = zip(session.public.items(), message[SIGNATURES], strict=True)
        for (client, key), signature in signed:
            if client != session.client and client not in strangers:
                with read(client):
                    identities.check(client, purpose, key, signature)


def require_enough(clients: Iterable[int] | Ints, fewest: int = FEWEST) -> None:
    """Refuse fewer than ``fewest`` participants."""
    count = len(list(clients))
    if count < fewest:
        raise UserError(
            f"{count} client(s) cannot hide from each other what they add up: "
            f"it takes {fewest} or more.",
            "too-few-clients",
        )


def bytes_array(data: bytes) -> Bytes:
    """Bytes as an array."""
    return np.frombuffer(data, dtype=np.uint8)


def pairs_of(client: int, participants: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Peers with whom a client is owner, and with whom evaluator: each pair once, balanced.

    On a circle of participants each one owns the pairs with the following half of the circle.
    """
    count, index = len(participants), participants.index(client)
    evaluators: list[int] = []
    owners: list[int] = []
    for step in range(1, count):
        peer = participants[(index + step) % count]
        first = 2 * step < count or (2 * step == count and client < peer)
        (evaluators if first else owners).append(peer)
    return tuple(sorted(evaluators)), tuple(sorted(owners))
