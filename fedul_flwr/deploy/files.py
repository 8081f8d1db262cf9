"""The text of every file that ``deploy init`` writes, from ``templates/``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

CONNECTION = "consortium"
"""What ``flwr`` calls the SuperLink."""
AUTHORITY_DAYS = 3650
"""Owners have the authority's certificate, so it outlives several of the server."""
INSECURE = "without encryption and authentication; for trials on made-up data only."
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""The SuperLink's own processes call it by these."""
_FIRST_NODE_PORT = 9094
"""Flower's own default for a SuperNode; further owners count on, for trials on one machine."""


@dataclass(frozen=True)
class Consortium:
    """Who works together, and how.

    Attributes
    ----------
    address : where owners reach the SuperLink.
    listen : IP address and port that it listens at itself, behind a proxy perhaps.
    also : further hosts that its certificate is for.
    owners : their names, in the order of their partition ids.
    public_keys : of owners who keep their private key to themselves, by name.
    days : how long the server's certificate is valid.
    insecure : without TLS, keys and authentication.
    """

    address: Address
    listen: Address
    also: tuple[str, ...]
    owners: tuple[str, ...]
    public_keys: Mapping[str, bytes]
    days: int
    insecure: bool

    @property
    def hosts(self) -> list[str]:
        """All that the server's certificate is for, the address first."""
        listen = self.listen.local.host
        return list(dict.fromkeys([self.address.host, *self.also, *_LOOPBACK, listen]))


@dataclass(frozen=True)
class Owner:
    """A data owner: ``number`` is the partition id, ``own_key`` that no private key is made."""

    name: str
    number: int
    own_key: bool


@dataclass(frozen=True)
class File:
    """What goes to ``path``, relative to the working folder, with which permissions."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Certificates:
    """Of the authority that owners trust, and of the server."""

    authority: Identity
    server: Identity


def make_certificates(consortium: Consortium) -> Certificates | None:
    """Make the certificates of a consortium, none if it is insecure."""
    if consortium.insecure:
        return None
    authority = make_authority(AUTHORITY_DAYS)
    return Certificates(authority, issue(authority, consortium.hosts, consortium.days))


def make_files(consortium: Consortium, certificates: Certificates | None) -> Iterator[File]:
    """Make every text and the keys of owners; nothing is written."""
    values: dict[str, Any] = {
        "address": consortium.address,
        "listen": consortium.listen,
        "count": len(consortium.owners),
        "insecure": consortium.insecure,
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
    for number, name in enumerate(consortium.owners):
        public = consortium.public_keys.get(name)
        owner = Owner(name, number, own_key=public is not None)
        yield from _owner(owner, values)
        if certificates:
            yield from _owner_keys(
                owner, certificate_pem(certificates.authority.certificate), public
            )


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


def _owner_keys(owner: Owner, ca: bytes, public: bytes | None) -> Iterator[File]:
    folder = f"owners/{owner.name}"
    if public is None:
        private, public = make_node_key(owner.name)
        yield File(f"{folder}/node.key", private, 0o600)
    yield File(f"{folder}/node.pub", public)
    yield File(f"{folder}/ca.pem", ca)
    yield File(f"server/owners/{owner.name}.pub", public)


def _machine(folder: str, program: str, values: Mapping[str, Any]) -> Iterator[File]:
    """What starts a program of Flower: a script, a unit of systemd, and a container."""
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
    return _templates().get_template(f"{template}.j2").render(values).encode()
