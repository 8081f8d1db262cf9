"""The one door between a server and an owner's client.

Every message passes here: the owner's limits admit the run, its person has approved it, what is
asked of this client alone may be, the model is one of the run, and nothing leaves that the run does
not declare. Then the owner's log has it, and it leaves.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.base import without_exit
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import draws_of
from fedul_flwr.data.types import Content
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.client import Client, names_of
from fedul_flwr.federated.client_data import (
    ClientState,
    admitted_settings,
    settings_from,
    state_directory,
)
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DESCRIBE,
    END,
    METRICS,
    PART,
    SETTINGS,
    SETUP,
    SHARES,
    SUM_PHASES,
    WEIGHT,
    TensorArray,
    from_records,
    packing_mod,
    to_arrays,
    to_records,
)
from fedul_flwr.federated.owner.ledger import ask, require_approval
from fedul_flwr.federated.owner.log import answer_with_log, say_here
from fedul_flwr.federated.owner.model_check import check_model
from fedul_flwr.federated.payload import (
    ENDED,
    EVALUATE,
    LOSS,
    NOTHING,
    PROCESS,
    STARTED,
    TRAIN,
    Payload,
    refuse_undeclared,
    reports_of,
    update_content,
)
from fedul_flwr.federated.stage import are_hidden, of_all


class Door:
    """What an owner has been promised about one client, for one message."""

    def __init__(self, client: Client[Any]) -> None:
        self._client, self._node = client, client.node

    def require_approval(self) -> None:
        """Refuse a run that the owner's person has to approve, and has not."""
        if self._node.approves_each_run:
            require_approval(self._client.settings, self._node, self._client.setup)

    def ask_owner(self, content: Content) -> Content | None:
        """The answer to a setup while the run is not approved; ``None`` where it may begin."""
        if not self._node.approves_each_run:
            return None
        settings = admitted_settings(self._node, str(content.values.get(SETTINGS)))
        unapproved = ask(settings, self._node, content.values)
        who = self._client.on_phase(DESCRIBE, Content())
        return replace(who, values={**who.values, **unapproved}) if unapproved else None

    def require_no_sum(self, what: str) -> None:
        """Refuse to tell ``what`` of this client alone in a run with secure sums."""
        if are_hidden(self._client.settings) or self._node.require_secure_sum:
            raise of_all(what)

    def trained(self, train: Callable[[], Payload]) -> Payload:
        """What a client has trained, or nothing where it cannot and the server reads sums alone.

        Whether it can may depend on a single point. So it takes part in the sum with weight 0, and
        its own log says why.
        """
        try:
            return train()
        except UserError as error:
            of_points = error.code in ("loss-not-finite", "model-not-finite")
            if not (of_points and self._node.data and are_hidden(self._client.settings)):
                raise
            say_here(self._node.partition_id, error)
            return dict(NOTHING)

    def require_phase(self, name: str) -> None:
        """Refuse phase ``name`` if it would tell, in a run with secure sums, what is in no sum."""
        client = self._client
        of_stages = (stage.phases for stage in client.stages if stage.in_sums)
        if name not in {DESCRIBE, SETUP, END, *client.extra_phases}.union(*of_stages):
            self.require_no_sum(f"phase {name!r}")

    def leaving(self, phase: str, reply: RecordDict) -> RecordDict:
        """``reply``, if the run declares all that is in it; else nothing leaves."""
        parts = declared(self._client.settings).get(phase, {})
        refuse_undeclared(type(self._client).__name__, phase, reply, parts)
        return reply


ClientBuilder = Callable[[Context], Client[Any]]


def _opened(build: ClientBuilder, context: Context) -> tuple[Client[Any], Door]:
    client = build(context)
    return client, Door(client)


Answer = Callable[[Message, Context], Message]
_OF_NO_POINTS = frozenset((DESCRIBE, END, *SUM_PHASES)) - {PART}
SIMULATION_KEYS = frozenset(("partition-id", "num-partitions"))
"""The only keys that Flower's simulation puts into a node config."""


def _draws(client: Client[Any], *purpose: object) -> AbstractContextManager[None]:
    """Context of global generators as they are in this message again, if a simulation resumes.

    On an owner's device nobody may know them: a stage may draw noise that protects it.
    """
    if client.node.data:
        return nullcontext()
    name = "/".join(map(str, purpose))
    return draws_of(client.settings.seed, name, client.node.partition_id)


def make_client_app(build: ClientBuilder, mods: Sequence[Mod] = ()) -> ClientApp:
    """Flower's ClientApp; ``build`` creates a client for every message.

    On a data owner's device the server gets the text of an error only if it is a
    :class:`UserError` that is not about the owner's data, and quotes no error of a module of
    somebody's own. Others go to the device's log only.

    Parameters
    ----------
    mods : Flower's mods around every message, which see it before it is packed.
    """
    app = ClientApp(mods=[packing_mod, *mods])

    @app.train()
    @_hide_private_errors
    def train(message: Message, context: Context) -> Message:
        client, door = _opened(build, context)
        door.require_approval()
        arrays, config = _unpack(message, client)
        others = message.content.array_records.items()
        received = {name: to_arrays(record) for name, record in others if name != ARRAYS}
        message.content = RecordDict()  # frees a second copy of the model
        shares = received.pop(SHARES, {})
        check_model(client, arrays, int(config["server-round"]))
        started = time.time()  # after the slow import of torch
        if not are_hidden(client.settings):
            door.require_no_sum("an update")
        asked = Asked({ARRAYS: dict(arrays), **received}, config, client.alone)
        with _draws(client, TRAIN, config["server-round"]):
            for stage in client.stages:
                stage.before(asked, shares)
            del asked  # stages that need it have it
            payload = door.trained(lambda: client.train(arrays, config, received))
            for stage in client.stages:
                payload = stage.after(payload)
        ended = max(time.time(), started + client.node.answer_seconds)
        payload |= {STARTED: started, ENDED: ended, PROCESS: os.getpid()}
        reply = update_content(payload, reports_of(client.settings))
        return Message(door.leaving(TRAIN, reply), reply_to=message)

    @app.evaluate()
    @_hide_private_errors
    def evaluate(message: Message, context: Context) -> Message:
        client, door = _opened(build, context)
        door.require_approval()
        arrays, config = _unpack(message, client)
        check_model(client, arrays, int(config["server-round"]) + 1)
        with _draws(client, EVALUATE, config["server-round"]):
            loss, num_examples, _ = client.evaluate(list(arrays.values()), config)
        record = MetricRecord({WEIGHT: num_examples, LOSS: loss})
        reply = RecordDict({METRICS: record})
        return Message(door.leaving(EVALUATE, reply), reply_to=message)

    @app.query("phase")
    @_hide_private_errors
    def phase(message: Message, context: Context) -> Message:
        content = from_records(message.content)
        name = str(content.values.pop("phase"))
        client, door = _opened(build, context)
        door.require_phase(name)
        waiting = door.ask_owner(content) if name == SETUP else None
        if name not in (DESCRIBE, SETUP, END):
            door.require_approval()
        with _draws(client, name, content.values.get("round")):
            answer = waiting or client.on_phase(name, content)
        return Message(door.leaving(name, to_records(answer)), reply_to=message)

    return app


def _hide_private_errors(answer: Answer) -> Answer:
    """``answer`` with errors that reveal nothing about the owner's data or machine."""

    @wraps(answer)
    def guarded(message: Message, context: Context) -> Message:
        ready = time.monotonic() + _answer_seconds(message, context)
        try:
            with without_exit("A client"):
                return answer(message, context)
        except Exception as error:
            harmless = isinstance(error, UserError) and not isinstance(error, OwnDataError)
            # What a module of somebody's own raises may quote data, and names a path.
            harmless &= getattr(error, "code", "") != "own-code-failed"
            if harmless or context.node_config.keys() <= SIMULATION_KEYS:
                raise
            say_here(context.node_config.get("partition-id", 0), error)
            is_private = isinstance(error, OwnDataError)
            problem = "cannot use its data or node config" if is_private else "failed"
            # Flower sends only this text, and logs the whole chain of errors on the device. The
            # server says which client it comes from.
            raise UserError(
                f"The client {problem}; its own log says why.", "client-failed"
            ) from error
        finally:
            time.sleep(max(0.0, ready - time.monotonic()))

    return guarded


def _answer_seconds(message: Message, context: Context) -> float:
    """How long an answer takes at least, where it could tell of points by its time."""
    phase = message.content.config_records.get(CONFIG, ConfigRecord()).get("phase")
    wanted = context.node_config.get("answer-seconds")
    return float(wanted) if isinstance(wanted, float | int) and phase not in _OF_NO_POINTS else 0.0


def _unpack(message: Message, client: Client[Any]) -> tuple[Arrays, dict[str, Any]]:
    """The model's arrays in the client's order, and the values of a message."""
    assert client.setup  # refuses a client that was not set up
    record = cast(ArrayRecord, message.content[ARRAYS])
    config = dict(cast(ConfigRecord, message.content[CONFIG]))
    arrays = {name: record[name] for name in names_of(client, record)}
    on_device = {name: a.tensor for name, a in arrays.items() if isinstance(a, TensorArray)}
    return {n: on_device[n] if n in on_device else a.numpy() for n, a in arrays.items()}, config


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
