"""Running federations in tests, and looking at what they leave behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from safetensors.numpy import load_file

from fedul_flwr.config import RunConfig
from fedul_flwr.simulation import run_in_process
from strategies.grid_view import GridView

TIMES = ("seconds", "seconds_fit", "seconds_evaluation")


def train(settings: RunConfig, clients: int, **options: Any) -> Path:
    """Run in process; returns the directory of results."""
    run_in_process(settings, clients, **options)
    return Path(settings.output)


def last_model(directory: Path) -> dict[str, Any]:
    return load_file(directory / "last.safetensors")


def metrics(directory: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl without what the clock decides."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in line if key not in TIMES} for line in lines]


def summary(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return found


class MeddlingGrid(GridView):
    """A grid whose replies ``meddle(call, replies)`` may change; calls are counted from 0."""

    def __init__(self, grid: Grid, meddle: Callable[[int, list[Message]], list[Message]]) -> None:
        super().__init__(grid, [])
        self._inner, self._meddle, self._calls = grid, meddle, -1

    def get_node_ids(self) -> Iterable[int]:
        return self._inner.get_node_ids()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        if not sent:
            return []
        self._calls += 1
        return self._meddle(self._calls, list(self._inner.send_and_receive(sent, timeout=timeout)))


def is_train(replies: list[Message]) -> bool:
    return bool(replies) and replies[0].metadata.message_type == "train"


def as_error(reply: Message, reason: str) -> Message:
    """The reply a node gives whose client raised."""
    error = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=reply)
    error.metadata.__dict__["_src_node_id"] = reply.metadata.src_node_id
    return error
