"""The commands that use a trained model: ``fedul-flwr predict | pack | export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedul_flwr.cli.options import TrustModules

FinishedRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", exists=True, file_okay=False, help="Directory of a finished run."
    ),
]


def predict(
    model: Annotated[
        Path,
        typer.Option(
            metavar="RUN|FILE",
            exists=True,
            help="Directory of a run, or a file that fedul-flwr pack wrote.",
        ),
    ],
    input_path: Annotated[
        Path,
        typer.Option(
            "--input",
            exists=True,
            help="What to predict: images (a file or a folder), or a table (.csv, .parquet, .npz).",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="CSV file to write.")
    ] = None,
    id_column: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Column of the table that names its rows: it is copied to the CSV, and is never "
            "a feature.",
        ),
    ] = "",
    batch_size: Annotated[int, typer.Option(min=1, help="Images or rows at a time.")] = 256,
    priors: Annotated[
        str | None,
        typer.Option(
            metavar="P1,P2,…|estimate",
            help="Class priors of these points: re-weigh for K numbers, or for an estimate.",
        ),
    ] = None,
    personal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A client's personal model of that run, for its own points.",
        ),
    ] = None,
    trust_modules: TrustModules = False,
) -> None:
    """Predict the classes of images or of a table's rows with a trained model."""
    from fedul_flwr.results.predict import write_predictions

    path = write_predictions(
        model,
        input_path,
        output,
        batch_size,
        priors,
        id_column=id_column,
        personal=personal,
        trust_modules=trust_modules,
    )
    typer.echo(f"Predictions: {path}")


def pack(
    run: FinishedRun,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", dir_okay=False, help="File to write, model.zip in RUN by default."
        ),
    ] = None,
) -> None:
    """Write a trained model as one file that fedul-flwr predict takes on any machine."""
    from fedul_flwr.results.model_file import pack as write

    typer.echo(f"Packed: {write(run, output)}")


def export(
    run: FinishedRun,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", dir_okay=False, help="File to write, model.onnx in RUN by default."
        ),
    ] = None,
    trust_modules: TrustModules = False,
) -> None:
    """Write a trained model as ONNX, from points to class probabilities.

    It needs pip install 'fedul-flwr[export]'.
    """
    from fedul_flwr.results.export import export as write

    typer.echo(f"Exported: {write(run, output, trust_modules=trust_modules)}")
