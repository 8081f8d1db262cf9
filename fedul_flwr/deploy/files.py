"""Content of all files that ``deploy init`` writes, from ``templates/``.

Templates end with ``.md``: of other types Flower's Hub publishes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedul_flwr.deploy.address import Address
from fedul_flwr.deploy.certificates import (
    Identity,
    certificate_pem,
    issue,
    key_pem,
    make_authority,
    make_node_key,
)
from fedul_flwr.secure.identities import OWNERS_FILE

CONNECTION = "consortium"
"""Name of the SuperLink's connection in ``flwr``."""
AUTHORITY_DAYS = 3650
"""Validity of the authority's certificate, which owners have: longer than that of the server's."""
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
    address : address at which owners reach the SuperLink.
    listen : IP address and port at which it listens, possibly behind a proxy.
    also : further hosts in its certificate.
    owners : names of the owners, in the order of their partition ids.
    public_keys : public keys of owners who generated their own keys, by name.
    days : validity of the server's certificate in days.
    insecure : whether TLS, keys and authentication are off.
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

    @property
    def hosts(self) -> list[str]:
        """All hosts in the server's certificate, the address first."""
        listen = self.listen.local.host
        return list(dict.fromkeys([self.address.host, *self.also, *_LOOPBACK, listen]))


@dataclass(frozen=True)
class Owner:
    """A data owner: ``number`` is the partition id; with ``own_key`` it generates its own key."""

    name: str
    number: int
    own_key: bool


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


def make_certificates(consortium: Consortium) -> Certificates | None:
    """Make the certificates of a consortium; ``None`` if it is insecure."""
    if consortium.insecure:
        return None
    authority = make_authority(AUTHORITY_DAYS)
    return Certificates(authority, issue(authority, consortium.hosts, consortium.days))


def make_files(consortium: Consortium, certificates: Certificates | None) -> Iterator[File]:
    """Make the content of all files, with the owners' keys, without writing them."""
    values: dict[str, Any] = {
        "address": consortium.address,
        "listen": consortium.listen,
        "count": len(consortium.owners),
        "owners": consortium.owners,
        "insecure": consortium.insecure,
        "methods": ",".join(consortium.methods),
        "warning": INSECURE,
        "connection": CONNECTION,
    }
    if certificates:
        values |= {
            "hosts": consortium.hosts,
            "begins": certificates.server.certificate.not_valid_before_utc.date(),
            "ends": certificates.server.certificate.not_valid_after_utc.date(),
            "ca_ends": certificates.authority.certificate.not_valid_after_utc.date(),
        }
        yield from _certificates(certificates, values)
    yield File("README.md", _text("README.md", values))
    yield from _server(values)
    owners = [
        Owner(name, number, own_key=name in consortium.public_keys)
        for number, name in enumerate(consortium.owners)
    ]
    for owner in owners:
        yield from _owner(owner, values)
    if certificates:
        ca = certificate_pem(certificates.authority.certificate)
        yield from _owners_keys(owners, ca, consortium.public_keys)


def _certificates(certificates: Certificates, values: Mapping[str, Any]) -> Iterator[File]:
    authority, server = certificates.authority, certificates.server
    yield File("ca/ca.key", key_pem(authority.key), 0o600)
    yield File("ca/README.md", _text("ca-README.md", values))
    yield File("server/ca.pem", certificate_pem(authority.certificate))
    yield File("server/server.pem", certificate_pem(server.certificate))
    yield File("server/server.key", key_pem(server.key), 0o600)


def _server(values: Mapping[str, Any]) -> Iterator[File]:
    yield from _machine("server", "superlink", values)
    yield File("server/server.env", _text("server.env", values))
    names = "".join(f"{number} {name}\n" for number, name in enumerate(values["owners"]))
    yield File("server/owners.txt", names.encode())
    yield _script("server/connection.sh", values)
    if not values["insecure"]:
        yield _script("server/register-owners.sh", values)


def _owner(owner: Owner, values: Mapping[str, Any]) -> Iterator[File]:
    values = {**values, "owner": owner, "port": _FIRST_NODE_PORT + owner.number}
    folder = f"owners/{owner.name}"
    yield from _machine(folder, "supernode", values)
    yield _script(f"{folder}/check-data.sh", values)
    yield File(f"{folder}/node.env", _text("node.env", values))
    yield File(f"{folder}/README.md", _text("owner-README.md", values))


def _owners_keys(
    owners: Sequence[Owner], ca: bytes, public_keys: Mapping[str, bytes]
) -> Iterator[File]:
    """Each owner's key, the authority, and in each folder the public keys of all owners."""
    known = dict(public_keys)
    for owner in owners:
        if not owner.own_key:
            private, known[owner.name] = make_node_key(owner.name)
            yield File(f"owners/{owner.name}/node.key", private, 0o600)
    everybody = b""
    for owner in owners:
        key = b" ".join(known[owner.name].split()[:2])
        everybody += f"{owner.number} {key.decode()} {owner.name}\n".encode()
    for owner in owners:
        folder = f"owners/{owner.name}"
        yield File(f"{folder}/node.pub", known[owner.name])
        yield File(f"{folder}/{OWNERS_FILE}", everybody)
        yield File(f"{folder}/ca.pem", ca)
        yield File(f"server/owners/{owner.name}.pub", known[owner.name])


def _machine(folder: str, program: str, values: Mapping[str, Any]) -> Iterator[File]:
    """Files that start a program of Flower: a script, a systemd unit, and a container."""
    values = {**values, "writable": WRITABLE[program]}
    yield from (File(f"{folder}/{name}/.keep", b"") for name in WRITABLE[program])
    yield _script(f"{folder}/start-{program}.sh", values)
    yield File(f"{folder}/fedul-{program}.service", _text(f"{program}.service", values))
    yield File(f"{folder}/compose.yaml", _text(f"{program}-compose.yaml", values))
    yield File(f"{folder}/Dockerfile", _text("Dockerfile", values))
    yield File(f"{folder}/.dockerignore", _text("dockerignore", values))


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
