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
from fedul_flwr.federated.messages import (
    ARRAYS,
    COLUMN_SUM,
    CONFIG,
    DESCRIBE,
    DIAGNOSTICS,
    METRICS,
    SETUP,
)
from fedul_flwr.learning.variates import CONTROL, VARIATE_ROUNDS
from fedul_flwr.secure.column_sums import PART
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES, TO

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
    return [entry for entry in declared if entry.when(settings)]


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
    Sent(
        COLUMN_SUM,
        (PUBLIC, SIGNATURES),
        "a public key for the sum of columns, with its owner's signature if it has one",
        ARRAYS,
        reader="the server and all clients",
        when=_sums_columns,
    ),
    Sent(
        COLUMN_SUM,
        (f"{TO}*",),
        "shares of the masks of its sums",
        ARRAYS,
        reader="other clients, sealed for them",
        when=_sums_columns,
    ),
    Sent(
        COLUMN_SUM,
        (COMPLAINT,),
        "whose message it cannot use",
        ARRAYS,
        "if somebody's message is wrong",
        when=_sums_columns,
        undisturbed=False,
    ),
    Sent(
        COLUMN_SUM,
        (PART,),
        "sums and sums of squares of every column of its points, masked",
        ARRAYS,
        reader="the server, as a sum of all clients' alone",
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
