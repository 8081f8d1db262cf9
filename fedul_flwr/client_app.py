"""The Flower app's client side: a client of the run's method answers every message."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.types import Arrays, Content
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client import Client, admitted_settings, state_directory
from fedul_flwr.federated.client_data import ClientState, settings_from
from fedul_flwr.federated.disclosure import answer_with_log
from fedul_flwr.federated.ledger import Asked
from fedul_flwr.federated.masked_update import Summed, common_records
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DESCRIBE,
    DIAGNOSTICS,
    END,
    METRICS,
    SETTINGS,
    SETUP,
    SHARES,
    PlainArray,
    TensorArray,
    from_records,
    packing_mod,
    to_arrays,
    to_record,
    to_records,
)

ClientBuilder = Callable[[Context], Client[Any]]


Answer = Callable[[Message, Context], Message]
SIMULATION_KEYS = frozenset(("partition-id", "num-partitions"))
"""The only keys that Flower's simulation puts into a node config."""


def make_client_app(build: ClientBuilder, *train_mods: Mod, mods: Sequence[Mod] = ()) -> ClientApp:
    """Flower's ClientApp; ``build`` creates a client for every message.

    On a data owner's device the server gets the text of an error only if it is a
    :class:`UserError` that is not about the owner's data. Others go to the device's log only.

    Parameters
    ----------
    train_mods : Flower's mods around training.
    mods : those around every message, which see it before it is packed.
    """
    app = ClientApp(mods=[packing_mod, *mods])

    @app.train(mods=list(train_mods))
    @_hide_private_errors
    def train(message: Message, context: Context) -> Message:
        client = build(context)
        _require_approval(client)
        arrays, config = _unpack(message, client)
        others = message.content.array_records.items()
        received = {
            name: to_arrays(content_arrays) for name, content_arrays in others if name != ARRAYS
        }
        message.content = RecordDict()  # frees a second copy of the model
        shares = received.pop(SHARES, {})
        client.check_model(arrays, int(config["server-round"]))
        started = time.time()  # after the slow import of torch
        if client.settings.sums_updates:
            asked = Asked({ARRAYS: dict(arrays), **received}, config, client.alone)
            client.sums.accept(Summed.UPDATE, asked)
            start = common_records(received, dict(arrays), ARRAYS)
            update = client.train(arrays, config, received)
            update = client.sums.mask(update, start, shares, asked, client.buffer_names())
        else:
            client.require_no_sum("an update")
            update = client.train(arrays, config, received)
        metrics = {"num-examples": update.num_examples, **_numbers(update.metrics)}
        reply = RecordDict(
            {
                ARRAYS: to_record(update.arrays),
                METRICS: MetricRecord(metrics),
                **{
                    name: to_record(content_arrays)
                    for name, content_arrays in update.records.items()
                },
                # A record of its own: base strategies average all metrics.
                DIAGNOSTICS: MetricRecord(
                    {
                        **{"started": started, "ended": time.time(), "process": os.getpid()},
                        **client.diagnostics,
                    }
                ),
            }
        )
        return Message(reply, reply_to=message)

    @app.evaluate()
    @_hide_private_errors
    def evaluate(message: Message, context: Context) -> Message:
        client = build(context)
        client.require_no_sum("a loss")
        _require_approval(client)
        arrays, config = _unpack(message, client)
        if client.node.check_models:
            client.check_model(arrays, int(config["server-round"]) + 1)
        loss, num_examples, metrics = client.evaluate(list(arrays.values()), config)
        record = MetricRecord({"num-examples": num_examples, "loss": loss, **_numbers(metrics)})
        return Message(RecordDict({METRICS: record}), reply_to=message)

    @app.query("phase")
    @_hide_private_errors
    def phase(message: Message, context: Context) -> Message:
        content = from_records(message.content)
        name = str(content.values.pop("phase"))
        client = build(context)
        client.require_phase(name)
        if name == SETUP and (answer := _ask_owner(client, content)):
            return Message(to_records(answer), reply_to=message)
        if name not in (DESCRIBE, SETUP, END):
            _require_approval(client)
        return Message(to_records(client.on_phase(name, content)), reply_to=message)

    return app


def _ask_owner(client: Client[Any], content: Content) -> Content | None:
    """The answer to a setup while the owner has not approved the run; None where it may begin."""
    if not client.node.approves_each_run:
        return None
    from fedul_flwr.federated.ledger import ask

    settings = admitted_settings(client.node, str(content.values.get(SETTINGS)))
    unapproved = ask(settings, client.node)
    who = client.on_phase(DESCRIBE, Content())
    return replace(who, values={**who.values, **unapproved}) if unapproved else None


def _require_approval(client: Client[Any]) -> None:
    if client.node.approves_each_run:
        from fedul_flwr.federated.ledger import require_approval

        require_approval(client.settings, client.node)


def _hide_private_errors(answer: Answer) -> Answer:
    """``answer`` with errors that reveal nothing about the owner's data or machine."""

    @wraps(answer)
    def guarded(message: Message, context: Context) -> Message:
        try:
            return answer(message, context)
        except Exception as error:
            harmless = isinstance(error, UserError) and not isinstance(error, OwnDataError)
            if harmless or context.node_config.keys() <= SIMULATION_KEYS:
                raise
            number = context.node_config.get("partition-id", 0)
            sender = f"Client {number}" if isinstance(number, int) else "A client"
            print(f"{sender}: {error}", file=sys.stderr, flush=True)
            is_private = isinstance(error, OwnDataError)
            problem = "cannot use its data or node config" if is_private else "failed"
            # Flower sends only this text, and logs the whole chain of errors on the device. The
            # server says which client it comes from.
            raise UserError(
                f"The client {problem}; its own log says why.", "client-failed"
            ) from error

    return guarded


def _unpack(message: Message, client: Client[Any]) -> tuple[Arrays, dict[str, Any]]:
    """The model's arrays in the client's order, and the values of a message."""
    assert client.setup  # refuses a client that was not set up
    record = cast(ArrayRecord, message.content[ARRAYS])
    config = dict(cast(ConfigRecord, message.content[CONFIG]))
    arrays = {name: record[name] for name in client.names_of(record)}
    on_device = {name: a.tensor for name, a in arrays.items() if isinstance(a, TensorArray)}
    return {n: on_device[n] if n in on_device else a.numpy() for n, a in arrays.items()}, config


def _numbers(metrics: Mapping[str, Any]) -> dict[str, int | float | list[int] | list[float]]:
    return {key: value for key, value in metrics.items() if not isinstance(value, (str, bytes))}


def build_client(context: Context) -> Client[Any]:
    """Build the client that answers one message."""
    node, setup, settings = _load_setup(context)
    client: Any = find_method(settings.method).client_class
    state = ClientState(context.state, state_directory(setup, node), context.run_id)
    built: Client[Any] = client(settings, node, state)
    return built


SHORTEST = 1e-18
"""Smallest step of a weight: its square is still above zero in float32."""


def avoid_zero_norm(update: ArrayRecord, start: ArrayRecord) -> None:
    """Where ``update`` equals ``start``, move one of its weights by the smallest step, in place.

    Flower multiplies an update by min(1, C / its norm). A step this small is never clipped.

    Parameters
    ----------
    update, start : arrays of the same names, types and shapes, at least one of floating point.
    """
    steps = [update[name].numpy() - array.numpy() for name, array in start.items()]
    if sum(np.linalg.norm(step.flat) ** 2 for step in steps):  # of float32, as Flower's norm
        return
    name = next(n for n, a in start.items() if np.issubdtype(np.dtype(a.dtype), np.floating))
    values = update[name].numpy().copy()
    first = values.flat[0]
    values.flat[0] = max(np.nextafter(first, values.dtype.type(np.inf)), first + SHORTEST)
    update[name] = PlainArray.of(values)


def clip_by(settings_of: Callable[[Context], RunConfig]) -> Mod:
    """Flower mod that clips the update, in runs with `dp.clipping = "client"`.

    An update of a secure sum is clipped before it is masked.
    """

    def clip(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        settings = settings_of(context)
        if settings[DPSettings].clipping != "client" or settings.sums_updates:
            return call_next(message, context)
        from flwr.clientapp.mod import fixedclipping_mod

        start = cast(ArrayRecord, message.content[ARRAYS])

        def train(message: Message, context: Context) -> Message:
            reply = call_next(message, context)
            if not reply.has_error():
                avoid_zero_norm(cast(ArrayRecord, reply.content[ARRAYS]), start)
            return reply

        return fixedclipping_mod(message, context, train)

    return clip


def owner_log_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod that adds a line to the owner's log, if its node config names one."""
    path = context.node_config.get("log")
    if not isinstance(path, str) or not path:
        return call_next(message, context)
    return answer_with_log(Path(path), message, context, call_next)


def _load_setup(context: Context) -> tuple[NodeConfig, dict[str, Any], RunConfig]:
    """The node config, the setup from phase ``setup`` and the run's settings.

    The owner's limits are checked at every message, before a module of the run is imported.
    """
    node = _node_config(tuple(context.node_config.items()))
    setup = ClientState(context.state).values(SETUP)
    # Prefer the settings that the server sent: they have absolute paths and those of `resume`.
    if SETTINGS in setup:
        return node, setup, admitted_settings(node, str(setup[SETTINGS]))
    if node.data:
        node.check_modules(context.run_config)
    return node, setup, settings_from(json.dumps(dict(context.run_config), sort_keys=True))


@lru_cache(maxsize=4096)
def _node_config(items: tuple[tuple[str, Any], ...]) -> NodeConfig:
    return NodeConfig.parse(dict(items))


clip = clip_by(lambda context: _load_setup(context)[2])
app = make_client_app(build_client, clip, mods=[owner_log_mod])
