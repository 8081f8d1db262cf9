"""Clients of secure sums in one process, with what each keeps, and the messages between them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.federated.messages import to_arrays, to_record
from fedul_flwr.secure.identities import Identities, Purpose
from fedul_flwr.secure.session import FROM, TO, participants_message
from fedul_flwr.secure.stored import Pairs
from fedul_flwr.secure.sum_client import (
    SumStage,
    begin_session,
    confirm,
    join_sum,
    mask_vector,
    offer_shares,
    unmask,
)
from fedul_flwr.secure.sum_server import SumServer, apart_message
from fedul_flwr.secure.words import NO_TAIL, Tail
from tests.support.identities import identities as new_identities

Arrays = dict[str, NDArray[Any]]
QUESTION = b"m" * 32


class Party:
    """Clients of one session, each with its state, and the messages between them."""

    def __init__(
        self,
        clients: Iterable[int],
        pinned: bool = False,
        tail: Tail = NO_TAIL,
        apart: Pairs = frozenset(),
        identities: Mapping[int, Identities] | None = None,
    ) -> None:
        self.clients, self.pinned, self.tail, self.apart = sorted(clients), pinned, tail, apart
        self.purpose = Purpose("sum", 1, 0, b"n" * 32)
        self.identities: dict[int, Any] = dict.fromkeys(self.clients)
        if pinned or identities:
            self.identities = dict(identities or new_identities(self.clients))
        self.stages: dict[int, Arrays] = {}
        self.exchange_keys()
        self.join(self.clients)

    def exchange_keys(self) -> None:
        keys_sent = {}
        for client in self.clients:
            before = self.stage(client) if client in self.stages else None
            keyed, keys_sent[client] = begin_session(before, self.purpose, self.identities[client])
            self.store(client, keyed)
        listed = participants_message(keys_sent, dict.fromkeys(self.clients, 0))
        self.participants = {**listed, **apart_message(self.apart)}
        self.parts: dict[int, Arrays] = {client: {} for client in self.clients}

    def join(self, clients: Iterable[int]) -> None:
        for client in clients:
            joined, sealed = join_sum(
                self.stage(client), client, 1, self.participants, self.identities[client]
            )
            self.store(client, joined)
            self.number = joined.member.session.number
            for name, array in sealed.items():
                self.parts[int(name.removeprefix(TO))][f"{FROM}{client}"] = array

    def stage(self, client: int) -> SumStage:
        """A client's stage, as a new process restores it."""
        return SumStage.from_arrays(self.stages[client])

    def store(self, client: int, stage: SumStage) -> None:
        self.stages[client] = to_arrays(to_record(stage.to_arrays()))

    def offer(
        self,
        server: SumServer,
        clients: Collection[int],
        question: bytes = QUESTION,
        **changes: NDArray[Any],
    ) -> dict[int, Arrays]:
        answers = {}
        for client in clients:
            message = {**server.terms(), **self.parts[client], **changes}
            offered, answers[client] = offer_shares(
                self.stage(client), message, server.number, question
            )
            self.store(client, offered)
            server.check_shares(client, answers[client])
        return answers

    def server(self, number: int, present: Collection[int] | None = None) -> SumServer:
        here = self.clients if present is None else present
        known = {"pinned": self.pinned, "apart": self.apart}
        return SumServer(self.number, self.clients, number, here, **known)

    def begin(self, number: int = 1) -> SumServer:
        """A round in which everybody has sent its shares."""
        server = self.server(number)
        server.take_shares(self.offer(server, self.clients))
        return server

    def mask(
        self, client: int, shares: Arrays, words: NDArray[np.uint32], question: bytes = QUESTION
    ) -> NDArray[np.uint32]:
        stage, masked = mask_vector(self.stage(client), shares, words, question, self.tail)
        self.store(client, stage)
        return masked

    def send(
        self, server: SumServer, words: Mapping[int, NDArray[np.uint32]]
    ) -> dict[int, NDArray[np.uint32]]:
        return {c: self.mask(c, server.shares_for(c), words[c]) for c in words}

    def signatures(self, message: Arrays, clients: Iterable[int]) -> dict[int, NDArray[Any]]:
        signed = {}
        for client in clients:
            stage, signed[client] = confirm(self.stage(client), message, self.identities[client])
            self.store(client, stage)
        return signed

    def open(self, server: SumServer, clients: Collection[int]) -> dict[int, Arrays]:
        message = server.list_message()
        if self.pinned:
            message = server.signed_list(self.signatures(message, clients))
        answers = {}
        for client in clients:
            answers[client] = self.unmask(client, message)
            server.check_unmask(client, answers[client])
        return answers

    def unmask(self, client: int, message: Arrays, least: int = 0) -> Arrays:
        joined, answer = unmask(self.stage(client), message, self.identities[client], least)
        self.store(client, joined)
        return answer

    def sum(
        self,
        number: int,
        words: Mapping[int, NDArray[np.uint32]],
        *,
        shares: Collection[int] = (),
        vector: Collection[int] = (),
        opening: Collection[int] = (),
    ) -> NDArray[np.uint32]:
        """A round in which some drop out before their shares, vector or opening."""
        server = self.server(number)
        left = [client for client in self.clients if client not in shares]
        server.take_shares(self.offer(server, left))
        left = [client for client in left if client not in vector]
        server.take_vectors(self.send(server, {client: words[client] for client in left}))
        answers = self.open(server, [client for client in left if client not in opening])
        opened, liars = server.open_sum(answers)
        assert opened.survivors == left
        assert liars == []
        return opened.words


def vectors(clients: Iterable[int], size: int = 7, seed: int = 0) -> dict[int, NDArray[np.uint32]]:
    rng = np.random.default_rng(seed)
    return {client: rng.integers(0, 2**32, size, dtype=np.uint32) for client in clients}


def total(words: Mapping[int, NDArray[np.uint32]], who: Iterable[int]) -> list[int]:
    """Sum modulo 2^32 by Python's integers."""
    rows = [words[client].tolist() for client in who]
    return [sum(column) % 2**32 for column in zip(*rows, strict=True)]
