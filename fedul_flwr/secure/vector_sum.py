"""Sums of clients' vectors that show the server nothing but the sum.

After Bonawitz et al. (CCS 2017) with the sparse graph of Bell et al. (CCS 2020). Each client adds
to its vector a self mask, and a pair mask with each neighbor, which cancels in the sum. Masks are
streams of AES-256. Seeds of self masks, and keys to pair keys, are shared among the neighbors by
Shamir's scheme: a client that drops out after its shares can be taken out of the sum.

Keys for a run are exchanged once: every two neighbors then have a secret. The keys of one sum are
derived from it and from the sum's :class:`Transcript`, the digest of everything on which a client's
answer depends: a server that tells two clients different things gets noise. Owners with identities
sign the same digest with the list of those who are in the sum, once, and open it only if they have
masked with each neighbor in the list, and more than two thirds of its participants have signed (the
consistency check of Bonawitz et al.; that all that the server says is bound, too, is the idea of
ACORN and Willow). What is opened for a client that drops out are keys of one sum, never those of
the run.

A vector has words, which are added modulo 2^32, and behind them whole numbers of several words
each. A mask is added to the whole number: sums of its words one by one would tell more than its
sum.

State and messages are arrays, so that each message can be answered by a new process:

======= ======================================= ==================================================
step    to a client                             from a client
======= ======================================= ==================================================
keys    nonce                                   public key, signature (once a run)
peers   all keys and signatures                 sealed parts of pair secrets (once a run)
shares  participants, threshold, pairs apart    sealed shares for neighbors and pair keys, hashes
vector  shares of those who sent them           the masked vector
confirm who has sent a vector                   signature over it (with identities)
unmask  the same, with signatures               shares: of self masks of these, of pair keys of the
                                                others
======= ======================================= ==================================================

The server learns sums of more than two thirds of a sum's participants, if fewer than a third of
them work with it, and fewer than the threshold of a client's neighbors. With identities that holds
also if it does not follow the protocol. A client can send a wrong vector; nothing here notices.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from fedul_flwr.data.standardize import Moments
from fedul_flwr.data.types import Bools, Bytes, Floats, Inputs, Ints
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.identities import SIGNATURE_BYTES, UNSIGNED, Identities, Purpose
from fedul_flwr.secure.messages import a_third, checked_array, errors_of_peers, listed_clients
from fedul_flwr.secure.session import (
    FEWEST,
    FROM,
    KEY_BYTES,
    MASK_ROOTS,
    NONCE_BYTES,
    PARTICIPANTS,
    PRIVATE,
    SIGNATURES,
    TAG_BYTES,
    TO,
    Address,
    Entropy,
    KeyStream,
    Session,
    bytes_array,
    derive,
    join,
    require_signed,
    seal,
    unseal,
)
from fedul_flwr.secure.similarity import Arrays

Words = NDArray[np.uint32]


class Tail(NamedTuple):
    """The last words of a vector: whole numbers of ``digits`` words each, lowest word first."""

    numbers: int = 0
    digits: int = 1

    @property
    def size(self) -> int:
        """Number of words."""
        return self.numbers * self.digits


NO_TAIL = Tail()

SECRET_BYTES = 16
"""Length of a secret that Shamir's scheme shares."""
SHARE_BYTES = 17
COMPLETE = 100
"""Up to so many clients everybody is a neighbor of everybody."""

PEERS, SHARES = "sum-peers", "sum-shares"
"""Steps in which clients seal messages for each other."""

THRESHOLD, APART, TRANSCRIPT, QUESTION = "threshold", "apart", "transcript", "question"
PAIR_KEYS, HASHES, SURVIVORS = "pair-keys", "hashes", "survivors"
SELF_SHARES, PAIR_SHARES = "self-shares", "pair-shares"
SEALED, SHARE_SENDERS = "sealed-shares", "share-senders"
"""One row for each peer in ascending order: an array for each would cost more than its masks."""
ROOTS, LAST, SECRETS, OPENED, HOLDERS, SENDERS, PRESENT, SIGNED = (
    *("roots", "last-round", "secrets", "opened", "holders", "senders", "present", "signed"),
)

_NO_SHARES = {"shares": np.zeros((2, SHARE_BYTES), np.uint8)}
SEALED_BYTES = len(seal(_NO_SHARES, bytes(KEY_BYTES), Address(b"", 0, "", 0, 0), bytes))
"""Length of a peer's two sealed shares."""
_SEALED_KEY = NONCE_BYTES + KEY_BYTES + TAG_BYTES


# Numbers


def step_size(bound: float, clients: int) -> float:
    """Distance of two neighboring values of :func:`quantize`: the largest that cannot overflow."""
    return bound / _levels(clients)


def _levels(clients: int) -> int:
    return (2**31 - 1) // clients


def quantize(values: Floats, bound: float, clients: int, rng: np.random.Generator) -> Words:
    """Entries as multiples of :func:`step_size`, rounded at random so that the mean is exact."""
    if not np.isfinite(values).all():
        raise UserError(
            "A vector for a secure sum has an entry that is not a finite number.",
            "model-not-finite",
        )
    levels = _levels(clients)
    scaled = np.array(values, np.float64)
    scaled *= levels / bound
    scaled += rng.random(scaled.shape)
    np.floor(scaled, out=scaled)
    np.clip(scaled, -levels, levels, out=scaled)
    return scaled.astype(np.int32).view(np.uint32)


def dequantize(words: Words, bound: float, clients: int) -> Floats:
    """The sum of vectors from the sum of their words, of the same shape."""
    return np.asarray(words.view(np.int32) * step_size(bound, clients), np.float64)


def whole_words(numbers: Sequence[int], digits: int) -> Words:
    """Whole numbers as words, ``(len(numbers) · digits,)``: two's complement, lowest word first."""
    if any(abs(number) >= 2 ** (32 * digits - 21) for number in numbers):
        raise UserError("A number is too large for a secure sum.", "message-out-of-range")
    written = b"".join(number.to_bytes(4 * digits, "little", signed=True) for number in numbers)
    return np.frombuffer(written, "<u4").astype(np.uint32)


def whole_numbers(words: Words, digits: int) -> list[int]:
    """What :func:`whole_words` has written, or sums of these."""
    rows = words.astype("<u4").reshape(-1, digits)
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in rows]


FIXED_DIGITS, FIXED_BITS = 4, 48
"""Words of a number in fixed point, and how many of its bits are below 1: steps of 2^-48 are a
thousandth of the variance of 10 points whose deviation is 2e-7."""
_LARGEST = 2.0**58
"""Numbers in fixed point are below it: a million of them stay below half of 2^80."""


def fixed_words(numbers: Floats) -> Words:
    """Numbers ``(n,)`` of floating point as words ``(n · FIXED_DIGITS,)``, rounded to 2^-48.

    They are whole numbers of four words, as :func:`whole_words` writes them.
    """
    if not (np.abs(numbers) < _LARGEST).all():
        raise UserError(
            "A number is not finite, or too large for a secure sum: points or features have to be "
            "scaled.",
            "message-out-of-range",
        )
    steps = np.rint(np.ldexp(np.abs(numbers), FIXED_BITS))
    high, low = (part.astype(np.uint64) for part in np.divmod(steps, 2.0**64))
    return np.stack(_signed(low, high, numbers < 0), axis=1).astype("<u8").view(np.uint32).ravel()


def fixed_numbers(words: Words) -> Floats:
    """The numbers of :func:`fixed_words`, or of sums of them."""
    low, high = words.reshape(-1, FIXED_DIGITS).copy().view("<u8").T
    is_negative = high >= 2**63
    low, high = _signed(low, high, is_negative)
    steps = np.ldexp(high.astype(np.float64), 64) + low.astype(np.float64)
    return np.asarray(np.ldexp(np.where(is_negative, -steps, steps), -FIXED_BITS))


def _signed(
    low: NDArray[np.uint64], high: NDArray[np.uint64], negated: Bools
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Two's complement of whole numbers in halves of 64 bits, where ``negated``."""
    carry = (low == 0).astype(np.uint64)
    return np.where(negated, ~low + np.uint64(1), low), np.where(negated, ~high + carry, high)


def _carried(totals: NDArray[np.int64], digits: int) -> Words:
    """Words of the same whole numbers, from sums and differences of fewer than 2^31 words."""
    rows = totals.reshape(-1, digits)
    carried = np.empty(rows.shape, np.uint32)
    carry = np.zeros(len(rows), np.int64)
    for digit in range(digits):
        carry = carry + rows[:, digit]
        carried[:, digit] = carry & (2**32 - 1)
        carry >>= 32  # rounds down, so that what is below 0 borrows
    return carried.ravel()


def add_vectors(vectors: Sequence[Words], tail: Tail = NO_TAIL) -> Words:
    """The sum of vectors of equal form."""
    split = len(vectors[0]) - tail.size
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total[:split] += vector[:split]
    if tail.numbers:
        last = np.stack([vector[split:] for vector in vectors]).astype(np.int64)
        total[split:] = _carried(last.sum(axis=0), tail.digits)
    return total


# Who masks with whom


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


Pairs = frozenset[tuple[int, int]]
"""Pairs of clients that share nothing, as one has complained about the other: lower number first.
"""


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


class Transcript(NamedTuple):
    """Everything on which a client's answer in one sum depends, but what is its own.

    Attributes
    ----------
    session : number of the session, a hash of all participants' keys.
    question : 32 bytes, a digest of all that the answer is computed from.
    """

    session: bytes
    number: int
    participants: tuple[int, ...]
    needed: int
    apart: Pairs
    question: bytes

    @property
    def digest(self) -> bytes:
        """32 bytes that are mixed into every mask of the sum, and that owners sign."""
        fields = {**self._asdict(), "apart": sorted(self.apart)}
        text = json.dumps(fields, sort_keys=True, default=bytes.hex)
        return hashlib.sha256(b"fedul-flwr transcript 1" + text.encode()).digest()


# A client


_SERVER = "The server sent"


def join_sum(
    state: Arrays,
    client: int,
    message: Arrays,
    purpose: Purpose,
    identities: Identities | None,
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """State after the list of participants, and a part of each pair secret, sealed for its peer."""
    private, pinned = state[PRIVATE].tobytes(), identities is not None
    apart = _read_apart(message)
    strangers = {peer for pair in apart if client in pair for peer in pair}
    session = join(client, private, message, 0, purpose)
    require_signed(session, message, purpose, identities, strangers)
    beside = neighbors(session.number, [*session.public], pinned)
    if not {*itertools.chain(*apart)} <= session.public.keys() or any(a >= b for a, b in apart):
        raise UserError("The server sent no list of pairs.", "server-names-others")
    lost = Counter(itertools.chain(*apart))
    if max(lost.values(), default=0) > spare(len(session.public), pinned):
        raise UserError(
            "The server keeps so many pairs of clients apart that a sum would fall into parts.",
            "server-asks-too-much",
        )
    sealed = {
        f"{TO}{peer}": session.seal(peer, PEERS, {"part": session.mask_share(peer)}, os.urandom)
        for peer in beside[client]
        if peer not in strangers
    }
    return {**session.as_arrays(), APART: message[APART], LAST: np.array(0, np.int64)}, sealed


def apart_message(apart: Pairs) -> dict[str, NDArray[Any]]:
    """Pairs of clients that share nothing, as a part of step ``peers``."""
    return {APART: np.array(sorted(apart), np.int64).reshape(-1, 2)}


def _read_apart(message: Arrays) -> Pairs:
    pairs = checked_array(_SERVER, message, APART, np.int64, (None, 2))
    return frozenset((int(low), int(high)) for low, high in pairs)


class Member(NamedTuple):
    """A client of a session.

    Attributes
    ----------
    pinned : whether clients are known by identities, see :func:`threshold`.
    """

    client: int
    server_round: int
    pinned: bool


def offer_shares(
    member: Member, state: Arrays, message: Arrays, number: int, question: bytes
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """State and answer of step ``shares``: shares of this sum's two secrets for each neighbor."""
    session, beside = _session(member, state)
    client, pinned, apart = member.client, member.pinned, _read_apart(state)
    roots = _roots(state, session, beside, message)
    present = listed_clients(message, PARTICIPANTS)
    needed = int(checked_array(_SERVER, message, THRESHOLD, np.int64, ()))
    if number <= int(state[LAST]):
        raise UserError(
            f"The server asked for secure sum {number} out of turn.", "server-out-of-turn"
        )
    if client not in present or not {*present} <= session.public.keys():
        raise UserError("The server named others for a sum than before.", "server-names-others")
    holders = sorted({client, *(peer for peer in beside if peer in present)})
    whole = neighbors(session.number, [*session.public], pinned)[client]
    if not threshold(1 + len({*whole} & {*present}), pinned) <= needed <= len(holders):
        raise UserError(
            f"The server asked for a secure sum that {needed} of {len(holders)} clients can open, "
            "which protects less than this client asks for.",
            "server-asks-too-much",
        )
    transcript = Transcript(session.number, number, tuple(present), needed, apart, question).digest
    self_secret, key_secret = os.urandom(SECRET_BYTES), os.urandom(SECRET_BYTES)
    split = [
        share_secret(secret, needed, len(holders), os.urandom)
        for secret in (self_secret, key_secret)
    ]
    parts = {
        holder: _rows([share[position] for share in split])
        for position, holder in enumerate(holders)
    }
    step, peers = f"{SHARES}/{number}", [peer for peer in holders if peer != client]
    sealed = [
        seal(
            {"shares": parts[peer]},
            roots[peer],
            _address(session.number, step, client, peer),
            os.urandom,
        )
        for peer in peers
    ]
    answer: dict[str, NDArray[Any]] = {SEALED: np.stack(sealed)}
    pair_keys = {peer: _pair_key(roots[peer], client, peer, transcript) for peer in peers}
    answer[PAIR_KEYS] = _seal_pair_keys(key_secret, pair_keys)
    answer[HASHES] = np.stack([_hash(number, client, s) for s in (self_secret, key_secret)])
    renewed = {
        **_without_round(state),
        ROOTS: bytes_array(b"".join(roots[peer] for peer in beside)).reshape(-1, KEY_BYTES),
        LAST: np.array(number, np.int64),
        THRESHOLD: np.array(needed, np.int64),
        QUESTION: bytes_array(question),
        TRANSCRIPT: bytes_array(transcript),
        HOLDERS: np.array(holders, np.int64),
        PRESENT: np.array(present, np.int64),
        SECRETS: bytes_array(self_secret),
        OPENED: parts[client][None],
    }
    return renewed, answer


def mask_vector(
    member: Member,
    state: Arrays,
    message: Arrays,
    words: Words,
    question: bytes,
    tail: Tail = NO_TAIL,
) -> tuple[dict[str, NDArray[Any]], Words]:
    """State, and a client's words under all its masks."""
    require_question(state, question)
    session, beside = _session(member, state)
    client, number, holders = member.client, int(state[LAST]), state[HOLDERS].tolist()
    roots = {peer: row.tobytes() for peer, row in zip(beside, state[ROOTS], strict=True)}
    opened, step = {client: state[OPENED][0]}, f"{SHARES}/{number}"
    with errors_of_peers() as read:
        for peer, row in _sealed_shares(message, {*holders} - {client}):
            with read(peer):
                address = _address(session.number, step, peer, client)
                shares, origin = unseal(row, roots[peer], address), f"Client {peer} sent"
                opened[peer] = checked_array(origin, shares, "shares", np.uint8, (2, SHARE_BYTES))
    if len(opened) < int(state[THRESHOLD]):
        raise UserError(
            f"Only {len(opened)} clients are in the secure sum; it takes {int(state[THRESHOLD])}.",
            "too-few-clients",
        )
    masks = [Mask(_self_key(state[SECRETS].tobytes(), number, client), added=True)]
    transcript = state[TRANSCRIPT].tobytes()
    for peer in opened.keys() - {client}:
        key = _pair_key(roots[peer], client, peer, transcript)
        masks.append(Mask(key, added=client < peer))
    masked = words.copy()
    add_masks(masked, masks, tail)
    senders = sorted(opened)
    renewed = {name: value for name, value in state.items() if name != SECRETS}
    renewed[SENDERS] = np.array(senders, np.int64)
    renewed[OPENED] = np.stack([opened[peer] for peer in senders])
    return renewed, masked


def require_question(state: Arrays, question: bytes) -> None:
    """Refuse to compute an answer to another question than announced, or a second one."""
    if HOLDERS not in state or SENDERS in state:
        raise UserError("The server asked for a masked vector out of turn.", "server-out-of-turn")
    if question != state[QUESTION].tobytes():
        raise UserError(
            "The server sent another model, or other settings, than it has announced for the "
            "secure sum.",
            "model-mismatch",
        )


def _sealed_shares(message: Arrays, peers: Collection[int]) -> list[tuple[int, Bytes]]:
    """Who has sealed shares for this client, each with what it has sealed."""
    who = listed_clients(message, SHARE_SENDERS)
    rows = checked_array(_SERVER, message, SEALED, np.uint8, (len(who), None))
    if not {*who} <= {*peers}:
        raise UserError("The server named others for a sum than before.", "server-names-others")
    return [(peer, np.ascontiguousarray(row)) for peer, row in zip(who, rows, strict=True)]


def confirm(
    state: Arrays, client: int, message: Arrays, identities: Identities, least: int = 0
) -> tuple[dict[str, NDArray[Any]], Bytes]:
    """State, and this owner's signature over the transcript and the list of those in the sum."""
    if SIGNED in state:
        raise UserError(
            "The server asked for a second signature for one secure sum.", "server-out-of-turn"
        )
    survivors = survivors_of(state, client, message, least)
    signed = {**state, SIGNED: np.array(survivors, np.int64)}
    return signed, identities.sign(_purpose(state, survivors), b"")


def unmask(
    state: Arrays, client: int, message: Arrays, identities: Identities | None, least: int = 0
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """State without the sum, and the shares that open it: one kind for each client."""
    survivors = survivors_of(state, client, message, least)
    if identities:
        if survivors != state.get(SIGNED, np.zeros(0)).tolist():
            raise UserError(
                "The server asked to open another secure sum than this client has signed.",
                "server-out-of-turn",
            )
        form = (len(survivors), SIGNATURE_BYTES)
        signatures = checked_array(_SERVER, message, SIGNATURES, np.uint8, form)
        purpose, near = _purpose(state, survivors), set(state[HOLDERS].tolist())
        signed = set()
        for peer, signature in zip(survivors, signatures, strict=True):
            if (signature != UNSIGNED).any():
                try:
                    identities.check(peer, purpose, b"", signature)
                except UserError:
                    raise UserError(
                        f"Client {peer} has not signed this secure sum: the server has said "
                        "something else to it, or it runs another program.",
                        "signature-wrong",
                    ) from None
                signed.add(peer)
        # The server alone says who is in the list: who has not signed may have sent nothing.
        enough = max(least, quorum(len(state[PRESENT])))
        if len(signed) < enough or len(signed & near) < int(state[THRESHOLD]):
            raise UserError(
                "Too few owners have signed the list of a secure sum.", "signature-wrong"
            )
    senders = state[SENDERS].tolist()
    left = set(survivors)
    opened = dict(zip(senders, state[OPENED], strict=True))
    alive = [opened[peer][0].tobytes() for peer in senders if peer in left]
    gone = [opened[peer][1].tobytes() for peer in senders if peer not in left]
    answer = {SELF_SHARES: _rows(alive), PAIR_SHARES: _rows(gone)}
    return _without_round(state), answer


def _without_round(state: Arrays) -> dict[str, NDArray[Any]]:
    """The state that is kept over rounds."""
    of_round = {HOLDERS, SENDERS, PRESENT, OPENED, SECRETS, SIGNED}
    of_round |= {THRESHOLD, QUESTION, TRANSCRIPT}
    return {name: value for name, value in state.items() if name not in of_round}


def _roots(
    state: Arrays, session: Session, beside: Sequence[int], message: Arrays
) -> dict[int, bytes]:
    """Secrets of 32 bytes with each neighbor, for the run."""
    if ROOTS in state:
        return {p: row.tobytes() for p, row in zip(beside, state[ROOTS], strict=True)}
    parts = {}
    with errors_of_peers() as read:
        for peer in beside:
            with read(peer):
                sent = session.unseal(peer, PEERS, message.get(f"{FROM}{peer}"))
                part = checked_array(f"Client {peer} sent", sent, "part", np.uint8, (KEY_BYTES,))
                parts[peer] = part.tobytes()
    roots = session.mask_roots(parts)
    rows = zip(roots[PARTICIPANTS].tolist(), roots[MASK_ROOTS], strict=True)
    return {peer: row.tobytes() for peer, row in rows if peer != session.client}


def _session(member: Member, state: Arrays) -> tuple[Session, list[int]]:
    """The session, and the client's neighbors."""
    session = Session.from_arrays(member.client, member.server_round, state)
    everyone, apart = [*session.public], _read_apart(state)
    return session, neighbors(session.number, everyone, member.pinned, apart)[member.client]


def survivors_of(state: Arrays, client: int, message: Arrays, least: int = 0) -> list[int]:
    """The list of those in the sum, in ascending order; errors as of :func:`confirm`."""
    if SENDERS not in state:
        raise UserError("The server asked to open a secure sum out of turn.", "server-out-of-turn")
    who = listed_clients(message, SURVIVORS)
    here = {*state[SENDERS].tolist()} & {*who}
    if client not in here or not {*who} <= {*state[PRESENT].tolist()}:
        raise UserError("The server named others for a sum than before.", "server-names-others")
    _refuse_withheld(state, who)
    fewest = max(least, quorum(len(state[PRESENT])))
    if len(here) < int(state[THRESHOLD]) or len(who) < fewest:
        raise UserError(
            f"Only {len(who)} clients are left in the secure sum, {len(here)} of them near this "
            f"one: it asks for {fewest} and {int(state[THRESHOLD])}.",
            "too-few-clients",
        )
    return who


def _refuse_withheld(state: Arrays, who: Collection[int]) -> None:
    """Refuse a list with neighbors without whose masks this client has sent its vector.

    Their shares have not come: a server that withholds them would sum without these neighbors, and
    say to all that they are in the sum. With it masks of all who are listed cancel only together.
    """
    withheld = ({*who} & {*state[HOLDERS].tolist()}) - {*state[SENDERS].tolist()}
    if withheld:
        raise UserError(
            f"The server says that client {min(withheld)} is in a secure sum, and has withheld its "
            "shares.",
            "server-names-others",
        )


def _purpose(state: Arrays, survivors: Iterable[int]) -> Purpose:
    text = hashlib.sha256(b"fedul-flwr survivors 2" + state[TRANSCRIPT].tobytes())
    text.update(np.array(sorted(survivors), "<i8").tobytes())
    return Purpose("sum", 0, 0, text.digest())


# Secrets and masks


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


def _address(session: bytes, step: str, source: int, destination: int) -> Address:
    return Address(session, 0, step, source, destination)


def _hash(number: int, client: int, secret: bytes) -> Bytes:
    address = Address(b"", number, "hash", client, client)
    return bytes_array(hashlib.sha256(address.info("secret") + secret).digest())


def _self_key(secret: bytes, number: int, client: int) -> bytes:
    return derive(secret, Address(b"", number, "sum", client, client).info("self mask"))


def _pair_key(root: bytes, client: int, peer: int, transcript: bytes) -> bytes:
    lower, upper = sorted((client, peer))
    address = Address(transcript, 0, "sum", lower, upper)
    return derive(root, address.info("pair key"))


class Mask(NamedTuple):
    """A key that is used for one mask only, and whether the mask is added or subtracted."""

    key: bytes
    added: bool


_PIECE = 2**16
"""Words of all masks that are drawn before the next ones: they stay in a processor's cache."""


def add_masks(words: Words, masks: Iterable[Mask], tail: Tail = NO_TAIL) -> None:
    """Add key streams to ``words`` in place: modulo 2^32, and as whole numbers to ``tail``."""
    streams = [(KeyStream(mask.key), np.add if mask.added else np.subtract) for mask in masks]
    split = len(words) - tail.size
    for start in range(0, split, _PIECE):
        piece = words[start : min(start + _PIECE, split)]
        _add_streams(piece, streams)
    if tail.numbers:
        total = words[split:].astype(np.int64)
        _add_streams(total, streams)
        words[split:] = _carried(total, tail.digits)


def _add_streams(total: NDArray[Any], streams: Iterable[tuple[KeyStream, np.ufunc]]) -> None:
    """Add the next words of each stream to ``total``, or subtract them, in place."""
    drawn = np.empty(4 * total.size, np.uint8)
    for stream, combine in streams:
        stream.read_into(drawn)
        combine(total, drawn.view("<u4"), out=total)


def _seal_pair_keys(secret: bytes, keys: Mapping[int, bytes]) -> Bytes:
    """Each pair key sealed, in ascending order of the peers, one row each."""
    cipher = AESGCM(derive(secret, b"fedul-flwr pair keys 1"))
    rows = [
        nonce + cipher.encrypt(nonce, keys[peer], None)
        for position, peer in enumerate(sorted(keys))
        for nonce in [position.to_bytes(NONCE_BYTES, "little")]  # the key is used for these alone
    ]
    return bytes_array(b"".join(rows)).reshape(-1, _SEALED_KEY)


def _open_pair_key(secret: bytes, row: Bytes) -> bytes:
    cipher = AESGCM(derive(secret, b"fedul-flwr pair keys 1"))
    return cipher.decrypt(row[:NONCE_BYTES].tobytes(), row[NONCE_BYTES:].tobytes(), None)


def _rows(shares: Iterable[bytes]) -> Bytes:
    return bytes_array(b"".join(shares)).reshape(-1, SHARE_BYTES)


# The server


class TooFewLeftError(UserError):
    """The sum stays closed, as a rule because fewer clients than the threshold are left."""

    code = "sum-stays-closed"


class Opened(NamedTuple):
    """The sum of the vectors, and whose they are."""

    words: Words
    survivors: list[int]


class SumServer:
    """The server's part of one round's sum."""

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
        self.number, self.pinned = number, pinned
        self.session = session
        self._present = sorted(present)
        here = set(present)
        whole = neighbors(session, participants, pinned)
        beside = neighbors(session, participants, pinned, apart)
        self._peers = {
            client: [peer for peer in beside[client] if peer in here] for client in self._present
        }
        self._holders = {client: sorted([client, *peers]) for client, peers in self._peers.items()}
        self._needed = max(
            (threshold(1 + len(here.intersection(whole[c])), pinned) for c in self._present),
            default=FEWEST,
        )
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
            THRESHOLD: np.array(self._needed, np.int64),
        }

    def check_shares(self, client: int, answer: Arrays) -> None:
        """Refuse a malformed answer to :meth:`terms`."""
        origin = f"Client {client} sent for a secure sum"
        peers = self._peers[client]
        checked_array(origin, answer, SEALED, np.uint8, (len(peers), SEALED_BYTES))
        checked_array(origin, answer, PAIR_KEYS, np.uint8, (len(peers), _SEALED_KEY))
        checked_array(origin, answer, HASHES, np.uint8, (2, KEY_BYTES))
        if answer.keys() - {PAIR_KEYS, HASHES, SEALED}:
            raise BadMessageError(f"{origin} something that was not requested.", "message-unasked")

    def take_shares(self, answers: Mapping[int, Arrays]) -> None:
        """Take the answers that :meth:`check_shares` accepts; other clients are left out."""
        self._answers = dict(answers)
        self._require(self._answers)

    def shares_for(self, client: int) -> dict[str, NDArray[Any]]:
        """What others have sealed for a client; it travels with the model."""
        senders = [peer for peer in self._peers[client] if peer in self._answers]
        rows = [self._answers[peer][SEALED][self._peers[peer].index(client)] for peer in senders]
        return {
            SHARE_SENDERS: np.array(senders, np.int64),
            SEALED: np.array(rows, np.uint8).reshape(len(rows), SEALED_BYTES),
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
        return {SURVIVORS: np.array(self.survivors, np.int64)}

    def signed_list(self, signatures: Mapping[int, Bytes]) -> dict[str, NDArray[Any]]:
        """The message of step ``unmask`` with identities; who has not signed has zeros."""
        rows = [signatures.get(client, UNSIGNED) for client in self.survivors]
        return {**self.list_message(), SIGNATURES: np.stack(rows)}

    # The sum

    def check_unmask(self, client: int, answer: Arrays) -> None:
        """Refuse a malformed answer of step ``unmask``."""
        origin = f"Client {client} sent to open a secure sum"
        alive, gone = self._opened_by(client)
        checked_array(origin, answer, SELF_SHARES, np.uint8, (len(alive), SHARE_BYTES))
        checked_array(origin, answer, PAIR_SHARES, np.uint8, (len(gone), SHARE_BYTES))
        if answer.keys() - {SELF_SHARES, PAIR_SHARES}:
            raise BadMessageError(f"{origin} something that was not requested.", "message-unasked")

    def open_sum(
        self, answers: Mapping[int, Arrays], tail: Tail = NO_TAIL
    ) -> tuple[Opened, list[int]]:
        """The sum of all survivors' words, and clients that sent wrong shares."""
        shares: dict[tuple[int, int], dict[int, bytes]] = {}
        for client, answer in answers.items():
            for kind, (name, whose) in enumerate(
                zip((SELF_SHARES, PAIR_SHARES), self._opened_by(client), strict=True)
            ):
                for owner, share in zip(whose, answer[name], strict=True):
                    position = self._holders[owner].index(client)
                    shares.setdefault((kind, owner), {})[position] = share.tobytes()
        liars: set[int] = set()
        survivors = self.survivors
        masks = []
        for client in survivors:
            secret = self._secret(shares.get((0, client), {}), 0, client, liars)
            masks.append(Mask(_self_key(secret, self.number, client), added=False))
        for client in sorted(self._answers.keys() - self._masked.keys()):
            peers = self._peers[client]
            beside = [peer for peer in peers if peer in self._masked]
            if not beside:
                continue
            secret = self._secret(shares.get((1, client), {}), 1, client, liars)
            for peer in beside:
                row = self._answers[client][PAIR_KEYS][peers.index(peer)]
                try:
                    key = _open_pair_key(secret, row)
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
        right = self._answers[owner][HASHES][kind].tobytes()
        places = sorted(shares)
        for chosen in _subsets(places, self._needed):
            secret = open_secret({position: shares[position] for position in chosen})
            if secret is None or _hash(self.number, owner, secret).tobytes() != right:
                continue
            if [*chosen] != places[: self._needed]:  # else no share that was used is wrong
                for position in shares.keys() - set(chosen):
                    others = {p: shares[p] for p in [*chosen[1:], position]}
                    if open_secret(others) != secret:
                        liars.add(self._holders[owner][position])
            return secret
        raise TooFewLeftError(
            f"{len(shares)} shares for client {owner} came for a secure sum, and {self._needed} "
            "right ones open it: the sum of this round stays closed."
        )

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
        if len(here) < quorum(len(self._present)):
            raise TooFewLeftError(
                f"{len(here)} clients are left in a secure sum of {len(self._present)}; it takes "
                f"{quorum(len(self._present))}."
            )


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


# Exact sums of columns, and the moments that follow from sums over clients.

FRACTION_BITS = 320
"""Number of fractional bits."""
DIGITS = 20
"""Words of a number. Of 10^12 squares of float32 numbers, which are below 2^256, the sum is below
2^(296 + 320), and that of 2^20 clients is below half of 2^640."""

CHUNK = 4096
"""Rows at a time."""

_DIGITS = 24
"""Binary digits of a float32 number."""
_SMALLEST, _SPAN = -148, 277
"""Exponents e of float32 numbers m 2^e with 0.5 <= |m| < 1: the first one, and how many."""


def exact_sums(inputs: Inputs, points: Ints) -> list[int]:
    """Sums of d columns over rows ``points`` of ``inputs``, then sums of their squares."""
    width = inputs.shape[1]
    # By column and exponent e: sums of the integers M = m 2^24, and of both halves of M².
    limbs = np.zeros((3, width * _SPAN), dtype=np.int64)
    first = _SPAN * np.arange(width) - _SMALLEST
    for start in range(0, len(points), CHUNK):
        rows = np.asarray(inputs[points[start : start + CHUNK]], dtype=np.float32)
        if not np.isfinite(rows).all():
            raise UserError("A column has numbers that are not finite, and no sum.", "array-wrong")
        parts, exponents = np.frexp(rows.astype(np.float64))
        whole = parts * 2.0**_DIGITS
        high = np.floor(whole * whole * 2.0**-_DIGITS)
        low = whole * whole - high * 2.0**_DIGITS
        positions = (exponents + first).ravel()
        for kind, numbers in enumerate((whole, high, low)):
            # Exact: 4,096 integers below 2^24 add up to less than 2^53.
            limbs[kind] += np.bincount(positions, numbers.ravel(), width * _SPAN).astype(np.int64)
    # x = M 2^(e - 24), and x² = (high 2^24 + low) 2^(2 e - 48).
    sums, highs = (_joined(limbs[k], width, k + 1, FRACTION_BITS - _DIGITS) for k in (0, 1))
    lows = _joined(limbs[2], width, 2, FRACTION_BITS - 2 * _DIGITS)
    return sums + [high + low for high, low in zip(highs, lows, strict=True)]


def _joined(totals: NDArray[np.int64], width: int, power: int, shift: int) -> list[int]:
    """For each column Σ_e total_e 2^(power e + shift)."""
    joined = [0] * width
    for index in np.flatnonzero(totals).tolist():
        column, exponent = index // _SPAN, index % _SPAN + _SMALLEST
        joined[column] += int(totals[index]) << (power * exponent + shift)
    return joined


def moments_of(num_points: int, sums: list[int]) -> Moments:
    """Pooled moments from sums and sums of squares of all points, rounded once.

    Nothing cancels: m = Σ x / N and v = Σ x² / N - m² are computed in rational numbers.
    """
    width, steps = len(sums) // 2, num_points << FRACTION_BITS
    if not all(0 <= number < steps << 256 for number in sums[width:]):  # squares of float32
        raise UserError(
            "The masked sum of columns holds numbers that no points have: masks did not cancel.",
            "sum-wrong",
        )
    means = [Fraction(number, steps) for number in sums[:width]]
    squares = [Fraction(number, steps) for number in sums[width:]]
    variances = [max(s - m * m, Fraction(0)) for s, m in zip(squares, means, strict=True)]
    return Moments(np.array(list(map(float, means))), np.array(list(map(float, variances))))
