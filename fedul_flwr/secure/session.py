"""A client's side of a session: participants, a key with each of them, and a common seed.

All state is arrays, so that each message can be answered by a new process. The server selects the
participants and forwards their messages. The session's number is a hash of all that the server
says about them: if it tells two clients different things, they cannot decrypt each other's
messages.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.secure import channels
from fedul_flwr.secure.channels import EVERYBODY, Place
from fedul_flwr.secure.messages import messages_from
from fedul_flwr.secure.randomness import KEY_BYTES, Entropy
from fedul_flwr.secure.similarity import Arrays

PRIVATE, NONCE, PUBLIC = "private-key", "nonce", "public-keys"
PARTICIPANTS, SIZES = "participants", "sizes"
CONTENT_KEY, MASK_ROOTS, ATTEMPT = "content-key", "mask-roots", "attempt"

FEWEST = 3
"""Fewest participants: with two, each one could compute the other's part of a sum."""


@dataclass(frozen=True)
class Session:
    """A client's data about a session with fixed participants.

    Attributes
    ----------
    own : the client's number.
    private : its private key, 32 bytes.
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

    @property
    def number(self) -> bytes:
        """32 bytes, a hash of everything that the server says about participants."""
        told = hashlib.sha256(b"fedul-flwr session 1" + self.nonce)
        told.update(self.server_round.to_bytes(8, "little"))
        for client, key in self.public.items():
            numbers = np.array([client, self.sizes[client]], dtype="<i8")
            told.update(numbers.tobytes() + key)
        return told.digest()

    def seal(self, peer: int, step: str, arrays: Arrays, entropy: Entropy) -> Bytes:
        """Encrypt a message for ``peer`` only, in a step that is done once."""
        return channels.seal(arrays, self._secret(peer), self._place(step, self.own, peer), entropy)

    def unseal(self, peer: int, step: str, sealed: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
        """Decrypt a message from ``peer`` to this client only."""
        with messages_from(peer):
            return channels.unseal(sealed, self._secret(peer), self._place(step, peer, self.own))

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

    def mask_roots(self) -> dict[str, NDArray[Any]]:
        """State for a masked sum, without the private key.

        For each participant 32 bytes shared with this client, zeros for this client itself.
        """
        roots = [bytes(KEY_BYTES) if c == self.own else self._mask_root(c) for c in self.public]
        everybody = participants_message(self.public, self.sizes)
        return {
            PARTICIPANTS: everybody[PARTICIPANTS],
            SIZES: everybody[SIZES],
            MASK_ROOTS: bytes_array(b"".join(roots)).reshape(-1, KEY_BYTES),
        }

    def _mask_root(self, peer: int) -> bytes:
        place = Place(self.number, 0, "sum", *sorted((self.own, peer)))
        return channels.derive(self._secret(peer), place.info("masks"))

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
            **participants_message(self.public, self.sizes),
        }

    def _secret(self, peer: int) -> bytes:
        with messages_from(peer):
            return channels.pair_secret(self.private, self.public[peer], peer)

    def _place(self, step: str, source: int, destination: int) -> Place:
        return Place(self.number, 0, step, source, destination)


def new_key(nonce: Bytes) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """A client's state at the start of a session, and its answer: a new public key.

    Parameters
    ----------
    nonce : 32 bytes of the server.
    """
    private = channels.new_private_key(os.urandom)
    kept = {PRIVATE: bytes_array(private), NONCE: nonce}
    return kept, {PUBLIC: bytes_array(channels.public_key(private))}


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
    public: Mapping[int, bytes], sizes: Mapping[int, int]
) -> dict[str, NDArray[Any]]:
    """The server's message to all clients about the participants."""
    who = sorted(public)
    return {
        PARTICIPANTS: np.array(who, dtype=np.int64),
        PUBLIC: np.frombuffer(b"".join(public[c] for c in who), np.uint8).reshape(-1, KEY_BYTES),
        SIZES: np.array([sizes[client] for client in who], dtype=np.int64),
    }


def join(
    own: int, server_round: int, private: bytes, nonce: bytes, told: Arrays, num_points: int
) -> Session:
    """Join a session with the participants that the server names, or refuse.

    Raises
    ------
    UserError
        For fewer than :data:`FEWEST` participants, a repeated one, or another key or size than this
        client's own.
    """
    who, keys, sizes = (told.get(name) for name in (PARTICIPANTS, PUBLIC, SIZES))
    if (
        who is None or keys is None or sizes is None
        or who.dtype != np.int64 or sizes.dtype != np.int64 or keys.dtype != np.uint8
        or who.ndim != 1 or sizes.shape != who.shape or keys.shape != (len(who), KEY_BYTES)
        or (np.diff(who) <= 0).any() or (who < 0).any() or (sizes < 0).any()
    ):  # fmt: skip
        raise UserError("The server sent no list of participants.")
    require_enough(who)
    kept = {PRIVATE: bytes_array(private), NONCE: bytes_array(nonce)}
    # The client's own values come last, so that the server cannot replace its key.
    session = Session.from_arrays(own, server_round, {**told, **kept})
    if len(set(session.public.values())) < len(who):
        raise UserError("The server gave two participants the same public key.")
    if session.public.get(own) != channels.public_key(private) or session.sizes[own] != num_points:
        raise UserError(f"The server's list of participants has no client {own} as it is.")
    return session


def require_enough(clients: Iterable[int] | Ints, fewest: int = FEWEST) -> None:
    """Refuse fewer than ``fewest`` participants."""
    count = len(list(clients))
    if count < fewest:
        raise UserError(
            f"{count} client(s) cannot hide from each other what they add up: "
            f"it takes {fewest} or more."
        )


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
