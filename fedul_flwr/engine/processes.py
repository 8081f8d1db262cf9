"""Runs the server app in this process, and the client app in a pool of processes beside it.

Start-up is most of what a short simulation takes. The pool's processes are forks of one that loads
torch and the client app while this one loads the data, and share its memory. The pool is
:mod:`multiprocessing`'s fork server: it is in the standard library, forks from a process that runs
nothing else, and tells of each process when it ends, so that one that was killed costs one message.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Error, Message

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.cores import refuse_cpus, usable_cpus
from fedul_flwr.engine.in_process import LocalGrid, task_identity
from fedul_flwr.engine.shell import fork_server, load_early, plain_log, started_apart
from fedul_flwr.engine.transfer import Packed, pack
from fedul_flwr.errors import UserError
from fedul_flwr.federated.flower_internals import ErrorCode
from fedul_flwr.federated.messages import Spool

if TYPE_CHECKING:
    from fedul_flwr.run.callbacks import Callback

_GPUS = "CUDA_VISIBLE_DEVICES"


class ProcessGrid(LocalGrid):
    """A grid that answers messages in several processes at a time; a context manager.

    A process that ends is replaced, and its message gets an error reply.

    Parameters
    ----------
    num_supernodes, run_config : see :class:`LocalGrid`.
    environments : changed environment variables of each process; one process for each.
    cores : cores that the clients of a round share out, see :func:`shares_of_cores`; with 0 every
        client computes with as many threads as its settings say.
    """

    def __init__(
        self,
        num_supernodes: int,
        run_config: dict[str, Any],
        environments: Sequence[dict[str, str]],
        cores: int = 0,
    ) -> None:
        super().__init__(num_supernodes, run_config)
        self._cores = cores
        self._contexts: dict[int, bytes] = {}  # contexts of clients that have answered
        self._idle: list[_Worker] = []
        self._missing = list(environments[:num_supernodes])  # of processes that are to be started

    def __enter__(self) -> ProcessGrid:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._idle:
            worker.end(patience=0.0)

    def answer(self, messages: Sequence[Message], timeout: float | None) -> list[Message]:
        """Replies in the order of ``messages``.

        Messages that are not answered within ``timeout`` seconds get none, and their processes end.
        """
        end = None if timeout is None else time.monotonic() + timeout
        processes = len(self._idle) + len(self._missing)  # none is busy yet
        threads = shares_of_cores(len(messages), processes, self._cores)
        waiting = deque(zip(range(len(messages)), messages, threads, strict=True))
        contents = _Contents(messages)
        busy: dict[_Worker, int] = {}
        replies: dict[int, Message] = {}
        spool = Spool()
        try:
            while waiting or busy:
                self._order(waiting, contents, busy)
                left = None if end is None else max(0.0, end - time.monotonic())
                ready = wait_for([worker.connection for worker in busy], left)
                if not ready:
                    break  # the time is up
                for worker in [worker for worker in busy if worker.connection in ready]:
                    number = busy.pop(worker)
                    answer = self._collect(worker, messages[number])
                    self._order(waiting, contents, busy)  # it computes while its answer is read
                    if isinstance(answer, Message):
                        replies[number] = answer
                        continue
                    reply, trace = answer.open()
                    replies[number] = spool.add(reply)
                    self.log_once(trace)
        finally:
            for worker in busy:
                self._missing.append(worker.environment)
                worker.end(patience=0.0)
        return [replies[number] for number in sorted(replies)]

    def _order(
        self,
        waiting: deque[tuple[int, Message, int]],
        contents: _Contents,
        busy: dict[_Worker, int],
    ) -> None:
        """Give messages that are waiting to processes that have none."""
        while waiting and (self._idle or self._missing):
            number, message, threads = waiting.popleft()
            worker = self._idle.pop() if self._idle else _Worker(self._missing.pop())
            busy[worker] = number
            node = message.metadata.dst_node_id
            state = self._contexts.get(node) or pickle.dumps(self.contexts[node], protocol=5)
            worker.order(contents.take(message), message.metadata, state, threads)

    def _collect(self, worker: _Worker, message: Message) -> Packed | Message:
        """The answer of ``worker``, not read yet, or an error reply if its process has ended."""
        try:
            answer, state = worker.answer()
        except (EOFError, OSError):
            self._missing.append(worker.environment)
            code = worker.end()
            how = f"Its process ended with exit code {code}."
            if code is not None and code < 0:
                how = f"Its process was killed by signal {-code}, perhaps for want of memory."
            return Message(Error(ErrorCode.CLIENT_APP_CRASHED, how), reply_to=message)
        self._idle.append(worker)
        self._contexts[message.metadata.dst_node_id] = state
        return answer


class _Contents:
    """Contents of messages as bytes; one that several messages share is packed once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._left = Counter(id(message.content) for message in messages)
        self._packed: dict[int, Packed] = {}

    def take(self, message: Message) -> Packed:
        """Content of the next message to be sent."""
        key = id(message.content)
        packed = self._packed.pop(key, None) or pack(message.content)
        self._left[key] -= 1
        if self._left[key]:
            self._packed[key] = packed
        return packed


@dataclass(eq=False)
class _Worker:
    """One process of the pool, with changes to its environment."""

    environment: dict[str, str]

    def __post_init__(self) -> None:
        self.connection, other = multiprocessing.Pipe()
        arguments = (other, str(Path.cwd()), {**os.environ, **self.environment})
        with started_apart():
            self.process: BaseProcess = fork_server().Process(
                target=_serve, args=arguments, daemon=True, name="fedul-client"
            )
            self.process.start()
        other.close()

    def order(self, content: Packed, metadata: Any, state: bytes, threads: int) -> None:
        """Send a message with its client's pickled context and number of threads."""
        with suppress(ConnectionError):  # it has ended: nobody answers, which tells the same
            content.send(self.connection)
            self.connection.send((metadata, state, threads))

    def answer(self) -> tuple[Packed, bytes]:
        """The reply with a traceback or an empty string, and the client's pickled context."""
        return Packed.receive(self.connection), self.connection.recv_bytes()

    def end(self, patience: float = 0.2) -> int | None:
        """End the process; its exit code, negative for a signal.

        Parameters
        ----------
        patience : seconds to wait for the exit code of one that has ended by itself.
        """
        self.connection.close()
        self.process.join(patience)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        self.process.close()
        return code


def _serve(connection: Connection, folder: str, environment: dict[str, str]) -> None:
    from fedul_flwr.engine.worker import serve  # loaded in the fork server, not in this process

    serve(connection, folder, environment)


def shares_of_cores(messages: int, processes: int, cores: int) -> list[int]:
    """Threads for the client of each message: the cores, by the clients that compute with it.

    Messages are answered in turns of ``processes``; the last turn may have fewer, which get more
    threads each. The numbers do not depend on how fast anything runs, so a run can be repeated.

    Parameters
    ----------
    cores : all cores of the clients; 0 gives 0 for each, which leaves their threads as they are.
    """
    sizes = [
        min(processes, messages - number // processes * processes) for number in range(messages)
    ]
    return [max(1, cores // size) if cores else 0 for size in sizes]


def worker_environments(client_cpus: int, client_gpus: float) -> list[dict[str, str]]:
    """Environment variables of each process that fits on this machine.

    Parameters
    ----------
    client_cpus : cores of a process.
    client_gpus : GPUs of a process, or share of one; with 0 it sees none, as on Ray.
    """
    refuse_cpus(client_cpus)
    most = usable_cpus() // client_cpus
    if not client_gpus:
        return [{_GPUS: ""}] * most
    import torch

    names = os.environ.get(_GPUS, "").split(",")[: torch.cuda.device_count()]
    if names == [""]:
        names = [str(number) for number in range(torch.cuda.device_count())]
    each = max(1, math.ceil(client_gpus))
    groups = [names[start : start + each] for start in range(0, len(names) - each + 1, each)]
    if not groups:
        raise UserError(
            f"client GPUs is {client_gpus}; this machine has {len(names)}.", "machine-too-small"
        )
    slots = groups * max(1, int(1 / client_gpus))
    return [{_GPUS: ",".join(group)} for group in slots[:most]]


def run_in_processes(
    settings: RunConfig,
    num_supernodes: int,
    client_cpus: int = 1,
    client_gpus: float = 0.0,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Run the app in this process and a pool beside it.

    Parameters
    ----------
    settings : resolved settings; results are written to ``settings.output``.
    num_supernodes : number of clients.
    client_cpus, client_gpus : see :func:`worker_environments`.
    callbacks : look at each round, see :mod:`fedul_flwr.run.callbacks`.
    """
    environments = worker_environments(client_cpus, client_gpus)
    load_early()
    from fedul_flwr.server_app import serve

    plain_log()
    cores = 0 if settings.client_threads else usable_cpus()
    with (
        task_identity(),
        ProcessGrid(num_supernodes, settings.to_flat(), environments, cores) as grid,
    ):
        serve(grid, settings, callbacks)
