"""Sums over clients of which the server reads nothing else (``secure-sum`` and others)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, Message

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.messages import (
    CONFIRM,
    KEYS,
    MASKED,
    PEERS,
    SHARES,
    UNMASK,
    WEIGHT,
)
from fedul_flwr.federated.payload import (
    ANY,
    SUMMED_READER,
    TRAIN,
    UNDER_MASKS,
    UPDATE,
    Declared,
    Part,
    Parts,
    Sum,
    all_of,
    in_words,
)
from fedul_flwr.federated.stage import ServerStage, Stage, all_stages
from fedul_flwr.federated.sums.client import SumMember, UpdateMember
from fedul_flwr.federated.sums.server import SecureSums
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES, TO
from fedul_flwr.secure.sharing import (
    HASHES,
    PAIR_KEYS,
    PAIR_SHARES,
    SEALED,
    SELF_SHARES,
    conspirators,
)


class Opener(ServerStage):
    """Opens sums, as ``strategy.sums``."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        strategy.sums = SecureSums(strategy.registry)

    def about(self) -> Mapping[str, Any]:
        """How many owners the server would need to read another's part, where they sign."""
        if not (owners := self.strategy.sums.smallest):
            return {}
        return {"conspirators": f"{conspirators(owners)} of {owners}"}


class AtServer(ServerStage):
    """Asks for updates under masks, and opens their sum."""

    def ask(self, messages: Sequence[Message], expected: dict[str, ArrayRecord]) -> list[Message]:
        """Messages to the clients whose masks are shared."""
        strategy = self.strategy
        asked, form = strategy.sums.begin(
            strategy.round.grid, messages, strategy.record.round, strategy.buffers
        )
        expected.clear()
        expected |= form
        return list(asked)

    def receive(self, replies: Sequence[Message]) -> Sequence[Message]:
        """Those in the sum, each with the mean in place of its update."""
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


def masked_parts(parts: Parts) -> Parts:
    """What a client sends of these in an update of which the server reads the sum alone."""
    apart = {name: part for name, part in parts.items() if part.combine == "keep"}
    summed = {name: part for name, part in parts.items() if name not in apart}
    says = "; ".join([*(part.says for _, part in in_words(summed)), f"all {UNDER_MASKS}"])
    trained = "whether it had anything to train on (0 or 1)"
    vector = Part(ANY, says=says, reader=f"{SUMMED_READER} of the round")
    return {MASKED: vector, WEIGHT: Part.count(says=trained), **apart}


class SecureSum(Stage):
    """Secure sums, of whatever other stages declare."""

    server, client, sent = Opener, SumMember, SENT

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With any of these sums."""
        others = (stage for stage in all_stages(settings) if stage is not cls)
        return any(stage.is_on(settings) and stage.sums(settings) for stage in others)


class SummedUpdates(Stage):
    """Secure sums of updates (``secure-sum``)."""

    server, client, hides = AtServer, UpdateMember, True

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``secure-sum = "on"``."""
        return settings.secure_sum == "on"

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Of updates, whose parts come as replies to training messages."""
        del settings
        return {UPDATE: Sum.of("its update", "")}

    @classmethod
    def as_sent(cls, sent: Declared, settings: RunConfig) -> Declared:
        """A vector under masks in place of what is summed."""
        del settings
        return {**sent, TRAIN: masked_parts(sent[TRAIN])} if TRAIN in sent else sent

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterator[str]:
        """Whose help the server would need."""
        if find_method(settings.method).trains_clients:
            yield (
                "The server sees the mean of all owners' models, and no model of one owner, as "
                "long as fewer than a third of the owners help it (a fifth, if there are more than "
                "100)."
            )
