"""Checks of messages, and complaints about them: who has to leave.

Each contradiction is between two clients, of which at least one does not do what it should: a
message that its reader cannot open, or numbers of both that give no distance. Two honest clients
never contradict each other. So who is in most contradictions is at fault, as long as most clients
are honest; between two clients that contradict nobody else, nobody can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.similarity import Arrays, ExcludedClientsError


class PeerError(UserError):
    """A client's message to another client that cannot be used.

    Attributes
    ----------
    peer : its sender.
    """

    code = "message-incomplete"

    def __init__(self, message: str, peer: int, code: str = "") -> None:
        super().__init__(message, code)
        self.peer = peer


@contextmanager
def messages_from(peer: int) -> Iterator[None]:
    """Errors in this block are about what client ``peer`` sent: they become a PeerError."""
    try:
        yield
    except UserError as error:
        raise PeerError(str(error), peer, error.code) from None


def check_length(num_bits: int, most: int, protocol: str) -> None:
    """Refuse codes of more bits than a protocol can compare."""
    if num_bits > most:
        raise UserError(
            f"codes have {num_bits} bits; the protocol {protocol!r} takes at most {most}",
            "setting-out-of-range",
        )


def checked_array(
    origin: str, message: Arrays, name: str, dtype: DTypeLike, shape: tuple[int, ...]
) -> NDArray[Any]:
    """The array ``name`` of a message, after a check.

    Parameters
    ----------
    origin : sender and step, for the error's text: "Client 3 sent in step 'offer'".
    dtype, shape : required type and shape.

    Raises
    ------
    BadMessageError
        If it is missing or has another type, byte order or shape; the text has none of its values.
    """
    array = message.get(name)
    if array is None or array.dtype != dtype or array.shape != shape:
        form = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise BadMessageError(
            f"{origin} {form} as {name!r}; it must be {np.dtype(dtype)} {shape}.", "message-form"
        )
    return array


COMPLAINT = "complaint"
"""The only array of an answer that is a complaint: the number of its subject."""


def complain(error: PeerError) -> tuple[Arrays, Arrays]:
    """A client's state and its answer once it cannot use a message: it remembers nothing."""
    return {}, {COMPLAINT: np.array(error.peer, np.int64)}


def check_complaint(origin: str, client: int, answer: Arrays, peers: Collection[int]) -> None:
    """Refuse a malformed complaint, at the server.

    Parameters
    ----------
    origin : sender and step, for the error's text: "Client 3 sent in step 'offer'".
    client : the sender.
    answer : has a :data:`COMPLAINT`.
    peers : the clients whose messages it may be about.

    Raises
    ------
    BadMessageError
        If it is about the sender or another client than those, or there is more than it.
    """
    subject = int(checked_array(origin, answer, COMPLAINT, np.int64, ()))
    if len(answer) > 1 or subject == client or subject not in peers:
        raise BadMessageError(f"{origin} a complaint that is none.", "message-form")


def subjects(answers: Mapping[int, Arrays]) -> dict[int, int]:
    """About whom clients complain, by the clients that do."""
    return {
        client: int(answer[COMPLAINT]) for client, answer in answers.items() if COMPLAINT in answer
    }


def exclude(contradictions: Iterable[tuple[int, int]], present: Iterable[int]) -> None:
    """Decide who leaves, so that no contradiction is left.

    Again and again the client with most contradictions leaves; if several have as many, all of
    these do.

    Parameters
    ----------
    contradictions : pairs of clients, in any order; more than one of the same two counts once. A
        client that contradicts itself is a pair with itself, and leaves first.
    present : the clients that have not left yet.

    Raises
    ------
    ExcludedClientsError
        If there is a contradiction; without anybody to leave if it is with one who has left.
    """
    here, all_pairs = sorted(present), {frozenset(pair) for pair in contradictions}
    if not all_pairs:
        return
    pairs = {pair for pair in all_pairs if pair.issubset(here)}
    excluded: dict[int, str] = {}
    tied: set[int] = set()
    for client in sorted(client for pair in pairs if len(pair) == 1 for client in pair):
        excluded[client] = "what it has sent the server does not go together"
    pairs = {pair for pair in pairs if pair.isdisjoint(excluded)}
    while pairs:
        times = Counter(client for pair in pairs for client in pair)
        most = max(times.values())
        leaving = sorted(client for client, count in times.items() if count == most)
        for client in leaving:
            peers = sorted(peer for pair in pairs if client in pair for peer in pair - {client})
            if len(leaving) == 1:
                excluded[client] = f"its messages and those of {most} others do not go together"
                continue
            tied.add(client)
            excluded[client] = (
                f"its messages and those of client(s) {', '.join(map(str, peers))} do not go "
                "together, and nobody can tell whose fault it is"
            )
        pairs = {pair for pair in pairs if pair.isdisjoint(leaving)}
    raise ExcludedClientsError(excluded, tied, [c for c in here if c not in excluded])
