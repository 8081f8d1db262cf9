"""Declarations of the data that leave a client, for ``fedul-flwr deploy check``.

Every method names a tuple of :class:`Sent`, all that its clients send. A test compares these with
logs of real messages: both must contain the same items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from fedul_flwr.config.method_settings import AdmissionSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.references import load_reference
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.standardize import MEANS, VARIANCES
from fedul_flwr.federated.masked_update import (
    CONFIRM,
    KEYS,
    MASKED,
    PART,
    PEERS,
    SHARES,
    UNMASK,
)
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DESCRIBE,
    DIAGNOSTICS,
    METRICS,
    SETUP,
)
from fedul_flwr.learning.variates import CONTROL, VARIATE_ROUNDS
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES, TO
from fedul_flwr.secure.vector_sum import HASHES, PAIR_KEYS, PAIR_SHARES, SEALED, SELF_SHARES

EVALUATE, TRAIN = "evaluate", "train"
"""Messages that every method may have, besides phases."""

ONCE = "once, before round 1"
EVERY_ROUND = "every round that it trains in"

SERVER = "the server"
AVERAGED = "the server; all clients get the mean"

Condition = Callable[[RunConfig], bool]


def _always(settings: RunConfig) -> bool:
    del settings
    return True


@dataclass(frozen=True)
class Sent:
    """One thing that leaves a client.

    Attributes
    ----------
    phase : the message that it is an answer to.
    names : of values or arrays in the answer; ``*`` stands for any characters.
    what : a description in words.
    record : the record of the answer that contains them.
    often : when it is sent.
    reader : who can read it.
    size : arrays of an update: at most as large as the whole model, or as its trainable weights.
    when : whether it is sent with given settings.
    undisturbed : whether it is sent in runs in which no client does what it should not.
    """

    phase: str
    names: tuple[str, ...]
    what: str
    record: str = CONFIG
    often: str = ONCE
    reader: str = SERVER
    size: Literal["none", "model", "weights"] = "none"
    when: Condition = _always
    undisturbed: bool = True

    def covers(self, phase: str, record: str, name: str) -> bool:
        """Whether this entry declares the given value or array of an answer."""
        is_named = any(fnmatchcase(name, pattern) for pattern in self.names)
        return is_named and (phase, record) == (self.phase, self.record)


def disclosures(settings: RunConfig) -> list[Sent]:
    """All that a client of the run's method sends in a run with ``settings``."""
    declared: Iterable[Sent] = load_reference(find_method(settings.method).disclosures, "method")
    sent = [entry for entry in declared if entry.when(settings)]
    if settings.has_sums:
        sent += _SUM
    if not settings.sums_updates:
        return sent
    alone = [entry for entry in sent if entry.phase != TRAIN or entry.record == DIAGNOSTICS]
    named = [replace(e, what=f"names of: {e.what}") for e in sent if e.record == METRICS]
    return [*alone, *(entry for entry in named if entry.phase == TRAIN), *_UPDATE_SUM]


def only_when(condition: Condition, entries: Iterable[Sent]) -> tuple[Sent, ...]:
    """``entries``, each sent only where ``condition`` also holds."""

    def restricted(entry: Sent) -> Sent:
        return replace(entry, when=lambda settings: condition(settings) and entry.when(settings))

    return tuple(restricted(entry) for entry in entries)


def _with_scaffold(settings: RunConfig) -> bool:
    return settings.base == "scaffold"


def _each_alone(settings: RunConfig) -> bool:
    return settings.base == "local"


def _averaged(settings: RunConfig) -> bool:
    return settings.base != "local"


def _pools_columns(settings: RunConfig) -> bool:
    return settings.standardize_sum == "plaintext"


def _sums_columns(settings: RunConfig) -> bool:
    return settings.standardize_sum == "masked"


_ONCE = "once, and again when a client joins"
_EVERY_SUM = "before every sum"
_SECRETS = "other clients, sealed for them"
_SUM = (
    Sent(
        KEYS,
        (PUBLIC, SIGNATURES),
        "a public key for sums, with its owner's signature if it has one",
        ARRAYS,
        _ONCE,
        "the server and all clients",
    ),
    Sent(PEERS, (f"{TO}*",), "parts of the secrets with others", ARRAYS, _ONCE, _SECRETS),
    Sent(SHARES, (SEALED,), "shares of this sum's masks", ARRAYS, _EVERY_SUM, _SECRETS),
    Sent(
        SHARES,
        (PAIR_KEYS, HASHES),
        "keys of its masks, sealed, and hashes of the secrets that open them",
        ARRAYS,
        _EVERY_SUM,
        "nobody, unless the client drops out",
    ),
    Sent(
        CONFIRM,
        (SIGNATURES,),
        "its owner's signature of who is in the sum",
        ARRAYS,
        "every sum, where owners have identities",
        undisturbed=False,
    ),
    Sent(
        UNMASK,
        (SELF_SHARES, PAIR_SHARES),
        "shares that open the sum and nothing else",
        ARRAYS,
        "after every sum",
    ),
    *(
        Sent(
            phase,
            (COMPLAINT,),
            "whose message it cannot use",
            ARRAYS,
            "if somebody's message is wrong",
            undisturbed=False,
        )
        for phase in (PEERS, SHARES)
    ),
)
"""Sent besides by every client of a run with secure sums."""

_UPDATE_SUM = (
    Sent(
        TRAIN,
        (MASKED,),
        "the change of the model, its weight and its metrics, masked",
        ARRAYS,
        EVERY_ROUND,
        "the server, as a sum over all clients of the round",
    ),
    Sent(
        TRAIN,
        ("num-examples",),
        "whether it had anything to train on (0 or 1)",
        METRICS,
        EVERY_ROUND,
    ),
)
"""Sent in place of an update with ``secure-sum = "on"``."""

SUMMED_PART = Sent(
    PART,
    (MASKED,),
    "",
    ARRAYS,
    "every round that is evaluated",
    "the server, as a sum over all clients",
)
"""A client's numbers in a sum; others say which."""

_WHO = ("partition-id", "num-partitions", "own-data")

DESCRIBE_ONLY = (
    Sent(DESCRIBE, _WHO, "which client it is", often="once, asked of some of the clients"),
)
"""Sent by a client that takes part in nothing."""

REGISTRATION = (
    *DESCRIBE_ONLY,
    Sent(SETUP, _WHO, "which client it is"),
    Sent(
        SETUP,
        (VARIATE_ROUNDS,),
        "in which rounds it had a variate it has",
        when=_with_scaffold,
    ),
    Sent(
        SETUP,
        (MEANS, VARIANCES),
        "mean and variance of every column of its points",
        when=_pools_columns,
    ),
    replace(
        SUMMED_PART,
        what="sums and sums of squares of every column of its points, masked",
        often=ONCE,
        when=_sums_columns,
    ),
)
"""Sent by every client before round 1."""

ACCOUNT = Sent(
    TRAIN,
    ("started", "ended", "process"),
    "when it trained, in which process",
    DIAGNOSTICS,
    EVERY_ROUND,
)
"""Sent with every update."""

_MODEL = Sent(TRAIN, ("*",), "the model after local training", ARRAYS, EVERY_ROUND, size="model")

TRAINING = (
    *REGISTRATION,
    replace(_MODEL, reader=AVERAGED, when=_averaged),
    replace(_MODEL, when=_each_alone),
    Sent(
        TRAIN,
        ("num-examples", "loss", "steps", "normalizer"),
        "how many points, and how training went",
        METRICS,
        EVERY_ROUND,
    ),
    ACCOUNT,
    Sent(
        TRAIN,
        ("*",),
        "the change of its variate, a mean of gradients",
        CONTROL,
        EVERY_ROUND,
        AVERAGED,
        size="weights",
        when=_with_scaffold,
    ),
)
"""Sent by every client that trains the model."""


CONFIDENCE = Sent(
    TRAIN,
    ("confident-share",),
    "the share of its unlabeled points that it is confident about",
    METRICS,
    EVERY_ROUND,
)
"""Sent by a client that trains on its own predictions."""


def _shares_priors(settings: RunConfig) -> bool:

    return settings[AdmissionSettings].share_priors


UNLABELED_SETS = (
    *TRAINING,
    Sent(
        SETUP,
        ("reason", "num-sets", "num-points", "condition-number"),
        "whether its sets can be used",
    ),
    Sent(
        SETUP,
        ("priors", "set-sizes"),
        "class priors and size of every set",
        when=_shares_priors,
    ),
)
"""Sent by a client that trains on unlabeled sets."""

COUNTS = Sent(SETUP, ("num-points", "num-labeled"), "how many points and labels")

PARTLY_LABELED = (*TRAINING, COUNTS)
"""Sent by a client that trains on points with labels for some of them."""

PSEUDO_LABELED = (*PARTLY_LABELED, CONFIDENCE)
"""Sent by a client that also trains on labels that it gives its other points."""
