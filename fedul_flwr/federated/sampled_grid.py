"""A grid that shows a base strategy only the nodes of the round."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.registry import ClientRef


class SampledGrid(GridProxy):
    """Everything of ``grid`` except that only ``clients`` are listed."""

    def __init__(self, grid: Grid, clients: Iterable[ClientRef]) -> None:
        super().__init__(grid)
        self._nodes = [client.node_id for client in clients]

    def get_node_ids(self) -> Iterable[int]:
        """Node ids of the clients, in partition order."""
        return list(self._nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """What the grid knows of the clients."""
        return [node for node in super().get_nodes() if node.node_id in self._nodes]
