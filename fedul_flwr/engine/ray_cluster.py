"""The Ray cluster that a user names: whether it answers, before Ray waits minutes for it."""

from __future__ import annotations

import os
import re
import socket

from fedul_flwr.errors import UserError

_PATIENCE = 5.0
"""Seconds that a cluster has to answer."""


def refuse_silent_cluster(address: str) -> None:
    """Refuse a cluster that does not answer; ``auto`` is left to Ray, which looks on this machine.

    Parameters
    ----------
    address : ``host:port`` of the cluster's head, or ``auto``.

    Raises
    ------
    UserError
        If it has another form, or no cluster answers there.
    """
    if address == "auto":
        return
    match = re.fullmatch(r"(\[[^]]+\]|[^:/]+):(\d{1,5})", address)
    if match is None or not 0 < int(match[2]) < 65536:
        raise UserError(
            f"--ray-address {address!r} must be HOST:PORT of the head of a cluster, or auto."
        )
    try:
        with socket.create_connection((match[1].strip("[]"), int(match[2])), _PATIENCE):
            pass
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(
            f"--ray-address {address}: no Ray cluster answers there ({why}); `ray status` on its "
            "head says whether it runs."
        ) from error
    if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
        _refuse_other_program(address)


def _refuse_other_program(address: str) -> None:
    """Refuse what does not speak gRPC, as the head of a cluster does."""
    import grpc  # type: ignore[import-untyped]

    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            grpc.channel_ready_future(channel).result(_PATIENCE)
        except grpc.FutureTimeoutError as error:
            raise UserError(
                f"--ray-address {address}: what answers there is no Ray cluster."
            ) from error
