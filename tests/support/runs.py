"""Running federations in tests, and looking at what they leave behind."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from safetensors.numpy import load_file

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.engine.in_process import run_in_process
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.owner.door import build_client, make_client_app
from tests.support.message_log import logged

TIMES = ("seconds", "seconds_fit", "seconds_waiting", "seconds_evaluation")


def train(
    settings: RunConfig, clients: int, message_log: Path | None = None, **options: Any
) -> Path:
    """Run in process, with its messages recorded; returns the directory of results."""
    if message_log is not None:
        options["wrap_grid"] = lambda grid: logged(grid, message_log)
    run_in_process(settings, clients, **options)
    return Path(settings.output)


class Cut(BaseException):
    """Stands for whatever interrupts a run, as Ctrl-C does."""


def cut_off(settings: RunConfig, clients: int, call: int) -> Path:
    """Run until the replies to a call to the clients, counted from 0, are lost with the server."""

    def cut(number: int, replies: list[Message]) -> list[Message]:
        if number == call:
            raise Cut
        return replies

    with pytest.raises(Cut):
        train(settings, clients, wrap_grid=lambda grid: MeddlingGrid(grid, cut))
    return Path(settings.output)


def resume(directory: Path, clients: int, **overrides: Any) -> Path:
    """Go on with a run that was cut off."""
    return train(resolve({"resume": str(directory), **overrides}, Path.cwd()), clients)


def assert_same_run(one: Path, other: Path) -> None:
    """Rounds have equal metrics, and the last models equal bits."""
    assert metrics(one) == metrics(other)
    assert_same_arrays(last_model(one), last_model(other))


def same(one: Path, other: Path) -> bool:
    """Whether two runs end with the same model, bit for bit."""
    first, second = last_model(one), last_model(other)
    return first.keys() == second.keys() and all(
        array.tobytes() == second[name].tobytes() for name, array in first.items()
    )


def assert_same_arrays(some: dict[str, Any], others: dict[str, Any]) -> None:
    """Names and values are equal."""
    assert some.keys() == others.keys()
    for name, array in some.items():
        np.testing.assert_array_equal(array, others[name])


def last_model(directory: Path) -> dict[str, Any]:
    return load_file(directory / "last.safetensors")


def metrics_and_times(directory: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl."""
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def metrics(directory: Path) -> list[dict[str, Any]]:
    """The same without what the clock decides."""
    lines = metrics_and_times(directory)
    return [{key: line[key] for key in line if key not in TIMES} for line in lines]


def summary(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return found


EVERYTHING_ALLOWED = {
    **{"allow-plaintext": True, "allow-known-seed": True, "allow-priors": True},
    "allow-column-means": True,
    "min-labeled-clients": 1,
}
"""Limits of an owner who allows what the built-in methods can be told to do."""


def own_data_app(folders: Sequence[Path], **config: str | bool) -> ClientApp:
    """The client app of nodes whose node config names their own data.

    Further keys of the node config may say ``{client}`` where the number goes.
    """

    def build(context: Context) -> Client:
        client = int(cast(int, context.node_config["partition-id"]))
        named = {
            key: value.format(client=client) if isinstance(value, str) else value
            for key, value in config.items()
        }
        context.node_config |= {"data": str(folders[client]), **EVERYTHING_ALLOWED, **named}
        return build_client(context)

    return make_client_app(build)


class MeddlingGrid(GridProxy):
    """A grid whose replies ``meddle(call, replies)`` may change; calls are counted from 0."""

    def __init__(self, grid: Grid, meddle: Callable[[int, list[Message]], list[Message]]) -> None:
        super().__init__(grid)
        self._meddle, self._calls = meddle, -1

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        if not sent:
            return []
        self._calls += 1
        return self._meddle(self._calls, list(super().send_and_receive(sent, timeout=timeout)))


def is_train(replies: list[Message]) -> bool:
    return bool(replies) and replies[0].metadata.message_type == "train"


def as_error(
    reply: Message, reason: str, code: int = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
) -> Message:
    """The reply a node gives whose client raised, or an error of another ``code``."""
    error = Message(Error(code, reason), reply_to=reply)
    error.metadata.__dict__["_src_node_id"] = reply.metadata.src_node_id
    return error
