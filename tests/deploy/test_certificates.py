"""Certificates in real TLS handshakes, and keys in the hands of Flower's own loaders."""

import contextlib
import socket
import ssl
import threading
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.cli.flower_supernode import _try_setup_client_authentication

from fedul_flwr.deploy.certificates import (
    CLOCKS_APART,
    Identity,
    certificate_pem,
    issue,
    key_pem,
    make_authority,
    make_node_key,
    public_key_fault,
)

HOSTS = ["fl.example.org", "192.0.2.7", "2001:db8::7"]


@pytest.fixture(scope="module")
def authority() -> Identity:
    return make_authority(10)


def greet(server: Identity, trusted: Identity, host: str, place: Path) -> str:
    """A TLS handshake of two threads; returns why the client refuses the server, if it does."""
    (place / "server.pem").write_bytes(certificate_pem(server.certificate))
    (place / "server.key").write_bytes(key_pem(server.key))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(place / "server.pem", place / "server.key")
    calling = ssl.create_default_context(cadata=certificate_pem(trusted.certificate).decode())
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with theirs, contextlib.suppress(OSError):  # where the client has gone
            serving.wrap_socket(theirs, server_side=True).close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with ours, calling.wrap_socket(ours, server_hostname=host):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        thread.join()


def test_a_server_is_known_by_its_names_and_no_other(authority: Identity, tmp_path: Path) -> None:
    server = issue(authority, HOSTS, 1)
    for host in HOSTS:
        assert greet(server, authority, host, tmp_path) == ""
    assert "Hostname mismatch" in greet(server, authority, "example.org", tmp_path)
    # Another authority has the same name and another key.
    stranger = greet(server, make_authority(10), HOSTS[0], tmp_path)
    assert "unable to get local issuer certificate" in stranger
    now = datetime.now(UTC)
    ended = issue(authority, HOSTS, 1, now - timedelta(days=1, seconds=1))
    assert "has expired" in greet(ended, authority, HOSTS[0], tmp_path)
    later = issue(authority, HOSTS, 1, now + CLOCKS_APART + timedelta(minutes=1))
    assert "not yet valid" in greet(later, authority, HOSTS[0], tmp_path)
    # A server signs no certificates.
    assert greet(issue(server, HOSTS, 1), authority, HOSTS[0], tmp_path) != ""


def test_every_certificate_and_key_is_another(authority: Identity) -> None:
    one, two = issue(authority, HOSTS, 1), issue(authority, HOSTS, 1)
    assert one.certificate.serial_number != two.certificate.serial_number
    assert one.key.private_numbers() != two.key.private_numbers()
    assert isinstance(one.key.curve, ec.SECP384R1)
    usage = one.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]


def test_flower_loads_node_keys(tmp_path: Path) -> None:
    private, public = make_node_key("hospital-a")
    (tmp_path / "node.key").write_bytes(private)
    (tmp_path / "node.pub").write_bytes(public)
    named = Namespace(
        auth_supernode_private_key=str(tmp_path / "node.key"), auth_supernode_public_key=None
    )
    keys = _try_setup_client_authentication(named)
    assert keys is not None
    assert try_load_public_key(tmp_path / "node.pub") == public_key_to_bytes(keys[1])
    assert public.endswith(b" hospital-a\n")
    assert public_key_fault(public) == ""


def test_keys_that_flower_does_not_take(authority: Identity) -> None:
    private, public = make_node_key("a")
    assert "private" in public_key_fault(private)
    assert "private" in public_key_fault(key_pem(authority.key))
    for text in (b"", public[:50], public_key_to_bytes(authority.key.public_key())):
        assert "OpenSSH" in public_key_fault(text)
    ed25519 = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    assert "ssh-ed25519" in public_key_fault(ed25519)
