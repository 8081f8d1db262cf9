"""Keys and certificates of a consortium: its authority, its server and its SuperNodes.

All keys are on the curve P-384. Certificates follow RFC 5280, including OpenSSL's strict checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCKS_APART = timedelta(hours=1)
"""Largest delay of an owner's clock with which a new certificate is already valid."""


@dataclass(frozen=True)
class Identity:
    """A certificate and its private key."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make_authority(days: int) -> Identity:
    """Make a certificate authority for one consortium, valid for so many days, at least 1."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("fedul-flwr consortium")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    certificate = (
        _builder(name, name, key.public_key(), key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )
    return Identity(key, certificate)


def issue(
    authority: Identity, hosts: Sequence[str], days: int, now: datetime | None = None
) -> Identity:
    """Make a key and a certificate for a TLS server.

    Parameters
    ----------
    authority : authority that signs it.
    hosts : DNS names and IP addresses of the server (subject alternative names); the first one is
        also the certificate's name.
    days : as in :func:`make_authority`; clients also refuse it once the authority's has expired.
    now : the certificate is valid from :data:`CLOCKS_APART` before this; by default the present.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    issuer = authority.certificate
    certificate = (
        _builder(
            # Only informative, at most 64 characters: clients check the alternative names.
            _name(hosts[0][:64]),
            issuer.subject,
            key.public_key(),
            authority.key.public_key(),
            days,
            now,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general, hosts))), critical=False)
        .sign(authority.key, hashes.SHA384())
    )
    return Identity(key, certificate)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def validity(certificate: x509.Certificate) -> str:
    """Period of validity of a certificate, as text."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return f"valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


def read_identity(key: bytes, certificate: bytes) -> Identity:
    """A key and its certificate from their PEM; ValueError if they do not belong together."""
    private = serialization.load_pem_private_key(key, None)
    signed = x509.load_pem_x509_certificate(certificate)
    if private.public_key() != signed.public_key():
        raise ValueError("the key of another certificate")
    return Identity(cast(ec.EllipticCurvePrivateKey, private), signed)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key of a certificate as PEM (PKCS #8), not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def make_node_key(name: str) -> tuple[bytes, bytes]:
    """Make the key of a SuperNode.

    Returns
    -------
    private, public : bytes
        In OpenSSH's format, the only one that Flower loads; ``name`` is the public key's comment.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private, public + f" {name}\n".encode()


def public_key_fault(text: bytes) -> str:
    """Reason why Flower would not accept a SuperNode's public key; empty if it is valid."""
    if b"PRIVATE KEY" in text:
        return "is a private key"
    try:
        key = serialization.load_ssh_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        return "is no public key in OpenSSH's format"
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return f"is a {text.split()[0].decode()} key"
    return ""


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime | None = None,
) -> x509.CertificateBuilder:
    now = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_APART)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )


def _usage(**used: bool) -> x509.KeyUsage:
    unused = dict.fromkeys(
        [
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
            *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        ],
        False,
    )
    return x509.KeyUsage(**{**unused, **used})
