"""Rounds of FedAvg as a plain loop: no Flower, no messages, weights in shared memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from multiprocessing.synchronize import Barrier
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from flwr.common import NDArrays
from torch import Tensor, nn

from benchmarks import reference_loop
from benchmarks.clients import fresh_weights, prepared_clients
from fedul_flwr.baselines.supervised import LabeledData
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.federated.client import Client
from fedul_flwr.learning.batches import gather, to_input
from fedul_flwr.learning.local import dump_arrays, load_arrays

Fit = Callable[[Client, NDArrays, int], NDArrays]
"""``(client, start, round) -> trained weights``."""

_fit: Callable[[tuple[int, int]], None]
"""In a process that trains clients: the task of one client in one round."""


class PlainRounds:
    """Rounds of all clients, each assigned to the next free process.

    Parameters
    ----------
    kind : a key of :data:`KINDS`.
    settings : the clients' settings.
    num_clients : number of clients; all take part in every round.
    processes, threads : number of processes that train clients, and threads of each.
    """

    def __init__(
        self, kind: str, settings: RunConfig, num_clients: int, processes: int, threads: int
    ) -> None:
        self._clients = num_clients
        self._round = 0
        weights = fresh_weights(settings)
        self._start = [torch.from_numpy(array).share_memory_() for array in weights]
        self._trained = [
            torch.zeros(num_clients, *array.shape, dtype=array.dtype).share_memory_()
            for array in self._start
        ]
        context = torch.multiprocessing.get_context("spawn")
        ready = context.Barrier(processes + 1)
        task = (kind, settings.to_flat(), num_clients, threads, self._start, self._trained, ready)
        self._pool = context.Pool(processes, _open, task)
        ready.wait(timeout=300)  # timing starts when all data are loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.terminate()
        self._pool.join()

    @property
    def weights(self) -> NDArrays:
        """Mean of the weights after the last round."""
        return [array.numpy() for array in self._start]

    def seconds(self, rounds: int) -> list[float]:
        """Seconds of each of the next ``rounds``: training, and averaging the weights."""
        taken = []
        for _ in range(rounds):
            self._round += 1
            began = time.perf_counter()
            tasks = [(client, self._round) for client in range(self._clients)]
            self._pool.map(_run, tasks, chunksize=1)
            for start, trained in zip(self._start, self._trained, strict=True):
                start.copy_(trained.double().mean(dim=0))
            taken.append(time.perf_counter() - began)
        return taken


def _open(
    kind: str,
    flat: Mapping[str, Any],
    num_clients: int,
    threads: int,
    start: list[Tensor],
    trained: list[Tensor],
    ready: Barrier,
) -> None:
    """Prepare this process for training clients."""
    global _fit
    torch.set_num_threads(threads)
    settings = parse_flat({**flat, "client-threads": threads})
    try:
        clients = prepared_clients(settings, num_clients)
        if kind == "image by image":  # for the others a whole round is short enough as warm-up
            fit_image_by_image(clients[0], [array.numpy() for array in start], 0)
    except BaseException:
        ready.abort()  # otherwise the pool would retry forever
        raise

    def fit(task: tuple[int, int]) -> None:
        client, number = task
        weights = KINDS[kind](clients[client], [array.numpy().copy() for array in start], number)
        for place, array in zip(trained, weights, strict=True):
            place[client].copy_(torch.from_numpy(np.asarray(array)))

    _fit = fit
    ready.wait()


def _run(task: tuple[int, int]) -> None:
    _fit(task)


def fit_ours(client: Client, start: NDArrays, number: int) -> NDArrays:
    """The client's own round."""
    parameters = dict(zip(client.array_names(), start, strict=True))
    return [*client.train(parameters, {"server-round": number})["arrays"].values()]


def fit_image_by_image(client: Client, start: NDArrays, number: int) -> NDArrays:
    """FedUL's round in a straightforward way, in float32; round 0 has only a few steps."""
    assert isinstance(client, FedULClient)
    sets = client.data.sets
    count = len(sets.points) if number else 3 * reference_loop.BATCH_SIZE
    priors, sizes = torch.from_numpy(sets.priors), torch.from_numpy(sets.set_sizes)
    loss = reference_loop.SurrogateLoss(priors, sizes)
    model = _loaded(client, start)
    reference_loop.train(model, sets.inputs, sets.points[:count], sets.sets[:count], loss)
    return list(dump_arrays(model).values())


def fit_tensors(client: Client, start: NDArrays, number: int) -> NDArrays:
    """A supervised round in float32, with images that are already tensors in memory."""
    del number
    inputs, labels = client_tensors(client)
    batch = client.settings.batch_size
    model = _loaded(client, start)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=client.settings.learning_rate)
    for rows in torch.randperm(len(inputs)).split(batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return list(dump_arrays(model).values())


def client_tensors(client: Client) -> tuple[Tensor, Tensor]:
    """Inputs ``(n, c, h, w)`` and targets ``(n,)`` of a client, computed once and cached."""
    kept: tuple[Tensor, Tensor] | None = getattr(client, "tensors", None)
    if kept is None:
        assert isinstance(client.data, LabeledData)
        data = client.data.examples
        inputs = to_input(gather(data.inputs, data.points)).contiguous()
        kept = inputs, torch.from_numpy(data.labels)
        client.tensors = kept  # type: ignore[attr-defined]
    return kept


def _loaded(client: Client, start: NDArrays) -> nn.Module:
    load_arrays(client.model, dict(zip(client.array_names(), start, strict=True)))
    return client.model


KINDS: dict[str, Fit] = {
    "ours": fit_ours,
    "image by image": fit_image_by_image,
    "tensors": fit_tensors,
}
