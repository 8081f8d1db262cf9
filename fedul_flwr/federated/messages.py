"""Contents of messages between server and clients, and their conversion to Flower's records.

Weights are sent as sparse differences from the arrays of the last exchange. The server keeps a copy
of each client's arrays. Its message names the round of that exchange. A client without those arrays
(its state or its last reply was lost) reports so, skips the round and gets whole arrays in the next
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fedul_flwr.data.content import Content
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.wire import PlainArray, array_record, check_bytes, num_bytes

ARRAYS, CONFIG, METRICS, DIAGNOSTICS = "arrays", "config", "metrics", "diagnostics"
"""Names of the records in a message."""

MODEL, OTHER = "model", "other"
"""Parts of a message's traffic: its record ``arrays``, and everything that is not an array."""

WEIGHT, NORMALIZER = "num-examples", "normalizer"
"""Metrics of an update: number of points, which is its weight, and FedNova's a_i."""

NUM_POINTS = "num-points"
"""Value of a client's answer to phase ``setup``: its number of points. No later count is above."""

END = "end"
"""Phase after the last round, on devices: a client gets, under this name, how the run has ended. It
sends nothing and stores nothing; the owner's log has it."""

PERSONAL = "personal"
"""Phase after the last round, with setting `personal`: a client gets the chosen model, and makes
its own from it. It sends nothing."""

DESCRIBE, SETUP, COLUMNS = "describe", "setup", "columns"
"""Phases before round 1: a client says which one it is; it gets the setup and registers; if the
federation standardizes vectors, it gets the means and scales of all clients. A client stores what
it is told under the name of phase ``setup``."""

SETTINGS = "settings"
"""Value of phase ``setup``: the run's settings, flat, as JSON."""

SETUP_BEFORE, FORGETFUL = "setup-before", "forgetful"
"""Value of phase ``setup`` if the server has sent this client a setup before, and the value that a
client stores with its setup if it has no state from that time."""

CLASS_MASSES, TEST_PRIOR = "class-masses", "test-prior"
"""Values where pi is estimated from all sets: sent by a client, and sent to it in every round."""

RATE_FACTOR = "rate-factor"
"""Value that the server sends in a round: factor of the step size (`plateau`)."""

VALIDATION_LOSS, VALIDATED_ROUND = "validation-loss", "validated-round"
"""Values for clients that run `plateau` themselves: the latest validation loss, and the round of
the model that it was measured on."""

OWN_MODEL = "own-model"
"""Value that tells a client to continue from its own model (`base = "local"`), and the name under
which it stores that model."""

LEARNED, PRIOR_FIT = "learned-priors", "prior-fit"
"""Names under which a client keeps the class priors of its sets that it has learned, and under
which a simulation's clients write how well the priors that they were told fit, to be scored."""

PHASE = "query.phase"
"""Message type of a method's extra phases."""


def phase_messages(name: str, contents: Mapping[int, Content]) -> list[Message]:
    """Messages for phase ``name``; an array that several nodes get is encoded once."""
    encoded: dict[int, Array] = {}
    messages = []
    for node, content in contents.items():
        records = to_records(Content(values={**content.values, "phase": name}))
        if content.arrays:
            for array in content.arrays.values():
                if id(array) not in encoded:
                    encoded[id(array)] = PlainArray.of(array)
            array_names = {key: encoded[id(array)] for key, array in content.arrays.items()}
            records[ARRAYS] = array_record(array_names)
        messages.append(Message(records, node, PHASE))
    return messages


def phase_of(message: Message) -> str | None:
    """Name of the extra phase that a message asks for; ``None`` for other messages."""
    config: Mapping[str, Any] = message.content.config_records.get(CONFIG) or {}
    return config.get("phase")


def to_records(content: Content) -> RecordDict:
    """Content as Flower's records."""
    records = RecordDict({CONFIG: ConfigRecord(dict(content.values))})
    if content.arrays:
        records[ARRAYS] = to_record(content.arrays)
    return records


def from_records(records: RecordDict) -> Content:
    """Flower's records as content.

    Raises
    ------
    BadMessageError
        If there are other records; and see :func:`to_arrays`.
    """
    arrays, values = records.array_records.get(ARRAYS), records.config_records.get(CONFIG)
    present = {ARRAYS: arrays is not None, CONFIG: values is not None}
    if odd := sorted(name for name in records if not present.get(name)):
        raise BadMessageError(
            f"its answer has {odd[0]!r}, which is not what was asked for", "message-unasked"
        )
    return Content(to_arrays(arrays) if arrays else {}, dict(values) if values else {})


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Named arrays as an ArrayRecord, names kept."""
    return array_record({name: PlainArray.of(array) for name, array in arrays.items()})


def to_arrays(record: ArrayRecord) -> Arrays:
    """An ArrayRecord as named arrays.

    Raises
    ------
    BadMessageError
        See :func:`fedul_flwr.federated.wire.check_bytes`.

    Examples
    --------
    >>> import numpy as np
    >>> to_arrays(to_record({"weight": np.array([1.0, 2.0])}))["weight"].tolist()
    [1.0, 2.0]
    """
    for name, array in record.items():
        check_bytes(name, array)
    return {name: array.numpy() for name, array in record.items()}


def payload_parts(records: RecordDict) -> Counter[str]:
    """Bytes of a message's content by part, before packing; keys are not counted.

    Arrays count under the name of their record, the model's as ``model``; all other values as
    ``other``.
    """
    parts: Counter[str] = Counter()
    arrays = records.array_records
    for name in arrays:
        if name != ARRAYS or arrays[name]:  # else the model travels as something else
            parts[MODEL if name == ARRAYS else name] = 0
    parts[OTHER] = 0
    for record, _, size in item_sizes(records):
        part = (MODEL if record == ARRAYS else record) if record in arrays else OTHER
        parts[part] += size
    return parts


def item_sizes(records: RecordDict) -> Iterator[tuple[str, str, int]]:
    """Record, name and bytes of every array and value of a message's content."""
    for record, arrays in records.array_records.items():
        yield from ((record, name, num_bytes(array)) for name, array in arrays.items())
    tables: list[tuple[str, Mapping[str, object]]] = [
        *records.metric_records.items(),
        *records.config_records.items(),
    ]
    for record, table in tables:
        yield from ((record, name, _value_bytes(value)) for name, value in table.items())


def payload_bytes(records: RecordDict) -> int:
    """Bytes of a message's content, all parts together."""
    return payload_parts(records).total()


def _value_bytes(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list):
        return sum(_value_bytes(item) for item in value)
    return 8


EXCHANGED = "held"
"""Name under which both ends store the arrays of their last exchange."""
HELPERS = "helpers"
"""Record of the helpers' psi, as differences from the psi that is sent, and their number."""
BASE_ROUND = "since"
"""Round of the exchange that differences start from, 0 for none; stored with the arrays."""
STALE = "out-of-step"
"""Whether a client lacks the arrays that the server's differences start from."""
