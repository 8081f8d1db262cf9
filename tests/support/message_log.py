"""Message logs: all messages of a simulation, to check what the server and clients saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr.data.types import Value
from fedul_flwr.engine.in_process import InProcessGrid
from fedul_flwr.federated.messages import phase_of

TO_CLIENT, TO_SERVER = "to client", "to server"


@dataclass(frozen=True)
class RecordedArray:
    """An array of a message, with the bytes that were sent, in NumPy's ``.npy`` format."""

    record: str
    name: str
    data: bytes

    def numpy(self) -> NDArray[Any]:
        return np.asarray(np.load(BytesIO(self.data)))


@dataclass(frozen=True)
class Recorded:
    """A message; ``error`` says why a client failed, in place of content."""

    direction: str
    client: int
    type: str
    phase: str | None
    values: dict[str, dict[str, Value]]
    arrays: Sequence[RecordedArray]
    error: str | None


def recorded(direction: str, client: int, phase: str | None, message: Message) -> Recorded:
    content = RecordDict() if message.has_error() else message.content
    numbers = {**content.config_records, **content.metric_records}
    values = {name: cast(dict[str, Value], dict(record)) for name, record in numbers.items()}
    arrays = [
        RecordedArray(record, name, bytes(array.data))
        for record, of in content.array_records.items()
        for name, array in of.items()
    ]
    error = message.error.reason if message.has_error() else None
    kind = message.metadata.message_type
    return Recorded(direction, client, kind, phase, values, arrays, error)


_LOGS: dict[Path, list[Recorded]] = {}


def logged(grid: Grid, name: Path) -> Grid:
    """``grid``, whose messages are recorded under a name; clients' state is not sent."""
    log, inner = _LOGS.setdefault(name, []), cast(InProcessGrid, grid)
    plain = inner._answer

    def reply(message: Message) -> Message:
        context = inner.contexts[message.metadata.dst_node_id]
        client, phase = int(cast(int, context.node_config["partition-id"])), phase_of(message)
        log.append(recorded(TO_CLIENT, client, phase, message))
        answer = plain(message)
        log.append(recorded(TO_SERVER, client, phase, answer))
        return answer

    vars(grid)["_answer"] = reply
    return grid


def read_message_log(name: Path) -> list[Recorded]:
    """Messages in the order in which they were sent."""
    return _LOGS[name]
