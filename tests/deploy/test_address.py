"""Where a SuperLink is reached, and where it listens."""

from __future__ import annotations

import pytest

from fedul_flwr.deploy.address import Address, check_host, parse_address, parse_listen
from tests.support.refusals import refuses


@pytest.mark.parametrize(
    ("text", "host", "port", "listening"),
    [
        ("fl.example.org", "fl.example.org", 8000, "0.0.0.0"),
        ("server:65535", "server", 65535, "0.0.0.0"),
        ("192.0.2.7:9000", "192.0.2.7", 9000, "0.0.0.0"),
        ("2001:db8::7", "2001:db8::7", 8000, "::"),
        ("[2001:db8::7]:9000", "2001:db8::7", 9000, "::"),
        # Whoever is on the same machine alone.
        ("localhost:9000", "localhost", 9000, "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2", 8000, "127.0.0.2"),
        ("[::1]:9000", "::1", 9000, "::1"),
    ],
)
def test_addresses(text: str, host: str, port: int, listening: str) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert address.listening == Address(listening, port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "listening", "local"),
    [
        ("127.0.0.1:8001", "127.0.0.1:8001", "127.0.0.1:8001"),
        ("10.0.0.7:1", "10.0.0.7:1", "10.0.0.7:1"),
        # All addresses, which the server itself calls by loopback.
        ("0.0.0.0:8001", "0.0.0.0:8001", "127.0.0.1:8001"),
        ("[0:0::0]:8001", "[::]:8001", "[::1]:8001"),
    ],
)
def test_where_a_server_listens(text: str, listening: str, local: str) -> None:
    address = parse_listen(text)
    assert (str(address), str(address.local)) == (listening, local)


def test_where_no_server_listens() -> None:
    for text in ("fl.example.org", "localhost:8001", "", "fe80::1%eth0"):
        with refuses("address-wrong", option="--listen"):
            parse_listen(text)
    with refuses("address-wrong", option="--listen"):
        parse_listen("::1:0x")
    with refuses("address-wrong", option="--listen"):
        parse_listen("127.0.0.1:0")


@pytest.mark.parametrize(
    "text",
    [
        *("", ":8000", "https://fl.example.org", "fl.example.org/path", "a b", "-a.org", "a..org"),
        *("fl_1.org", "256.1.1.1", "1.2.3", "[::1", "[::1]8000", "fe80::1%eth0", "a" * 64, "x;ls"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with refuses("address-wrong", option="--address"):
        parse_address(text)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "", "http", "80.5", "٣"])
def test_ports(port: str) -> None:
    with refuses("address-wrong", option="--address"):
        parse_address(f"fl.example.org:{port}")


def test_nobody_can_call_all_addresses() -> None:
    for text in ("0.0.0.0", "[::]:8000"):
        with refuses("address-wrong", option="--address"):
            parse_address(text)
    with refuses("address-wrong", option="--also"):
        check_host("*.org", "*.org", "--also")
