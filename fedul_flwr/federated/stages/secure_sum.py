"""Sums over clients of which the server reads nothing else (``secure-sum`` and others)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, Message

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.messages import (
    CONFIRM,
    KEYS,
    PEERS,
    SHARES,
    SUM_PHASES,
    UNMASK,
)
from fedul_flwr.federated.payload import Declared, Payload, Summed, all_of
from fedul_flwr.federated.secure_sum import MaskedUpdates, common_records
from fedul_flwr.federated.stage import ClientStage, ServerStage, Stage
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES, TO
from fedul_flwr.secure.sharing import HASHES, PAIR_KEYS, PAIR_SHARES, SEALED, SELF_SHARES


class AtClient(ClientStage):
    """Its part in sums: masks in place of an update."""

    phases = frozenset(SUM_PHASES)

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._part = MaskedUpdates(client.settings, client.node, client.state, client.sum_part)

    def answer(self, name: str, content: Content) -> Content:
        """One of the phases of a sum."""
        return self._part.on_phase(name, content)

    def before(self, asked: Asked, shares: Mapping[str, Any]) -> None:
        """Take a request for an update, if it is the one that was announced."""
        if self.settings.sums_updates:
            self._part.accept(Summed.UPDATE, asked)
            self._asked, self._shares = asked, dict(shares)

    def after(self, payload: Payload) -> Payload:
        """The update under masks."""
        if not self.settings.sums_updates:
            return payload
        client, asked = self.client, self._asked
        records = {name: dict(arrays) for name, arrays in asked.records.items()}
        start, buffers = common_records(self.settings, records), client.buffer_names()
        return self._part.mask(payload, start, self._shares, asked, buffers, client.sizes)


class AtServer(ServerStage):
    """Asks for updates under masks, and opens their sum."""

    def ask(self, messages: Sequence[Message], expected: dict[str, ArrayRecord]) -> list[Message]:
        """Messages to the clients whose masks are shared."""
        if not self.settings.sums_updates:
            return list(messages)
        strategy = self.strategy
        grid, number, buffers = strategy.grid, strategy.record.round, strategy.buffers
        asked, form = strategy.sums.begin(grid, messages, number, buffers)
        expected.clear()
        expected |= form
        return list(asked)

    def receive(self, replies: Sequence[Message]) -> Sequence[Message]:
        """Those in the sum, each with the mean in place of its update."""
        if not self.settings.sums_updates:
            return replies
        opened: Sequence[Message] = self.strategy.sums.open(replies)
        return opened


_EVERY_SUM = "before every sum"
_SECRETS = "other clients, sealed for them"
_ONCE = "once, and again when a client joins"
_PAIRS = "its part of the secrets of two clients from which masks are made"
_COMPLAINT = all_of(
    "whose message it cannot use",
    COMPLAINT,
    often="if somebody's message is wrong",
    undisturbed=False,
)
SENT: Declared = {
    KEYS: all_of(
        "a public key for sums, with its owner's signature if it has one",
        *(PUBLIC, SIGNATURES),
        often=_ONCE,
        reader="the server and all clients",
    ),
    PEERS: {
        **all_of(_PAIRS, f"{TO}*", often=_ONCE, reader=_SECRETS),
        **_COMPLAINT,
    },
    SHARES: {
        **all_of(
            "pieces of the keys of its masks for this sum",
            SEALED,
            often=_EVERY_SUM,
            reader=_SECRETS,
        ),
        **all_of(
            "the keys of its masks, sealed, and checksums of the secrets that open them",
            *(PAIR_KEYS, HASHES),
            often=_EVERY_SUM,
            reader="nobody, unless the client drops out",
        ),
        **_COMPLAINT,
    },
    CONFIRM: all_of(
        "its owner's signature of who is in the sum",
        SIGNATURES,
        often="every sum, where owners have identities",
        undisturbed=False,
    ),
    UNMASK: all_of(
        "pieces that open the sum and nothing else",
        *(SELF_SHARES, PAIR_SHARES),
        often="after every sum",
    ),
}


class SecureSum(Stage):
    """Secure sums of updates, for heads or of columns."""

    server, client, sent = AtServer, AtClient, SENT

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With any of these sums."""
        return settings.has_sums
