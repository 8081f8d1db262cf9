"""Runs the server app and simulated clients in one process, on a grid without a SuperLink."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from logging import ERROR
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.base import error_in_words, user_code_trace
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import remember_draws
from fedul_flwr.engine.shell import plain_log
from fedul_flwr.errors import in_one_sentence
from fedul_flwr.federated.flower_internals import ErrorCode, TaskIdentity
from fedul_flwr.federated.messages import Spool

if TYPE_CHECKING:
    from fedul_flwr.learning.lanes import Lanes
    from fedul_flwr.run.callbacks import Callback


FIRST_NODE_ID = 1000


class LocalGrid(Grid):
    """A grid whose nodes are contexts on this machine; subclasses answer messages.

    Parameters
    ----------
    num_supernodes : number of nodes; node i has partition i.
    run_config : flat run config that clients see.
    """

    def __init__(self, num_supernodes: int, run_config: dict[str, Any]) -> None:
        run = secrets.randbits(62)  # owners tell runs apart by it
        self.contexts = {
            FIRST_NODE_ID + index: Context(
                run_id=run,
                node_id=FIRST_NODE_ID + index,
                node_config={"partition-id": index, "num-partitions": num_supernodes},
                state=RecordDict(),
                run_config=run_config,
            )
            for index in range(num_supernodes)
        }
        self._replies: dict[str, Message] = {}
        self._traces: set[str] = set()

    @abstractmethod
    def answer(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Replies in the order of ``messages``; those that take over ``timeout`` s are left out."""

    def log_once(self, trace: str) -> None:
        """Log the traceback of an error in a client, once for all clients that have the same."""
        if trace and trace not in self._traces:
            self._traces.add(trace)
            log(ERROR, "%s", trace.rstrip())

    def set_run(self, run: Any) -> None:
        """Do nothing: there is only one run."""

    @property
    def run(self) -> Any:
        """What Flower says of the run: its id alone."""
        return SimpleNamespace(run_id=next(iter(self.contexts.values())).run_id)

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
        for reply in self.answer(list(messages), None):
            identity = f"{len(self._replies)}-{reply.metadata.src_node_id}"
            self._replies[identity] = reply
            ids.append(identity)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Stored replies."""
        return [self._replies.pop(identity) for identity in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Replies to ``messages``, in their order."""
        return self.answer(list(messages), timeout)


def answered(client_app: ClientApp, message: Message, context: Context) -> tuple[Message, str]:
    """The app's reply, and the traceback of an error that nobody foresaw, or an empty string.

    An exception becomes an error reply, as in Flower's own grids.
    """
    try:
        return client_app(message=message, context=context), ""
    except Exception as error:
        trace, text = "", str(error)
        if in_one_sentence(error) is None:
            trace, text = user_code_trace(error), error_in_words(error)
        failure = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, text)
        return Message(failure, reply_to=message), trace


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


class InProcessGrid(LocalGrid):
    """A grid that answers messages one after the other, in the order they are sent, or in lanes.

    Parameters
    ----------
    lanes : in which clients train side by side; ``None`` for one after the other.
    raises : whether an exception in a client leaves the grid, in place of an error reply.
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_supernodes: int,
        run_config: dict[str, Any],
        lanes: Lanes | None = None,
        *,
        raises: bool = False,
    ) -> None:
        super().__init__(num_supernodes, run_config)
        self._raises = raises
        self._client_app = client_app
        self._lanes = lanes

    def answer(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Replies in the order of ``messages``; ``timeout`` is not used."""
        del timeout
        spool = Spool()
        trains = {message.metadata.message_type for message in messages} == {"train"}
        go_through = self._lanes.map if self._lanes is not None and trains else map
        restore_draws = remember_draws()  # lanes leave generators as whichever ends last
        try:
            return [spool.add(reply) for reply in go_through(self._answer, messages)]
        finally:
            restore_draws()

    def _answer(self, message: Message) -> Message:
        context = self.contexts[message.metadata.dst_node_id]
        if self._raises:
            return self._client_app(message=message, context=context)
        reply, trace = answered(self._client_app, message, context)
        self.log_once(trace)
        return reply


def run_in_process(
    settings: RunConfig,
    num_supernodes: int,
    client_app: ClientApp | None = None,
    wrap_grid: Callable[[Grid], Grid] = lambda grid: grid,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Run the app in this process.

    Parameters
    ----------
    settings : resolved settings; results are written to ``settings.output``.
    num_supernodes : number of clients.
    client_app : replaces the app's own (tests).
    wrap_grid : wraps the grid that the server uses (tests).
    callbacks : look at each round, see :mod:`fedul_flwr.run.callbacks`.

    Raises
    ------
    UserError
        As the server app does.
    """
    from fedul_flwr.client_app import app as own_client_app
    from fedul_flwr.learning.lanes import lanes_of
    from fedul_flwr.server_app import serve

    plain_log()
    lanes = lanes_of(settings.lanes, settings.device, settings.method)
    app, flat = client_app or own_client_app, settings.to_flat()
    grid = InProcessGrid(app, num_supernodes, flat, lanes)
    with task_identity():
        serve(wrap_grid(grid), settings, callbacks)
