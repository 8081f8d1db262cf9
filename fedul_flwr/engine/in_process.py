"""Runs the server app and the client app in one process, without Ray."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.engine.message_log import TO_CLIENT, TO_SERVER, MessageLog
from fedul_flwr.errors import in_one_sentence
from fedul_flwr.federated.flower_internals import ErrorCode, TaskIdentity
from fedul_flwr.federated.messages import phase_of

if TYPE_CHECKING:
    from fedul_flwr.run.training import Watch

FIRST_NODE_ID = 1000


class InProcessGrid(Grid):
    """A grid whose nodes are contexts in this process.

    Messages are answered one after the other, in the order they are sent. An exception in a client
    becomes an error reply, as in Flower's own grids.

    Parameters
    ----------
    client_app : app that answers.
    num_supernodes : number of nodes; node i has partition i.
    run_config : flat run config that clients see.
    message_log : records every message.
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_supernodes: int,
        run_config: dict[str, Any],
        message_log: MessageLog | None = None,
    ):
        self._client_app = client_app
        self._message_log = message_log
        self.contexts = {
            FIRST_NODE_ID + index: Context(
                run_id=0,
                node_id=FIRST_NODE_ID + index,
                node_config={"partition-id": index, "num-partitions": num_supernodes},
                state=RecordDict(),
                run_config=run_config,
            )
            for index in range(num_supernodes)
        }
        self._replies: dict[str, Message] = {}

    def set_run(self, run: Any) -> None:
        """Do nothing: there is only one run."""

    @property
    def run(self) -> Any:
        """Not available in one process."""
        raise NotImplementedError("the in-process grid has no run")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Ids of all nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer ``messages`` and store the replies."""
        ids = []
        for message in messages:
            identity = f"{len(self._replies)}-{message.metadata.dst_node_id}"
            self._replies[identity] = self._answer(message)
            ids.append(identity)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Stored replies."""
        return [self._replies.pop(identity) for identity in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Answer ``messages`` one after the other; ``timeout`` is not used."""
        del timeout
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Message:
        context = self.contexts[message.metadata.dst_node_id]
        if self._message_log is None:
            return self._reply(message, context)
        client, phase = int(context.node_config["partition-id"]), phase_of(message)
        self._message_log.add(TO_CLIENT, client, phase, message)
        reply = self._reply(message, context)
        self._message_log.add(TO_SERVER, client, phase, reply)
        return reply

    def _reply(self, message: Message, context: Context) -> Message:
        try:
            return self._client_app(message=message, context=context)
        except Exception as err:
            if in_one_sentence(err) is None:
                traceback.print_exc()
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(err)), reply_to=message)


@contextmanager
def task_identity() -> Iterator[None]:
    """Set the sender of messages created here, as Flower does in the process of a task."""
    fields = ("_run_id", "_node_id", "_task_id")  # unset public ones raise
    before = {name: getattr(TaskIdentity, name) for name in fields}
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 0, 1, 0
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


def _plain_log() -> None:
    """Print Flower's log without colors, unless it goes to a terminal that wants them."""
    for handler in logging.getLogger("flwr").handlers:
        if isinstance(handler, logging.StreamHandler) and hasattr(handler, "colored"):
            is_terminal = getattr(handler.stream, "isatty", lambda: False)()
            handler.colored = is_terminal and not os.environ.get("NO_COLOR")


def run_in_process(
    settings: RunConfig,
    num_supernodes: int,
    client_app: ClientApp | None = None,
    wrap_grid: Callable[[Grid], Grid] = lambda grid: grid,
    message_log: Path | None = None,
    watch: Watch | None = None,
) -> None:
    """Run the app in this process.

    Parameters
    ----------
    settings : resolved settings; results are written to ``settings.output``.
    num_supernodes : number of clients.
    client_app : replaces the app's own (tests).
    wrap_grid : wraps the grid that the server uses (tests).
    message_log : a new or empty directory in which all messages are recorded, see
        :mod:`fedul_flwr.engine.message_log`.
    watch : follows the rounds, see :data:`fedul_flwr.run.training.Watch`.

    Raises
    ------
    UserError
        As the server app does, and if the log's directory is not empty.
    """
    from fedul_flwr.client_app import app as own_client_app
    from fedul_flwr.server_app import serve

    _plain_log()
    flat = dict(settings.to_flat())
    record = None if message_log is None else MessageLog(message_log)
    grid = InProcessGrid(client_app or own_client_app, num_supernodes, flat, record)
    with task_identity():
        serve(wrap_grid(grid), resolve(flat, Path.cwd()), watch)
