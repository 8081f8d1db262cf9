"""``fedul-flwr deploy init``: the working folder of a consortium."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedul_flwr.config.base import nearest
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.user_files import regular_file, user_path
from fedul_flwr.deploy.address import check_host, parse_address, parse_listen
from fedul_flwr.deploy.certificates import public_key_fault, validity
from fedul_flwr.deploy.files import (
    AUTHORITY_DAYS,
    INSECURE,
    Certificates,
    Consortium,
    File,
    make_certificates,
    make_files,
)
from fedul_flwr.errors import UserError

_MOST_OWNERS = 1000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def plan(
    address: str | None,
    count: int | None,
    names: Sequence[str],
    also: Sequence[str],
    public_keys: Sequence[str],
    days: int,
    insecure: bool,
    listen: str | None = None,
    methods: Sequence[str] = (),
) -> Consortium:
    """Check the user's options.

    Parameters
    ----------
    address
        ``HOST[:PORT]`` at which owners reach the SuperLink.
    count, names
        Either the number of owners, from 1 to 1,000, who are then named ``owner-0`` and so on, or
        their names.
    also
        Further hosts for the server's certificate.
    public_keys
        ``NAME=FILE`` of owners who generate their own key.
    days
        Validity of the server's certificate, at most :data:`AUTHORITY_DAYS`.
    insecure
        Without TLS, keys and authentication.
    listen
        ``HOST[:PORT]`` at which the SuperLink listens, an IP address; by default all interfaces
        with the port of ``address``, or only loopback if ``address`` is loopback.
    methods
        Names of the methods that owners allow; empty allows every built-in one.

    Raises
    ------
    UserError
        For invalid options.
    """
    if not address:
        raise UserError("deploy init needs --address HOST[:PORT], where owners reach the server.")
    for host in also:
        check_host(host, host, "--also")
    if not 1 <= days <= AUTHORITY_DAYS:
        raise UserError(f"--days {days}: a certificate is valid for 1 to {AUTHORITY_DAYS} days.")
    if insecure and (public_keys or also):
        raise UserError(
            "--insecure has no keys and certificates: leave --public-key and --also out."
        )
    owners = _owners(count, names)
    reached = parse_address(address)
    return Consortium(
        reached,
        reached.listening if listen is None else parse_listen(listen),
        tuple(also),
        owners,
        _public_keys(public_keys, owners),
        days,
        insecure,
        tuple(_known_method(name) for name in methods),
    )


def write(consortium: Consortium, directory: Path) -> Certificates | None:
    """Write the working folder, completely or not at all.

    Parameters
    ----------
    consortium
        The consortium.
    directory
        Absolute path of a new or empty folder. Only the user will have access.

    Returns
    -------
    Certificates or None
        None if the consortium is insecure.

    Raises
    ------
    UserError
        If ``directory`` is not empty, or cannot be written.
    """
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UserError(f"{directory} is not empty: name a new folder, nothing is overwritten.")
        certificates = make_certificates(consortium)
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        try:
            for file in make_files(consortium, certificates):
                _write(draft, file)
            draft.replace(directory)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise UserError(f"{directory} cannot be written: {error.strerror}.") from None
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
        yield f"Certificate for {', '.join(consortium.hosts)}: {validity(certificates.server)}"
        yield f"Certificate of the authority: {validity(certificates.authority)}"
        yield "Keep ca/ca.key offline; each node.key is its owner's secret."
    yield "Runs start on the server alone, by the user who runs the SuperLink (see README.md)."
    entry = shlex.quote(str(directory / "server" / "connection.sh"))
    yield f"For Flower's commands: mkdir -p ~/.flwr && {entry} >>~/.flwr/config.toml"


def _write(root: Path, file: File) -> None:
    path = root / file.path
    for folder in reversed(path.relative_to(root).parents[:-1]):
        (root / folder).mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)  # before the secret is written
    path.write_bytes(file.content)
    path.chmod(file.mode)


def _owners(count: int | None, names: Sequence[str]) -> tuple[str, ...]:
    if (count is None) == (not names):
        raise UserError("deploy init takes either --owners N or --owner NAME for each owner.")
    if count is not None and not 1 <= count <= _MOST_OWNERS:
        raise UserError(f"--owners {count}: there can be 1 to {_MOST_OWNERS} owners.")
    if len(names) > _MOST_OWNERS:
        raise UserError(f"--owner is there {len(names)} times: there can be {_MOST_OWNERS} owners.")
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise UserError(
                f"--owner {name!r}: a name has up to 64 letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends."
            )
        # Names become file names, and some systems ignore case.
        if name.lower() in seen:
            raise UserError(f"--owner {name!r} is there twice: every owner has a name of its own.")
        seen.add(name.lower())
    return tuple(names or (f"owner-{number}" for number in range(count or 0)))


def _known_method(name: str) -> str:
    # A method of the consortium's own need not be installed here.
    if name not in METHODS and not re.fullmatch(r"[A-Za-z0-9_.]+:[A-Za-z0-9_]+", name):
        raise UserError(
            f"--method {name!r}: must be one of {', '.join(METHODS)} or 'package.module:NAME'"
            f"{nearest(name, METHODS) or '.'}"
        )
    return name


def _public_keys(given: Sequence[str], owners: Sequence[str]) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not equals:
            raise UserError(f"--public-key {text!r} is not NAME=FILE.")
        if name not in owners:
            raise UserError(f"--public-key {text!r}: there is no owner {name!r}.")
        if name in keys:
            raise UserError(f"--public-key {text!r}: {name!r} has two keys.")
        key = _public_key(user_path(file))
        if key in keys.values():
            raise UserError(f"--public-key {text!r}: another owner has the same key.")
        keys[name] = key
    return keys


def _public_key(file: Path) -> bytes:
    """The key without its comment."""
    try:
        content = regular_file(file).read_bytes()
    except OSError as error:
        raise UserError(f"Public key {file} cannot be read: {error.strerror}.") from None
    if fault := public_key_fault(content):
        raise UserError(
            f"Public key {file} {fault}: Flower takes one on a NIST curve as made by "
            "ssh-keygen -t ecdsa -b 384."
        )
    return b" ".join(content.split()[:2]) + b"\n"
