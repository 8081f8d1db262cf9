"""Flower's programs of a consortium, guarded against other users of their machine."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Literal

from fedul_flwr.engine.own_connections import guard_servers
from fedul_flwr.errors import UserError

Program = Literal["superlink", "supernode"]

OWNERS_PATHS = ("/v1/fleet/",)
"""Paths of the SuperLink that SuperNodes use."""


def start(program: Program, options: Sequence[str], *, runs_from_anywhere: bool = False) -> None:
    """Run ``flower-superlink`` or ``flower-supernode`` in this process until it ends.

    Both answer only processes of the user who started them, but for the SuperLink's paths for
    SuperNodes: no other user, and nobody elsewhere, can start a run or change who takes part.

    Parameters
    ----------
    program : which one.
    options : those of Flower's program.
    runs_from_anywhere : whether the SuperLink answers everybody who reaches it.

    Raises
    ------
    UserError
        If a SuperNode is told ``runs_from_anywhere``.
    """
    if runs_from_anywhere and program == "supernode":
        raise UserError("--runs-from-anywhere is for the SuperLink: no run starts at a SuperNode.")
    if not runs_from_anywhere:
        guard_servers(OWNERS_PATHS if program == "superlink" else ())
    name = f"flower-{program}"
    [entry] = importlib.metadata.entry_points(group="console_scripts", name=name)
    sys.argv = [name, *options]
    entry.load()()
