"""Secrets of a secure sum: who shares them with whom, how many open them, what keys they become.

The names of the messages' arrays stand here, too: both sides have to know all of this.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedul_flwr.arrays import Bytes
from fedul_flwr.secure.messages import a_third, checked_array
from fedul_flwr.secure.session import (
    FEWEST,
    KEY_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    Address,
    Entropy,
    bytes_array,
    derive,
    seal,
    unseal,
)
from fedul_flwr.secure.stored import Pairs

THRESHOLD, APART, SURVIVORS = "threshold", "apart", "survivors"
PAIR_KEYS, HASHES = "pair-keys", "hashes"
KINDS = SELF_SHARES, PAIR_SHARES = "self-shares", "pair-shares"
SEALED, SHARE_SENDERS = "sealed-shares", "share-senders"
"""Names of arrays. Of those about peers one row is for each peer in ascending order: an array for
each would cost more than its masks."""

# Who shares with whom

COMPLETE = 100
"""Up to so many clients everybody is a neighbor of everybody."""


def threshold(holders: int, pinned: bool) -> int:
    """Shares that open a secret: more than half of them, or without identities two thirds.

    Without identities nobody sees whether the server names one list to all. One that says to some
    clients that a client is there, and to others that it is not, opens neither of its secrets with
    fewer than a third of the holders (Bonawitz et al., section 6.2). With identities the signatures
    of :func:`quorum` prevent two lists.
    """
    return max(FEWEST, holders // 2 + 1 if pinned else 2 * holders // 3 + 1)


def quorum(participants: int) -> int:
    """Fewest clients in a sum, and with identities fewest who sign for it: more than two thirds.

    Two lists would take two times as many signatures. Honest clients sign once, so a third of all
    would have to sign both.
    """
    return max(FEWEST, 2 * participants // 3 + 1)


def conspirators(participants: int) -> int:
    """Fewest of a sum's participants, with identities, who can read another's part with the server.

    All but one of the smallest sum that a quorum signs subtract their parts; or as many as a
    threshold have the shares of a secret that honest ones do not open; or so many sign two lists
    that each has a quorum, as honest ones sign one. Among more than :data:`COMPLETE` participants
    :data:`COLLUDING` of all, who are near each other by chance alone.
    """
    if participants > COMPLETE:
        return math.ceil(participants * COLLUDING[True])
    signed = quorum(participants)
    return min(signed - 1, threshold(participants, pinned=True), 2 * signed - participants)


def spare(clients: int, pinned: bool) -> int:
    """Most pairs of one client that may be apart: fewer than a third of a secret's holders.

    More than two thirds of all still share masks with each client. So whatever pairs a server that
    lies keeps apart, honest clients do not fall into two groups of which it could read the sums.
    """
    return a_third(degree(clients, pinned) + 1)


COLLUDING = {True: Fraction(1, 5), False: Fraction(1, 10)}
GONE = {True: Fraction(3, 10), False: Fraction(1, 10)}
"""Shares of all clients that collude, and that drop out, for which :func:`degree` is made: with
identities, and without."""


@cache
def degree(clients: int, pinned: bool) -> int:
    """Number of neighbors of a client: all up to :data:`COMPLETE` clients, else about log n.

    The least even number with which, for a neighborhood drawn at random (Bell et al., section 3.4):
    that colluding clients can read some client has a probability below 2^-40, if they are
    :data:`COLLUDING` of all; that some client's shares are too few has one below 2^-10 after
    :data:`GONE` of all have dropped out. Colluding clients need a threshold of shares; without
    identities only what two lists need beside all others. That the others fall into two groups
    without a pair mask between them has a probability below 2^-35.
    """
    if clients <= COMPLETE:
        return clients - 1
    colluding, gone = (math.floor(clients * share[pinned]) for share in (COLLUDING, GONE))

    def at_least(marked: int, count: int, least: int) -> Fraction:
        """Chance of ``least`` marked ones or more among ``count`` of all other clients."""
        others = clients - 1
        ways = sum(
            math.comb(marked, hits) * math.comb(others - marked, count - hits)
            for hits in range(least, min(marked, count) + 1)
        )
        return Fraction(ways, math.comb(others, count))

    for count in range(COMPLETE // 2, clients - 1, 2):
        holders, needed = count + 1, threshold(count + 1, pinned)
        reading = needed if pinned else 2 * needed - holders
        read = clients * at_least(colluding, count, reading)
        lost = clients * at_least(gone, count, holders - needed + 1)
        if read <= Fraction(1, 2**40) and lost <= Fraction(1, 2**10):
            return count
    return clients - 1


def neighbors(
    number: bytes, clients: Sequence[int], pinned: bool, apart: Pairs = frozenset()
) -> dict[int, list[int]]:
    """Neighbors of every client, in an order and at distances that nobody chooses."""
    graph = _graph(number, clients, pinned)
    for low, high in apart:  # neighbors or not
        graph[low] = [peer for peer in graph[low] if peer != high]
        graph[high] = [peer for peer in graph[high] if peer != low]
    return graph


def _graph(number: bytes, clients: Sequence[int], pinned: bool) -> dict[int, list[int]]:
    """Everybody, or those at some distances on a circle, both drawn by the session's number.

    If the nearest on the circle were neighbors, two gaps of clients that a server says have dropped
    out would cut off a short stretch, whose sum it could read. At distances drawn by chance
    the neighbors of a few clients are nearly all clients (Alon and Roichman 1994).
    """
    count, size = degree(len(clients), pinned), len(clients)
    if count >= size - 1:
        return {client: [peer for peer in clients if peer != client] for client in clients}

    def drawn(what: bytes, one: int) -> bytes:
        text = b"fedul-flwr " + what + b" 2" + number + one.to_bytes(8, "little")
        return hashlib.sha256(text).digest()

    circle = sorted(clients, key=lambda client: drawn(b"order", client))
    steps = sorted(range(1, (size + 1) // 2), key=lambda step: drawn(b"distance", step))
    steps = [sign * step for step in steps[: count // 2] for sign in (-1, 1)]
    return {
        client: sorted(circle[(at + step) % size] for step in steps)
        for at, client in enumerate(circle)
    }


# Shares of a secret

SECRET_BYTES = 16
"""Length of a secret that Shamir's scheme shares."""
SHARE_BYTES = 17

PRIME = 2**130 - 5


def share_secret(secret: bytes, needed: int, holders: int, entropy: Entropy) -> list[bytes]:
    """Shares of a secret of :data:`SECRET_BYTES`, of which ``needed`` open it (Shamir 1979).

    Values at 1, 2, … of a polynomial over the field of :data:`PRIME`, whose value at 0 is the
    secret. pycryptodome's scheme takes 40 times as long to open a secret of 51 shares.
    """
    draws = [int.from_bytes(entropy(SHARE_BYTES + 8)) % PRIME for _ in range(needed - 1)]
    coefficients = [int.from_bytes(secret), *draws]
    shares = []
    for at in range(1, holders + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * at + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES))
    return shares


def open_secret(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret from shares by the holders' places, which begin at 0; ``None`` if it is none."""
    value = 0
    for position, factor in zip(shares, _factors(tuple(shares)), strict=True):
        value += int.from_bytes(shares[position]) * factor
    value %= PRIME
    return value.to_bytes(SECRET_BYTES) if value < 256**SECRET_BYTES else None


@lru_cache(1024)
def _factors(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's factors of the values at ``places`` + 1 for the value at 0."""
    points = [position + 1 for position in places]
    factors = []
    for at in points:
        above = below = 1
        for other in points:
            if other != at:
                above = above * other % PRIME
                below = below * (other - at) % PRIME
        factors.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(factors)


def find_secret(
    shares: Mapping[int, bytes], needed: int, is_right: Callable[[bytes], bool]
) -> tuple[bytes, set[int]] | None:
    """The secret from shares of which some may be wrong, and the places of those that are.

    ``None`` if ``needed`` right ones are not found.
    """
    places = sorted(shares)
    for chosen in _subsets(places, needed):
        secret = open_secret({position: shares[position] for position in chosen})
        if secret is None or not is_right(secret):
            continue
        wrong = set()
        if [*chosen] != places[:needed]:  # else no share that was used is wrong
            for position in shares.keys() - set(chosen):
                others = {p: shares[p] for p in [*chosen[1:], position]}
                if open_secret(others) != secret:
                    wrong.add(position)
        return secret, wrong
    return None


_TRIES = 500


def _subsets(places: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Subsets to try for the right shares: the first, then others at random, at most a few."""
    if len(places) < size:
        return
    yield tuple(places[:size])
    if math.comb(len(places), size) <= _TRIES:
        yield from itertools.islice(itertools.combinations(places, size), 1, None)
        return
    draw = random.Random(0)  # which subset comes first is no secret
    for _ in range(_TRIES):
        yield tuple(sorted(draw.sample(places, size)))


def share_rows(shares: bytes) -> Bytes:
    """Shares one after the other as an array, ``(n, SHARE_BYTES)``."""
    return bytes_array(shares).reshape(-1, SHARE_BYTES)


def share_address(session: bytes, number: int, source: int, destination: int) -> Address:
    """Of the shares that a client has in a sum for another."""
    return Address(session, 0, f"shares/{number}", source, destination)


def seal_shares(shares: bytes, root: bytes, address: Address) -> Bytes:
    """A peer's shares of both secrets, sealed by the secret of the pair."""
    return seal({"shares": share_rows(shares)}, root, address, os.urandom)


def unseal_shares(row: Bytes, root: bytes, address: Address) -> bytes:
    """What :func:`seal_shares` has sealed."""
    arrays, origin = unseal(row, root, address), f"Client {address.source} sent"
    return checked_array(origin, arrays, "shares", np.uint8, (2, SHARE_BYTES)).tobytes()


SEALED_BYTES = len(
    seal_shares(bytes(2 * SHARE_BYTES), bytes(KEY_BYTES), share_address(b"", 0, 0, 0))
)
"""Length of shares that are sealed."""


# Keys of secrets

SEALED_KEY_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES
"""Length of a pair key that is sealed."""


def secret_hash(number: int, client: int, secret: bytes) -> Bytes:
    """32 bytes by which a secret of a client in a sum is known once it is open."""
    address = Address(b"", number, "hash", client, client)
    return bytes_array(hashlib.sha256(address.info("secret") + secret).digest())


def self_key(secret: bytes, number: int, client: int) -> bytes:
    """The key of a client's self mask in a sum."""
    return derive(secret, Address(b"", number, "sum", client, client).info("self mask"))


def pair_key(root: bytes, client: int, peer: int, transcript: bytes) -> bytes:
    """The key of two clients' pair mask in a sum, from their secret and the sum's transcript."""
    lower, upper = sorted((client, peer))
    address = Address(transcript, 0, "sum", lower, upper)
    return derive(root, address.info("pair key"))


def seal_pair_keys(secret: bytes, keys: Mapping[int, bytes]) -> Bytes:
    """Each pair key sealed, in ascending order of the peers, one row each."""
    cipher = AESGCM(derive(secret, b"fedul-flwr pair keys 1"))
    rows = [
        nonce + cipher.encrypt(nonce, keys[peer], None)
        for position, peer in enumerate(sorted(keys))
        for nonce in [position.to_bytes(NONCE_BYTES, "little")]  # the key is used for these alone
    ]
    return bytes_array(b"".join(rows)).reshape(-1, SEALED_KEY_BYTES)


def open_pair_key(secret: bytes, row: Bytes) -> bytes:
    """A row of :func:`seal_pair_keys`; an ``InvalidTag`` if it is none."""
    cipher = AESGCM(derive(secret, b"fedul-flwr pair keys 1"))
    return cipher.decrypt(row[:NONCE_BYTES].tobytes(), row[NONCE_BYTES:].tobytes(), None)
