"""The process that answers messages of simulated clients, forked from one that has loaded torch.

:mod:`multiprocessing`'s fork server imports this module once; every worker is a fork of it and
shares its memory. Nothing here may start a thread or touch a GPU on import.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

from flwr.app import Context, Message

import fedul_flwr.learning.local  # noqa: F401  loads torch for all workers
from fedul_flwr.client_app import app
from fedul_flwr.engine.in_process import answered, task_identity
from fedul_flwr.engine.shell import follow_parent, open_streams
from fedul_flwr.engine.transfer import Packed, pack
from fedul_flwr.federated.flower_internals import make_message
from fedul_flwr.learning.device import set_threads
from fedul_flwr.learning.lanes import one_lane, working_in

gc.freeze()  # the collector would write to pages that all workers share


def serve(connection: Connection, folder: str, environment: Mapping[str, str]) -> None:
    """Answer what comes from ``connection``, until its other end is closed.

    Parameters
    ----------
    folder : working directory.
    environment : all environment variables; the fork server has those of its own start.
    """
    open_streams()
    follow_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    with task_identity(), contextlib.suppress(EOFError, ConnectionError):
        while True:
            answer_next(connection)


def _lane_for(message: Message, context: Context) -> AbstractContextManager[None]:
    """Context of work in this process's lane, for training in a run that has lanes."""
    flat: Mapping[str, Any] = context.run_config
    number, trains = flat.get("lanes", 0), message.metadata.message_type == "train"
    return working_in(_lane(number, flat["device"], flat["method"]) if number and trains else None)


_lane = cache(one_lane)


def answer_next(connection: Connection) -> None:
    """Wait for one order from ``connection``, and answer it.

    An order is a message's content, its metadata, the pickled context of its client and its number
    of threads, 0 for those of its settings. The answer is the reply with the traceback of an
    unexpected error or an empty string, and the context.
    """
    content = Packed.receive(connection).open_mapped()
    metadata, state, threads = connection.recv()
    set_threads(threads)
    message, context = make_message(metadata, content), pickle.loads(state)
    del content  # a client empties its message as soon as its model has the weights
    with _lane_for(message, context):
        answer = answered(app, message, context)
    pack(answer).send(connection)
    connection.send_bytes(pickle.dumps(context, protocol=5))
