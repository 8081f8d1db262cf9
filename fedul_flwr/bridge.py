"""NumPyClient on one side, Flower's messages on the other."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import Any, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from numpy.typing import NDArray

from fedul_flwr.array_bytes import PlainArray, check_bytes
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.packing import packing_mod

Value = (
    int
    | float
    | str
    | bytes
    | bool
    | list[int]
    | list[float]
    | list[str]
    | list[bytes]
    | list[bool]
)

ARRAYS, CONFIG, METRICS, DIAGNOSTICS = "arrays", "config", "metrics", "diagnostics"
"""Names of the records in a message."""

MODEL, OTHER = "model", "other"
"""Parts of a message's traffic: its record ``arrays``, and what is no array."""

FEDERATION = "federation"
"""Name under which a client keeps what the server told it in phase ``prepare``."""

PREPARED_BEFORE, FORGETFUL = "prepared-before", "forgetful"
"""Value of phase ``prepare`` where the server has prepared this client before, and what a client
that knows nothing of it keeps with what it is told."""

CLASS_MASSES, TEST_PRIOR = "class-masses", "test-prior"
"""Values that a client sends, and is told in every round, where pi is the mean of all sets."""

RATE_FACTOR = "rate-factor"
"""Value that clients are told in a round whose step sizes the server multiplies (`plateau`)."""

VALIDATION_LOSS, VALIDATED_ROUND = "validation-loss", "validated-round"
"""Values that clients are told that count validation losses themselves: the latest one, and the
round whose model it is of."""

OWN_MODEL = "own-model"
"""Value that tells a client to go on from its own model (`base = "local"`), and name under which it
keeps that."""

STEP = "query.step"
"""Message type of a method's extra phases."""


@dataclass
class Content:
    """What travels in one extra phase: arrays and plain values by name."""

    arrays: Arrays = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)


class FederatedClient(NumPyClient):
    """A NumPyClient whose method may have extra phases.

    ``fit`` and ``evaluate`` get arrays in the order of :meth:`array_names` and are Flower's own;
    ``step`` is one extra phase.

    Attributes
    ----------
    received : arrays that came with the model, by name of their record (SCAFFOLD's variates).
    returned : what ``fit`` sends beside the model, in the same form.
    """

    received: Mapping[str, Arrays] = MappingProxyType({})
    returned: Mapping[str, Arrays] = MappingProxyType({})

    def require_prepared(self) -> None:
        """Refuse to train or evaluate before the server has told what that takes."""

    def array_names(self) -> list[str]:
        """Names of the arrays that ``fit`` and ``evaluate`` expect, in order."""
        raise NotImplementedError

    def step(self, name: str, content: Content) -> Content:
        """Answer phase ``name``."""
        raise ValueError(f"this client has no phase {name!r} ({len(content.arrays)} arrays)")


ClientBuilder = Callable[[Context], FederatedClient]


Answer = Callable[[Message, Context], Message]
OF_A_SIMULATION = frozenset(("partition-id", "num-partitions"))
"""All that Flower's simulation puts into a node config."""


def make_client_app(build: ClientBuilder, *train_mods: Mod) -> ClientApp:
    """Flower's ClientApp around clients that ``build`` makes, one per message.

    On an owner's device an error's text goes to the server only if it is a :class:`UserError` about
    something else than the owner's data. All others are written to the device's own log.

    Parameters
    ----------
    train_mods : Flower's modifiers of what comes to training and leaves it.
    """
    app = ClientApp(mods=[packing_mod])

    @app.train(mods=list(train_mods))
    @_discreetly
    def train(message: Message, context: Context) -> Message:
        client = build(context)
        arrays, names, config = _unpack(message, client)
        message.content = RecordDict()  # its bytes are a second copy of the model
        started = time.time()  # after torch's import, which every process on a device pays for
        fitted, num_examples, metrics = client.fit(arrays, config)
        reply = RecordDict(
            {
                ARRAYS: to_record(dict(zip(names, fitted, strict=True))),
                METRICS: MetricRecord({"num-examples": num_examples, **_numbers(metrics)}),
                **{name: to_record(arrays) for name, arrays in client.returned.items()},
                # Apart from the metrics, which every base strategy averages.
                DIAGNOSTICS: MetricRecord(
                    {"started": started, "ended": time.time(), "process": os.getpid()}
                ),
            }
        )
        return Message(reply, reply_to=message)

    @app.evaluate()
    @_discreetly
    def evaluate(message: Message, context: Context) -> Message:
        client = build(context)
        arrays, _, config = _unpack(message, client)
        loss, num_examples, metrics = client.evaluate(arrays, config)
        record = MetricRecord({"num-examples": num_examples, "loss": loss, **_numbers(metrics)})
        return Message(RecordDict({METRICS: record}), reply_to=message)

    @app.query("step")
    @_discreetly
    def step(message: Message, context: Context) -> Message:
        content = from_records(message.content)
        name = str(content.values.pop("step"))
        answer = build(context).step(name, content)
        return Message(to_records(answer), reply_to=message)

    return app


def _discreetly(answer: Answer) -> Answer:
    """``answer`` with errors that tell the server nothing of an owner's data or machine."""

    @wraps(answer)
    def guarded(message: Message, context: Context) -> Message:
        try:
            return answer(message, context)
        except Exception as error:
            harmless = isinstance(error, UserError) and not isinstance(error, OwnDataError)
            if harmless or context.node_config.keys() <= OF_A_SIMULATION:
                raise
            number = context.node_config.get("partition-id", 0)
            who = f"Client {number}" if isinstance(number, int) else "A client"
            print(f"{who}: {error}", file=sys.stderr, flush=True)
            known = isinstance(error, OwnDataError)
            problem = "cannot use its data or node config" if known else "failed"
            # Flower sends this text, and logs the whole chain on the device.
            raise UserError(f"{who} {problem}; its own log says why.") from error

    return guarded


def step_messages(name: str, contents: Mapping[int, Content]) -> list[Message]:
    """Messages that ask nodes for phase ``name``; an array that several get is encoded once."""
    encoded: dict[int, Array] = {}
    messages = []
    for node, content in contents.items():
        records = to_records(Content(values={**content.values, "step": name}))
        if content.arrays:
            for array in content.arrays.values():
                if id(array) not in encoded:
                    encoded[id(array)] = PlainArray.of(array)
            found = {key: encoded[id(array)] for key, array in content.arrays.items()}
            records[ARRAYS] = ArrayRecord(found)
        messages.append(Message(records, node, STEP))
    return messages


def phase_of(message: Message) -> str | None:
    """The extra phase that a message to a client asks for, if it is of that kind."""
    config: Mapping[str, Any] = message.content.config_records.get(CONFIG) or {}
    return config.get("step")


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
        See :func:`to_arrays`.
    """
    arrays, values = records.array_records.get(ARRAYS), records.config_records.get(CONFIG)
    return Content(to_arrays(arrays) if arrays else {}, dict(values) if values else {})


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Named arrays as an ArrayRecord, names kept."""
    return ArrayRecord({name: PlainArray.of(array) for name, array in arrays.items()})


def to_arrays(record: ArrayRecord) -> Arrays:
    """An ArrayRecord as named arrays.

    Raises
    ------
    BadMessageError
        See :func:`fedul_flwr.array_bytes.check_bytes`.
    """
    for name, array in record.items():
        check_bytes(name, array)
    return {name: array.numpy() for name, array in record.items()}


def payload_parts(records: RecordDict) -> Counter[str]:
    """Bytes of a message's content by part, before it is packed; keys are left out.

    Array data count under the name of their record, the model's as ``model``; every other value as
    ``other``.
    """
    parts: Counter[str] = Counter()
    for name, record in records.array_records.items():
        if name == ARRAYS and not record:
            continue  # the model travels as something else
        parts[MODEL if name == ARRAYS else name] += sum(
            len(array.data) for array in record.values()
        )
    tables: list[Mapping[str, object]] = [
        *records.metric_records.values(),
        *records.config_records.values(),
    ]
    parts[OTHER] += sum(_value_bytes(value) for table in tables for value in table.values())
    return parts


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


def _unpack(
    message: Message, client: FederatedClient
) -> tuple[list[NDArray[Any]], list[str], dict[str, Any]]:
    client.require_prepared()
    record = cast(ArrayRecord, message.content[ARRAYS])
    names = client.array_names()
    if set(names) != set(record):
        odd = sorted(set(names) ^ set(record))[0]
        raise UserError(f"The server's model and this client's differ in {odd!r}.")
    config = dict(cast(ConfigRecord, message.content[CONFIG]))
    others = message.content.array_records.items()
    client.received = {name: to_arrays(found) for name, found in others if name != ARRAYS}
    return [record[name].numpy() for name in names], names, config


def _numbers(metrics: Mapping[str, Any]) -> dict[str, int | float | list[int] | list[float]]:
    return {key: value for key, value in metrics.items() if not isinstance(value, (str, bytes))}
