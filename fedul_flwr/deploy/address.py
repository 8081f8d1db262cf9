"""Addresses of a SuperLink: the one that clients connect to, and the one it listens at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from fedul_flwr.errors import UserError

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
    """Parse ``HOST[:PORT]`` of ``--address``; an IPv6 address with a port needs brackets."""
    host, port = _split(text)
    check_host(host, text)
    return Address(host, _port(port, text, "--address"))


def parse_listen(text: str, option: str = "--listen") -> Address:
    """Parse ``HOST[:PORT]`` of ``--listen``; HOST is an IP address of the server, or all."""
    host, port = _split(text)
    if not _is_ip(host):
        raise UserError(
            f"{option} {text!r} is no IP address of the server, such as 127.0.0.1:8001 for what "
            "is on the server itself alone, or 0.0.0.0:8000 for all.",
            "address-wrong",
            option=option,
        )
    return Address(str(ip_address(host)), _port(port, text, option))


def _split(text: str) -> tuple[str, str]:
    host, port = text, str(DEFAULT_PORT)
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
