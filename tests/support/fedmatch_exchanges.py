"""What FedMatch's server and its clients send each other, and clients that drop out and in."""

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from safetensors.numpy import load_file
from torch import nn

from fedul_flwr.arrays import Arrays
from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.federated.grid import SampledGrid
from fedul_flwr.federated.messages import BASE_ROUND, EXCHANGED, payload_bytes, to_arrays
from fedul_flwr.learning.parts import Parts, unflatten
from fedul_flwr.strategies.fedmatch_parts import ROUNDS
from tests.support.runs import as_error

Fate = Literal["answers", "fails", "lost", "late"]
"""What becomes of a message: an answer, a failure before training, an answer whose delivery fails,
or one that does not come in time."""

LC: dict[str, Any] = {
    **{"method": "fedmatch", "model": "mlp", "num_rounds": 3, "local_epochs": 1},
    **{"points_per_client": 60, "labels.total": 60, "precision": "float32"},
    **{"batch_size": 5, "ssl.unlabeled-batch-size": 20, "optimizer": "sgd"},
    **{"learning_rate": 0.02, "fedmatch.threshold": 0.3, "fedmatch.helper-interval": 2},
}
"""A short run with labels at clients in which every part of FedMatch has something to do."""
LS: dict[str, Any] = {
    **{key: value for key, value in LC.items() if key != "labels.total"},
    **{"scenario.labels-at": "server", "server_fraction": 0.03},
}
"""The same with labels at the server."""
SCENARIOS = {"at clients": LC, "at server": LS}
TINY = "tests.support.fedmatch_exchanges:tiny"
"""A model with batch norm that takes no time."""


def tiny(input_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    height, width, channels = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * height * width, num_classes),
        nn.BatchNorm1d(num_classes),
    )


@dataclass
class Exchange:
    """A message of a round and its answer, as they travelled.

    Attributes
    ----------
    down, up : arrays by the name of their record; ``up`` is empty without an answer.
    bytes_down, bytes_up : of the whole payload.
    config, metrics : values of the message, and of the answer.
    """

    round: int
    client: int
    down: dict[str, Arrays]
    config: dict[str, Any]
    bytes_down: int
    up: dict[str, Arrays] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    bytes_up: int = 0


class WatchedGrid(SampledGrid):
    """A grid that keeps what travels in rounds, and on which some messages get no answer.

    Parameters
    ----------
    exchanges : what travelled is added to it, in the order of rounds and clients.
    fate : ``(round, client) -> Fate``; called before the message is delivered.
    meddle : may change an answer in place, once it is written down.
    """

    def __init__(
        self,
        grid: Grid,
        exchanges: list[Exchange],
        fate: Callable[[int, int], Fate] = lambda round, client: "answers",
        meddle: Callable[[Exchange, Message], None] = lambda exchange, reply: None,
    ) -> None:
        super().__init__(grid, [])
        self._inner, self._exchanges, self._fate, self._meddle = grid, exchanges, fate, meddle

    def get_node_ids(self) -> Iterable[int]:
        return self._inner.get_node_ids()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies: list[Message] = []
        for message in messages:
            if message.metadata.message_type == "train":
                replies += self._deliver(message)
            else:
                replies += self._inner.send_and_receive([message], timeout=timeout)
        return replies

    def _deliver(self, message: Message) -> list[Message]:
        client, config = _client_of(message), dict(message.content.config_records["config"])
        down, size = _arrays_of(message.content), payload_bytes(message.content)
        exchange = Exchange(int(config["server-round"]), client, down, config, size)
        # Flower asks clients in an order of its own.
        bisect.insort(self._exchanges, exchange, key=lambda other: (other.round, other.client))
        fate = self._fate(exchange.round, client)
        if fate == "fails":
            error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no battery")
            return [Message(error, reply_to=message)]
        (reply,) = self._inner.send_and_receive([message])
        if fate == "late":
            return []
        if fate == "lost":
            return [as_error(reply, "no connection")]
        if not reply.has_error():
            exchange.up, exchange.bytes_up = _arrays_of(reply.content), payload_bytes(reply.content)
            exchange.metrics = dict(reply.content.metric_records["metrics"])
            self._meddle(exchange, reply)
        return [reply]


def watched(exchanges: list[Exchange], **options: Any) -> dict[str, Any]:
    """Options of :func:`tests.support.runs.train`; see :class:`WatchedGrid`."""
    return {"wrap_grid": lambda grid: WatchedGrid(grid, exchanges, **options)}


def _client_of(message: Message) -> int:
    return message.metadata.dst_node_id - FIRST_NODE_ID


def _arrays_of(content: RecordDict) -> dict[str, Arrays]:
    return {name: to_arrays(record) for name, record in content.array_records.items()}


def held_by_server(directory: Path, server_round: int) -> dict[int, Arrays]:
    """Flat parts that a server takes its clients to hold after a round."""
    rounds = _rounds(directory, server_round)
    folder = directory / "held"
    return {
        client: load_file(folder / str(client) / f"{EXCHANGED}-{number}.safetensors")
        for client, number in rounds.tolist()
    }


def parts_after(directory: Path, server_round: int) -> Parts:
    """The server's parts at the end of a round."""
    state = load_file(directory / f"state-{server_round}.safetensors")
    return unflatten(
        {
            name.removeprefix("parts/"): array
            for name, array in state.items()
            if name.startswith("parts/")
        }
    )


def assert_in_step(directory: Path, server_round: int) -> set[int]:
    """See that clients hold bit for bit what the server says after a round; returns who does."""
    rounds = dict(_rounds(directory, server_round).tolist())
    for client, held in held_by_server(directory, server_round).items():
        folder = directory / "clients" / str(client)
        own = load_file(folder / f"{EXCHANGED}-{rounds[client]}.safetensors")
        assert int(own.pop(BASE_ROUND)) == rounds[client]
        assert own.keys() == held.keys()
        for name, array in own.items():
            assert array.dtype == held[name].dtype
            assert array.tobytes() == held[name].tobytes(), name
        assert np.isfinite(np.concatenate([np.ravel(array) for array in own.values()])).all()
    return set(rounds)


def _rounds(directory: Path, server_round: int) -> Any:
    """Clients and the rounds of their last exchanges, in the state of a run."""
    state = load_file(directory / f"state-{server_round}.safetensors")
    return next(array for name, array in state.items() if name.endswith(f"/{ROUNDS}"))
