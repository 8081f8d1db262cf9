"""All that leaves a client in a run, by message, and what its settings do not protect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fedul_flwr.config.method_settings import AdmissionSettings
from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.standardize import MEANS, VARIANCES
from fedul_flwr.federated.client_data import data_class_of
from fedul_flwr.federated.messages import (
    APPROVAL,
    ARRAYS,
    BECAUSE,
    CONFIRM,
    DESCRIBE,
    DIGEST,
    HEAD,
    KEYS,
    PART,
    PEERS,
    SETUP,
    SHARES,
    SUMS,
    UNMASK,
)
from fedul_flwr.federated.payload import (
    ANY,
    AVERAGED,
    EVALUATE,
    EVALUATED,
    EVERY_ROUND,
    HEADS,
    MODEL,
    OF_ALL,
    ONCE,
    TEXT,
    TRAIN,
    WEIGHTS,
    Declared,
    Part,
    Parts,
    Summed,
    all_of,
    in_run,
    in_words,
    masked_parts,
    only_when,
    summed_part,
)
from fedul_flwr.learning.variates import CONTROL, VARIATE_ROUNDS
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES, TO
from fedul_flwr.secure.vector_sum import HASHES, PAIR_KEYS, PAIR_SHARES, SEALED, SELF_SHARES

_WHICH = "which client it is"
WHO: Parts = {
    "partition-id": Part.count(says=_WHICH),
    "num-partitions": Part.count(says=_WHICH),
    "own-data": Part(says=_WHICH),
}
_APPROVAL = "whether its owner has approved the run, and the reason"
_OF_COLUMNS = (
    "mean and variance of every column of its points, and with missing = 'median' its median"
)


def _scaffold(settings: RunConfig) -> bool:
    return settings.base == "scaffold"


def _plain_columns(settings: RunConfig) -> bool:
    return settings.standardize_sum == "plaintext"


REGISTERED: Parts = {
    **WHO,
    **{
        name: Part(
            TEXT,
            says=_APPROVAL,
            often="before round 1, until it is approved",
            undisturbed=False,
        )
        for name in (APPROVAL, DIGEST, BECAUSE)
    },
    VARIATE_ROUNDS: Part(ANY, says="in which rounds it had a variate it has", when=_scaffold),
    **only_when(_plain_columns, all_of(_OF_COLUMNS, MEANS, VARIANCES)),
}
"""Sent by every client before round 1, beside what its data tell."""

_TRAINED = "the model after local training"
UPDATES: Parts = {
    ARRAYS: Part(
        MODEL,
        says=_TRAINED,
        reader=AVERAGED,
        when=lambda settings: settings.base != "local",
        other=Part(MODEL, says=_TRAINED),
    ),
    **OF_ALL,
    CONTROL: Part(
        WEIGHTS,
        says="the change of its variate, a mean of gradients",
        reader=AVERAGED,
        when=_scaffold,
    ),
}
"""Sent by every client that trains the model."""

_EVERY_SUM = "before every sum"
_SECRETS = "other clients, sealed for them"
_WRONG = {"often": "if somebody's message is wrong", "undisturbed": False}
_COMPLAINT = all_of("whose message it cannot use", COMPLAINT, **_WRONG)
SUMS_OF_ALL: Declared = {
    KEYS: all_of(
        "a public key for sums, with its owner's signature if it has one",
        *(PUBLIC, SIGNATURES),
        often="once, and again when a client joins",
        reader="the server and all clients",
    ),
    PEERS: {
        **all_of(
            "parts of the secrets with others",
            f"{TO}*",
            often="once, and again when a client joins",
            reader=_SECRETS,
        ),
        **_COMPLAINT,
    },
    SHARES: {
        **all_of("shares of this sum's masks", SEALED, often=_EVERY_SUM, reader=_SECRETS),
        **all_of(
            "keys of its masks, sealed, and hashes of the secrets that open them",
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
        "shares that open the sum and nothing else",
        *(SELF_SHARES, PAIR_SHARES),
        often="after every sum",
    ),
}
"""Sent besides by every client of a run with secure sums."""


_SUMS_OF_POINTS = (
    "sums over its points: of features by class, of features' products, and of classes"
)
_EVERY_HEAD = "every message for a head"


def _heads(settings: RunConfig) -> Declared:
    if not settings.makes_heads:
        return {}
    if settings.sums_heads:
        first = summed_part(_SUMS_OF_POINTS, _EVERY_HEAD)
        again = replace(first, undisturbed=False)  # not in every run
        return {PART: {HEADS[0]: first, **dict.fromkeys(HEADS[1:], again)}}
    return {HEAD: all_of(_SUMS_OF_POINTS, SUMS, often=_EVERY_HEAD)}


def _columns(settings: RunConfig) -> Declared:
    if settings.standardize_sum != "masked":
        return {}
    says = (
        "sums and sums of squares of every column of its points, and with missing = 'median' its "
        "medians times its number of points"
    )
    return {PART: {Summed.COLUMNS.value: summed_part(says, ONCE)}}


def _held_out(settings: RunConfig) -> Declared:
    if settings.selection != "heldout":
        return {}
    often, says = "every round that is evaluated", "loss on points it held out"
    if settings.sums_updates:
        return {PART: {Summed.HELDOUT.value: summed_part(says, often)}}
    says = f"{says}, and their number"
    return {EVALUATE: {k: replace(part, says=says, often=often) for k, part in EVALUATED.items()}}


def declared(settings: RunConfig) -> Declared:
    """All that a client sends in a run, by message."""
    method = find_method(settings.method)
    client = method.client_class
    if not (method.asks_clients and client.takes_part(settings)):
        return {DESCRIBE: WHO}
    registered = {**REGISTERED, **data_class_of(settings).registers}
    sent: list[Declared] = [{DESCRIBE: WHO, SETUP: registered}]
    if method.updates and method.trains:
        sent += [{TRAIN: {**UPDATES, **client.reports}}]
    sent += [client.answers, _heads(settings), _columns(settings), _held_out(settings)]
    if settings.has_sums:
        sent += [SUMS_OF_ALL]
    found: dict[str, dict[str, Part]] = {}
    for one in sent:
        for phase, parts in one.items():
            found[phase] = {**found.get(phase, {}), **in_run(parts, settings)}
    if settings.sums_updates and TRAIN in found:
        found[TRAIN] = dict(masked_parts(found[TRAIN]))
    return found


@dataclass(frozen=True)
class Sent:
    """What an owner reads of parts that say the same.

    Attributes
    ----------
    phase, names : the message, and the names in it.
    part : the declaration of one of them.
    """

    phase: str
    names: tuple[str, ...]
    part: Part

    @property
    def often(self) -> str:
        """When it is sent."""
        by_message = {DESCRIBE: "once, asked of some of the clients", TRAIN: EVERY_ROUND}
        return self.part.often or by_message.get(self.phase, ONCE)

    def __str__(self) -> str:
        return f"{self.part.says}: to {self.part.reader}; {self.often}"


def disclosures(settings: RunConfig) -> list[Sent]:
    """All that a client sends in a run, in words for owners."""
    return [
        Sent(phase, names, part)
        for phase, parts in declared(settings).items()
        for names, part in in_words(parts)
    ]


# What a run's settings do not protect, in sentences for data owners and ethics boards.


def unprotected(settings: RunConfig) -> Iterator[str]:
    """One sentence for each thing that somebody other than the owner can learn or do.

    Parameters
    ----------
    settings : all settings of the run, with those that depend on the data resolved.
    """
    method = find_method(settings.method)
    if method.trains and method.asks_clients and method.updates:
        yield from _of_updates(settings)
    if settings.sums_heads:
        yield (
            "The server gets sums over all owners' points: of their features by class, and of "
            "products of two features."
        )
    elif settings.makes_heads:
        yield (
            "The server gets sums over each owner's points by itself: of their features by class, "
            "and of products of two features. Of few points they tell the points."
        )
    yield from method.unprotected(settings)
    tables = settings.sections.values()
    if any(isinstance(one, AdmissionSettings) and one.share_priors for one in tables):
        yield "The server gets the class shares of every set."
    if settings.standardize_sum == "plaintext":
        yield "The server gets mean and variance of every column of each owner's points."
    elif settings.standardize_sum == "masked":
        yield "The server gets mean and variance of every column of all owners' points together."
    if settings.method not in METHODS:
        yield (
            "The method is somebody's own: what its program sends beyond this list, nobody has "
            "checked here."
        )
    yield "The server sees how many points an owner has, and when and how much its machine sends."
    yield (
        "Owners' machines run the program that the server sends. Whoever runs the server can send "
        "another one, which can read what the user of the SuperNode can read."
    )


def _of_updates(settings: RunConfig) -> Iterator[str]:
    dp, is_summed = settings[DPSettings], settings.sums_updates
    if is_summed:
        yield (
            "The server sees the mean of all owners' models, and no model of one owner, as long as "
            "too few of them work with it."
        )
    else:
        yield (
            "The server sees the model of each owner by itself: models are not added up under "
            "encryption."
        )
    if dp.clipping == "client" and is_summed:
        yield (
            f"Updates are clipped to the length {dp.norm:g} at the owner. Each owner adds its part "
            "of the noise."
        )
    elif dp.clipping == "client":
        yield (
            f"Updates are clipped to the length {dp.norm:g} at the owner. The noise is added by "
            "the server, which sees updates without it."
        )
    elif dp.clipping == "server":
        yield "The server clips updates and adds noise, and sees them without either."
    else:
        yield (
            "Updates are neither clipped nor noised: whoever has one, or the model of the run, may "
            "find out something about the points that it was trained on."
        )
