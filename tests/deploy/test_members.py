"""Owners who come and go, new keys and certificates, a backup: all but the SuperLink is real."""

import json
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.deploy import members, status
from fedul_flwr.deploy.certificates import key_pem, make_node_key
from fedul_flwr.errors import UserError
from fedul_flwr.federated.nodes import read_owners
from fedul_flwr.secure.identities import read_identities
from tests.support.refusals import code_of


class SuperLink:
    """What Flower's does with keys: it never takes one twice."""

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[str, str, str]] = {}
        self.is_down = False

    @contextmanager
    def connected(self, _server: Path) -> Iterator["SuperLink"]:
        yield self

    def ask(self, *words: str) -> dict[str, Any]:
        if self.is_down:
            raise UserError("no connection", "flower-failed")
        match words:
            case (_, "list", _):
                listed = ((str(number), state) for number, (_, _, state) in self.nodes.items())
                return {"nodes": [{"node-id": number, "status": state} for number, state in listed]}
            case (_, "register", file, _, "--name", name):
                key = Path(file).read_text()
                if key in {known for _, known, _ in self.nodes.values()}:
                    raise UserError("Public key already in use.", "flower-failed")
                self.nodes[100 + len(self.nodes)] = (name, key, "registered")
                return {"node-id": str(99 + len(self.nodes))}
            case (_, "unregister", node, _):
                self.nodes[int(node)] = (*self.nodes[int(node)][:2], "unregistered")
        return {}

    @property
    def registered(self) -> list[str]:
        return [name for name, _, state in self.nodes.values() if state == "registered"]


@pytest.fixture
def superlink(monkeypatch: pytest.MonkeyPatch) -> SuperLink:
    made = SuperLink()
    for module in (members, status):
        monkeypatch.setattr(module, "connected", made.connected)
    return made


@pytest.fixture
def folder(written: Callable[..., Path], superlink: SuperLink) -> Path:
    root = written("--also", "192.0.2.7", "--method", "fedul")
    assert said("register", root) == "owner-0: registered\nowner-1: registered\n"
    return root


def said(*words: object) -> str:
    done = CliRunner().invoke(app, ["deploy", *map(str, words)])
    assert done.exit_code == 0, done.output
    return str(done.output)


def refused(*words: object) -> str:
    done = CliRunner().invoke(app, ["deploy", *map(str, words)])
    assert done.exit_code == 1, done.output
    return code_of(done.stderr)


def listed(root: Path) -> dict[str, int]:
    return read_owners(root / "server" / "owners.txt")


def known_to(root: Path, name: str) -> list[int]:
    """Numbers of the owners whose keys an owner's machine takes; its own key must be among them."""
    read = read_identities(str(root / "owners" / name), listed(root)[name])
    assert read is not None
    return list(read.owners)


def test_given_a_new_owner_then_all_know_it_and_numbers_are_never_used_twice(
    folder: Path, superlink: SuperLink
) -> None:
    out = said("add", folder, "east")
    assert "east: registered\n" in out
    assert "owner-0: registered before\n" in out
    assert superlink.registered == ["owner-0", "owner-1", "east"]
    assert listed(folder) == {"owner-0": 0, "owner-1": 1, "east": 2}
    assert known_to(folder, "east") == known_to(folder, "owner-0") == [0, 1, 2]
    east = folder / "owners" / "east"
    assert {f.name for f in east.iterdir()} == {
        f.name for f in (folder / "owners/owner-0").iterdir()
    }
    assert "partition-id=2 " in (east / "start-supernode.sh").read_text()
    assert 'allow-methods="fedul"' in (east / "node.env").read_text()
    said("remove", folder, "east")
    (east).rename(folder / "old")
    public = folder / "own.pub"
    public.write_bytes(make_node_key("somebody")[1])
    said("add", folder, "east", "--public-key", public)
    assert listed(folder) == {"owner-0": 0, "owner-1": 1, "east": 3}
    assert not (east / "node.key").exists()
    assert len((folder / "owners/owner-0/owners.pub").read_text().splitlines()) == 3


def test_given_an_owner_that_leaves_then_nobody_takes_its_key(
    folder: Path, superlink: SuperLink
) -> None:
    assert "owner-1: node 101 unregistered\n" in said("remove", folder, "owner-1")
    assert superlink.registered == ["owner-0"]
    assert (listed(folder), known_to(folder, "owner-0")) == ({"owner-0": 0}, [0])
    assert "# 1 owner-1, until 20" in (folder / "server/owners.txt").read_text()
    assert refused("remove", folder, "owner-1") == "unknown-name"
    assert refused("remove", folder, "owner-0") == "too-few-clients"


def test_given_a_superlink_that_died_then_status_says_how_to_resume_its_run(
    folder: Path, superlink: SuperLink
) -> None:
    run = {"directory": "runs/first", "rounds": 9, "state": "training", "process": [0, 0.0]}
    (folder / "server/state/run.json").write_text(json.dumps(run))
    superlink.is_down = True
    done = CliRunner().invoke(app, ["deploy", "status", str(folder)])
    assert code_of(done.stderr) == "flower-failed"
    assert "Run runs/first: died, 0 of 9 rounds" in done.stdout
    assert "--resume runs/first continues it." in done.stdout
    assert "Certificate of the server: valid from" in done.stdout


def test_given_a_lost_database_then_keys_are_registered_again_and_burnt_ones_named(
    folder: Path, superlink: SuperLink
) -> None:
    superlink.nodes.clear()
    assert said("register", folder) == "owner-0: registered\nowner-1: registered\n"
    superlink.ask("supernode", "unregister", "100", "here")  # by hand
    assert "owner-0: its key was unregistered before" in said("register", folder)
    for file in (folder / "server/owners").glob("*.node"):  # ids were lost
        file.unlink()
    assert "owner-1: its key was unregistered before, or reg" in said("register", folder)


def test_given_a_new_key_then_the_old_one_is_nobodys(folder: Path, superlink: SuperLink) -> None:
    node = folder / "owners/owner-1/node.key"
    before = node.read_bytes()
    out = said("rotate", folder, "key", "owner-1")
    assert "owner-1: node 101 unregistered\n" in out
    assert "owner-1: registered\n" in out
    assert node.read_bytes() != before
    assert node.stat().st_mode & 0o777 == 0o600
    assert known_to(folder, "owner-0") == known_to(folder, "owner-1") == [0, 1]
    node.write_bytes(before)
    with pytest.raises(UserError, match="is not the key of owner 1"):
        known_to(folder, "owner-1")
    # One that the owner makes: the old private key beside it would be of no use.
    public = folder / "own.pub"
    public.write_bytes(make_node_key("somebody")[1])
    said("rotate", folder, "key", "owner-1", "--public-key", public)
    assert not node.exists()
    for name in ("owner-1", "owner-0"):  # whoever has it
        words = ["rotate", folder, "key", name, "--public-key", public]
        assert refused(*words) == "name-twice"


def verified(root: Path) -> x509.Certificate:
    """The server's certificate, signed by the authority in ``ca.pem`` of an owner."""
    authority, server = (
        x509.load_pem_x509_certificate((root / file).read_bytes())
        for file in ("owners/owner-0/ca.pem", "server/server.pem")
    )
    server.verify_directly_issued_by(authority)
    return server


def test_given_new_certificates_then_hosts_stay_and_owners_trust_them(folder: Path) -> None:
    old, ca = verified(folder), (folder / "server/ca.pem").read_bytes()
    out = said("rotate", folder, "certificate")
    new = verified(folder)
    assert f"to {new.not_valid_after_utc:%Y-%m-%d %H:%M} UTC" in out
    assert (new.not_valid_after_utc - new.not_valid_before_utc).total_seconds() == (
        365 * 24 + 1
    ) * 3600
    names = x509.SubjectAlternativeName
    assert new.extensions.get_extension_for_class(names) == old.extensions.get_extension_for_class(
        names
    )
    assert new.public_key() != old.public_key()
    assert (folder / "server/ca.pem").read_bytes() == ca
    said("rotate", folder, "authority")
    assert verified(folder).issuer == new.issuer
    assert (folder / "server/ca.pem").read_bytes() != ca
    # The key lies in a drawer, or it is that of another authority.
    key = folder / "ca" / "ca.key"
    other = ec.generate_private_key(ec.SECP384R1())
    key.write_bytes(key_pem(other))
    assert refused("rotate", folder, "certificate") == "key-file-wrong"
    key.unlink()
    assert refused("rotate", folder, "certificate") == "key-file-wrong"
    verified(folder)
    assert [line.split(":")[0] for line in status.state_of_server(folder)] == [
        *("No run yet.", "Certificate of the server"),
        "Certificate of the authority",
    ]


def test_given_no_tls_then_owners_come_and_go_and_there_is_nothing_to_rotate(
    written: Callable[..., Path],
) -> None:
    root = written("--insecure")
    said("add", root, "east")
    said("remove", root, "owner-0")
    assert listed(root) == {"owner-1": 1, "east": 2}
    assert not list(root.rglob("owners.pub"))
    for words in (["key", "east"], ["certificate"], ["authority"]):
        assert refused("rotate", root, *words) == "options-contradict"
    assert refused("register", root) == "options-contradict"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["add", "{}", "OWNER-0"], "name-twice"),
        (["add", "{}", "a/b"], "option-not-allowed"),
        (["add", "{}/owners", "a"], "folder-missing"),
        (["rotate", "{}", "key"], "options-contradict"),
        (["rotate", "{}", "key", "x"], "unknown-name"),
        (["rotate", "{}", "certificate", "owner-0"], "options-contradict"),
        (["rotate", "{}", "authority", "--public-key", "x"], "options-contradict"),
        (["backup", "{}", "-o", "{}/server/x.tar.gz"], "path-not-usable"),
        (["backup", "{}", "-o", "{}/README.md"], "file-exists"),
    ],
)
def test_wrong_orders_are_refused_and_change_nothing(
    folder: Path, words: list[str], code: str
) -> None:
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert refused(*(word.format(folder) for word in words)) == code
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_given_a_backup_when_restored_then_the_server_has_all_it_had(
    folder: Path, tmp_path: Path
) -> None:
    server = folder / "server"
    with closing(sqlite3.connect(server / "state/superlink.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE node (key TEXT)")
        database.execute("INSERT INTO node VALUES ('of owner-0')")
        database.commit()
        # The SuperLink runs: what it has written last lies in another file than its database.
        said("backup", folder, "-o", tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert not [name for name in archive.getnames() if "ca.key" in name or "node.key" in name]
    (tmp_path / "new").mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "b.tar.gz", "-C", tmp_path / "new"], check=True)
    restored = tmp_path / "new" / "server"
    assert restored.stat().st_mode & 0o777 == 0o700
    for file in server.rglob("*"):
        if file.is_file() and file.parent.name not in ("flower", "state"):
            copy = restored / file.relative_to(server)
            assert copy.read_bytes() == file.read_bytes()
            assert copy.stat().st_mode == file.stat().st_mode
    with closing(sqlite3.connect(restored / "state/superlink.db")) as database:
        assert database.execute("SELECT key FROM node").fetchall() == [("of owner-0",)]
    assert (restored / "flower").is_dir()
