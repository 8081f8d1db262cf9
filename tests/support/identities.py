"""Identities of owners: in memory, and in folders as ``deploy init`` writes them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fedul_flwr.secure.identities import OWNERS_FILE, PRIVATE_FILE, Identities


class VerifiedOnce:
    """A public key that all owners share here: what it has verified for one it need not again."""

    def __init__(self, key: ec.EllipticCurvePublicKey) -> None:
        self._key = key
        self._right: set[tuple[bytes, bytes]] = set()

    def verify(self, signature: bytes, text: bytes, algorithm: ec.ECDSA) -> None:
        if (signature, text) not in self._right:
            self._key.verify(signature, text, algorithm)
            self._right.add((signature, text))

    def __eq__(self, other: object) -> bool:
        return self._key == getattr(other, "_key", other)

    def __hash__(self) -> int:
        return hash(self._key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._key, name)


def identities(owners: Iterable[int]) -> dict[int, Identities]:
    """New identities of all owners, each of whom knows all."""
    keys = {owner: ec.generate_private_key(ec.SECP384R1()) for owner in owners}
    public: Any = {owner: VerifiedOnce(key.public_key()) for owner, key in keys.items()}
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
