"""Identities of owners: in memory, and in folders as ``deploy init`` writes them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fedul_flwr.secure.identities import OWNERS_FILE, PRIVATE_FILE, Identities


def identities(owners: Iterable[int]) -> dict[int, Identities]:
    """New identities of all owners, each of whom knows all."""
    keys = {owner: ec.generate_private_key(ec.SECP384R1()) for owner in owners}
    public = {owner: key.public_key() for owner, key in keys.items()}
    return {owner: Identities(owner, key, public) for owner, key in keys.items()}


def write_identity(folder: Path, identity: Identities) -> Path:
    """An owner's folder with its private key and the list of all owners."""
    folder.mkdir(parents=True, exist_ok=True)
    private = identity.private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (folder / PRIVATE_FILE).write_bytes(private)
    (folder / OWNERS_FILE).write_text(owners_list(identity.owners))
    return folder


def owners_list(owners: Mapping[int, ec.EllipticCurvePublicKey]) -> str:
    """The content of the list of owners."""
    return "".join(
        f"{number} {key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} {number}\n"
        for number, key in owners.items()
    )
