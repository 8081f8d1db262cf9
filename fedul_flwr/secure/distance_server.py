"""The server's side of encrypted distances: forwards clients' messages and assembles H."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import check_num_bits
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.encrypted_distances import (
    ANSWER,
    COMMITMENT,
    COMMITMENTS,
    EVALUATORS,
    GROUP,
    KEYS,
    OFFER,
    OWN_DISTANCES,
    OWNERS,
    POINTS,
    REVEAL,
    SEED,
    STEP,
    STEPS,
    TELL,
)
from fedul_flwr.secure.hamming.pairwise import PairwiseHamming
from fedul_flwr.secure.messages import COMPLAINT, check_complaint, checked_array, exclude, subjects
from fedul_flwr.secure.session import (
    FEWEST,
    FEWEST_BYTES,
    FEWEST_SEALED,
    FROM,
    KEY_BYTES,
    NONCE,
    PUBLIC,
    TO,
    bytes_array,
    check_key,
    is_sealed,
    pairs_of,
    participants_message,
)
from fedul_flwr.secure.similarity import Arrays, HammingDistances, TooFewClientsError

Sent = dict[str, NDArray[Any]]

MOST_BITS = 2**16 - 8
"""Largest L: distances are uint16."""


class DistanceServer:
    """Runs the five steps of :mod:`fedul_flwr.secure.encrypted_distances` with clients.

    A client that does not answer a step has dropped out; its earlier answers are not used.

    Parameters
    ----------
    protocol : the protocol for each pair of clients.
    clients : in the order of their points.
    num_bits : L.
    seed : 32 bytes for the codes if their seed is public; ``None`` lets clients agree on one.
    """

    def __init__(
        self,
        protocol: PairwiseHamming,
        clients: Sequence[int],
        num_bits: int,
        seed: bytes | None = None,
    ) -> None:
        check_num_bits(num_bits)
        if num_bits > MOST_BITS:
            raise UserError(
                f"Codes of {num_bits} bits are too long to be compared in secret: "
                f"xclp.num-bits must be {MOST_BITS} or less.",
                "setting-out-of-range",
            )
        self._protocol = protocol
        self._num_bits = num_bits
        self._seed = seed
        self._left = list(clients)
        self._asked = self._left  # those left when the step began: they are told of, if not heard
        self._step = 0
        self._participants: list[int] = []
        self._keys: dict[int, Arrays] = {}
        self._commitments: dict[int, NDArray[Any]] = {}
        self._sizes: dict[int, int] = {}
        self._sent: dict[int, Sent] = {}
        self._own_distances: dict[int, NDArray[Any]] = {}
        self._received: dict[tuple[int, int], Sent] = {}

    def ask(self) -> Mapping[int, Arrays]:
        """The next step's message to each client."""
        self._asked = self._left
        if self._step == len(STEPS):
            return {}
        step = {STEP: np.array(self._step, np.int64)}
        if self._step == 0:
            public = {} if self._seed is None else {SEED: bytes_array(self._seed)}
            nonce = bytes_array(os.urandom(KEY_BYTES))
            return {client: {**step, NONCE: nonce, **public} for client in self._left}
        if self._step == 1:
            self._participants = sorted(self._left)
            everybody = participants_message({c: self._keys[c] for c in self._left}, self._sizes)
            everybody[COMMITMENTS] = np.stack([self._commitments[c] for c in self._participants])
            return {client: {**step, **everybody} for client in self._left}
        messages = {client: {**step, **self._post(client)} for client in self._left}
        self._sent = {}
        return messages

    def take(self, answers: Mapping[int, Arrays]) -> None:
        """Process the answers to one step.

        Raises
        ------
        TooFewClientsError
            If fewer than three clients have answered.
        BadMessageError
            For a malformed answer, with client and step.
        ExcludedClientsError
            If clients have complained about others, or two have sent one public key.
        """
        self._left = [client for client in self._left if client in answers]
        if len(self._left) < FEWEST:
            raise TooFewClientsError(
                f"{len(self._left)} client(s) answered step {STEPS[self._step]!r} of the secure "
                f"propagation; it needs {FEWEST} or more.",
                self._left,
            )
        for client in self._left:
            self.check(client, answers[client])
        exclude(self._contradictions(answers), self._left)
        for client in self._left:
            self._hear(client, dict(answers[client]))
        self._step += 1

    def check(self, client: int, answer: Arrays) -> int:
        """Refuse a malformed answer, with client and step; returns its number of points."""
        step = STEPS[self._step]
        origin = f"Client {client} sent in step {step!r}"
        if step == KEYS:
            check_key(origin, answer)
            checked_array(origin, answer, COMMITMENT, np.uint8, (KEY_BYTES,))
            size = int(checked_array(origin, answer, POINTS, np.int64, ()))
            if size < 0:
                raise BadMessageError(
                    f"{origin} a number of points below 0; it must be 0 or more.",
                    "message-out-of-range",
                )
            return size
        if COMPLAINT in answer:
            check_complaint(origin, client, answer, self._asked)
            return self._sizes[client]
        if step == OFFER:
            shape = (self._sizes[client], self._sizes[client])
            codes = checked_array(origin, answer, OWN_DISTANCES, np.uint16, shape)
            if codes.max(initial=0) > self._num_bits or not np.array_equal(codes, codes.T):
                raise BadMessageError(
                    f"{origin} no distances of its points; they must be symmetric and at most L.",
                    "message-form",
                )
        listed = self._check_reply(origin, client, answer) if step in (ANSWER, REVEAL) else set()
        sent = self._check_post(client, answer) if step != REVEAL else set()
        numbers = listed | sent | {OWN_DISTANCES} if step == OFFER else listed | sent
        if odd := sorted(answer.keys() - numbers):
            raise BadMessageError(
                f"{origin} {odd[0]!r}, for which nobody asked.", "message-unasked"
            )
        return self._sizes[client]

    def sizes(self) -> Mapping[int, int]:
        """Number of points of each client that answered every step."""
        return {client: self._sizes[client] for client in self._left}

    def distances(self) -> NDArray[np.uint16]:
        """H, ``(n, n)``, of all points of the remaining clients.

        Raises
        ------
        ExcludedClientsError
            If the answers of two clients do not match: either one may lie.
        """
        sizes = self.sizes()
        ends = np.cumsum([0, *sizes.values()])
        slices = {c: slice(ends[i], ends[i + 1]) for i, c in enumerate(sizes)}
        distances = np.zeros((ends[-1], ends[-1]), dtype=np.uint16)
        contradictions = []
        for owner in sizes:
            distances[slices[owner], slices[owner]] = self._own_distances[owner]
            for evaluator in pairs_of(owner, self._participants)[0]:
                if evaluator in sizes:
                    try:
                        block = self._pair(owner, evaluator)
                    except UserError:
                        contradictions.append((owner, evaluator))
                        continue
                    distances[slices[owner], slices[evaluator]] = block
                    distances[slices[evaluator], slices[owner]] = block.T
        exclude(contradictions, sizes)
        return distances

    def compared(self) -> HammingDistances:
        """Distances of the points of all remaining clients."""
        return HammingDistances(self.distances(), self._num_bits)

    def _hear(self, client: int, answer: Sent) -> None:
        """Store a client's messages to the server and to other clients."""
        step = STEPS[self._step]
        if step == KEYS:
            self._keys[client] = answer
            self._sizes[client] = int(answer[POINTS])
            self._commitments[client] = answer[COMMITMENT]
            return
        if step == OFFER:
            self._own_distances[client] = answer.pop(OWN_DISTANCES)
        for name in [name for name in answer if name.startswith(TELL)]:
            peer, _, what = name.removeprefix(TELL).partition("/")
            self._received.setdefault((client, int(peer)), {})[what] = answer.pop(name)
        if step != REVEAL:
            self._sent[client] = answer

    def _post(self, client: int) -> Sent:
        """Messages of the remaining clients to one client."""
        post: Sent = {}
        for sender in self._left:
            sent = self._sent[sender]
            if f"{TO}{client}" in sent:
                post[f"{FROM}{sender}"] = sent[f"{TO}{client}"]
            for role, readers in zip(
                (EVALUATORS, OWNERS), pairs_of(sender, self._participants), strict=True
            ):
                if role in sent and client in readers:
                    post[f"{GROUP}{sender}"] = sent[role]
        return post

    def _pair(self, owner: int, evaluator: int) -> NDArray[np.int64]:
        return self._protocol.distances(
            (self._sizes[owner], self._sizes[evaluator]),
            self._num_bits,
            self._received[owner, evaluator],
            self._received[evaluator, owner],
        )

    def _contradictions(self, answers: Mapping[int, Arrays]) -> list[tuple[int, int]]:
        """Complaints of those that are left, and pairs of them that have sent one public key."""
        if STEPS[self._step] == KEYS:
            keys = {client: answers[client][PUBLIC].tobytes() for client in self._left}
            pairs = combinations(self._left, 2)
            return [(one, other) for one, other in pairs if keys[one] == keys[other]]
        return [*subjects({client: answers[client] for client in self._left}).items()]

    def _peers(self, client: int, role: str) -> list[int]:
        """Remaining peers of a client with a role in their pair."""
        evaluators, owners = pairs_of(client, self._participants)
        return [p for p in (evaluators if role == "evaluators" else owners) if p in self._asked]

    def _check_reply(self, origin: str, client: int, answer: Arrays) -> set[str]:
        """Check what the server is told of pairs; returns the names of the arrays."""
        step, names = STEPS[self._step], set()
        role, _ = self._protocol.payload_spec(step, 0, 0)
        for peer in self._peers(client, role):
            _, forms = self._protocol.payload_spec(step, self._sizes[client], self._sizes[peer])
            for name, (dtype, shape) in forms.items():
                names.add(f"{TELL}{peer}/{name}")
                checked_array(origin, answer, f"{TELL}{peer}/{name}", dtype, shape)
        return names

    def _check_post(self, client: int, answer: Arrays) -> set[str]:
        """Check that all peers that are left get sealed messages; returns the arrays' names.

        A peer without a message would take the client for a dropout; others would not.
        """
        step = STEPS[self._step]
        names = {f"{TO}{peer}": f"client {peer}" for peer in self._left if peer != client}
        fewest = dict.fromkeys(names, FEWEST_SEALED)
        role = self._protocol.groups.get(step)
        if role is not None and self._peers(client, role):
            names[EVALUATORS if role == "evaluators" else OWNERS] = f"its {role}"
        for name, reader in names.items():
            if not is_sealed(answer.get(name), fewest.get(name, FEWEST_BYTES)):
                raise BadMessageError(
                    f"Client {client} sent {reader} no message in step {step!r}.",
                    "message-incomplete",
                )
        # Messages to clients that have dropped out meanwhile are passed on to nobody.
        return names.keys() | {name for name in answer if name.startswith(TO)}
