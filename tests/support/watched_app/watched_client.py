"""Client app of the watched app; the server knows nothing of it."""

import os
from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedul_flwr.client_app import app as own_app
from fedul_flwr.federated.messages import PACKED, pack, unpack


class WatchedClientApp(ClientApp):
    """Answers as another client app does, and looks at the answers."""

    def __init__(self, watched: ClientApp) -> None:
        super().__init__()
        self._watched = watched

    def __call__(self, message: Message, context: Context) -> Message:
        spoiled = os.environ.get("WATCHED_APP_SPOILS", "")
        asked = message.content.config_records.get("config", ConfigRecord())
        reply = self._watched(message, context)
        if message.metadata.message_type == "train" and spoiled == str(asked["server-round"]):
            reply.content = spoil(reply.content)
        if directory := os.environ.get("WATCHED_APP_RECORDS"):
            record(reply, Path(directory))
        return reply


def spoil(content: RecordDict) -> RecordDict:
    """``content`` with values that are no number, in the form it came in."""
    records = unpack(content)
    arrays = cast(ArrayRecord, records["arrays"])
    name, array = next(iter(arrays.items()))
    arrays[name] = Array(np.full_like(array.numpy(), np.nan))
    return pack(records) if PACKED in content else records


def record(reply: Message, directory: Path) -> None:
    """Keep every object that a message is made of, and that is sent in its place."""
    directory.mkdir(exist_ok=True)
    for identity, found in get_all_nested_objects(reply).items():
        (directory / identity).write_bytes(found.deflate())


app = WatchedClientApp(own_app)
