"""``fedul-flwr deploy init``: the working folder of a consortium, and its files.

Templates end with ``.md``: of other types Flower's Hub publishes none.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedul_flwr.config.base import nearest
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.user_files import regular_file, user_path
from fedul_flwr.data.safe_files import replace_file
from fedul_flwr.deploy.certificates import (
    Address,
    Identity,
    certificate_pem,
    check_host,
    issue,
    key_pem,
    make_authority,
    make_node_key,
    parse_address,
    parse_listen,
    public_key_fault,
    validity,
)
from fedul_flwr.errors import UserError
from fedul_flwr.secure.identities import OWNERS_FILE

ABOUT = "consortium.json"
"""File of the server's folder: address and options, by which further files are made later."""
OWNERS = "owners.txt"
"""File of the server's folder: a line with number and name for each owner."""
CONNECTION = "consortium"
"""Name of the SuperLink's connection in ``flwr``."""
AUTHORITY_DAYS = 3650
"""Validity of the authority's certificate, which owners have: longer than that of the server's."""
SERVER_DAYS = 365
"""The same of a new certificate of the server."""
INSECURE = "without encryption and authentication; for trials on made-up data only."
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses that the SuperLink's own processes use."""
_FIRST_NODE_PORT = 9094
"""Flower's default for a SuperNode; further owners get the next ports, for trials on one machine.
"""


WRITABLE = {
    "superlink": ("flower", "log", "runs", "state"),
    "supernode": ("flower", "labels", "log"),
}
"""Folders that a program, and the apps of runs that it starts, can write to as a service.

Settings, keys, certificates and scripts beside them stay as they are.
"""


@dataclass(frozen=True)
class Consortium:
    """Members and options of a consortium.

    Attributes
    ----------
    listen : IP address and port at which it listens, possibly behind a proxy.
    owners : names of the owners, in the order of their partition ids.
    public_keys : public keys of owners who generated their own keys, by name.
    methods : names of the methods that owners allow; empty allows every built-in one.
    """

    address: Address
    listen: Address
    also: tuple[str, ...]
    owners: tuple[str, ...]
    public_keys: Mapping[str, bytes]
    days: int
    insecure: bool
    methods: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """What of it stays when owners come and go, for :data:`ABOUT`."""
        about = {
            **{"address": str(self.address), "listen": str(self.listen), "also": self.also},
            **{"insecure": self.insecure, "methods": self.methods},
        }
        return (json.dumps(about, indent=1) + "\n").encode()

    @property
    def hosts(self) -> list[str]:
        """All hosts in the server's certificate, the address first."""
        listen = self.listen.local.host
        return list(dict.fromkeys([self.address.host, *self.also, *_LOOPBACK, listen]))


@dataclass(frozen=True)
class File:
    """Content and permissions of file ``path``, relative to the working folder."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Certificates:
    """Certificates of the authority that owners trust, and of the server."""

    authority: Identity
    server: Identity


def make_files(consortium: Consortium, certificates: Certificates | None) -> Iterator[File]:
    """Make the content of all files, with the owners' keys, without writing them."""
    values = values_of(consortium)
    if certificates:
        yield from certificate_files(certificates)
        yield File("ca/README.md", _text("ca-README.md", values))
    yield File(".gitignore", b"*\n")  # it lies in a checkout of somebody's, perhaps
    yield File("README.md", _text("README.md", values))
    yield from _machine("server", "superlink", values)
    yield File("server/server.env", _text("server.env", values))
    yield _script("server/connection.sh", values)
    yield File(f"server/{ABOUT}", consortium.to_json())
    ca = certificate_pem(certificates.authority.certificate) if certificates else b""
    keys: dict[str, bytes] = {}
    for number, name in enumerate(consortium.owners):
        for file in owner_files(name, number, values, ca, consortium.public_keys.get(name)):
            yield file
            if file.path.endswith("/node.pub"):
                keys[name] = file.content
    numbers = {name: number for number, name in enumerate(consortium.owners)}
    yield from list_files(numbers, keys, consortium.owners)


def values_of(consortium: Consortium) -> dict[str, Any]:
    """What templates ask for."""
    return {
        "address": consortium.address,
        "listen": consortium.listen,
        "hosts": consortium.hosts,
        "insecure": consortium.insecure,
        "methods": ",".join(consortium.methods),
        "warning": INSECURE,
        "connection": CONNECTION,
    }


def certificate_files(certificates: Certificates) -> Iterator[File]:
    """Keys and certificates of the authority and the server; the owners' are not among them."""
    authority, server = certificates.authority, certificates.server
    yield File("ca/ca.key", key_pem(authority.key), 0o600)
    yield File("server/ca.pem", certificate_pem(authority.certificate))
    yield File("server/server.key", key_pem(server.key), 0o600)
    yield File("server/server.pem", certificate_pem(server.certificate))


def owner_files(
    name: str, number: int, values: Mapping[str, Any], ca: bytes, public_key: bytes | None
) -> Iterator[File]:
    """An owner's folder, but for the list of all owners' keys; ``ca`` is empty without keys.

    A key is made unless there is the public one of an owner who has made it.
    """
    folder = f"owners/{name}"
    owner = {"name": name, "number": number, "own_key": public_key is not None}
    values = {**values, "owner": owner, "port": _FIRST_NODE_PORT + number}
    yield from _machine(folder, "supernode", values)
    yield _script(f"{folder}/check-data.sh", values)
    yield File(f"{folder}/node.env", _text("node.env", values))
    yield File(f"{folder}/README.md", _text("owner-README.md", values))
    if ca:
        yield File(f"{folder}/ca.pem", ca)
        yield from key_files(name, public_key)


def key_files(name: str, public_key: bytes | None) -> Iterator[File]:
    """An owner's public key in its folder and the server's, and the private one if it is made."""
    if public_key is None:
        private, public_key = make_node_key(name)
        yield File(f"owners/{name}/node.key", private, 0o600)
    yield File(f"owners/{name}/node.pub", public_key)
    yield File(f"server/owners/{name}.pub", public_key)


def list_files(
    numbers: Mapping[str, int], keys: Mapping[str, bytes], folders: Iterable[str], more: str = ""
) -> Iterator[File]:
    """Lists of the owners, and of their public keys for the server and ``folders`` of owners.

    ``more`` are lines about those who have left.
    """
    if keys:
        everybody = b"".join(
            b" ".join([str(numbers[name]).encode(), *keys[name].split()[:2], name.encode()]) + b"\n"
            for name in numbers
        )
        for folder in ("server", *(f"owners/{name}" for name in folders)):
            yield File(f"{folder}/{OWNERS_FILE}", everybody)
    names = "".join(f"{number} {name}\n" for name, number in numbers.items())
    yield File(f"server/{OWNERS}", (names + more).encode())


def _machine(folder: str, program: str, values: Mapping[str, Any]) -> Iterator[File]:
    """Files that start a program of Flower: a script, a systemd unit, and a container."""
    values = {**values, "writable": WRITABLE[program]}
    yield from (File(f"{folder}/{name}/.keep", b"") for name in WRITABLE[program])
    yield _script(f"{folder}/start-{program}.sh", values)
    yield File(f"{folder}/fedul-{program}.service", _text(f"{program}.service", values))
    yield File(f"{folder}/compose.yaml", _text(f"{program}-compose.yaml", values))
    yield File(f"{folder}/Dockerfile", _text("Dockerfile", values))
    yield File(f"{folder}/.dockerignore", _text("dockerignore", values))
    yield File(f"{folder}/.gitignore", b"*\n")


def _script(path: str, values: Mapping[str, Any]) -> File:
    return File(path, _text(Path(path).name, values), 0o755)


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _text(template: str, values: Mapping[str, Any]) -> bytes:
    return _templates().get_template(f"{template}.template.md").render(values).encode()


_MOST_OWNERS = 1000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Options:
    """The user's options of ``deploy init``, as they were written."""

    address: str | None
    count: int | None
    names: Sequence[str]
    also: Sequence[str]
    public_keys: Sequence[str]
    days: int
    insecure: bool = False
    listen: str | None = None
    methods: Sequence[str] = ()


def plan(options: Options) -> Consortium:
    """Check the user's options."""
    also, public_keys, days = options.also, options.public_keys, options.days
    if not options.address:
        raise UserError(
            "deploy init needs --address HOST[:PORT], where owners reach the server.",
            "option-missing",
        )
    for host in also:
        check_host(host, host, "--also")
    if not 1 <= days <= AUTHORITY_DAYS:
        raise UserError(
            f"--days {days}: a certificate is valid for 1 to {AUTHORITY_DAYS} days.",
            "option-not-allowed",
            option="--days",
        )
    if options.insecure and (public_keys or also):
        raise UserError(
            "--insecure has no keys and certificates: leave --public-key and --also out.",
            "options-contradict",
            option="--insecure",
        )
    owners = _owners(options.count, options.names)
    reached, listen = parse_address(options.address), options.listen
    return Consortium(
        reached,
        reached.listening if listen is None else parse_listen(listen),
        tuple(also),
        owners,
        _public_keys(public_keys, owners),
        days,
        options.insecure,
        tuple(_method_of(name) for name in options.methods),
    )


def write(consortium: Consortium, directory: Path) -> Certificates | None:
    """Write the working folder, completely or not at all."""
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UserError(
                f"{directory} is not empty: name a new folder, nothing is overwritten.",
                "file-exists",
            )
        certificates = None
        if not consortium.insecure:
            authority = make_authority(AUTHORITY_DAYS)
            server = issue(authority, consortium.hosts, consortium.days)
            certificates = Certificates(authority, server)
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        try:
            for file in make_files(consortium, certificates):
                write_file(draft, file)
            draft.replace(directory)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{directory} cannot be written: {error.strerror}.", "file-not-writable"
        ) from None
    return certificates


def describe(
    consortium: Consortium, certificates: Certificates | None, directory: Path
) -> Iterator[str]:
    """Lines about the written files and the next steps."""
    yield f"Written: {directory}; its README.md says what comes next."
    listen = consortium.listen
    yield f"Server: server/, for {consortium.address}, listens at {listen}"
    for number, name in enumerate(consortium.owners):
        yield f"Client {number}: owners/{name}/"
    if certificates is None:
        yield f"WARNING: {INSECURE}"
    else:
        server, authority = certificates.server.certificate, certificates.authority.certificate
        yield f"Certificate for {', '.join(consortium.hosts)}: {validity(server)}"
        yield f"Certificate of the authority: {validity(authority)}"
        yield "Keep ca/ca.key offline; each node.key is its owner's secret."
    yield "Runs start on the server alone, by the user who runs the SuperLink (see README.md)."
    entry = shlex.quote(str(directory / "server" / "connection.sh"))
    yield f"For Flower's commands: mkdir -p ~/.flwr && {entry} >>~/.flwr/config.toml"


def write_file(root: Path, file: File) -> None:
    """Write a file of the working folder, the whole new content or nothing."""
    path = root / file.path
    for folder in reversed(path.relative_to(root).parents[:-1]):
        (root / folder).mkdir(mode=0o700, exist_ok=True)

    def write(part: Path) -> None:
        part.touch(mode=0o600)  # before the secret is written
        part.write_bytes(file.content)
        part.chmod(file.mode)

    replace_file(path, write)


def _owners(count: int | None, names: Sequence[str]) -> tuple[str, ...]:
    if (count is None) == (not names):
        raise UserError(
            "deploy init takes either --owners N or --owner NAME for each owner.",
            "options-contradict",
        )
    if not 1 <= (owners := len(names) if count is None else count) <= _MOST_OWNERS:
        raise UserError(
            f"{owners} owners: there can be 1 to {_MOST_OWNERS}.",
            "option-not-allowed",
            option="--owners",
        )
    check_names(names)
    return tuple(names or (f"owner-{number}" for number in range(count or 0)))


def check_names(names: Sequence[str]) -> None:
    """Refuse names of owners that cannot be names of folders beside each other."""
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise UserError(
                f"--owner {name!r}: a name has up to 64 letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends.",
                "option-not-allowed",
                option="--owner",
            )
        # Names become file names, and some systems ignore case.
        if name.lower() in seen:
            raise UserError(
                f"--owner {name!r} is there twice: every owner has a name of its own.",
                "name-twice",
                option="--owner",
            )
        seen.add(name.lower())


def _method_of(name: str) -> str:
    # A method of the consortium's own need not be installed here.
    if name not in METHODS and not re.fullmatch(r"[A-Za-z0-9_.]+:[A-Za-z0-9_]+", name):
        raise UserError(
            f"--method {name!r}: must be one of {', '.join(METHODS)} or 'package.module:NAME'"
            f"{nearest(name, METHODS) or '.'}",
            "unknown-name",
            option="--method",
        )
    return name


def _public_keys(public_keys: Sequence[str], owners: Sequence[str]) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for text in public_keys:
        name, _, file = text.partition("=")
        if name not in owners:
            raise UserError(
                f"--public-key {text!r} is not NAME=FILE of an owner.",
                "unknown-name",
                option="--public-key",
            )
        key = read_public_key(user_path(file))
        if name in keys or key in keys.values():
            raise UserError(
                f"--public-key {text!r}: every owner has one key of its own.",
                "name-twice",
                option="--public-key",
            )
        keys[name] = key
    return keys


def read_public_key(file: Path) -> bytes:
    """A public key of an owner, without its comment."""
    try:
        content = regular_file(file).read_bytes()
    except OSError as error:
        raise UserError(
            f"Public key {file} cannot be read: {error.strerror}.", "file-not-readable"
        ) from None
    if fault := public_key_fault(content):
        raise UserError(
            f"Public key {file} {fault}: Flower takes one on a NIST curve as made by "
            "ssh-keygen -t ecdsa -b 384.",
            "key-file-wrong",
        )
    return b" ".join(content.split()[:2]) + b"\n"
