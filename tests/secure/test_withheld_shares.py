"""A server that withholds a client's shares from others, and says to all that it is in the sum.

Without masks for it the vectors of the others would sum without its vector, in every round at will:
the sums of two rounds would tell its update, and each list says that both are over all clients.
"""

from collections.abc import Collection, Mapping

import numpy as np
import pytest

from fedul_flwr.secure import sum_client
from fedul_flwr.secure.sharing import (
    SEALED,
    SELF_SHARES,
    SHARE_SENDERS,
    degree,
    neighbors,
    open_secret,
    self_key,
    threshold,
)
from fedul_flwr.secure.sum_client import Masked
from fedul_flwr.secure.words import Mask, add_masks, add_vectors
from tests.support.refusals import refuses
from tests.support.sum_party import Arrays, Party, total, vectors


def without(shares: Arrays, withheld: Collection[int]) -> Arrays:
    """Sealed shares for a client but for those of ``withheld``."""
    stay = ~np.isin(shares[SHARE_SENDERS], list(withheld))
    return {SHARE_SENDERS: shares[SHARE_SENDERS][stay], SEALED: shares[SEALED][stay]}


def sum_of_part(party: Party, part: Collection[int]) -> list[int]:
    """What the server reads of ``part``, whose clients get shares of each other alone.

    All others get all shares. Everybody hears, and with identities signs, that all are in the sum.
    """
    server, words = party.begin(), vectors(party.clients)
    others = {*party.clients} - {*part}
    masked = {
        client: party.mask(
            client,
            without(server.shares_for(client), others if client in part else ()),
            words[client],
        )
        for client in party.clients
    }
    server.take_vectors(masked)
    message = server.list_message()
    if party.pinned:
        message = server.signed_list(party.signatures(message, party.clients))
    shares: dict[int, dict[int, bytes]] = {client: {} for client in part}
    for client in part:
        stage = party.stage(client)
        assert isinstance(stage, Masked)
        answer = party.unmask(client, message)
        for peer, share in zip(stage.opened, answer[SELF_SHARES], strict=True):
            shares[peer][server._holders[peer].index(client)] = share.tobytes()
    read = add_vectors([masked[client] for client in sorted(part)])
    for client, opened in shares.items():
        secret = open_secret(dict(sorted(opened.items())[: server._needed]))
        assert secret is not None
        mask = Mask(self_key(secret, server.number, client), added=False)
        add_masks(read, [mask])
    assert read.tolist() == total(words, part)
    return read.tolist()


CASES = [pytest.param(False, 8, id="8 clients"), pytest.param(True, 5, id="5 with identities")]


@pytest.mark.parametrize(("pinned", "count"), CASES)
def test_given_one_whose_shares_are_withheld_then_nobody_opens(pinned: bool, count: int) -> None:
    with refuses("server-names-others"):
        sum_of_part(Party(range(count), pinned), range(1, count))


@pytest.mark.parametrize(("pinned", "count"), CASES)
def test_given_no_look_at_who_sent_shares_then_a_sum_without_one_is_read(
    pinned: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(sum_client, "_refuse_withheld", lambda *_: None)
    sum_of_part(Party(range(count), pinned), range(1, count))


def smallest_part(beside: Mapping[int, Collection[int]], pinned: bool) -> float:
    """A lower bound of the share of all clients that are in a part of which each client opens.

    Each needs a threshold of holders in the part, itself among them, and so k neighbors there. The
    mean number of these is at most d·s + λ·(1 − s) for a share s of all, with λ the second largest
    eigenvalue by size of the graph of d neighbors (expander mixing lemma).
    """
    matrix = np.zeros((len(beside), len(beside)))
    for client, peers in beside.items():
        matrix[client, [*peers]] = 1
    *_, second, largest = sorted(np.abs(np.linalg.eigvalsh(matrix)))
    inside = threshold(round(largest) + 1, pinned) - 1
    return float((inside - second) / (largest - second))


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("count", [130, 500])
def test_given_whoever_drops_out_then_no_small_part_is_cut_off(count: int, pinned: bool) -> None:
    for session in (b"s" * 32, b"t" * 32, b"u" * 32):
        assert smallest_part(neighbors(session, range(count), pinned), pinned) > 0.2
    # The control: the nearest on a circle, of whom each stretch of half as many is a part.
    half = degree(count, pinned) // 2
    steps = [step for step in range(-half, half + 1) if step]
    circle = {at: [(at + step) % count for step in steps] for at in range(count)}
    assert smallest_part(circle, True) < 0


def test_given_all_shares_then_a_client_that_drops_out_is_no_lie() -> None:
    party, words = Party(range(6), True), vectors(range(6))
    assert party.sum(1, words, vector=[2]).tolist() == total(words, [0, 1, 3, 4, 5])
    assert party.sum(2, words, shares=[4]).tolist() == total(words, [0, 1, 2, 3, 5])
