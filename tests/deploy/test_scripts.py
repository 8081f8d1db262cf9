"""The scripts as they run, with programs in Flower's place that say how they were called."""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from flwr.common.config import parse_config_args
from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode
from typer.testing import CliRunner

from fedul_flwr.cli.main import app

PROGRAM = """#!/bin/sh
echo "in $PWD; bytecode ${PYTHONDONTWRITEBYTECODE-yes}; home $FLWR_HOME; around $NO_PROXY"
echo "telemetry $FLWR_TELEMETRY_ENABLED; every ${FLWR_SUPEREXEC_TASK_POLL_INTERVAL-second}"
for argument; do echo "<$argument>"; done
exit 7
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """An environment of Python with Flower's programs."""
    (tmp_path / "my venv" / "bin").mkdir(parents=True)
    program = tmp_path / "my venv" / "bin" / "fedul-flwr"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return tmp_path / "my venv"


@pytest.fixture(scope="module")
def secure(written: Callable[..., Path]) -> Path:
    return written()


@pytest.fixture(scope="module")
def plain(written: Callable[..., Path]) -> Path:
    return written("--insecure")


def fill(file: Path, **values: object) -> None:
    """Write values between quotes, as an owner does."""
    names = re.findall("(?m)^([A-Z_]+)='.*'$", file.read_text())
    assert set(values) <= set(names)
    texts = {name: str(values.get(name, "")).replace("'", r"'\''") for name in names}
    file.write_text("".join(f"{name}='{text}'\n" for name, text in texts.items()))


def run(
    script: Path, *words: str, umask: int = -1, **environment: str
) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run(
        [script, *words], cwd="/", env=env, umask=umask, capture_output=True, text=True, check=False
    )


def arguments(done: subprocess.CompletedProcess[str], program: str) -> list[str]:
    """What Flower's program is told."""
    words = all_arguments(done)
    assert words[:3] == ["deploy", "start", program]
    at = words.index("--log-format")
    assert words[at + 1] in ("text", "json")
    return words[3:at] + words[at + 2 :]


def all_arguments(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 7, done.stderr  # of the program itself
    return [line[1:-1] for line in done.stdout.splitlines() if line.startswith("<")]


WRITING = """#!/bin/sh
mkdir -p "$OUT" && echo secret > "$OUT/written"
exit 7
"""


@pytest.mark.parametrize(
    "script",
    [
        "server/start-superlink.sh",
        "owners/owner-1/start-supernode.sh",
        "owners/owner-1/check-data.sh",
    ],
)
def test_given_any_umask_then_nobody_else_reads_what_scripts_and_their_programs_write(
    written: Callable[..., Path], tmp_path: Path, programs: Path, script: str
) -> None:
    started = written() / script
    folder = started.parent
    (programs / "bin" / "fedul-flwr").write_text(WRITING)
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    if script.startswith("server"):
        fill(folder / "server.env", VENV=programs)
    else:
        fill(folder / "node.env", VENV=programs, DATA=tmp_path, PORT=9094)
    out = folder / "of-the-program"
    done = run(started, umask=0, OUT=str(out))
    assert done.returncode == 7, done.stderr
    made = [file for file in folder.rglob("*") if file not in before]
    assert out / "written" in made
    for file in made:
        assert file.stat().st_mode & 0o077 == 0, file


def test_given_tls_then_flower_reads_what_a_superlink_is_told(secure: Path, programs: Path) -> None:
    server = secure / "server"
    fill(server / "server.env", VENV=programs)
    done = run(server / "start-superlink.sh", NO_PROXY="10.0.0.1")
    parsed = _parse_args_run_superlink().parse_args(arguments(done, "superlink"))
    assert (parsed.host, parsed.port) == ("127.0.0.1", 9123)
    assert (parsed.insecure, parsed.enable_supernode_auth) == (False, True)
    for name, value in (("ca", "ssl_ca_certfile"), ("server", "ssl_certfile")):
        assert getattr(parsed, value) == str(server / f"{name}.pem")
    assert parsed.ssl_keyfile == str(server / "server.key")
    assert parsed.database == str(server / "state" / "superlink.db")
    assert parsed.log_file == str(server / "log" / "superlink.log")
    assert not parsed.runtime_dependency_install
    assert done.stdout.startswith(
        f"in {server}; bytecode yes; home {server}/flower; "
        "around 127.0.0.1,localhost,10.0.0.1\ntelemetry 0; every second\n"
    )


def test_a_supernodes_options_and_data_check(secure: Path, programs: Path, tmp_path: Path) -> None:
    owner, data = secure / "owners" / "owner-1", tmp_path / "it's data=of $HOME, a `ward`"
    data.mkdir()
    fill(owner / "node.env", VENV=programs, DATA=data, LABELS=tmp_path / "l.csv", PORT=9095)
    done = run(owner / "start-supernode.sh")
    parsed = _parse_args_run_supernode().parse_args(arguments(done, "supernode"))
    assert (parsed.superlink, parsed.port) == ("localhost:9123", 9095)
    assert parsed.root_certificates == str(owner / "ca.pem")
    assert parsed.auth_supernode_private_key == str(owner / "node.key")
    assert not parsed.insecure
    assert parse_config_args([parsed.node_config]) == {
        **{"data": str(data), "labels": str(tmp_path / "l.csv")},
        **{"partition-id": 1, "log": str(owner / "log" / "messages.csv")},
        "identity": str(owner),
    }
    assert "bytecode yes; " in done.stdout
    assert "every 0.2\n" in done.stdout
    slower = run(owner / "start-supernode.sh", FLWR_SUPEREXEC_TASK_POLL_INTERVAL="1")
    assert "every 1\n" in slower.stdout
    checked = all_arguments(run(owner / "check-data.sh"))
    assert checked[:3] == ["deploy", "check", "--node-config"]
    assert checked[3] == parsed.node_config  # data are checked as they would be used


def test_given_no_tls_then_both_know_and_warn(plain: Path, programs: Path, tmp_path: Path) -> None:
    fill(plain / "server/server.env", VENV=programs)
    server = run(plain / "server/start-superlink.sh")
    parsed = _parse_args_run_superlink().parse_args(arguments(server, "superlink"))
    told = (parsed.insecure, parsed.enable_supernode_auth, parsed.ssl_certfile)
    assert told == (True, False, None)
    fill(plain / "owners/owner-0/node.env", VENV=programs, DATA=tmp_path, PORT=9094)
    node = run(plain / "owners/owner-0/start-supernode.sh")
    named = _parse_args_run_supernode().parse_args(arguments(node, "supernode"))
    assert (named.insecure, named.root_certificates) == (True, None)
    for done in (server, node):
        assert done.stderr.startswith("WARNING: without encryption and authentication")


def refused(script: Path, *words: str, **environment: str) -> str:
    done = run(script, *words, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"DATA": ""}, "DATA in {owner}/node.env is empty"),
        ({"DATA": "ward"}, "ward in {owner}/node.env is no absolute path"),
        (
            {"DATA": r"/a\new"},
            r'Flower cannot pass on a path with " or \: /a\new in {owner}/node.env',
        ),
        ({"PORT": "80a"}, "PORT = 80a in {owner}/node.env must be a number"),
        ({"VENV": "/absent"}, "fedul-flwr was not found: name the environment"),
    ],
)
def test_what_an_owner_has_to_put_right(
    secure: Path, programs: Path, values: Mapping[str, str], words: str
) -> None:
    owner = secure / "owners" / "owner-0"
    fill(owner / "node.env", **{"VENV": str(programs), "DATA": "/", "PORT": "9094", **values})
    assert words.format(owner=owner) in refused(owner / "start-supernode.sh", PATH="/usr/bin:/bin")


def assert_holds_no_settings(folders: Iterable[Path]) -> None:
    """Folders that a run's programs can write to have no settings, keys and scripts."""
    for folder in folders:
        assert folder.is_dir()
        kinds = {path.suffix for path in folder.rglob("*")}
        assert not kinds & {".env", ".key", ".pem", ".sh", ".service", ".yaml", ".txt"}


@pytest.mark.parametrize(
    ("address", "reached"), [("10.1.2.3", "localhost 10.1.2.3"), ("fl.example.org", "localhost")]
)
def test_given_an_address_then_a_unit_has_it(tmp_path: Path, address: str, reached: str) -> None:
    words = ["deploy", "init", str(tmp_path / "c"), "--address", address, "--owners", "1"]
    assert CliRunner().invoke(app, words).exit_code == 0
    unit = (tmp_path / "c/owners/owner-0/fedul-supernode.service").read_text().splitlines()
    assert [line for line in unit if line.startswith("IPAddress")] == [
        "IPAddressDeny=any",
        f"IPAddressAllow={reached}",
    ]


def test_units_and_containers(secure: Path, plain: Path) -> None:
    for folder in (secure, plain):
        for unit in folder.rglob("*.service"):
            parser = ConfigParser(interpolation=None)
            parser.optionxform = str  # type: ignore[assignment]
            parser.read(unit)
            assert parser.sections() == ["Unit", "Service", "Install"]
            shell, script = parser["Service"]["ExecStart"].split(" ")
            name = "server" if "superlink" in unit.name else unit.parent.name
            assert shell == "/bin/sh"
            assert Path(script).parent == Path("/opt/fedul") / name
            assert (unit.parent / Path(script).name).is_file()
            assert parser["Service"]["ProtectSystem"] == "strict"
            writable = [Path(path) for path in parser["Service"]["ReadWritePaths"].split(" ")]
            assert {path.parent for path in writable} == {Path("/opt/fedul") / name}
            assert_holds_no_settings(unit.parent / path.name for path in writable)
            assert ("IPAddressDeny" in parser["Service"]) == ("supernode" in unit.name)
        for compose in folder.rglob("compose.yaml"):
            ((_, service),) = yaml.safe_load(compose.read_text())["services"].items()
            (command,) = service["command"]
            assert (compose.parent / Path(command).name).is_file()
            assert service["volumes"][0] == ".:/consortium:ro"
            mounted = [text.split(":") for text in service["volumes"][1:] if text[0] == "."]
            assert all(len(parts) == 2 for parts in mounted)
            folders = [compose.parent / source for source, _ in mounted]
            # Public keys and node ids of owners: deploy register writes there.
            assert_holds_no_settings(path for path in folders if path.name != "owners")
            # No key may get into an image, and no fedul-flwr but the wheel beside the file.
            ignored = (compose.parent / ".dockerignore").read_text().split()
            assert ignored == ["*", "!fedul_flwr-*.whl"]
