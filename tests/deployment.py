"""A SuperLink and SuperNodes on this machine, as of data owners who work together."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedul_flwr.app_bundle import app_directory
from fedul_flwr.process_tree import MARK, PREFIX, end_superlink

PROGRAMS = Path(sys.executable).parent
START_SECONDS, RUN_SECONDS = 120.0, 900.0

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Deployment:
    """Programs that run, each with a log in ``place``.

    Attributes
    ----------
    place : directory that runs are submitted from.
    environment : of all processes.
    nodes : the SuperNode of each client.
    ids : what the SuperLink calls them.
    """

    place: Path
    environment: Mapping[str, str]
    nodes: Mapping[int, Process]
    ids: Mapping[int, int]

    def submit(self, config: str) -> Process:
        """Start a run of the app; the process ends with the run."""
        command = [PROGRAMS / "flwr", "run", app_directory(), "--stream", "-c", config]
        return start(command, "run", self.place, self.environment)

    def wait(self, run: Process) -> str:
        """What a run has said when it has ended."""
        run.wait(RUN_SECONDS)
        return (self.place / "run.log").read_text()

    def wait_for_messages(self, client: int, count: int) -> None:
        """Wait until a SuperNode has received ``count`` messages, hello not counted.

        The server says hello to the node with the lowest id.
        """
        hello = self.ids[client] == min(self.ids.values())
        received = "Received successfully.*" * (count + hello)
        wait_for(received, self.place / f"node-{client}.log", RUN_SECONDS)


@contextmanager
def deployed(place: Path, node_configs: Mapping[int, str]) -> Iterator[Deployment]:
    """Start a SuperLink and a SuperNode for each client; end all that they started, too."""
    home = place / f"{PREFIX}home"
    home.mkdir()
    link, *ports = (str(port) for port in free_ports(1 + len(node_configs)))
    address = f"127.0.0.1:{link}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{address}"\n'
        "insecure = true\n"
    )
    environment = {
        **os.environ,
        **{MARK: str(home), "FLWR_HOME": str(home), "NO_PROXY": "127.0.0.1"},
        **{"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
        **{"PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]), "OMP_NUM_THREADS": "1"},
    }
    # Every message has a process, which would compile the app anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    serve = ["flower-superlink", "--insecure", "--disable-runtime-dependency-installation"]
    join = ["flower-supernode", "--insecure", "--superlink", address]
    with ExitStack() as stack:
        stack.callback(end_superlink, home)
        start([*serve, "--port", link], "superlink", place, environment)
        nodes = {
            client: start(
                [*join, "--port", port, "--node-config", config],
                f"node-{client}",
                place,
                environment,
            )
            for port, (client, config) in zip(ports, node_configs.items(), strict=True)
        }
        registered = r"SuperNode ID: (\d+)\n"
        ids = {
            client: int(wait_for(registered, place / f"node-{client}.log", START_SECONDS)[1])
            for client in nodes
        }
        yield Deployment(place, environment, nodes, ids)


def start(
    command: list[str | Path], name: str, place: Path, environment: Mapping[str, str]
) -> Process:
    """A program of Flower with a log in ``place``."""
    program, *arguments = command
    with (place / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [PROGRAMS / program, *arguments],
            cwd=place,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def wait_for(pattern: str, log: Path, seconds: float) -> re.Match[str]:
    """Where a program has said what it is waited for."""
    deadline = time.monotonic() + seconds
    while not (found := re.search(pattern, log.read_text(), re.DOTALL)):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, all different."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
