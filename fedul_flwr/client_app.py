"""The Flower app's client side: builds the client of the run's method for every message."""

from __future__ import annotations

import json
from typing import Any, cast

from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.references import load_reference
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.client import (
    MethodClient,
    admitted_settings,
    settings_from,
    state_directory,
)
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.dispatch import make_client_app
from fedul_flwr.federated.messages import ARRAYS, SETTINGS, SETUP
from fedul_flwr.federated.owner_log import owner_log_mod


def build_client(context: Context) -> MethodClient[Any]:
    """Build the client that answers one message."""
    node, setup, settings = _load_setup(context)
    client: Any = load_reference(find_method(settings.method).client, "method")
    state = ClientState(context.state, state_directory(setup, node), context.run_id)
    built: MethodClient[Any] = client(settings, node, state)
    return built


def clip(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod that clips the update, in runs with `dp.clipping = "client"`.

    An update of a secure sum is clipped before it is masked.
    """
    *_, settings = _load_setup(context)
    if settings[DPSettings].clipping != "client" or settings.sums_updates:
        return call_next(message, context)
    from flwr.clientapp.mod import fixedclipping_mod

    from fedul_flwr.federated.aggregation import avoid_zero_norm

    start = cast(ArrayRecord, message.content[ARRAYS])

    def train(message: Message, context: Context) -> Message:
        reply = call_next(message, context)
        if not reply.has_error():
            avoid_zero_norm(cast(ArrayRecord, reply.content[ARRAYS]), start)
        return reply

    return fixedclipping_mod(message, context, train)


def _load_setup(context: Context) -> tuple[NodeConfig, dict[str, Any], RunConfig]:
    """The node config, the setup from phase ``setup`` and the run's settings.

    The owner's limits are checked at every message, before a module of the run is imported.
    """
    node = NodeConfig.parse(context.node_config)
    setup = ClientState(context.state).values(SETUP)
    # Prefer the settings that the server sent: they have absolute paths and those of `resume`.
    if SETTINGS in setup:
        return node, setup, admitted_settings(node, str(setup[SETTINGS]))
    if node.data:
        node.check_modules(context.run_config)
    return node, setup, settings_from(json.dumps(dict(context.run_config), sort_keys=True))


app = make_client_app(build_client, clip, mods=[owner_log_mod])
