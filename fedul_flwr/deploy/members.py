"""Owners who come, leave and get new keys, and new certificates, in the folder of ``deploy init``.

The folder says who takes part: ``server/owners.txt`` and the keys beside it. :func:`register` makes
the SuperLink agree with it, whatever has happened before. All functions yield lines about what they
have done, and what is left to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedul_flwr.config.user_files import read_object, read_text, regular_file
from fedul_flwr.deploy import init
from fedul_flwr.deploy.certificates import (
    issue,
    make_authority,
    parse_address,
    parse_listen,
    read_identity,
    validity,
)
from fedul_flwr.deploy.init import Certificates, Consortium, File, read_public_key, write_file
from fedul_flwr.deploy.status import NODE, OWN_CONNECTION, UNREGISTERED, connected, server_of
from fedul_flwr.errors import UserError
from fedul_flwr.federated.nodes import read_owners
from fedul_flwr.secure.identities import OWNERS_FILE, PRIVATE_FILE

_BURNT = (
    "its key was unregistered before, or registered without this command, and the SuperLink takes "
    "no key twice: `deploy rotate FOLDER key NAME` makes a new one"
)


@dataclass(frozen=True)
class Folder:
    """The working folder of ``deploy init``: numbers of the owners by name, and lines of
    ``owners.txt`` about owners who have left."""

    root: Path
    consortium: Consortium
    numbers: dict[str, int]
    departed: list[str]

    @property
    def keys(self) -> dict[str, bytes]:
        """Public keys of the owners, by name; those of an insecure consortium have none."""
        if self.consortium.insecure:
            return {}
        folder = self.root / "server" / "owners"
        return {name: read_public_key(folder / f"{name}.pub") for name in self.numbers}

    @property
    def folders(self) -> list[str]:
        """Names of the owners whose folders are here still."""
        return [name for name in self.numbers if (self.root / "owners" / name).is_dir()]

    def write_lists(self) -> None:
        """Write the lists of owners and keys, the server's last."""
        more = "".join(f"{line}\n" for line in self.departed)
        for file in init.list_files(self.numbers, self.keys, self.folders, more):
            write_file(self.root, file)

    def require(self, name: str) -> None:
        """Refuse a name that no owner has."""
        if name not in self.numbers:
            raise UserError(
                f"There is no owner {name!r}: the owners are {', '.join(self.numbers)}.",
                "unknown-name",
                name=name,
            )


def read_folder(root: Path, *, with_keys: bool = False) -> Folder:
    """Read the folder of ``deploy init``; UserError if it is none, or must have keys and has none.

    The consortium is as it was made, without days and public keys.
    """
    about = read_object(root / "server" / init.ABOUT)
    text = read_text(root / "server" / init.OWNERS)
    if about is None or text is None:
        raise UserError(
            f"{root} is no folder of deploy init: server/{init.ABOUT} or server/{init.OWNERS} is "
            "missing.",
            "folder-missing",
        )
    if with_keys and about["insecure"]:
        raise UserError(
            "A consortium of --insecure has no keys and certificates.", "options-contradict"
        )
    numbers = read_owners(root / "server" / init.OWNERS)
    consortium = Consortium(
        parse_address(about["address"]),
        parse_listen(about["listen"]),
        tuple(about["also"]),
        tuple(numbers),
        {},
        0,
        about["insecure"],
        tuple(about["methods"]),
    )
    departed = [line for line in text.splitlines() if line.startswith("#")]
    return Folder(root, consortium, numbers, departed)


def add(root: Path, name: str, public_key: Path | None) -> Iterator[str]:
    """Add an owner, who may have made its key: its folder, its line in the lists, its registration.

    A number is never given to a second owner: results of old runs name owners by it, too.
    """
    folder = read_folder(root, with_keys=public_key is not None)
    init.check_names([*folder.numbers, name])
    if (root / "owners" / name).exists():
        raise UserError(
            f"{root / 'owners' / name} exists: it is of an owner who has left; move it away.",
            "file-exists",
        )
    key = _public_key(folder, public_key)
    before = [*folder.numbers.values(), *(int(line.split()[1]) for line in folder.departed)]
    number = max(before, default=-1) + 1
    ca = b"" if folder.consortium.insecure else (root / "server" / "ca.pem").read_bytes()
    for file in init.owner_files(name, number, init.values_of(folder.consortium), ca, key):
        write_file(root, file)
    folder.numbers[name] = number
    folder.write_lists()
    yield f"Client {number}: owners/{name}/; send this folder to {name}."
    yield from _after(folder)


def remove(root: Path, name: str) -> Iterator[str]:
    """Remove an owner from the lists and the SuperLink; its folder here stays."""
    folder = read_folder(root)
    folder.require(name)
    if len(folder.numbers) == 1:
        raise UserError(f"{name} is the only owner: a consortium has one.", "too-few-clients")
    number = folder.numbers.pop(name)
    folder.departed.append(f"# {number} {name}, until {datetime.now(UTC):%Y-%m-%d}")
    folder.write_lists()
    (root / "server" / "owners" / f"{name}.pub").unlink(missing_ok=True)
    yield f"{name}, client {number}, is in no run that begins from now on."
    yield from _after(folder)


def rotate_key(root: Path, name: str, public_key: Path | None) -> Iterator[str]:
    """Give an owner a new key, which it may have made."""
    folder = read_folder(root, with_keys=True)
    folder.require(name)
    key = _public_key(folder, public_key)
    (root / "owners" / name / PRIVATE_FILE).unlink(missing_ok=True)
    for file in init.key_files(name, key):
        write_file(root, file)
    folder.write_lists()
    made = "node.pub, and it keeps the" if key else "node.key and node.pub, the"
    yield f"Send {name} owners/{name}/: {made} private key as node.key; then it starts again."
    yield from _after(folder)


def rotate_certificates(root: Path, *, authority: bool) -> Iterator[str]:
    """Make a key and certificate of the server, for a year, and a new authority first if wanted."""
    folder = read_folder(root, with_keys=True)
    if authority:
        signing = make_authority(init.AUTHORITY_DAYS)
    else:
        key, certificate = root / "ca" / "ca.key", root / "server" / "ca.pem"
        try:
            signing = read_identity(
                regular_file(key).read_bytes(), regular_file(certificate).read_bytes()
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"{key} is not the key of {certificate} ({error}): put it back from where it is "
                "kept, or make a new authority by `deploy rotate FOLDER authority`.",
                "key-file-wrong",
            ) from None
    made = Certificates(signing, issue(signing, folder.consortium.hosts, init.SERVER_DAYS))
    for file in init.certificate_files(made):
        write_file(root, file)
    yield f"Certificate of the server: {validity(made.server.certificate)}"
    if authority:
        ca = (root / "server" / "ca.pem").read_bytes()
        for name in folder.folders:
            write_file(root, File(f"owners/{name}/ca.pem", ca))
        yield f"Certificate of the authority: {validity(made.authority.certificate)}"
        yield "Send server/ca.pem to every owner, who puts it in place of its ca.pem."
    yield "Start the SuperLink again, and keep ca/ca.key offline."


def register(root: Path) -> Iterator[str]:
    """Make the SuperLink know the keys of all owners in the list, and of nobody else.

    Harmless if repeated. What it has registered lies in ``server/owners/NAME.node``: the node's id
    and the key. Raises a UserError if the SuperLink gives no answer.
    """
    server = server_of(root)
    if not (server / "ca.pem").exists():
        raise UserError("A consortium of --insecure has no keys to register.", "options-contradict")
    names = read_owners(server / init.OWNERS)
    public = {name: server / "owners" / f"{name}.pub" for name in names}
    keys = {name: read_public_key(file).decode().strip() for name, file in public.items()}
    with connected(server) as flower:
        nodes = flower.ask("supernode", "list", OWN_CONNECTION)["nodes"]
        states = {str(node["node-id"]): node["status"] for node in nodes}
        for file in sorted((server / "owners").glob(f"*{NODE}")):
            name = file.name.removesuffix(NODE)
            node, _, key = file.read_text().strip().partition(" ")
            if key == keys.get(name) and node in states:
                continue
            if states.get(node, UNREGISTERED) != UNREGISTERED:
                flower.ask("supernode", "unregister", node, OWN_CONNECTION)
                yield f"{name}: node {node} unregistered"
            file.unlink()
        for name, key in keys.items():
            file = server / "owners" / f"{name}{NODE}"
            if file.exists():
                is_known = states[file.read_text().split()[0]] != UNREGISTERED
                yield f"{name}: registered before" if is_known else f"{name}: {_BURNT}"
                continue
            words = ("supernode", "register", str(public[name]), OWN_CONNECTION, "--name", name)
            try:
                node = flower.ask(*words)["node-id"]
            except UserError as error:
                if "already in use" not in str(error):
                    raise
                yield f"{name}: {_BURNT}"
                continue
            write_file(server, File(f"owners/{name}{NODE}", f"{node} {key}\n".encode()))
            yield f"{name}: registered"


def _public_key(folder: Folder, file: Path | None) -> bytes | None:
    """The key of an owner who has made it, which nobody has used before."""
    if file is None:
        return None
    key = read_public_key(file)
    if key in folder.keys.values():
        raise UserError(
            f"--public-key {file}: an owner has this key.", "name-twice", option="--public-key"
        )
    return key


def _after(folder: Folder) -> Iterator[str]:
    """Tell the SuperLink, if it runs, and say who has to get what."""
    if folder.consortium.insecure:
        return
    try:
        yield from register(folder.root)
    except UserError as error:
        if error.code != "flower-failed":
            raise
        yield (
            "The SuperLink gives no answer: run `fedul-flwr deploy register` of this folder when "
            "it runs."
        )
    yield f"Send server/{OWNERS_FILE} to every owner, in place of the one in its folder."
