"""Sums over clients of which the server reads nothing else (``secure-sum`` and others)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import ArrayRecord, Message

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.messages import (
    CONFIRM,
    KEYS,
    PEERS,
    SHARES,
    UNMASK,
)
from fedul_flwr.federated.payload import UPDATE, Declared, Sum, all_of
from fedul_flwr.federated.stage import ServerStage, Stage
from fedul_flwr.federated.sums.client import SumMember
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES, TO
from fedul_flwr.secure.sharing import HASHES, PAIR_KEYS, PAIR_SHARES, SEALED, SELF_SHARES


class AtServer(ServerStage):
    """Asks for updates under masks, and opens their sum."""

    def ask(self, messages: Sequence[Message], expected: dict[str, ArrayRecord]) -> list[Message]:
        """Messages to the clients whose masks are shared."""
        if not self.settings.sums_updates:
            return list(messages)
        strategy = self.strategy
        asked, form = strategy.sums.begin(
            strategy.round.grid, messages, strategy.record.round, strategy.buffers
        )
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

    server, client, sent = AtServer, SumMember, SENT

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With any of these sums."""
        return settings.has_sums

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Of updates, whose parts come as replies to training messages."""
        return {UPDATE: Sum.of("its update", "")} if settings.sums_updates else {}
