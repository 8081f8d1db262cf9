"""FedUL with consistency, server side: FedUL's own."""

from __future__ import annotations

from strategies.fedul import FedUL


class FedULConsistency(FedUL):
    """FedUL whose clients also compare views of a point; nothing changes for the server."""
