"""Owners with identities in one process, and a server that lies to them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.messages import ARRAYS, phase_of
from fedul_flwr.federated.owner.door import build_client, make_client_app
from fedul_flwr.federated.sums.server import SecureSums
from tests.support.identities import identities, write_identity
from tests.support.learnable_owners import NO_DATA, write_labeled

LIMITS: dict[str, str | bool | int | float] = {"require-secure-sum": True, "min-labeled-clients": 3}
SUMMED: dict[str, Any] = {
    **{"method": "labels-only", "model": "mlp", "num_rounds": 1, "precision": "float32"},
    **{"selection": "last", "secure_sum": "on", **NO_DATA},
}

Change = Callable[[str, int, Message], object]
Vector = NDArray[np.float64]


class Owners:
    """Owners' folders and identities; what their honest clients compute is seen here alone.

    Attributes
    ----------
    updates : true updates as one vector, in the order of training, by round and client.
    """

    def __init__(
        self,
        root: Path,
        count: int,
        write: Callable[[Path, int], object] = write_labeled,
        **limits: str | bool | float,
    ) -> None:
        self.root, self.limits = root, {**LIMITS, **limits}
        self.updates: dict[tuple[int, int], list[Vector]] = {}
        self.folders = []
        for number, one in identities(range(count)).items():
            write_identity(root / "keys" / f"{number}", one)
            folder = root / "owners" / f"{number}"
            write(folder, number)
            self.folders.append(folder)
        self.app = make_client_app(self._build)

    def _build(self, context: Context) -> Client[Any]:
        client = int(str(context.node_config["partition-id"]))
        own = {"data": str(self.folders[client]), "identity": str(self.root / "keys" / str(client))}
        context.node_config |= {**own, **self.limits}
        built = build_client(context)
        honest = built.train

        def train(arrays: Any, config: Mapping[str, Any], received: Any = None) -> Any:
            start = {name: np.array(array, np.float64) for name, array in arrays.items()}
            update = honest(arrays, config, received)
            change = joined({name: update[ARRAYS][name] - start[name] for name in start})
            self.updates.setdefault((int(config["server-round"]), client), []).append(change)
            return update

        built.train = train  # type: ignore[method-assign]
        return built


def joined(arrays: Mapping[str, Any]) -> Vector:
    """All arrays as one vector, in the order of their names."""
    return np.concatenate([np.asarray(arrays[name], np.float64).ravel() for name in sorted(arrays)])


def cosine(one: Vector, other: Vector) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


class LyingGrid(GridProxy):
    """``change(phase or type, client, message)`` may alter a message before it goes out.

    Attributes
    ----------
    asked : phase or type and client of each message.
    start : the model of the first training message.
    """

    def __init__(self, grid: Grid, change: Change = lambda *_: None) -> None:
        super().__init__(grid)
        self._change = change
        self.asked: list[tuple[str, int]] = []
        self.start: dict[str, Any] = {}

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        for message in sent:
            kind = phase_of(message) or message.metadata.message_type
            client = message.metadata.dst_node_id - FIRST_NODE_ID
            self._change(kind, client, message)
            self.asked.append((kind, client))
            if kind == "train" and not self.start:
                record = message.content.array_records[ARRAYS]
                self.start = {name: array.numpy() for name, array in record.items()}
        return super().send_and_receive(sent, timeout=timeout)


def opened_sums(monkeypatch: Any) -> list[tuple[list[int], Vector]]:
    """The server's sums of updates, with those who are in them, as they are opened from now on."""
    sums: list[tuple[list[int], Vector]] = []
    honest = SecureSums._opened

    def opened(self: SecureSums, vectors: Any, tail: Any) -> Any:
        found = honest(self, vectors, tail)
        if hasattr(self, "_layout") and len(found.words) == self._layout.size:
            changes, _ = self._layout.read(found.words, self._summands)
            sums.append((found.survivors, joined({name: v for (_, name), v in changes.items()})))
        return found

    monkeypatch.setattr(SecureSums, "_opened", opened)
    return sums
