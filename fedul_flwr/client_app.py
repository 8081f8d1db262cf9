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
from fedul_flwr.federated.ledger import Asked, ask, require_approval
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
    TensorArray,
    from_records,
    packing_mod,
    to_arrays,
    to_record,
    to_records,
)
from fedul_flwr.federated.updates import clip_update

ClientBuilder = Callable[[Context], Client[Any]]


Answer = Callable[[Message, Context], Message]
SIMULATION_KEYS = frozenset(("partition-id", "num-partitions"))
"""The only keys that Flower's simulation puts into a node config."""


def make_client_app(build: ClientBuilder, mods: Sequence[Mod] = ()) -> ClientApp:
    """Flower's ClientApp; ``build`` creates a client for every message.

    On a data owner's device the server gets the text of an error only if it is a
    :class:`UserError` that is not about the owner's data. Others go to the device's log only.

    Parameters
    ----------
    mods : Flower's mods around every message, which see it before it is packed.
    """
    app = ClientApp(mods=[packing_mod, *mods])

    @app.train()
    @_hide_private_errors
    def train(message: Message, context: Context) -> Message:
        client = build(context)
        _require_approval(client)
        arrays, config = _unpack(message, client)
        others = message.content.array_records.items()
        received = {name: to_arrays(record) for name, record in others if name != ARRAYS}
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
            privacy = client.settings[DPSettings]
            begun = to_record(arrays) if privacy.clipping == "client" else None
            update = client.train(arrays, config, received)
            if begun is not None:
                clipped = to_record(update.arrays)
                clip_update(clipped, begun, privacy.norm)
                update = replace(update, arrays=to_arrays(clipped))
        metrics = {"num-examples": update.num_examples, **_numbers(update.metrics)}
        reply = RecordDict(
            {
                ARRAYS: to_record(update.arrays),
                METRICS: MetricRecord(metrics),
                **{name: to_record(arrays) for name, arrays in update.records.items()},
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
        client.check_model(arrays, int(config["server-round"]) + 1)
        loss, num_examples = client.evaluate(arrays, config)
        record = MetricRecord({"num-examples": num_examples, "loss": loss})
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
    settings = admitted_settings(client.node, str(content.values.get(SETTINGS)))
    unapproved = ask(settings, client.node)
    who = client.on_phase(DESCRIBE, Content())
    return replace(who, values={**who.values, **unapproved}) if unapproved else None


def _require_approval(client: Client[Any]) -> None:
    if client.node.approves_each_run:
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


app = make_client_app(build_client, mods=[owner_log_mod])
