"""Checks of messages, and complaints about them: who has to leave.

Each contradiction is between two clients, of which at least one does not do what it should: a
message that its reader cannot open, or numbers of both that give no distance. Two honest clients
never contradict each other, so fewer than a third of all, who may all lie, decide about nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.similarity import Arrays, ExcludedClientsError


class PeerError(UserError):
    """Messages of other clients to a client that cannot be used."""

    code = "message-incomplete"

    def __init__(self, message: str, *peers: int, code: str = "") -> None:
        super().__init__(message, code)
        self.peers = peers


@contextmanager
def messages_from(peer: int) -> Iterator[None]:
    """Errors in this block are about what client ``peer`` sent: they become a PeerError."""
    try:
        yield
    except UserError as error:
        raise PeerError(str(error), peer, code=error.code) from None


@contextmanager
def errors_of_peers() -> Iterator[Callable[[int], AbstractContextManager[None]]]:
    """Read messages of several clients, each in a block of what this gives: one PeerError at the
    end is about all that cannot be used."""
    wrong: dict[int, UserError] = {}

    @contextmanager
    def read(peer: int) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            wrong[peer] = error

    yield read
    for error in wrong.values():
        raise PeerError(str(error), *wrong, code=error.code) from None


def check_length(num_bits: int, most: int, protocol: str) -> None:
    """Refuse codes of more bits than a protocol can compare."""
    if num_bits > most:
        raise UserError(
            f"codes have {num_bits} bits; the protocol {protocol!r} takes at most {most}",
            "setting-out-of-range",
        )


def checked_array(
    origin: str, message: Arrays, name: str, dtype: DTypeLike, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """The array ``name`` of a message, after a check; ``None`` in its shape is any length."""
    array = message.get(name)
    if (
        array is None
        or array.dtype != dtype
        or array.ndim != len(shape)
        or any(wanted not in (None, size) for wanted, size in zip(shape, array.shape, strict=True))
    ):
        form = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise BadMessageError(
            f"{origin} {form} as {name!r}; it must be {np.dtype(dtype)} {shape}.", "message-form"
        )
    return array


def listed_clients(message: Arrays, name: str) -> list[int]:
    """Clients that the server names, in ascending order, after a check."""
    listed = checked_array("The server sent", message, name, np.int64, (None,))
    if (np.diff(listed) <= 0).any() or (listed < 0).any():
        raise BadMessageError(f"The server sent no list of clients as {name!r}.", "message-form")
    return [int(client) for client in listed]


COMPLAINT = "complaint"
"""The only array of an answer that is a complaint: the numbers of its subjects."""


def complain(error: PeerError) -> tuple[Arrays, Arrays]:
    """A client's state and its answer once it cannot use a message: it remembers nothing."""
    return {}, {COMPLAINT: np.array(error.peers, np.int64)}


def check_complaint(origin: str, client: int, answer: Arrays, peers: Collection[int]) -> None:
    """Refuse a malformed complaint, at the server."""
    listed = checked_array(origin, answer, COMPLAINT, np.int64, np.shape(answer[COMPLAINT]))
    about = listed.tolist() if listed.ndim == 1 else []
    if len(answer) > 1 or client in about or not 0 < len({*about} & {*peers}) == len(about):
        raise BadMessageError(f"{origin} a complaint that is none.", "message-form")


def subjects(answers: Mapping[int, Arrays]) -> list[tuple[int, int]]:
    """Who complains about whom: pairs of a client that does and its subject."""
    return [
        (client, int(subject))
        for client, answer in answers.items()
        if COMPLAINT in answer
        for subject in answer[COMPLAINT]
    ]


def a_third(clients: int) -> int:
    """Most of ``clients`` that are fewer than a third of them."""
    return (clients - 1) // 3


def judge(
    complaints: Iterable[tuple[int, int]],
    present: Iterable[int],
    most: Callable[[int], int] = a_third,
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Who is at fault, each with its number of contradictions; and pairs where nobody can tell.

    Two honest clients never contradict each other. So who contradicts more others than lie is at
    fault. Again and again those in most contradictions leave, of several those who complain most.
    Fewer clients than that decide about nobody: what is left are pairs, of which either may lie.
    """
    here = set(present)
    made = {pair for pair in complaints if here.issuperset(pair)}
    guilty: dict[int, int] = {}
    while True:
        pairs = {(min(pair), max(pair)) for pair in made}
        times = Counter(client for pair in pairs for client in pair)
        # Of two clients that contradict nobody else nobody can tell, however few there are.
        over = [client for client in times if times[client] > max(1, most(len(here)))]
        if not over:
            return guilty, sorted(pairs)
        complained = Counter(client for client, _ in made)
        worst = max((times[client], complained[client]) for client in over)
        leaving = {c for c in over if (times[c], complained[c]) == worst}
        guilty |= {client: times[client] for client in sorted(leaving)}
        here -= leaving
        made = {pair for pair in made if leaving.isdisjoint(pair)}


def exclude(contradictions: Iterable[tuple[int, int]], present: Iterable[int]) -> None:
    """Decide who leaves a comparison of points, so that no contradiction is left.

    Every two clients are compared there, so that no pair can be left out as in a sum: those who are
    at fault leave, and both sides of each other contradiction. So a client that lies about an
    honest one leaves with it.
    """
    here, all_pairs = sorted(present), [*contradictions]
    if not all_pairs:
        return
    wrong = sorted({one for one, other in all_pairs if one == other and one in here})
    excluded = dict.fromkeys(wrong, "what it has sent the server does not go together")
    left = [client for client in here if client not in excluded]
    guilty, pairs = judge([pair for pair in all_pairs if pair[0] != pair[1]], left)
    for client, times in guilty.items():
        excluded[client] = f"its messages and those of {times} others do not go together"
    for client in (tied := sorted({client for pair in pairs for client in pair})):
        peers = sorted({peer for pair in pairs if client in pair for peer in pair} - {client})
        excluded[client] = (
            f"its messages and those of client(s) {', '.join(map(str, peers))} do not go "
            "together, and nobody can tell whose fault it is"
        )
    raise ExcludedClientsError(excluded, tied, [c for c in here if c not in excluded])
