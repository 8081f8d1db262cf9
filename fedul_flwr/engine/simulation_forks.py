"""The process from which a SuperLink's simulations and Ray's workers are forked.

Loading Flower, Ray and torch in one program after the other, and Ray's own start, were most of the
time from the command to the first round. Here a fork of the SuperLink loads Flower and torch once,
while the SuperLink starts and the command checks the run, and Ray starts beside it. Simulations,
Flower's SuperExec, which orders them, and Ray's workers are forks of that process.
Each run has a Ray of its own, as where Flower starts it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fedul_flwr.engine.early_ray import start_ray, use_ray
from fedul_flwr.engine.flower_commands import answer_orders
from fedul_flwr.engine.program_forks import MAY_LOAD_MUCH, forget_app, forked, load_program
from fedul_flwr.engine.superlink_environment import COMMANDS_LOG

_SIMULATION, _SUPEREXEC = "flwr-simulation", "flower-superexec"


def load_superlink(address: str, home: Path, orders: socket.socket) -> Callable[[], Any]:
    """Load the program ``flower-superlink``, and fork the process that starts what it needs.

    That process ends with this one. Call this function before there is a second thread.

    Parameters
    ----------
    address : ``host:port`` of the SuperLink that this process will be.
    home : folder of this user's alone, for a socket and the log of commands.
    orders : gives commands of the program ``flwr``, which a further fork runs.
    """
    ray = start_ray(orders)
    program, superlink = load_program("flower-superlink"), os.getpid()
    if forked("flwr", ray):
        errors = os.open(home / COMMANDS_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 2)
        answer_orders(orders)
        os._exit(0)
    orders.close()
    ended, lives = os.pipe()
    if not os.fork():
        os.close(lives)
        _prepare(address, superlink, ended, str(home / "workers"), ray)
    os.close(ended)  # `lives` stays open as long as this process
    ray.close()
    return program


def _prepare(address: str, superlink: int, ended: int, place: str, ray: socket.socket) -> NoReturn:
    """Load what simulations and workers need, start the SuperExec, and :func:`_serve`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    workers = socket.socket(socket.AF_UNIX)
    Path(place).unlink(missing_ok=True)  # of a SuperLink whose port was taken
    workers.bind(place)
    workers.listen()
    simulation, superexec = load_program(_SIMULATION), load_program(_SUPEREXEC)
    if MAY_LOAD_MUCH:
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401  what simulations and workers import longest
    gc.freeze()  # forks share what is loaded
    while not _answers(address):
        if select.select([ended], [], [], 0.05)[0]:
            os._exit(0)
    orders, other = socket.socketpair()
    if forked(_SUPEREXEC, orders, workers, ray):
        if MAY_LOAD_MUCH:
            _order_simulations(other)
        at = ["--runtime-api-address", address, "--parent-pid", str(superlink)]
        _become(superexec, [_SUPEREXEC, "--insecure", *at])
    other.close()
    _serve(simulation, ended, orders, workers, ray)


def _serve(
    simulation: Callable[[], Any],
    ended: int,
    orders: socket.socket,
    workers: socket.socket,
    ray: socket.socket,
) -> NoReturn:
    """Fork simulations that are ordered and workers that are asked for, until the SuperLink ends.

    Parameters
    ----------
    ended : can be read once the SuperLink has ended.
    orders, workers : give arguments of simulations, and connections of workers.
    ray : of the first simulation.
    """
    first: socket.socket | None = ray
    sources: list[Any] = [ended, orders, workers]
    while ended not in (ready := select.select(sources, [], [])[0]):
        if workers in ready:
            connection, _ = workers.accept()
            if forked("ray-worker", orders, workers, *filter(None, [first])):
                _run_worker(connection)
            connection.close()
        if orders in ready:
            if not (lines := orders.recv(65536)):
                break
            for order in lines.splitlines():
                ray, first = first or start_ray(orders, workers), None
                place = workers.getsockname()
                if forked(_SIMULATION, orders, workers):
                    use_ray(ray, place)
                    _become(simulation, json.loads(order))
                ray.close()
    os._exit(0)


def _become(program: Callable[[], Any], arguments: list[str]) -> NoReturn:
    """Go on as one of Flower's programs, to the end of this process."""
    forget_app()
    sys.argv = arguments
    sys.exit(program())


def _answers(address: str) -> bool:
    """Whether something listens there."""
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def _order_simulations(orders: socket.socket) -> None:
    """Let this process order simulations where Flower would start a program."""
    start = subprocess.Popen

    def order(arguments: list[str], **options: Any) -> Any:
        if arguments[0] == _SIMULATION:
            with contextlib.suppress(OSError):  # the process that forks was killed
                return orders.sendall(json.dumps(arguments).encode() + b"\n")
        return start(arguments, **options)

    setattr(subprocess, "Popen", order)  # noqa: B010


def _run_worker(connection: socket.socket) -> NoReturn:
    """Run the program that a :mod:`fedul_flwr.engine.ray_worker` asks for."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("r", encoding="utf-8") as text:
        arguments, folder, environment = json.loads(text.readline())
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    connection.sendall(b".")
    os.chdir(folder)
    # Differences alone: Ray finds the memory of a process's name by that of the first variables.
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment.items() - os.environ.items())
    # An empty entry would be the working folder, whose files would shadow modules.
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    forget_app()
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")
    sys.exit()  # which closes the connection
