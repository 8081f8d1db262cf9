"""Options that several commands have, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--run-config",
        "-c",
        metavar="'KEY=VALUE …'|FILE.toml",
        help="Settings; may be repeated, the later one wins.",
    ),
]
NumSupernodes = Annotated[int, typer.Option(min=1, help="Number of simulated clients.")]
Output = Annotated[Path | None, typer.Option(file_okay=False, help="Directory of the results.")]
ClientCpus = Annotated[int, typer.Option(min=1, help="CPUs a client takes.")]
ClientGpus = Annotated[
    float, typer.Option(min=0.0, help="GPUs a client takes; a fraction shares one.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Flower's log.")]
InProcess = Annotated[
    bool, typer.Option("--in-process", help="Simulate in this process, for debugging.")
]
Transcript = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="New directory for a record of all messages; needs --in-process. What secure "
        "aggregation does not hide, such as updates, is readable there: for simulations only.",
    ),
]
