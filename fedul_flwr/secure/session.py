"""A client's side of a session: participants, a key with each of them, and a common seed.

All state is arrays, so that each message can be answered by a new process. The server selects the
participants and forwards their messages. The session's number is a hash of all that the server
says about them: if it tells two clients different things, they cannot decrypt each other's
messages. Public keys are authentic if owners have identities
(:mod:`fedul_flwr.secure.identities`), or else if the server is semi-honest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure import channels, key_pairs
from fedul_flwr.secure.channels import EVERYBODY, FEWEST_BYTES, Place
from fedul_flwr.secure.identities import SIGNATURE_BYTES, UNSIGNED, Identities, Purpose
from fedul_flwr.secure.key_pairs import CAPSULE_BYTES, PUBLIC_BYTES
from fedul_flwr.secure.messages import checked_array, messages_from
from fedul_flwr.secure.randomness import KEY_BYTES, Entropy
from fedul_flwr.secure.similarity import Arrays

PRIVATE, NONCE, PUBLIC, SIGNATURES = "private-key", "nonce", "public-keys", "signatures"
PARTICIPANTS, SIZES = "participants", "sizes"
CONTENT_KEY, MASK_SHARE, MASK_ROOTS = "content-key", "mask-share", "mask-roots"
ATTEMPT = "attempt"

TO, FROM = "to/", "from/"
"""Prefixes of arrays that are sealed for a client, and that come from one."""

FEWEST_SEALED = CAPSULE_BYTES + FEWEST_BYTES
"""Length of a message that is sealed for one client, without content."""

FEWEST = 3
"""Fewest participants: with two, each one could compute the other's part of a sum."""


@dataclass(frozen=True)
class Session:
    """A client's data about a session with fixed participants.

    Attributes
    ----------
    own : the client's number.
    private : its private key.
    public : public keys of all participants, in ascending order of their numbers.
    sizes : number of points of all participants.
    nonce : 32 bytes chosen by the server.
    server_round : round of the run.
    """

    own: int
    private: bytes = field(repr=False)
    public: Mapping[int, bytes]
    sizes: Mapping[int, int]
    nonce: bytes
    server_round: int

    @property
    def peers(self) -> list[int]:
        """The other participants."""
        return [client for client in self.public if client != self.own]

    @cached_property
    def number(self) -> bytes:
        """32 bytes, a hash of everything that the server says about participants."""
        told = hashlib.sha256(b"fedul-flwr session 1" + self.nonce)
        told.update(self.server_round.to_bytes(8, "little"))
        for client, key in self.public.items():
            numbers = np.array([client, self.sizes[client]], dtype="<i8")
            told.update(numbers.tobytes() + key)
        return told.digest()

    def seal(self, peer: int, step: str, arrays: Arrays, entropy: Entropy) -> Bytes:
        """Encrypt a message for ``peer`` only, in a step that is done once.

        It begins with a capsule, whose secret the key is derived from, too.
        """
        with messages_from(peer):
            capsule, fresh = key_pairs.encapsulate(self.public[peer], peer)
        place = self._place(step, self.own, peer)
        sealed = channels.seal(arrays, self._secret(peer) + fresh, place, entropy)
        return np.concatenate([bytes_array(capsule), sealed])

    def unseal(self, peer: int, step: str, sealed: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
        """Decrypt a message from ``peer`` to this client only."""
        place = self._place(step, peer, self.own)
        with messages_from(peer):
            whole = channels.checked_seal(sealed, place, FEWEST_SEALED)
            fresh = self._open(whole[:CAPSULE_BYTES].tobytes())
            return channels.unseal(whole[CAPSULE_BYTES:], self._secret(peer) + fresh, place)

    def seal_for_several(self, step: str, arrays: Arrays, entropy: Entropy) -> tuple[bytes, Bytes]:
        """A new key, to be sent encrypted to each reader, and the message encrypted with it."""
        key = entropy(KEY_BYTES)
        return key, channels.seal(arrays, key, self._place(step, self.own, EVERYBODY), entropy)

    def unseal_for_several(
        self, peer: int, step: str, sealed: NDArray[Any] | None, key: bytes
    ) -> dict[str, NDArray[Any]]:
        """Decrypt a message from ``peer`` to several clients, with the key that it sent them."""
        with messages_from(peer):
            return channels.unseal(sealed, key, self._place(step, peer, EVERYBODY))

    def mask_share(self, peer: int) -> Bytes:
        """32 bytes that go into the masks with ``peer``, to be sealed for it: always the same."""
        place = self._place("sum", self.own, peer)
        return bytes_array(channels.derive(self.private, place.info("mask share")))

    def mask_roots(self, shares: Mapping[int, bytes]) -> dict[str, NDArray[Any]]:
        """State for a masked sum, without the private key.

        For each participant 32 bytes shared with this client, zeros for this client itself.

        Parameters
        ----------
        shares : what :meth:`mask_share` of each peer has sent; others have dropped out.
        """
        left = [client for client in self.public if client == self.own or client in shares]
        roots = [
            bytes(KEY_BYTES) if peer == self.own else self._mask_root(peer, shares[peer])
            for peer in left
        ]
        return {
            PARTICIPANTS: np.array(left, np.int64),
            SIZES: np.array([self.sizes[client] for client in left], np.int64),
            MASK_ROOTS: bytes_array(b"".join(roots)).reshape(-1, KEY_BYTES),
        }

    def _mask_root(self, peer: int, share: bytes) -> bytes:
        lower, upper = sorted((self.own, peer))
        shares = {self.own: self.mask_share(peer).tobytes(), peer: share}
        place = Place(self.number, 0, "sum", lower, upper)
        together = self._secret(peer) + shares[lower] + shares[upper]
        return channels.derive(together, place.info("masks"))

    def seed(self, shares: Mapping[int, bytes]) -> bytes:
        """The participants' seed, 32 bytes, from the shares of the remaining ones.

        Raises
        ------
        UserError
            For fewer than :data:`FEWEST` shares, or one of another length.
        """
        require_enough(shares)
        who = np.array(sorted(shares), dtype="<i8")
        for client in who.tolist():
            if len(shares[client]) != KEY_BYTES:
                raise UserError(f"Client {client} sent a share of the seed of another length.")
        place = Place(self.number, 0, "seed", EVERYBODY, EVERYBODY)
        together = b"".join(shares[client] for client in who.tolist())
        return channels.derive(together, place.info("seed") + who.tobytes())

    @classmethod
    def from_arrays(cls, own: int, server_round: int, arrays: Arrays) -> Session:
        """Restore a session from :meth:`as_arrays`."""
        who = arrays[PARTICIPANTS].tolist()
        return cls(
            own=own,
            private=arrays[PRIVATE].tobytes(),
            public={client: key.tobytes() for client, key in zip(who, arrays[PUBLIC], strict=True)},
            sizes=dict(zip(who, arrays[SIZES].tolist(), strict=True)),
            nonce=arrays[NONCE].tobytes(),
            server_round=server_round,
        )

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """State as arrays, without ``own`` and ``server_round``."""
        return {
            PRIVATE: bytes_array(self.private),
            NONCE: bytes_array(self.nonce),
            PARTICIPANTS: np.array([*self.public], np.int64),
            PUBLIC: _rows(self.public.values()),
            SIZES: np.array([self.sizes[client] for client in self.public], np.int64),
        }

    def _secret(self, peer: int) -> bytes:
        if peer not in self._secrets:
            with messages_from(peer):
                found = key_pairs.pair_secret(self.private, self.public[peer], peer)
            self._secrets[peer] = found
        return self._secrets[peer]

    @cached_property
    def _secrets(self) -> dict[int, bytes]:
        """X25519's secrets with peers, once they are computed."""
        return {}

    @cached_property
    def _open(self) -> Callable[[bytes], bytes]:
        return key_pairs.capsule_opener(self.private)

    def _place(self, step: str, source: int, destination: int) -> Place:
        return Place(self.number, 0, step, source, destination)


def new_key(
    purpose: Purpose, identities: Identities | None
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """A client's state at the start of a session, and its answer: a new public key, signed by the
    owner's identity if there is one."""
    private = key_pairs.new_private_key(os.urandom)
    public = key_pairs.public_key(private)
    signature = identities.sign(purpose, public) if identities else UNSIGNED
    kept = {PRIVATE: bytes_array(private), NONCE: bytes_array(purpose.nonce)}
    return kept, {PUBLIC: bytes_array(public), SIGNATURES: signature}


def check_key(origin: str, answer: Arrays) -> None:
    """Refuse what is no answer of :func:`new_key`, at the server.

    Raises
    ------
    BadMessageError
        With ``origin``: "Client 3 sent in step 'keys'".
    """
    key = checked_array(origin, answer, PUBLIC, np.uint8, (PUBLIC_BYTES,))
    if not key_pairs.is_public_key(key.tobytes()):
        raise BadMessageError(
            f"{origin} a public key of small order or of another form, with which nothing is "
            "secret."
        )
    checked_array(origin, answer, SIGNATURES, np.uint8, (SIGNATURE_BYTES,))


def attempt_keys(
    remembered: Arrays,
    own: int,
    participants: Collection[int],
    attempt: int,
    of: str,
    fewest: int = FEWEST,
) -> tuple[Arrays, dict[int, bytes]]:
    """State after one attempt at a sum, and the keys of its masks with each other participant.

    Parameters
    ----------
    remembered : :meth:`Session.mask_roots`, or the state after an earlier attempt.
    participants : those of this attempt: all of the session, or those who are left.
    of : noun for errors: ``"labels"`` or ``"columns"``.

    Raises
    ------
    UserError
        With fewer than ``fewest`` participants, or others than those of the session; or for a
        repeated attempt: masks used twice reveal the difference of two sums.
    """
    if MASK_ROOTS not in remembered or attempt <= remembered.get(ATTEMPT, -1):
        raise UserError(f"The server asked for the sum of {of} out of turn.")
    require_enough(participants, fewest)
    who = remembered[PARTICIPANTS].tolist()
    roots = dict(zip(who, remembered[MASK_ROOTS], strict=True))
    if own not in participants or not roots.keys() >= set(participants):
        raise UserError(f"The server named others for the sum of {of} than before.")
    keys = {peer: mask_key(roots[peer].tobytes(), attempt) for peer in participants if peer != own}
    return {**remembered, ATTEMPT: np.array(attempt, np.int64)}, keys


def mask_key(root: bytes, attempt: int) -> bytes:
    """A key for one attempt at a sum, from the secret of two clients for all attempts."""
    place = Place(b"", attempt, "sum", EVERYBODY, EVERYBODY)
    return channels.derive(root, place.info("mask"))


def participants_message(
    keys: Mapping[int, Arrays], sizes: Mapping[int, int]
) -> dict[str, NDArray[Any]]:
    """The server's message to all clients about the participants.

    Parameters
    ----------
    keys : the answer of :func:`new_key` of each.
    """
    who = sorted(keys)
    return {
        PARTICIPANTS: np.array(who, dtype=np.int64),
        PUBLIC: np.stack([keys[client][PUBLIC] for client in who]),
        SIGNATURES: np.stack([keys[client][SIGNATURES] for client in who]),
        SIZES: np.array([sizes[client] for client in who], dtype=np.int64),
    }


def join(
    own: int,
    private: bytes,
    told: Arrays,
    num_points: int,
    purpose: Purpose,
    identities: Identities | None,
) -> Session:
    """Join a session with the participants that the server names, or refuse.

    Raises
    ------
    PeerError
        For a participant whose key no known owner has signed for this purpose.
    UserError
        For fewer than :data:`FEWEST` participants, a repeated one, or another key or size than this
        client's own.
    """
    who, keys, sizes = (told.get(name) for name in (PARTICIPANTS, PUBLIC, SIZES))
    signatures = told.get(SIGNATURES)
    if (
        who is None or keys is None or sizes is None or signatures is None
        or who.dtype != np.int64 or sizes.dtype != np.int64
        or keys.dtype != np.uint8 or signatures.dtype != np.uint8
        or who.ndim != 1 or sizes.shape != who.shape
        or keys.shape != (len(who), PUBLIC_BYTES)
        or signatures.shape != (len(who), SIGNATURE_BYTES)
        or (np.diff(who) <= 0).any() or (who < 0).any() or (sizes < 0).any()
    ):  # fmt: skip
        raise UserError("The server sent no list of participants.")
    require_enough(who)
    kept = {PRIVATE: bytes_array(private), NONCE: bytes_array(purpose.nonce)}
    # The client's own values come last, so that the server cannot replace its key.
    session = Session.from_arrays(own, purpose.server_round, {**told, **kept})
    if len(set(session.public.values())) < len(who):
        raise UserError("The server gave two participants the same public key.")
    if session.public.get(own) != key_pairs.public_key(private) or session.sizes[own] != num_points:
        raise UserError(f"The server's list of participants has no client {own} as it is.")
    if identities:
        for (client, key), signature in zip(session.public.items(), signatures, strict=True):
            if client != own:
                with messages_from(client):
                    identities.check(client, purpose, key, signature)
    return session


def require_enough(clients: Iterable[int] | Ints, fewest: int = FEWEST) -> None:
    """Refuse fewer than ``fewest`` participants."""
    count = len(list(clients))
    if count < fewest:
        raise UserError(
            f"{count} client(s) cannot hide from each other what they add up: "
            f"it takes {fewest} or more."
        )


def _rows(keys: Iterable[bytes]) -> Bytes:
    return bytes_array(b"".join(keys)).reshape(-1, PUBLIC_BYTES)


def bytes_array(data: bytes) -> Bytes:
    """Bytes as an array."""
    return np.frombuffer(data, dtype=np.uint8)


def pairs_of(client: int, participants: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Peers with whom a client is owner, and with whom evaluator: each pair once, balanced.

    On a circle of participants each one owns the pairs with the following half of the circle.
    """
    count, place = len(participants), participants.index(client)
    evaluators: list[int] = []
    owners: list[int] = []
    for step in range(1, count):
        peer = participants[(place + step) % count]
        first = 2 * step < count or (2 * step == count and client < peer)
        (evaluators if first else owners).append(peer)
    return tuple(sorted(evaluators)), tuple(sorted(owners))
