"""The command ``fedul-flwr export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedul_flwr.cli.options import TrustModules


def export(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", exists=True, file_okay=False, help="Directory of a finished run."
        ),
    ],
    form: Annotated[
        Literal["onnx", "torchscript"],
        typer.Option("--format", help="onnx needs pip install 'fedul-flwr[export]'."),
    ] = "onnx",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", dir_okay=False, help="File to write, model.onnx in RUN by default."
        ),
    ] = None,
    trust_modules: TrustModules = False,
) -> None:
    """Write a trained model as ONNX or TorchScript: from points to class probabilities."""
    from fedul_flwr.results.export import export as write

    typer.echo(f"Exported: {write(run, form, output, trust_modules=trust_modules)}")
