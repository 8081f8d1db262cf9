"""A grid that lists only the nodes of the round, for base strategies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.serverapp import Grid

from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.registry import ClientRef


class SampledGrid(GridProxy):
    """``grid`` with a list of nodes restricted to ``clients``."""

    def __init__(self, grid: Grid, clients: Iterable[ClientRef]) -> None:
        super().__init__(grid)
        self._nodes = [client.node_id for client in clients]

    def get_node_ids(self) -> Iterable[int]:
        """Node ids of the clients, in partition order."""
        return list(self._nodes)

    def get_nodes(self) -> Iterable[Any]:
        """Information about the nodes of the clients."""
        return [node for node in super().get_nodes() if node.node_id in self._nodes]
