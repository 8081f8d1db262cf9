"""A server that tells some that a client is in a sum, and others that it has dropped out.

With enough shares of both kinds it would open both secrets of one client, and read its vector.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.secure import sharing, sum_client
from fedul_flwr.secure.identities import UNSIGNED
from fedul_flwr.secure.session import SIGNATURES
from fedul_flwr.secure.sharing import PAIR_KEYS, PAIR_SHARES, SELF_SHARES, SURVIVORS, open_secret
from fedul_flwr.secure.sum_client import Masked, Signed, unmask
from fedul_flwr.secure.words import Mask, add_masks
from tests.support.sum_party import Arrays, Party, vectors

VICTIM = 0


def unsigned(stage: Masked) -> Masked:
    """The stage of an owner that has forgotten its signature."""
    return Masked(stage.last, stage.member, stage.terms, stage.opened)


class Split:
    """A sum of which the server tells two lists, one without the victim.

    Colluding clients sign whatever the server wants, and give it both shares.
    """

    def __init__(self, count: int, pinned: bool, colluders: Collection[int]) -> None:
        self.party = Party(range(count), pinned)
        self.colluders = colluders
        self.server = self.party.begin()
        self.words = vectors(self.party.clients, size=40)
        self.masked = self.party.send(self.server, self.words)
        self.server.take_vectors(self.masked)
        self.shares: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
        holders = self.server._holders[VICTIM]
        for client in {*colluders} & {*holders}:
            rows = sharing.share_rows(self.masked_stage(client).opened[VICTIM])
            for kind in (0, 1):
                self.shares[kind][holders.index(client)] = rows[kind].tobytes()

    def masked_stage(self, client: int) -> Masked:
        stage = self.party.stage(client)
        assert isinstance(stage, Masked)
        return stage

    def message(self, listed: Sequence[int], asked: Collection[int]) -> Arrays:
        message: Arrays = {SURVIVORS: np.array(listed, np.int64)}
        if not self.party.pinned:
            return message
        signed: dict[int, Any] = {}
        for client in {*asked, *self.colluders} & {*listed}:
            if client in self.colluders:
                self.party.store(client, unsigned(self.masked_stage(client)))
            with suppress(UserError):
                signed |= self.party.signatures(message, [client])
        return {**message, SIGNATURES: np.stack([signed.get(c, UNSIGNED) for c in listed])}

    def tell(self, message: Arrays, clients: Collection[int]) -> None:
        """Ask honest clients to open; keep what they give for the victim."""
        holders = self.server._holders[VICTIM]
        listed = message[SURVIVORS].tolist()
        for client in {*clients} & {*holders}:
            stage, answer = self.masked_stage(client), None
            with suppress(UserError):
                _, answer = unmask(stage, message, self.party.identities[client])
            if answer is None:
                continue
            kind, name = (0, SELF_SHARES) if VICTIM in listed else (1, PAIR_SHARES)
            rows = [peer for peer in stage.opened if (peer in listed) == (VICTIM in listed)]
            share = answer[name][rows.index(VICTIM)]
            self.shares[kind][holders.index(client)] = share.tobytes()

    def reads(self) -> bool:
        """Whether the server opens both secrets, and with them the victim's vector."""
        needed = self.server._needed
        if min(map(len, self.shares)) < needed:
            return False
        own, keys = (open_secret(dict(sorted(kind.items())[:needed])) for kind in self.shares)
        assert own is not None
        assert keys is not None
        masks = [Mask(sharing.self_key(own, 1, VICTIM), added=False)]
        for peer, row in zip(
            self.server._peers[VICTIM], self.server._answers[VICTIM][PAIR_KEYS], strict=True
        ):
            key = sharing.open_pair_key(keys, row)
            masks.append(Mask(key, added=peer < VICTIM))
        read = self.masked[VICTIM].copy()
        add_masks(read, masks)
        return bool((read == self.words[VICTIM]).all())


def read_by_two_lists(
    count: int, pinned: bool, colluders: Collection[int], *, twice: bool = False
) -> bool:
    """Half of the victim's honest neighbors hear one list, half the other; so do all others.

    Each of the others signs the list that it hears, or if it is asked ``twice`` both.
    """
    split = Split(count, pinned, colluders)
    near = [c for c in split.server._peers[VICTIM] if c not in colluders]
    far = [c for c in split.party.clients if c not in (*near, *colluders, VICTIM)]
    with_it = [VICTIM, *near[1::2], *far[1::2]]
    without = [*near[::2], *far[::2]]
    everybody = split.party.clients
    lists = [everybody, [c for c in everybody if c != VICTIM]]
    heard = [with_it, without]
    messages = [
        split.message(listed, everybody if twice else clients)
        for listed, clients in zip(lists, heard, strict=True)
    ]
    for message, clients in zip(messages, heard, strict=True):
        split.tell(message, clients)
    return split.reads()


SIZES = [
    *((count, pinned, most) for pinned in (False, True) for count, most in ((4, 1), (10, 3))),
    (30, True, 9),
    # In a sparse graph those who collude are drawn at random: a tenth of all, or a fifth.
    (101, False, 10),
    (101, True, 20),
]


@pytest.mark.crowd
@pytest.mark.parametrize(("count", "pinned", "most"), SIZES)
def test_given_two_lists_and_fewer_colluders_than_a_third_then_nothing_is_read(
    count: int, pinned: bool, most: int
) -> None:
    drawn = (1 + np.random.default_rng(count).permutation(count - 1)).tolist()
    for colluders in (0, most) if count < 100 else (most,):
        assert not read_by_two_lists(count, pinned, drawn[:colluders])


def test_given_half_of_the_shares_without_identities_then_one_colluder_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of two thirds."""
    monkeypatch.setattr(sharing, "threshold", lambda holders, pinned: holders // 2 + 1)
    assert read_by_two_lists(11, False, [1])
    assert not read_by_two_lists(11, False, [])


def test_given_owners_that_sign_twice_then_two_colluders_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of one signature for each sum."""
    assert not read_by_two_lists(10, True, [1, 2], twice=True)
    confirm, honest = sum_client.confirm, sum_client.unmask

    def forgetful(stage: Masked, *given: Any) -> Any:
        return unsigned(stage), confirm(unsigned(stage), *given)[1]

    def opening(stage: Masked, message: Arrays, *given: Any) -> Any:
        signed = tuple(message[SURVIVORS].tolist())
        own = Signed(stage.last, stage.member, stage.terms, stage.opened, signed)
        return honest(own, message, *given)

    monkeypatch.setattr("tests.support.sum_party.confirm", forgetful)
    monkeypatch.setattr("tests.secure.test_two_lists.unmask", opening)
    assert read_by_two_lists(10, True, [1, 2], twice=True)


def test_given_signatures_of_half_then_two_colluders_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of :func:`quorum`: with half of all, those who sign both lists are two of ten."""
    assert not read_by_two_lists(10, True, [1, 2])
    monkeypatch.setattr(sharing, "quorum", lambda participants: participants // 2 + 1)
    assert read_by_two_lists(10, True, [1, 2])
