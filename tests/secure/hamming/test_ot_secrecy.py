"""Distances by oblivious transfer: what each party sees, and what randomness used twice shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.hamming.ot import (
    CHOICES,
    CORRECTIONS,
    OT,
    SUMS,
    _context,
    _pads,
    columns,
    rows_of,
)
from fedul_flwr.secure.hamming.pairwise import Party
from tests.support.hamming.pairs import (
    SESSION,
    Played,
    play,
    random_codes,
    seeded,
)


def uniform(words: NDArray[np.unsignedinteger[Any]]) -> bool:
    """Whether every byte of the words is as uniform as 4 bits of it can tell."""
    data = np.ascontiguousarray(words).view(np.uint8).reshape(-1, words.itemsize)
    return all(
        chisquare(np.bincount(nibble.ravel(), minlength=16)).pvalue > 1e-3
        for column in data.T
        for nibble in (column & 15, column >> 4)
    )


def choices_of(played: Played) -> NDArray[Any]:
    return played.inboxes["answer"][0][1][CHOICES]


def corrections_of(played: Played) -> NDArray[Any]:
    return played.inboxes["reveal"][1][0][CORRECTIONS]


PATTERNS = {
    "zeros": np.zeros((40, 2), np.uint8),
    "ones": np.full((40, 2), 255, np.uint8),
    "random": random_codes(40, 16),
}


@pytest.mark.parametrize("evaluator", PATTERNS)
@pytest.mark.parametrize("owner", PATTERNS)
def test_what_one_party_sees_is_uniform_whatever_the_codes(owner: str, evaluator: str) -> None:
    played = play(OT, {0: PATTERNS[owner], 1: PATTERNS[evaluator]}, entropy=seeded(0))
    assert uniform(choices_of(played))
    assert uniform(corrections_of(played))
    # Of the two that the server hears, each alone; their difference is a distance, at most 16.
    own, received = (played.server[0, 1][client][SUMS] for client in (0, 1))
    assert uniform(own)
    assert uniform(received)
    assert not uniform(received - own)


def test_randomness_used_twice_shows_in_what_codes_differ() -> None:
    own, one, other = (random_codes(5, 32, seed) for seed in (1, 2, 3))
    differ = (one ^ other).ravel()
    first, same = (play(OT, {0: own, 1: codes}, entropy=seeded(0)) for codes in (one, other))
    np.testing.assert_array_equal(choices_of(first) ^ choices_of(same), np.tile(differ, (128, 1)))
    # Fresh bytes or another session, either is enough.
    for seed, session in ((1, SESSION), (0, bytes(32))):
        fresh = play(OT, {0: own, 1: other}, entropy=seeded(seed), session=session)
        found = choices_of(first) ^ choices_of(fresh)
        assert abs((found == differ).mean() - 1 / 256) < 0.01


def test_pads_used_twice_show_in_what_the_owners_codes_differ() -> None:
    # Corrections are A - B + 1 - 2 b: with the same pads they differ by 2 (b' - b).
    one, other, peers = (random_codes(5, 32, seed) for seed in (1, 2, 3))
    bits, other_bits = (np.unpackbits(codes, axis=1).T for codes in (one, other))
    differ = np.tile(2 * (bits.astype(np.uint16) - other_bits), (5, 1))
    first, same = (play(OT, {0: codes, 1: peers}, entropy=seeded(0)) for codes in (one, other))
    np.testing.assert_array_equal(corrections_of(same) - corrections_of(first), differ)
    for seed, session in ((1, SESSION), (0, bytes(32))):
        fresh = play(OT, {0: other, 1: peers}, entropy=seeded(seed), session=session)
        found = corrections_of(fresh) - corrections_of(first)
        assert (found == differ).mean() < 0.01


def test_no_two_hashes_begin_alike() -> None:
    parties = [Party(0, (), (), {}, 8, session) for session in (SESSION, bytes(32))]
    pairs = [(1, 2), (2, 1), (1, 23), (12, 3), (-1, 2)]
    contexts = [
        _context(purpose, party, *pair)
        for purpose in ("base", "pads")
        for party in parties
        for pair in pairs
    ]
    assert len(set(contexts)) == 20
    # No context begins another one: the fifth blank ends the names, 32 bytes of session follow.
    assert all(context[:-32].count(b" ") == 5 for context in contexts)


def test_a_step_that_is_run_again_has_fresh_randomness() -> None:
    # After a crash, say: the same state, but its entropy has gone on.
    played = play(OT, {0: random_codes(2, 16, 1), 1: random_codes(2, 16, 2)})
    for step, client in (("prepare", 0), ("offer", 1)):
        before = played.turns[step][client].to_peers[1 - client]
        after = played.turn(step, client).to_peers[1 - client]
        for name, array in after.items():
            assert (array != before[name]).any()


def bits_read(played: Played, owner: int, evaluator: int, secret: Bytes) -> NDArray[Any]:
    """The owner's bits, ``(L, n_owner)``, if ``secret`` is its s: by all the evaluator has.

    Of the pads A of row h of Q and B of that row plus s, choice 0 gives it A, choice 1 gives it B,
    and with s it has the row of the other, too. From corrections A - B + 1 - 2 b, b are left.
    """
    party, codes = played.parties[evaluator], played.codes[evaluator]
    keys = played.turns["offer"][evaluator].state[f"keys {owner}"]
    own = rows_of(columns(keys, codes.size))[: party.num_bits]  # of its first point
    other = own ^ secret
    ones = np.unpackbits(codes[0])[:, np.newaxis]
    context, width = _context("pads", party, owner, evaluator), party.sizes[owner]
    a, b = (
        _pads(context, 0, np.where(ones == choice, own, other), width).astype(np.int64)
        for choice in (0, 1)
    )
    sent = played.inboxes["reveal"][evaluator][owner][CORRECTIONS][: party.num_bits]
    return (a - b + 1 - sent) % 2**16 / 2


def test_only_the_secret_of_this_pair_and_session_reads_the_owners_bits() -> None:
    codes = {client: random_codes(5, 32, client) for client in range(4)}
    one, other = play(OT, codes, entropy=seeded(1)), play(OT, codes, entropy=seeded(2))
    secrets = {
        (session, owner, evaluator): played.turns["prepare"][owner].state[f"secret {evaluator}"]
        for session, played in enumerate((one, other))
        for owner, evaluator in played.server
    }
    assert len({secret.tobytes() for secret in secrets.values()}) == 12
    for owner, evaluator in one.server:
        bits = np.unpackbits(codes[owner], axis=1).T
        for place, secret in secrets.items():
            right = (bits_read(one, owner, evaluator, secret) == bits).mean()
            assert right == 1 if place == (0, owner, evaluator) else right < 0.1
