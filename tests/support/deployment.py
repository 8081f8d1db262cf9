"""A consortium on this machine: what ``deploy init`` writes, started by its own scripts."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedul_flwr.deploy.init import CONNECTION, Options, plan, write
from fedul_flwr.engine.flower_run import app_directory
from fedul_flwr.engine.flower_simulation import MARK, PREFIX, end_marked
from tests.support.patience import quiet_seconds, wait_for_end

PROGRAMS = Path(sys.executable).parent

Process = subprocess.Popen[bytes]


@dataclass
class Deployment:
    """A SuperLink with TLS and SuperNodes with keys, each with a log in ``place``.

    Attributes
    ----------
    place : directory that runs are submitted from.
    files : working folder of the consortium.
    environment : of all processes.
    ports : that the SuperLink and the owners' SuperNodes use.
    processes : by name of their log; those of SuperNodes are called ``node-0`` and so on.
    """

    place: Path
    files: Path
    environment: Mapping[str, str]
    ports: Sequence[int]
    processes: dict[str, Process] = field(default_factory=dict)

    def owner(self, client: int) -> Path:
        """Folder of an owner."""
        return self.files / "owners" / f"owner-{client}"

    def start_superlink(self) -> None:
        """Start the SuperLink, perhaps once more, and wait until it answers."""
        self._start("superlink", [self.files / "server" / "start-superlink.sh"])
        self.wait_for("superlink", "Uvicorn running on https")

    def register(self) -> str:
        """Register the owners' keys; what the command says."""
        return self.manage("register", self.files)

    def manage(self, *words: object) -> str:
        """What ``fedul-flwr deploy`` says, which ends with 0."""
        done = self._start("manage", [PROGRAMS / "fedul-flwr", "deploy", *words])
        assert wait_for_end(done) == 0, self.said("manage")
        return self.said("manage")

    def start_node(
        self,
        client: int,
        data: Path,
        labels: Path | None = None,
        venv: Path = PROGRAMS.parent,
        limits: str = "",
        **env: str,
    ) -> None:
        """Start an owner's SuperNode on ``data``, perhaps once more, with more environment."""
        folder = self.owner(client)
        limits = f"allow-known-seed=true min-labeled-clients=1 {limits}"
        values = {"DATA": data, "LABELS": labels or "", "PORT": self.ports[1 + client]}
        values["LIMITS"] = limits
        write_settings(folder / "node.env", {**values, "VENV": venv})
        self._start(f"node-{client}", [folder / "start-supernode.sh"], env)

    def node_id(self, client: int) -> int:
        """What the SuperLink calls a SuperNode, once it is connected."""
        return int(self.wait_for(f"node-{client}", r"SuperNode ID: (\d+)\n")[1])

    def kill(self, name: str) -> None:
        """End a program as a failing machine does, and it alone."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop_nodes(self) -> None:
        """End all SuperNodes in order."""
        nodes = [name for name in self.processes if name.startswith("node-")]
        for name in nodes:
            self.processes[name].terminate()
        for name in nodes:
            wait_for_end(self.processes.pop(name))

    def submit(self, config: str, app: Path | None = None, name: str = "run") -> Process:
        """Start a run of the app; the process ends with the run."""
        options = [CONNECTION, "--stream", "-c", config]
        return self._start(name, [PROGRAMS / "flwr", "run", app or app_directory(), *options])

    def wait(self, run: Process, name: str = "run") -> str:
        """What a run has said when it has ended."""
        wait_for_end(run, progress=self._written)
        return self.said(name)

    def said(self, name: str) -> str:
        """The log of a program."""
        return (self.place / f"{name}.log").read_text()

    def wait_for(self, name: str, pattern: str) -> re.Match[str]:
        """Where a program has said what it is waited for; one that has ended says nothing more."""
        for _ in quiet_seconds(progress=self._written):
            has_ended = self.processes[name].poll() is not None
            if found := re.search(pattern, self.said(name), re.DOTALL):
                return found
            if has_ended:
                break
        raise AssertionError(f"{name}: {self.said(name)}")

    def wait_for_messages(self, client: int, count: int) -> None:
        """Wait until a SuperNode has received ``count`` messages, hello not counted.

        The server says hello to the node with the lowest id.
        """
        nodes = [name for name in self.processes if name.startswith("node-")]
        ids = {name: self.node_id(int(name.removeprefix("node-"))) for name in nodes}
        name = f"node-{client}"
        hello = ids[name] == min(ids.values())
        self.wait_for(name, "Received successfully.*" * (count + hello))

    def _written(self) -> int:
        """Bytes in the logs of all programs."""
        return sum(log.stat().st_size for log in self.place.glob("*.log"))

    def _start(self, name: str, command: Sequence[Any], env: Mapping[str, str] = {}) -> Process:
        with (self.place / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                list(map(str, command)),
                cwd=self.place,
                env={**self.environment, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self.processes[name]


@contextmanager
def consortium(place: Path, owners: int) -> Iterator[Deployment]:
    """What ``deploy init`` writes, with the SuperLink running and the owners registered.

    At the end everything that was started ends, too.
    """
    ports = free_ports(2 + owners)  # one for an owner who comes later
    files = place / "consortium"
    write(plan(Options(f"127.0.0.1:{ports[0]}", owners, [], [], [], 1)), files)
    write_settings(files / "server" / "server.env", {"VENV": PROGRAMS.parent})
    home = place / f"{PREFIX}home"
    home.mkdir()
    script, settings = files / "server" / "connection.sh", {**os.environ, "FLWR_HOME": str(home)}
    entry = subprocess.run([script], capture_output=True, check=True, env=settings)
    (home / "config.toml").write_bytes(entry.stdout)
    environment = {
        **os.environ,
        **{MARK: str(home), "FLWR_HOME": str(home), "NO_PROXY": "127.0.0.1"},
        **{"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
        **{"PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]), "OMP_NUM_THREADS": "1"},
    }
    deployment = Deployment(place, files, environment, ports)
    with ExitStack() as stack:
        stack.callback(end_marked, home)
        deployment.start_superlink()
        deployment.register()
        yield deployment


def write_settings(file: Path, values: Mapping[str, Any]) -> None:
    """Fill in an ``.env`` file as its owner does: each of ``values`` is there and changes."""
    text = file.read_text()
    for key, value in values.items():
        text, count = re.subn(rf"(?m)^{key}='.*'$", f"{key}='{value}'", text)
        assert count == 1, key
    file.write_text(text)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, all different."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
