"""Sums of clients' vectors that show the server nothing but the sum: the server's side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes
from fedul_flwr.errors import BadMessageError, TooFewLeftError
from fedul_flwr.secure import sharing
from fedul_flwr.secure.identities import UNSIGNED
from fedul_flwr.secure.messages import checked_array
from fedul_flwr.secure.session import FEWEST, KEY_BYTES, PARTICIPANTS, SIGNATURES
from fedul_flwr.secure.similarity import Arrays
from fedul_flwr.secure.stored import Pairs
from fedul_flwr.secure.words import NO_TAIL, Mask, Tail, Words, add_masks, add_vectors


class Opened(NamedTuple):
    """The sum of the vectors, and whose they are."""

    words: Words
    survivors: list[int]


def apart_message(apart: Pairs) -> dict[str, NDArray[Any]]:
    """Pairs of clients that share nothing, as a part of step ``peers``."""
    return {sharing.APART: np.array(sorted(apart), np.int64).reshape(-1, 2)}


class SumServer:
    """The server's part of one sum of a session, see :mod:`~fedul_flwr.secure.sum_client`."""

    def __init__(
        self,
        session: bytes,
        participants: Sequence[int],
        number: int,
        present: Collection[int],
        *,
        pinned: bool,
        apart: Pairs = frozenset(),
    ) -> None:
        self.number, self._present = number, sorted(present)
        here = set(present)
        whole = sharing.neighbors(session, participants, pinned)
        beside = sharing.neighbors(session, participants, pinned, apart)
        self._peers = {
            client: [peer for peer in beside[client] if peer in here] for client in self._present
        }
        self._holders = {client: sorted([client, *peers]) for client, peers in self._peers.items()}
        shared = [1 + len(here.intersection(whole[client])) for client in self._present]
        self._needed = max((sharing.threshold(n, pinned) for n in shared), default=FEWEST)
        fewest = min((len(holders) for holders in self._holders.values()), default=0)
        if fewest < self._needed:
            raise TooFewLeftError(
                f"A secure sum takes {self._needed} clients that share their masks; "
                f"{fewest} are there.",
                "too-few-clients",
            )
        self._answers: dict[int, Arrays] = {}
        self._masked: dict[int, Words] = {}

    # Shares

    def terms(self) -> dict[str, NDArray[Any]]:
        """The message of step ``shares`` to every client that is present."""
        return {
            PARTICIPANTS: np.array(self._present, np.int64),
            sharing.THRESHOLD: np.array(self._needed, np.int64),
        }

    def check_shares(self, client: int, answer: Arrays) -> None:
        """Refuse a malformed answer to :meth:`terms`."""
        peers = len(self._peers[client])
        rows = {sharing.SEALED: (peers, sharing.SEALED_BYTES), sharing.HASHES: (2, KEY_BYTES)}
        rows[sharing.PAIR_KEYS] = (peers, sharing.SEALED_KEY_BYTES)
        _check(f"Client {client} sent for a secure sum", answer, rows)

    def take_shares(self, answers: Mapping[int, Arrays]) -> None:
        """Take the answers that :meth:`check_shares` accepts; other clients are left out."""
        self._answers = dict(answers)
        self._require(self._answers)

    def shares_for(self, client: int) -> dict[str, NDArray[Any]]:
        """What others have sealed for a client; it travels with the model."""
        senders = [peer for peer in self._peers[client] if peer in self._answers]
        places = {peer: self._peers[peer].index(client) for peer in senders}
        rows = [self._answers[peer][sharing.SEALED][at] for peer, at in places.items()]
        return {
            sharing.SHARE_SENDERS: np.array(senders, np.int64),
            sharing.SEALED: np.array(rows, np.uint8).reshape(len(rows), sharing.SEALED_BYTES),
        }

    # Vectors

    def take_vectors(self, vectors: Mapping[int, Words]) -> None:
        """Take masked vectors of equal length, of clients that sent shares."""
        self._masked = dict(vectors)
        self._require(self._masked)

    @property
    def survivors(self) -> list[int]:
        """The clients whose vectors are summed."""
        return sorted(self._masked)

    def list_message(self) -> dict[str, NDArray[Any]]:
        """The message of step ``confirm`` and, without identities, of step ``unmask``."""
        return {sharing.SURVIVORS: np.array(self.survivors, np.int64)}

    def signed_list(self, signatures: Mapping[int, Bytes]) -> dict[str, NDArray[Any]]:
        """The message of step ``unmask`` with identities; who has not signed has zeros."""
        rows = [signatures.get(client, UNSIGNED) for client in self.survivors]
        return {**self.list_message(), SIGNATURES: np.stack(rows)}

    # The sum

    def check_unmask(self, client: int, answer: Arrays) -> None:
        """Refuse a malformed answer of step ``unmask``."""
        owners = zip(sharing.KINDS, self._opened_by(client), strict=True)
        rows = {name: (len(whose), sharing.SHARE_BYTES) for name, whose in owners}
        _check(f"Client {client} sent to open a secure sum", answer, rows)

    def open_sum(
        self, answers: Mapping[int, Arrays], tail: Tail = NO_TAIL
    ) -> tuple[Opened, list[int]]:
        """The sum of all survivors' words, and clients that sent wrong shares."""
        shares: dict[tuple[int, int], dict[int, bytes]] = {}
        for client, answer in answers.items():
            for kind, whose in enumerate(self._opened_by(client)):
                for owner, share in zip(whose, answer[sharing.KINDS[kind]], strict=True):
                    position = self._holders[owner].index(client)
                    shares.setdefault((kind, owner), {})[position] = share.tobytes()
        liars: set[int] = set()
        survivors = self.survivors
        masks = []
        for client in survivors:
            secret = self._secret(shares.get((0, client), {}), 0, client, liars)
            masks.append(Mask(sharing.self_key(secret, self.number, client), added=False))
        for client in sorted(self._answers.keys() - self._masked.keys()):
            peers = self._peers[client]
            beside = [peer for peer in peers if peer in self._masked]
            if not beside:
                continue
            secret = self._secret(shares.get((1, client), {}), 1, client, liars)
            for peer in beside:
                row = self._answers[client][sharing.PAIR_KEYS][peers.index(peer)]
                try:
                    key = sharing.open_pair_key(secret, row)
                except InvalidTag:
                    raise TooFewLeftError(
                        f"Client {client} sent pair keys that do not open, and dropped out: "
                        "the secure sum of this round is lost."
                    ) from None
                # The peer's mask: removed by adding what the client itself would have added.
                masks.append(Mask(key, added=client < peer))
        total = add_vectors([self._masked[client] for client in survivors], tail)
        add_masks(total, masks, tail)
        return Opened(total, survivors), sorted(liars)

    def _opened_by(self, client: int) -> tuple[list[int], list[int]]:
        """Owners of the self-mask shares and of the pair-key shares that a client opens."""
        senders = [
            peer
            for peer in self._holders[client]
            if peer in self._answers and client in self._holders[peer]
        ]
        alive = [peer for peer in senders if peer in self._masked]
        return alive, [peer for peer in senders if peer not in self._masked]

    def _secret(self, shares: Mapping[int, bytes], kind: int, owner: int, liars: set[int]) -> bytes:
        """A secret from its shares; wrong ones are found by the owner's hash and noted."""
        right = self._answers[owner][sharing.HASHES][kind]

        def is_right(secret: bytes) -> bool:
            return np.array_equal(sharing.secret_hash(self.number, owner, secret), right)

        opened = sharing.find_secret(shares, self._needed, is_right)
        if opened is None:
            raise TooFewLeftError(
                f"{len(shares)} shares for client {owner} came for a secure sum, and "
                f"{self._needed} right ones open it: the sum of this round stays closed."
            )
        secret, wrong = opened
        liars |= {self._holders[owner][position] for position in wrong}
        return secret

    def _require(self, left: Collection[int]) -> None:
        """Refuse to continue where a secret that is needed could not be opened."""
        here = set(left)
        for client, holders in self._holders.items():
            near = here & set(holders)
            needs = client in here or (client in self._answers and near)
            if needs and len(near) < self._needed:
                raise TooFewLeftError(
                    f"{len(near)} of the clients that share a secret are left in a secure sum, and "
                    f"{self._needed} open it: the sum of this round stays closed."
                )
        if len(here) < sharing.quorum(len(self._present)):
            raise TooFewLeftError(
                f"{len(here)} clients are left in a secure sum of {len(self._present)}; it takes "
                f"{sharing.quorum(len(self._present))}."
            )


def _check(origin: str, answer: Arrays, rows: Mapping[str, tuple[int, int]]) -> None:
    """Refuse other arrays than these rows of bytes."""
    for name, shape in rows.items():
        checked_array(origin, answer, name, np.uint8, shape)
    if answer.keys() - rows.keys():
        raise BadMessageError(f"{origin} something that was not requested.", "message-unasked")
