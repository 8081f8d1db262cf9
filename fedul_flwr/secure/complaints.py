"""Who has to leave when messages between clients do not go together.

Each contradiction is between two clients, of which at least one does not do what it should: a
message that its reader cannot open, or numbers of both that give no distance. Two honest clients
never contradict each other. So who is in most contradictions is at fault, as long as most clients
are honest; between two clients that contradict nobody else, nobody can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fedul_flwr.secure.similarity import ExcludedClientsError

COMPLAINT = "complaint"
"""The only array of an answer that is a complaint: the number of its subject."""


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
