"""A grid that shows a base strategy only the nodes of the round."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedul_flwr.federation import Member


class GridView(Grid):
    """Everything of ``grid`` except that only ``members`` are listed."""

    def __init__(self, grid: Grid, members: Iterable[Member]) -> None:
        self._grid = grid
        self._nodes = [member.node_id for member in members]

    def get_node_ids(self) -> Iterable[int]:
        """Node ids of the members, in partition order."""
        return list(self._nodes)

    def set_run(self, run: Run) -> None:
        """As the grid does."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """As the grid's."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """As the grid does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the grid does."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the grid does."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """As the grid does."""
        return self._grid.send_and_receive(messages, timeout=timeout)
