"""What leaves a client: what its method declares, and the log that its owner keeps of it.

Every method names a tuple of :class:`Sent`, all that its clients send. A test compares these with
logs of real messages: both must contain the same items.

The client app writes the log on the owner's machine, if the node config names a file (`log`): a
line for every message, added before the answer is sent. The server has no part in it. It has sizes
and the names that the declarations give, and no value of an answer.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from flwr.app import Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from fedul_flwr.config.base import load_reference
from fedul_flwr.config.method_settings import AdmissionSettings
from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.csv_files import write_cell
from fedul_flwr.data.safe_files import require_regular_file
from fedul_flwr.data.standardize import MEANS, VARIANCES
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client_data import (
    ClientState,
    PartlyLabeledData,
    UnlabeledSetData,
    data_class_of,
    settings_from,
)
from fedul_flwr.federated.messages import (
    APPROVAL,
    ARRAYS,
    BECAUSE,
    CONFIG,
    CONFIRM,
    DESCRIBE,
    DIAGNOSTICS,
    DIGEST,
    END,
    HEAD,
    KEYS,
    MASKED,
    METRICS,
    PART,
    PEERS,
    SETTINGS,
    SETUP,
    SHARES,
    SUMS,
    UNMASK,
    item_sizes,
    payload_bytes,
    phase_of,
    printable,
)
from fedul_flwr.federated.updates import Reports, reports_of
from fedul_flwr.learning.variates import CONTROL, VARIATE_ROUNDS
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES, TO
from fedul_flwr.secure.sharing import HASHES, PAIR_KEYS, PAIR_SHARES, SEALED, SELF_SHARES

EVALUATE, TRAIN = "evaluate", "train"
"""Messages that every method may have, besides phases."""

ONCE = "once, before round 1"
EVERY_ROUND = "every round that it trains in"

SERVER = "the server"
AVERAGED = "the server; all clients get the mean"

Condition = Callable[[RunConfig], bool]


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
    when: Condition = lambda _: True
    undisturbed: bool = True

    def covers(self, phase: str, record: str, name: str) -> bool:
        """Whether this entry declares the given value or array of an answer."""
        is_named = any(fnmatchcase(name, pattern) for pattern in self.names)
        return is_named and (phase, record) == (self.phase, self.record)


def disclosures(settings: RunConfig) -> list[Sent]:
    """All that a client of the run's method sends in a run with ``settings``."""
    method = find_method(settings.method)
    declared = _of_data(settings)
    if method.disclosures:
        declared = load_reference(method.disclosures, "method")
    sent = [entry for entry in declared if entry.when(settings)]
    if not method.updates:
        sent = [entry for entry in sent if entry.phase != TRAIN]
    if settings.makes_heads:
        sent.append(_SUMMED_HEAD if settings.sums_heads else _HEAD)
    if any(entry.phase == TRAIN for entry in sent):
        sent += _reported(reports_of(settings))
    if settings.has_sums:
        sent += _SUM
    if not settings.sums_updates:
        return sent
    alone = [entry for entry in sent if entry.phase != TRAIN or entry.record == DIAGNOSTICS]
    named = [replace(e, what=f"names of: {e.what}") for e in sent if e.record == METRICS]
    return [*alone, *(entry for entry in named if entry.phase == TRAIN), *_UPDATE_SUM]


def _of_data(settings: RunConfig) -> Iterable[Sent]:
    """What a client with the run's kind of data sends."""
    data = data_class_of(settings)
    if issubclass(data, UnlabeledSetData):
        return UNLABELED_SETS
    return PARTLY_LABELED if issubclass(data, PartlyLabeledData) else TRAINING


def only_when(condition: Condition, entries: Iterable[Sent]) -> tuple[Sent, ...]:
    """``entries``, each sent only where ``condition`` also holds."""

    def restricted(entry: Sent) -> Sent:
        return replace(entry, when=lambda settings: condition(settings) and entry.when(settings))

    return tuple(restricted(entry) for entry in entries)


def _reported(reports: Reports) -> list[Sent]:
    """Entries of the numbers that come with an update, those of one meaning together."""
    names: dict[str, list[str]] = {}
    for name, numbers in reports.items():
        names.setdefault(numbers.says, []).append(name)
    return [Sent(TRAIN, (*of,), what, METRICS, EVERY_ROUND) for what, of in names.items()]


def _with_scaffold(settings: RunConfig) -> bool:
    return settings.base == "scaffold"


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

_HEAD = Sent(
    HEAD,
    (SUMS,),
    "sums over its points: of features by class, of features' products, and of classes",
    ARRAYS,
    "every message for a head",
)
_SUMMED_HEAD = replace(SUMMED_PART, what=f"{_HEAD.what}, masked", often=_HEAD.often)
"""Sent where heads are in closed form."""

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
        (APPROVAL, DIGEST, BECAUSE),
        "whether its owner has approved the run, and the reason",
        often="before round 1, until it is approved",
        undisturbed=False,
    ),
    Sent(
        SETUP,
        (VARIATE_ROUNDS,),
        "in which rounds it had a variate it has",
        when=_with_scaffold,
    ),
    Sent(
        SETUP,
        (MEANS, VARIANCES),
        "mean and variance of every column of its points, and with missing = 'median' its median",
        when=lambda settings: settings.standardize_sum == "plaintext",
    ),
    replace(
        SUMMED_PART,
        what="sums and sums of squares of every column of its points, masked; with missing = "
        "'median' also its medians times its number of points",
        often=ONCE,
        when=lambda settings: settings.standardize_sum == "masked",
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
    replace(_MODEL, reader=AVERAGED, when=lambda settings: settings.base != "local"),
    replace(_MODEL, when=lambda settings: settings.base == "local"),
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
        when=lambda settings: settings[AdmissionSettings].share_priors,
    ),
)
"""Sent by a client that trains on unlabeled sets."""

COUNTS = Sent(SETUP, ("num-points", "num-labeled"), "how many points and labels")

PARTLY_LABELED = (*TRAINING, COUNTS)
"""Sent by a client that trains on points with labels for some of them."""


COLUMNS = (
    *("time", "run", "client", "method", "settings", "message", "round"),
    *("bytes_received", "bytes_sent", "sent", "outcome"),
)
"""Columns of the file. `settings` is the SHA-256 of the run's settings (:func:`settings_digest`),
`sent` what was in the answer, for whom, and how large it is."""
ANSWERED = "answered"
_LONGEST = 5000
"""Most characters of a cell."""


def settings_digest(flat: Mapping[str, Any]) -> str:
    """SHA-256 of a run's settings, in hexadecimal digits.

    Parameters
    ----------
    flat : all settings by name. `resume` does not count: it says how a run came to go on.
    """
    counted = {key: value for key, value in flat.items() if key != "resume"}
    return sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def refuse_unwritable(path: Path) -> None:
    """Raise an OwnDataError if the log cannot be written; it is not created."""
    try:
        require_regular_file(path)
        target = path if path.exists() else path.parent
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritable(path, error) from None


def answer_with_log(
    path: Path, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """The answer to a message, after a line about it was added to the owner's log.

    Without the line the answer is not sent.
    """
    line, flat = _asked(message, context)
    try:
        reply = call_next(message, context)
    except Exception as error:
        _add(path, {**line, "outcome": f"not answered: {printable(str(error))}"})
        raise
    phase = str(line["message"])
    # Now that the client has answered, the owner's limits allow the modules that these name.
    sent = disclosures(settings_from(json.dumps(flat, sort_keys=True)))
    content = reply.content if reply.has_content() else RecordDict()
    line |= {"bytes_sent": payload_bytes(content), "outcome": line["outcome"] or ANSWERED}
    _add(path, {**line, "sent": "; ".join(_in_words(content, phase, sent))})
    return reply


def _asked(message: Message, context: Context) -> tuple[dict[str, object], dict[str, Any]]:
    """The line of a message before it is answered, and the flat settings of the run.

    Nothing that these name is imported here: the client checks first whether its owner allows it.
    """
    config = dict(message.content.config_records.get(CONFIG) or {})
    kind = phase_of(message) or message.metadata.message_type
    settings = ClientState(context.state).values(SETUP).get(SETTINGS)
    text = config.get(SETTINGS) if kind == SETUP else settings
    flat: dict[str, Any] = {} if text else dict(context.run_config)
    with contextlib.suppress(ValueError, TypeError):  # the client refuses what cannot be read
        flat = flat or dict(json.loads(str(text)))
    number, end = config.get("server-round", ""), str(config.get(END, "ended"))
    line: dict[str, object] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": context.run_id,
        "client": context.node_config.get("partition-id", 0),
        "method": flat.get("method", ""),
        "settings": settings_digest(flat) if text else "",
        "message": kind,
        "round": f"{int(number)} of {flat.get('num-rounds')}" if isinstance(number, int) else "",
        "bytes_received": payload_bytes(message.content),
        "bytes_sent": 0,
        "sent": "",
        "outcome": f"the run has {end}" if kind == END else "",
    }
    return line, flat


def _in_words(content: RecordDict, phase: str, declared: list[Sent]) -> Iterator[str]:
    """What an answer contains, as the method declares it, to whom, and its bytes."""
    sizes: Counter[str] = Counter()
    for record, name, size in item_sizes(content):
        entry = next((sent for sent in declared if sent.covers(phase, record, name)), None)
        what = f"not declared by the method: {printable(name)}"
        sizes[what if entry is None else f"{entry.what}, to {entry.reader}"] += size
    yield from (f"{what} ({size} bytes)" for what, size in sizes.items())


def _add(path: Path, line: Mapping[str, object]) -> None:
    """Add a line to the log, which only its owner can read, and wait until it is on the disk."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    try:
        require_regular_file(path)
        path.touch(mode=0o600)
        with path.open("ab") as file:
            if not os.fstat(file.fileno()).st_size:
                writer.writerow(COLUMNS)
            writer.writerow([write_cell(printable(str(line[name]), _LONGEST)) for name in COLUMNS])
            file.write(text.getvalue().encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        print(_unwritable(path, error), file=sys.stderr, flush=True)
        raise UserError(
            "The client cannot write its owner's log; its own log says why.", "file-not-writable"
        ) from error


def note_decision(path: Path, digest: str, words: str) -> None:
    """Add a line about an owner's decision on a run to the log: its digest stands in `settings`."""
    line = dict.fromkeys(COLUMNS, "")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    _add(path, {**line, "time": now, "settings": digest, "message": "decision", "outcome": words})


def _unwritable(path: Path, error: OSError) -> OwnDataError:
    return OwnDataError(
        f"Node config log = {str(path)!r} cannot be written: {error.strerror or error}.",
        "file-not-writable",
    )


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
