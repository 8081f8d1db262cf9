"""Keys and certificates of a consortium: its authority, its server and its SuperNodes.

All keys are on the curve P-384. Certificates follow RFC 5280, including OpenSSL's strict checks.
"""

from __future__ import annotations

import re
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

from fedul_flwr.errors import UserError

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
    """Make a key and a certificate for a TLS server."""
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
    """Make the key of a SuperNode."""
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


# Addresses of a SuperLink: the one that clients connect to, and the one it listens at.

DEFAULT_PORT = 8000
"""Flower's own default for a SuperLink."""
_PORTS = range(1, 65536)
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True)
class Address:
    """A host, as a DNS name or an IP address, and a port from 1 to 65,535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def listening(self) -> Address:
        """Default listening address: loopback if this one is loopback, else all interfaces."""
        if self.host == "localhost":
            return Address("127.0.0.1", self.port)
        if _is_ip(self.host) and self.is_loopback:
            return self
        return Address("::" if ":" in self.host else "0.0.0.0", self.port)

    @property
    def local(self) -> Address:
        """Address by which programs on the same machine reach a server listening here."""
        if ip_address(self.host).is_unspecified:
            return Address("::1" if ":" in self.host else "127.0.0.1", self.port)
        return self

    @property
    def is_ip(self) -> bool:
        """Whether the host is an IP address, not a name; templates ask."""
        return _is_ip(self.host)

    @property
    def is_loopback(self) -> bool:
        """Whether this IP address can only be reached from the machine itself."""
        return ip_address(self.host).is_loopback


def parse_address(text: str) -> Address:
    """Parse ``HOST[:PORT]`` of ``--address``; an IPv6 address needs brackets."""
    host, port = _split(text, "--address")
    check_host(host, text)
    return Address(host, _port(port, text, "--address"))


def parse_listen(text: str, option: str = "--listen") -> Address:
    """Parse ``HOST[:PORT]`` of ``--listen``; HOST is an IP address of the server, or all."""
    host, port = _split(text, option)
    if not _is_ip(host):
        raise UserError(
            f"{option} {text!r} is no IP address of the server, such as 127.0.0.1:8001 for what "
            "is on the server itself alone, or 0.0.0.0:8000 for all.",
            "address-wrong",
            option=option,
        )
    return Address(str(ip_address(host)), _port(port, text, option))


def _split(text: str, option: str) -> tuple[str, str]:
    host, port = text, str(DEFAULT_PORT)
    if ":" in text and _is_ip(text):  # its last part may be meant as the port
        raise UserError(
            f"{option} {text!r}: write an IPv6 address in brackets, before the port, as in "
            f"[2001:db8::1]:{DEFAULT_PORT}.",
            "address-wrong",
            option=option,
        )
    if bracketed := re.fullmatch(r"\[(.*:.*)\](?::(.*))?", text):
        host, port = bracketed[1], bracketed[2] if bracketed[2] is not None else port
    elif text.count(":") == 1 and "/" not in text:
        host, port = text.split(":")
    return host, port


def _port(port: str, text: str, option: str) -> int:
    if not (port.isascii() and port.isdigit() and int(port) in _PORTS):
        raise UserError(
            f"{option} {text!r}: the port must be a number from 1 to {_PORTS[-1]}.",
            "address-wrong",
            option=option,
        )
    return int(port)


def check_host(host: str, text: str, option: str = "--address") -> None:
    """Refuse anything but a DNS name or an IP address that others can reach."""
    if _is_ip(host):
        if ip_address(host).is_unspecified:
            raise UserError(
                f"{option} {text!r} means all of a machine: name an address that owners can call.",
                "address-wrong",
                option=option,
            )
    # A name that ends in a number is probably a mistyped IP address.
    elif not _DNS_NAME.fullmatch(host) or host.rpartition(".")[2].isdigit():
        raise UserError(
            f"{option} {text!r} is no address: name a DNS name or an IP address such as "
            "fl.example.org:8000, without https://.",
            "address-wrong",
            option=option,
        )


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host  # names of interfaces are only valid on one machine
