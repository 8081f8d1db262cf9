"""``fedul-flwr deploy init``: what it writes, prints and refuses."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.deploy import init
from fedul_flwr.deploy.certificates import Address, make_node_key, parse_address, parse_listen
from fedul_flwr.deploy.status import NONE, rows
from fedul_flwr.secure.identities import read_identities
from tests.support.refusals import code_of, refuses

ADDRESS = ["--address", "fl.example.org"]
TWO = ["--owners", "2"]
OWNER = {
    *(".dockerignore", "Dockerfile", "compose.yaml"),
    *("README.md", "ca.pem", "fedul-supernode.service", "node.env", "node.key", "node.pub"),
    *("check-data.sh", "start-supernode.sh", "owners.pub"),
    *("flower/.keep", "labels/.keep", "log/.keep", ".gitignore"),
}


def run(folder: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["deploy", "init", str(folder), *options])


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_given_any_umask_then_modes_are_those_of_secrets_scripts_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    before = os.umask(0)
    try:
        run(folder, *ADDRESS, *TWO)
    finally:
        os.umask(before)
    for path in [folder, *folder.rglob("*")]:
        of_file = {".key": 0o600, ".sh": 0o755}.get(path.suffix, 0o644)
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else of_file), path


def test_given_owners_and_hosts_then_folders_and_certificate_are_shown(tmp_path: Path) -> None:
    owners = ("--owner", "St.-Mary_2", "--owner", "b")
    done = run(tmp_path / "c d", *ADDRESS, *owners, "--also", "192.0.2.7", "--days", "1")
    assert "Client 0: owners/St.-Mary_2/\nClient 1: owners/b/\n" in done.output
    start = (tmp_path / "c d/owners/b/start-supernode.sh").read_text()
    assert "partition-id=1 log=" in start  # how many there are, the server's list says
    assert (tmp_path / "c d/server/owners.txt").read_text() == "0 St.-Mary_2\n1 b\n"
    assert "fl.example.org:8000, listens at 0.0.0.0:8000\n" in done.output
    hosts = "fl.example.org, 192.0.2.7, 127.0.0.1, ::1, localhost"
    certificate = x509.load_pem_x509_certificate((tmp_path / "c d/server/server.pem").read_bytes())
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    valid = f"valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
    assert f"Certificate for {hosts}: {valid}\n" in done.output
    # A day, and the hour before for clocks that are late.
    assert (end - begin).total_seconds() == 25 * 3600
    assert f"mkdir -p ~/.flwr && '{tmp_path}/c d/server/connection.sh' >>~/.flwr/" in done.output
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    found = list(map(str, names.get_values_for_type(x509.IPAddress)))
    assert found == ["192.0.2.7", "127.0.0.1", "::1"]


def test_given_another_address_to_listen_at_then_owners_do_not_see_it(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    done = run(folder, *ADDRESS, *TWO, "--listen", "10.0.0.7:8001")
    assert "fl.example.org:8000, listens at 10.0.0.7:8001\n" in done.stdout
    # Owners check the certificate by the first of these, the server's own programs by the last.
    assert "for fl.example.org, 127.0.0.1, ::1, localhost, 10.0.0.7: valid" in done.stdout
    assert "--host 10.0.0.7 --port 8001" in (folder / "server/start-superlink.sh").read_text()
    assert '"10.0.0.7:8001"' in (folder / "server/connection.sh").read_text()
    assert 'NO_PROXY="10.0.0.7,localhost,' in (folder / "server/start-superlink.sh").read_text()
    start = (folder / "owners/owner-0/start-supernode.sh").read_text()
    assert "--superlink fl.example.org:8000 " in start
    for text in (start, (folder / "owners/owner-0/README.md").read_text()):
        assert "10.0.0.7" not in text


def test_an_owner_with_a_key_of_its_own(tmp_path: Path) -> None:
    public = make_node_key("somebody@somewhere")[1]
    (tmp_path / "own.pub").write_bytes(public)
    done = run(tmp_path / "c", *ADDRESS, *TWO, "--public-key", f"owner-1={tmp_path / 'own.pub'}")
    assert done.exit_code == 0, done.output
    assert files(tmp_path / "c/owners/owner-1") == OWNER - {"node.key"}
    assert files(tmp_path / "c/owners/owner-0") == OWNER
    # The comment may say who made the key on which machine.
    kept = (tmp_path / "c/server/owners/owner-1.pub").read_bytes()
    assert kept.split() == public.split()[:2]
    assert "private key" in (tmp_path / "c/owners/owner-1/README.md").read_text()
    # The key that the owner has made is the one that the others know.
    others = read_identities(str(tmp_path / "c/owners/owner-0"), 0)
    assert others is not None
    assert others.owners[1] == load_ssh_public_key(public)


def test_the_server_and_owners_know_the_public_keys_of_all(written: Callable[..., Path]) -> None:
    place = written()
    folders = [place / "owners" / f"owner-{number}" for number in range(2)]
    lists = [(folder / "owners.pub").read_text() for folder in folders]
    assert lists[0] == lists[1]
    keys = [(folder / "node.pub").read_text().split()[:2] for folder in folders]
    assert [line.split() for line in lists[0].splitlines()] == [
        ["0", *keys[0], "owner-0"],
        ["1", *keys[1], "owner-1"],
    ]
    for number, folder in enumerate(folders):
        private = load_ssh_private_key((folder / "node.key").read_bytes(), None)
        at_server = try_load_public_key(place / "server" / "owners" / f"owner-{number}.pub")
        assert at_server == public_key_to_bytes(private.public_key())  # type: ignore[arg-type]
        read = read_identities(str(folder), number)
        assert read is not None
        assert [*read.owners] == [0, 1]


def refused(folder: Path, *options: str) -> str:
    """The message, of one line, with nothing left behind."""
    before = files(folder.parent)
    done = run(folder, *options)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert files(folder.parent) == before
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    return str(done.stderr)


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (TWO, "option-missing", "--address"),
        (["--address", "a:0", *TWO], "address-wrong", "65535"),
        ([*ADDRESS, *TWO, "--listen", "b"], "address-wrong", "--listen 'b'"),
        ([*ADDRESS, *TWO, "--also", "*"], "address-wrong", "--also '*'"),
        ([*ADDRESS, *TWO, "--owner", "a"], "options-contradict", "--owners"),
        ([*ADDRESS, "--owners", "1001"], "option-not-allowed", "1001"),
        ([*ADDRESS, "--owner", "a", "--owner", "A"], "name-twice", "--owner 'A'"),
        *(
            ([*ADDRESS, "--owner", name], "option-not-allowed", f"--owner {name!r}")
            for name in ("", "..", "a/b", "-a", ".a", "a$b", "ä", "a" * 65, "a\n")
        ),
        ([*ADDRESS, *TWO, "--days", "0"], "option-not-allowed", "--days 0"),
        ([*ADDRESS, *TWO, "--insecure", "--also", "b"], "options-contradict", "--insecure"),
        ([*ADDRESS, *TWO, "--public-key", "c=x"], "unknown-name", "c=x"),
        ([*ADDRESS, *TWO, "--public-key", "owner-0=/absent"], "file-not-readable", "/absent"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: list[str], code: str, named: str) -> None:
    said = refused(tmp_path / "c", *options)
    assert (code_of(said), named in said) == (code, True)


def test_given_a_private_key_or_one_key_twice_then_it_is_refused(tmp_path: Path) -> None:
    private, public = make_node_key("a")
    (tmp_path / "a").write_bytes(private)
    (tmp_path / "a.pub").write_bytes(public)
    (tmp_path / "copy.pub").write_bytes(public.replace(b" a\n", b" copy\n"))

    def with_keys(*keys: str) -> str:
        named = [word for key in keys for word in ("--public-key", f"owner-{key}")]
        return refused(tmp_path / "c", *ADDRESS, *TWO, *named)

    a, copy = tmp_path / "a.pub", tmp_path / "copy.pub"
    assert code_of(with_keys(f"0={tmp_path / 'a'}")) == "key-file-wrong"
    assert "owner-0=" in (said := with_keys(f"0={a}", f"0={copy}"))
    assert code_of(said) == "name-twice"
    assert code_of(with_keys(f"0={a}", f"1={copy}")) == "name-twice"


def test_given_a_checkout_then_git_sees_nothing_of_a_consortium(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    run(tmp_path / "c", *ADDRESS, *TWO)
    shutil.copytree(tmp_path / "c/owners/owner-0", tmp_path / "ours")  # an owner's, in its own
    seen = ["git", "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.check_output(seen, cwd=tmp_path) == b""


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine").touch()
    for folder, code in (
        (tmp_path / "c", "file-exists"),
        (tmp_path / "c" / "mine", "file-exists"),
        (tmp_path / "c" / "mine" / "new", "file-not-writable"),
    ):
        assert code_of(refused(folder, *ADDRESS, *TWO)) == code


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def write(root: Path, file: Any) -> None:
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        original(root, file)
        written.append(file.path)

    original = init.write_file
    monkeypatch.setattr(init, "write_file", write)
    assert code_of(refused(tmp_path / "c", *ADDRESS, *TWO)) == "file-not-writable"
    assert list(tmp_path.iterdir()) == []
    assert len(written) == 5


@pytest.mark.parametrize(
    ("text", "host", "port", "listening"),
    [
        ("fl.example.org", "fl.example.org", 8000, "0.0.0.0"),
        ("server:65535", "server", 65535, "0.0.0.0"),
        ("192.0.2.7:9000", "192.0.2.7", 9000, "0.0.0.0"),
        ("[2001:db8::7]", "2001:db8::7", 8000, "::"),
        ("[2001:db8::7]:9000", "2001:db8::7", 9000, "::"),
        # Whoever is on the same machine alone.
        ("localhost:9000", "localhost", 9000, "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2", 8000, "127.0.0.2"),
        ("[::1]:9000", "::1", 9000, "::1"),
    ],
)
def test_addresses(text: str, host: str, port: int, listening: str) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert address.listening == Address(listening, port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "listening", "local"),
    [
        ("127.0.0.1:8001", "127.0.0.1:8001", "127.0.0.1:8001"),
        ("10.0.0.7:1", "10.0.0.7:1", "10.0.0.7:1"),
        # All addresses, which the server itself calls by loopback.
        ("0.0.0.0:8001", "0.0.0.0:8001", "127.0.0.1:8001"),
        ("[0:0::0]:8001", "[::]:8001", "[::1]:8001"),
    ],
)
def test_where_a_server_listens(text: str, listening: str, local: str) -> None:
    address = parse_listen(text)
    assert (str(address), str(address.local)) == (listening, local)


@pytest.mark.parametrize("text", ["2001:db8::1:8000", "2001:db8::7", "::1", "::ffff:1.2.3.4"])
@pytest.mark.parametrize("option", ["--address", "--listen", "--metrics"])
def test_an_ipv6_address_needs_brackets_because_its_end_may_be_a_port(
    text: str, option: str
) -> None:
    with refuses("address-wrong", match=r"\[2001:db8::1\]:8000", option=option):
        parse_address(text) if option == "--address" else parse_listen(text, option)


OWNERS = {"st-mary": 0, "north": 1, "late": 2, "new": 3, "gone": 4}
LISTED = [
    {"node-id": "70", "status": "online", "online-at": "2026-11-23 10:00:00Z", "offline-at": "N/A"},
    {"node-id": "71", "status": "offline", "online-at": "9", "offline-at": "2026-11-23 11:00:00Z"},
    {"node-id": "72", "status": "registered", "online-at": "N/A", "offline-at": "N/A"},
    {"node-id": "80", "status": "online", "online-at": "2026-11-23 12:00:00Z", "offline-at": "N/A"},
    {"node-id": "81", "status": "unregistered", "online-at": "N/A", "offline-at": "N/A"},
]


def test_given_owners_and_nodes_then_every_owner_has_a_row_and_strange_nodes_follow() -> None:
    nodes = {"st-mary": "70", "north": "71", "late": "72", "gone": "81"}  # 81 was unregistered
    assert rows(OWNERS, nodes, LISTED) == [
        ("0", "st-mary", "70", "online", "2026-11-23 10:00:00Z"),
        ("1", "north", "71", "offline", "2026-11-23 11:00:00Z"),
        ("2", "late", "72", "registered, never connected", NONE),
        ("3", "new", NONE, "not registered", NONE),
        ("4", "gone", "81", "not registered", NONE),
        (NONE, NONE, "80", "online", "2026-11-23 12:00:00Z"),
    ]
