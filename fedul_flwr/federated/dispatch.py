"""Flower's ClientApp around clients: from messages to calls of a NumPyClient, and back."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from numpy.typing import NDArray

from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DIAGNOSTICS,
    METRICS,
    Content,
    from_records,
    to_arrays,
    to_record,
    to_records,
)
from fedul_flwr.federated.packing import packing_mod


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
