"""A grid whose nodes come, go and forget, and data owners to run on them."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid
from fedul_flwr.federated.grid import SampledGrid
from fedul_flwr.federated.messages import phase_of
from tests.support.learnable_owners import NAMES, write_labeled
from tests.support.runs import EVERYTHING_ALLOWED, as_error, train

OWNERS: dict[str, Any] = {
    **{"method": "labels-only", "dataset": "none", "class_names": ",".join(NAMES)},
    **{"input_shape": "8x8x1", "model": "mlp", "num_rounds": 4, "local_epochs": 1},
    **{"connect_timeout": 0.05},
}
"""A run of owners who have images of three classes, some with a label."""


def write_owners(root: Path, count: int) -> None:
    """A folder for each: 12 images, 6 with their label."""
    for client in range(count):
        write_labeled(root / str(client), seed=client, points=12)


class Flock(SampledGrid):
    """A grid on which ``there(round)`` says which nodes are connected; rounds count from 1.

    Parameters
    ----------
    place : folders of the owners, named by partition.
    partitions : that of each node, counted from 0.
    announced : ``num-partitions`` of all node configs, more where a partition is beyond it; by
        default as many as nodes.
    there : nodes, counted from 0.
    forgets : ``(round, node)``: the node has lost its memory since the round before.
    fails : ``(round, node)``: its reply to training is an error.
    silent : ``(round, node)``: it hears what it is sent, and says nothing.
    lost : ``(node, times)``: the SuperLink has lost it, and says so of its first messages.
    registered : nodes with a name at the SuperLink.
    heard : ``(phase or "train", node)`` of every message, in order, and by round.
    bounds : seconds that replies were waited for, by round and phase.
    """

    def __init__(
        self,
        grid: Grid,
        place: Path,
        *,
        partitions: Collection[int],
        announced: int = 0,
        there: Callable[[int], Collection[int]],
        forgets: Collection[tuple[int, int]] = (),
        fails: Collection[tuple[int, int]] = (),
        silent: Collection[tuple[int, int]] = (),
        lost: Collection[tuple[int, int]] = (),
        registered: Collection[int] = (),
    ) -> None:
        super().__init__(grid, [])
        announced = announced or len(partitions)
        assert isinstance(grid, InProcessGrid)
        self._inner, self._there, self._forgets, self._fails = grid, there, forgets, fails
        self._silent, self._registered = silent, registered
        self._lost = dict(lost)
        self.round = 1
        self.heard: dict[int, list[tuple[str, int]]] = {}
        self.bounds: dict[tuple[int, str], float | None] = {}
        self.told: list[Message] = []
        template = next(iter(grid.contexts.values()))
        grid.contexts.clear()
        for node, partition in enumerate(partitions):
            config = {"partition-id": partition, "num-partitions": max(announced, partition + 1)}
            allowed = {**EVERYTHING_ALLOWED, "allow-methods": template.run_config["method"]}
            grid.contexts[FIRST_NODE_ID + node] = Context(
                run_id=0,
                node_id=FIRST_NODE_ID + node,
                node_config={**config, **allowed, "data": str(place / str(partition))},
                state=RecordDict(),
                run_config=dict(template.run_config),
            )

    def get_node_ids(self) -> Iterable[int]:
        return [FIRST_NODE_ID + node for node in self._there(self.round)]

    def get_nodes(self) -> Iterable[NodeInfo]:
        for node in self.get_node_ids():
            number = node - FIRST_NODE_ID
            yield NodeInfo(node_id=node, name=f"owner-{number}" * (number in self._registered))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent, replies = list(messages), []
        for message in sent:
            node = message.metadata.dst_node_id - FIRST_NODE_ID
            assert node in self._there(self.round), "nobody sends to a node that is gone"
            if (self.round, node) in self._forgets and not self._asked(node):
                self._inner.contexts[FIRST_NODE_ID + node].state = RecordDict()
            self.told.append(message)
            self.heard.setdefault(self.round, []).append((self._name(message), node))
            self.bounds[self.round, self._name(message)] = timeout
            if (self.round, node) in self._silent:
                continue
            replies += self._inner.send_and_receive([message], timeout=timeout)
            if self._lost.get(node):
                self._lost[node] -= 1
                replies[-1] = as_error(replies[-1], "lost", ErrorCode.NODE_UNAVAILABLE)
            if self._name(message) == "train" and (self.round, node) in self._fails:
                replies[-1] = as_error(replies[-1], "no connection")
        if sent and self._name(sent[0]) == "train":
            self.round += 1
        return replies

    @property
    def contexts(self) -> dict[int, Context]:
        """What each node has, by its number."""
        return {node - FIRST_NODE_ID: context for node, context in self._inner.contexts.items()}

    def asked(self, round: int, phase: str) -> list[int]:
        """Nodes that heard ``phase`` in a round."""
        return sorted(node for name, node in self.heard.get(round, []) if name == phase)

    def _asked(self, node: int) -> bool:
        return any(node == other for _, other in self.heard.get(self.round, []))

    @staticmethod
    def _name(message: Message) -> str:
        return phase_of(message) or message.metadata.message_type


def run_fleet(config: RunConfig, place: Path, **fleet: Any) -> tuple[Path, Flock]:
    """Run with the nodes of a :class:`Flock`; results, and the grid with what was heard."""
    flocks: list[Flock] = []

    def wrap(grid: Grid) -> Grid:
        flocks.append(Flock(grid, place, **fleet))
        return flocks[-1]

    return train(config, 1, wrap_grid=wrap), flocks[-1]
