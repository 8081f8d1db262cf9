"""Who is who among owners: their keys for each other are signed, by keys that all of them know.

An owner's identity is the key of its SuperNode, on a NIST curve, with which Flower knows it, too.
``deploy init`` puts the public keys of all owners into each owner's folder, so that whoever runs
the SuperLink cannot add clients of its own to a propagation, or replace a client's key. A signature
names all that a key is for: it is of no use in another run, round, attempt or place, or for another
client. Flower signs times of day with the same key, never a text of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedul_flwr.arrays import Bytes
from fedul_flwr.config.user_files import regular_file
from fedul_flwr.errors import OwnDataError, UserError

PRIVATE_FILE, OWNERS_FILE = "node.key", "owners.pub"
"""Files of an owner's folder: the private key, and a line ``NUMBER TYPE KEY NAME`` for each owner.
"""

_HALF = 66
"""Bytes of each of a signature's two numbers: of the longest curve, P-521."""
SIGNATURE_BYTES = 2 * _HALF
UNSIGNED: Bytes = np.zeros(SIGNATURE_BYTES, np.uint8)
"""In place of a signature, of a client without an identity."""

_DOMAIN = b"fedul-flwr identity 1"


@dataclass(frozen=True)
class Purpose:
    """What a public key is made for."""

    what: str
    run: int
    server_round: int
    nonce: bytes

    def text(self, client: int, public: bytes) -> bytes:
        """What a client signs: its number and public key for this purpose, with lengths first."""
        parts = [_DOMAIN, self.what.encode(), self.nonce, public]
        numbers = struct.pack("<Qqq", self.run % 2**64, self.server_round, client)
        return b"".join(struct.pack("<q", len(part)) + part for part in parts) + numbers


@dataclass(frozen=True)
class Identities:
    """An owner's own private key, and the public keys of all owners by their numbers."""

    client: int
    private: ec.EllipticCurvePrivateKey = field(repr=False)
    owners: Mapping[int, ec.EllipticCurvePublicKey]

    def sign(self, purpose: Purpose, public: bytes) -> Bytes:
        """A signature of this owner's public key."""
        text = purpose.text(self.client, public)
        numbers = decode_dss_signature(self.private.sign(text, ec.ECDSA(SHA384())))
        joined = b"".join(number.to_bytes(_HALF) for number in numbers)
        return np.frombuffer(joined, np.uint8)

    def check(self, client: int, purpose: Purpose, public: bytes, signature: Bytes) -> None:
        """Refuse a client's public key that its owner has not signed for this purpose."""
        if client not in self.owners:
            raise UserError(
                f"Client {client} is none of the owners in {OWNERS_FILE}.", "unknown-name"
            )
        raw = signature.tobytes()
        r, s = (int.from_bytes(half) for half in (raw[:_HALF], raw[_HALF:]))
        text = purpose.text(client, public)
        try:
            self.owners[client].verify(encode_dss_signature(r, s), text, ec.ECDSA(SHA384()))
        except InvalidSignature:
            raise UserError(
                f"Client {client} sent a public key that its owner has not signed for this.",
                "signature-wrong",
            ) from None


def read_identities(folder: str, client: int) -> Identities | None:
    """The identities in an owner's folder; ``None`` without a folder."""
    if not folder:
        return None
    key_file, list_file = (Path(folder).expanduser() / name for name in (PRIVATE_FILE, OWNERS_FILE))
    try:
        private = load_ssh_private_key(_read(key_file), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise OwnDataError(
            f"{key_file} is no private key on a NIST curve in OpenSSH's format without a password.",
            "key-file-wrong",
        )
    owners: dict[int, ec.EllipticCurvePublicKey] = {}
    for line in filter(bytes.strip, _read(list_file).splitlines()):
        number, _, key = line.strip().partition(b" ")
        try:
            public = load_ssh_public_key(key)
        except (ValueError, UnsupportedAlgorithm):
            public = None
        is_bad = not number.isdigit() or int(number) in owners or public in owners.values()
        if is_bad or not isinstance(public, ec.EllipticCurvePublicKey):
            raise OwnDataError(
                f"{list_file} has a line that is not NUMBER TYPE KEY NAME of one more owner.",
                "owners-list-wrong",
            )
        owners[int(number)] = public
    if owners.get(client) != private.public_key():
        raise OwnDataError(
            f"{key_file} is not the key of owner {client} in {list_file}.", "key-file-wrong"
        )
    return Identities(client, private, owners)


def _read(file: Path) -> bytes:
    try:
        return regular_file(file).read_bytes()
    except OSError as error:
        raise OwnDataError(
            f"{file} cannot be read: {error.strerror}.", "file-not-readable"
        ) from None
    except UserError as error:  # of the owner's files, which are not the server's business
        raise OwnDataError(str(error), error.code, **error.values) from None
