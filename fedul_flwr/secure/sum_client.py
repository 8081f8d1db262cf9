"""Sums of clients' vectors that show the server nothing but the sum: a client's side.

After Bonawitz et al. (CCS 2017) with the sparse graph of Bell et al. (CCS 2020). Each client adds
to its vector a self mask, and a pair mask with each neighbor, which cancels in the sum. Masks are
streams of AES-256. Seeds of self masks, and keys to pair keys, are shared among the neighbors by
Shamir's scheme: a client that drops out after its shares can be taken out of the sum.

Keys for a run are exchanged once: every two neighbors then have a secret. The keys of one sum are
derived from it and from the sum's :func:`transcript`, a digest of everything on which a client's
answer depends: a server that tells two clients different things gets noise. Owners with identities
sign the same digest with the list of those who are in the sum, once, and open it only if they have
masked with each neighbor in the list, and more than two thirds of its participants have signed (the
consistency check of Bonawitz et al.; that all that the server says is bound, too, is the idea of
ACORN and Willow). What is opened for a client that drops out are keys of one sum, never those of
the run.

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

Between two steps a client is in a stage, a :class:`SumStage`, in which other steps are refused:
:class:`Keyed`, :class:`Joined`, :class:`Offered`, :class:`Masked`, :class:`Signed` with identities,
and :class:`Joined` again. Step ``keys`` is in turn always, ``shares`` from :class:`Joined` on: what
is under way ends then.

The server learns sums of more than two thirds of a sum's participants, if fewer than a third of
them work with it, and fewer than the threshold of a client's neighbors. With identities that holds
also if it does not follow the protocol. A client can send a wrong vector; nothing here notices.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes
from fedul_flwr.errors import UserError
from fedul_flwr.secure import sharing
from fedul_flwr.secure.identities import SIGNATURE_BYTES, UNSIGNED, Identities, Purpose
from fedul_flwr.secure.messages import checked_array, errors_of_peers, listed_clients
from fedul_flwr.secure.session import (
    FROM,
    KEY_BYTES,
    PARTICIPANTS,
    SIGNATURES,
    TO,
    Session,
    join,
    new_key,
    require_signed,
)
from fedul_flwr.secure.similarity import Arrays
from fedul_flwr.secure.stored import Clients, Pairs, Rows, Stored
from fedul_flwr.secure.words import NO_TAIL, Mask, Tail, Words, add_masks

Reply = dict[str, NDArray[Any]]

_SERVER = "The server sent"

# What a client keeps


class SumStage(Stored):
    """Where a client is in its sums; ``last`` is the number of the last one that it has begun."""

    last: int


class Keyed(SumStage):
    """It has a new key, and does not know the others yet."""

    private: bytes
    nonce: bytes
    server_round: int


class Member(Stored):
    """What is fixed for all sums of a session.

    Attributes
    ----------
    pinned : whether clients are known by identities, see :func:`~.sharing.threshold`.
    apart : pairs of clients that share nothing, as one has complained about the other.
    roots : secrets of 32 bytes with each neighbor; none before the first sum.
    """

    session: Session
    pinned: bool
    apart: Pairs
    roots: Rows


class Joined(SumStage):
    """It is in a session, and in no sum."""

    member: Member


class Terms(Stored):
    """What is fixed in a sum once its shares are sent.

    Attributes
    ----------
    present : its participants.
    holders : those of them who get shares of this client's secrets, itself among them.
    needed : shares that open a secret.
    transcript : see :func:`transcript`.
    """

    present: Clients
    holders: Clients
    needed: int
    transcript: bytes


class Offered(Joined):
    """It has sent shares of both secrets of a sum.

    Attributes
    ----------
    question : digest of what its vector has to be computed from.
    secret : of its self mask.
    shares : those of its secrets that it keeps.
    """

    terms: Terms
    question: bytes
    secret: bytes
    shares: bytes


class Masked(Joined):
    """It has sent its vector, masked with those of whom it has ``opened`` the shares."""

    terms: Terms
    opened: Rows


class Signed(Masked):
    """Its owner has signed that those in the sum are ``signed``."""

    signed: Clients


def _refuse(what: str) -> NoReturn:
    raise UserError(f"The server asked {what} out of turn.", "server-out-of-turn")


# Steps of a session


def begin_session(
    before: SumStage | None, purpose: Purpose, identities: Identities | None
) -> tuple[Keyed, Reply]:
    """Stage and answer of step ``keys``, also while something else is under way.

    A sum to which the client has sent its vector stays the last one: in no session does another
    with its number follow.
    """
    private, answer = new_key(purpose, identities)
    last = before.last - isinstance(before, Offered) if before else 0
    return Keyed(last, private, purpose.nonce, purpose.server_round), answer


def join_sum(
    stage: SumStage, client: int, run: int, message: Arrays, identities: Identities | None
) -> tuple[Joined, Reply]:
    """Stage and answer of step ``peers``: a part of each pair secret, sealed for its peer."""
    if not isinstance(stage, Keyed):
        _refuse("to join a session")
    pinned, apart = identities is not None, _read_apart(message)
    strangers = {peer for pair in apart if client in pair for peer in pair}
    purpose = Purpose("sum", run, stage.server_round, stage.nonce)
    session = join(client, stage.private, message, 0, purpose)
    require_signed(session, message, purpose, identities, strangers)
    lost = Counter(itertools.chain(*apart))
    if not lost.keys() <= session.public.keys() or any(low >= high for low, high in apart):
        raise UserError("The server sent no list of pairs.", "server-names-others")
    if max(lost.values(), default=0) > sharing.spare(len(session.public), pinned):
        raise UserError(
            "The server keeps so many pairs of clients apart that a sum would fall into parts.",
            "server-asks-too-much",
        )
    member = Member(session, pinned, apart, roots={})
    sealed = {
        f"{TO}{peer}": session.seal(peer, "peers", {"part": session.mask_share(peer)}, os.urandom)
        for peer in _beside(member)
    }
    return Joined(stage.last, member), sealed


def _read_apart(message: Arrays) -> Pairs:
    pairs = checked_array(_SERVER, message, sharing.APART, np.int64, (None, 2))
    return frozenset((int(low), int(high)) for low, high in pairs)


def _beside(member: Member) -> list[int]:
    """The client's neighbors with whom it shares secrets."""
    session = member.session
    graph = sharing.neighbors(session.number, [*session.public], member.pinned, member.apart)
    return graph[session.client]


# Steps of a sum


def offer_shares(
    stage: SumStage, message: Arrays, number: int, question: bytes
) -> tuple[Offered, Reply]:
    """Stage and answer of step ``shares``: shares of this sum's two secrets for each neighbor."""
    if not isinstance(stage, Joined) or number <= stage.last:
        _refuse(f"for secure sum {number}")
    member, session = stage.member, stage.member.session
    client, roots = session.client, member.roots or _roots(member, message)
    present = listed_clients(message, PARTICIPANTS)
    needed = int(checked_array(_SERVER, message, sharing.THRESHOLD, np.int64, ()))
    here = {*present}
    if client not in here or not here <= session.public.keys():
        raise UserError("The server named others for a sum than before.", "server-names-others")
    peers = [peer for peer in roots if peer in here]
    holders = sorted([client, *peers])
    whole = sharing.neighbors(session.number, [*session.public], member.pinned)[client]
    least = sharing.threshold(1 + len(here.intersection(whole)), member.pinned)
    if not least <= needed <= len(holders):
        raise UserError(
            f"The server asked for a secure sum that {needed} of {len(holders)} clients can open, "
            "which protects less than this client asks for.",
            "server-asks-too-much",
        )
    digest = transcript(session.number, number, present, needed, member.apart, question)
    secrets = [os.urandom(sharing.SECRET_BYTES) for _ in sharing.KINDS]
    split = [sharing.share_secret(secret, needed, len(holders), os.urandom) for secret in secrets]
    parts = dict(zip(holders, map(b"".join, zip(*split, strict=True)), strict=True))
    sealed = [
        sharing.seal_shares(
            parts[peer], roots[peer], sharing.share_address(session.number, number, client, peer)
        )
        for peer in peers
    ]
    keys = {peer: sharing.pair_key(roots[peer], client, peer, digest) for peer in peers}
    answer = {
        sharing.SEALED: np.stack(sealed),
        sharing.PAIR_KEYS: sharing.seal_pair_keys(secrets[1], keys),
        sharing.HASHES: np.stack([sharing.secret_hash(number, client, one) for one in secrets]),
    }
    terms = Terms(tuple(present), tuple(holders), needed, digest)
    member = Member(session, member.pinned, member.apart, roots)
    return Offered(number, member, terms, question, secrets[0], parts[client]), answer


def transcript(
    session: bytes,
    number: int,
    present: Sequence[int],
    needed: int,
    apart: Pairs,
    question: bytes,
) -> bytes:
    """32 bytes that are mixed into every mask of a sum, and that owners sign.

    A digest of everything on which a client's answer depends, but what is its own: the session's
    number is one of all keys, the question one of all that the vector is computed from.
    """
    said = [session.hex(), number, [*present], needed, sorted(apart), question.hex()]
    return hashlib.sha256(b"fedul-flwr transcript 2" + json.dumps(said).encode()).digest()


def _roots(member: Member, message: Arrays) -> Rows:
    """Secrets of 32 bytes with each neighbor, for the run."""
    session, parts = member.session, {}
    with errors_of_peers() as read:
        for peer in _beside(member):
            with read(peer):
                sent = session.unseal(peer, "peers", message.get(f"{FROM}{peer}"))
                part = checked_array(f"Client {peer} sent", sent, "part", np.uint8, (KEY_BYTES,))
                parts[peer] = part.tobytes()
    return session.mask_roots(parts)


def require_question(stage: SumStage, question: bytes) -> Offered:
    """Refuse to compute an answer to another question than announced, or a second one."""
    if not isinstance(stage, Offered):
        _refuse("for a masked vector")
    if question != stage.question:
        raise UserError(
            "The server sent another model, or other settings, than it has announced for the "
            "secure sum.",
            "model-mismatch",
        )
    return stage


def mask_vector(
    stage: SumStage, message: Arrays, words: Words, question: bytes, tail: Tail = NO_TAIL
) -> tuple[Masked, Words]:
    """Stage, and a client's words under all its masks."""
    offered = require_question(stage, question)
    member, terms, number = offered.member, offered.terms, offered.last
    client = member.session.client
    opened = {client: offered.shares}
    with errors_of_peers() as read:
        for peer, row in _sealed_shares(message, {*terms.holders} - {client}):
            with read(peer):
                address = sharing.share_address(member.session.number, number, peer, client)
                opened[peer] = sharing.unseal_shares(row, member.roots[peer], address)
    if len(opened) < terms.needed:
        raise UserError(
            f"Only {len(opened)} clients are in the secure sum; it takes {terms.needed}.",
            "too-few-clients",
        )
    masks = [Mask(sharing.self_key(offered.secret, number, client), added=True)]
    for peer in opened.keys() - {client}:
        key = sharing.pair_key(member.roots[peer], client, peer, terms.transcript)
        masks.append(Mask(key, added=client < peer))
    masked = words.copy()
    add_masks(masked, masks, tail)
    return Masked(number, member, terms, dict(sorted(opened.items()))), masked


def _sealed_shares(message: Arrays, peers: Collection[int]) -> list[tuple[int, Bytes]]:
    """Who has sealed shares for this client, each with what it has sealed."""
    who = listed_clients(message, sharing.SHARE_SENDERS)
    rows = checked_array(_SERVER, message, sharing.SEALED, np.uint8, (len(who), None))
    if not {*who} <= {*peers}:
        raise UserError("The server named others for a sum than before.", "server-names-others")
    return [(peer, np.ascontiguousarray(row)) for peer, row in zip(who, rows, strict=True)]


def confirm(
    stage: SumStage, message: Arrays, identities: Identities, least: int = 0
) -> tuple[Signed, Bytes]:
    """Stage, and this owner's signature over the transcript and the list of those in the sum."""
    if isinstance(stage, Signed):
        _refuse("for a second signature")
    masked, survivors = survivors_of(stage, message, least)
    signature = identities.sign(_purpose(masked.terms, survivors), b"")
    signed = Signed(masked.last, masked.member, masked.terms, masked.opened, tuple(survivors))
    return signed, signature


def unmask(
    stage: SumStage, message: Arrays, identities: Identities | None, least: int = 0
) -> tuple[Joined, Reply]:
    """Stage after the sum, and the shares that open it: one kind for each client."""
    masked, survivors = survivors_of(stage, message, least)
    if masked.member.pinned:
        _require_signatures(masked, survivors, message, identities, least)
    left, size, opened = {*survivors}, sharing.SHARE_BYTES, masked.opened.items()
    alive = b"".join(shares[:size] for peer, shares in opened if peer in left)
    gone = b"".join(shares[size:] for peer, shares in opened if peer not in left)
    kinds = zip(sharing.KINDS, (alive, gone), strict=True)
    answer = {name: sharing.share_rows(shares) for name, shares in kinds}
    return Joined(masked.last, masked.member), answer


def _require_signatures(
    stage: Masked,
    survivors: Collection[int],
    message: Arrays,
    identities: Identities | None,
    least: int,
) -> None:
    """Refuse a list that this owner has not signed, or of the others too few."""
    if identities is None or not isinstance(stage, Signed) or [*stage.signed] != [*survivors]:
        raise UserError(
            "The server asked to open another secure sum than this client has signed.",
            "server-out-of-turn",
        )
    form, terms = (len(survivors), SIGNATURE_BYTES), stage.terms
    signatures = checked_array(_SERVER, message, SIGNATURES, np.uint8, form)
    purpose, signed = _purpose(terms, survivors), set()
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
    enough = max(least, sharing.quorum(len(terms.present)))
    if len(signed) < enough or len(signed & {*terms.holders}) < terms.needed:
        raise UserError("Too few owners have signed the list of a secure sum.", "signature-wrong")


def survivors_of(stage: SumStage, message: Arrays, least: int = 0) -> tuple[Masked, list[int]]:
    """The list of those in the sum, in ascending order; errors as of :func:`confirm`."""
    if not isinstance(stage, Masked):
        _refuse("to open a secure sum")
    who, terms = listed_clients(message, sharing.SURVIVORS), stage.terms
    here = stage.opened.keys() & {*who}
    if stage.member.session.client not in here or not {*who} <= {*terms.present}:
        raise UserError("The server named others for a sum than before.", "server-names-others")
    _refuse_withheld(stage, who)
    fewest = max(least, sharing.quorum(len(terms.present)))
    if len(here) < terms.needed or len(who) < fewest:
        raise UserError(
            f"Only {len(who)} clients are left in the secure sum, {len(here)} of them near this "
            f"one: it asks for {fewest} and {terms.needed}.",
            "too-few-clients",
        )
    return stage, who


def _refuse_withheld(stage: Masked, who: Collection[int]) -> None:
    """Refuse a list with neighbors without whose masks this client has sent its vector.

    Their shares have not come: a server that withholds them would sum without these neighbors, and
    say to all that they are in the sum. With it masks of all who are listed cancel only together.
    """
    withheld = ({*who} & {*stage.terms.holders}) - stage.opened.keys()
    if withheld:
        raise UserError(
            f"The server says that client {min(withheld)} is in a secure sum, and has withheld its "
            "shares.",
            "server-names-others",
        )


def _purpose(terms: Terms, survivors: Iterable[int]) -> Purpose:
    text = hashlib.sha256(b"fedul-flwr survivors 2" + terms.transcript)
    text.update(np.array(sorted(survivors), "<i8").tobytes())
    return Purpose("sum", 0, 0, text.digest())
