"""FedUL with consistency, server side: the same as FedUL's."""

from __future__ import annotations

from strategies.fedul import FedUL


class FedULConsistency(FedUL):
    """FedUL whose clients add a consistency loss between views; the server is unchanged."""
