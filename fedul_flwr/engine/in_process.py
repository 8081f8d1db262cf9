"""Runs the server app and the client app in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine.flower_logs import plain_log
from fedul_flwr.engine.local_grid import LocalGrid, answered, task_identity
from fedul_flwr.engine.message_log import TO_CLIENT, TO_SERVER, MessageLog
from fedul_flwr.federated.messages import phase_of

if TYPE_CHECKING:
    from fedul_flwr.run.training import Watch


class InProcessGrid(LocalGrid):
    """A grid that answers messages one after the other, in the order they are sent.

    Parameters
    ----------
    client_app : app that answers.
    num_supernodes, run_config : see :class:`LocalGrid`.
    message_log : records every message.
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_supernodes: int,
        run_config: dict[str, Any],
        message_log: MessageLog | None = None,
    ) -> None:
        super().__init__(num_supernodes, run_config)
        self._client_app = client_app
        self._message_log = message_log

    def answer(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Replies in the order of ``messages``; ``timeout`` is not used."""
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
        reply, trace = answered(self._client_app, message, context)
        self.log_once(trace)
        return reply


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

    plain_log()
    record = None if message_log is None else MessageLog(message_log)
    grid = InProcessGrid(client_app or own_client_app, num_supernodes, settings.to_flat(), record)
    with task_identity():
        serve(wrap_grid(grid), settings, watch)
