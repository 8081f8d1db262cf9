"""The commands that use a trained model: ``fedul-flwr predict | pack | export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedul_flwr.cli.options import with_options
from fedul_flwr.config.options import Evaluation, Prediction, Trusting

_MODEL = "Directory of a run, or a file that fedul-flwr pack wrote."
Model = Annotated[Path, typer.Option(metavar="RUN|FILE", exists=True, help=_MODEL)]
FinishedRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", exists=True, file_okay=False, help="Directory of a finished run."
    ),
]


@with_options
def predict(
    model: Model,
    input_path: Annotated[
        Path,
        typer.Option(
            "--input",
            exists=True,
            help="What to predict: images (a file or a folder), or a table (.csv, .parquet, .npz).",
        ),
    ],
    how: Prediction,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="CSV file to write.")
    ] = None,
) -> None:
    """Predict the classes of images or of a table's rows with a trained model."""
    from fedul_flwr.results.predict import predict as write

    typer.echo(f"Predictions: {write(model, input_path, output, how=how)}")


@with_options
def evaluate(
    model: Model,
    labels: Annotated[Path, typer.Option(exists=True, help="Table with the true classes.")],
    how: Evaluation,
    input_path: Annotated[
        Path | None, typer.Option("--input", exists=True, help="The points, if not in --labels.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path(
        "evaluation.html"
    ),
) -> None:
    """Write a page about how well a model tells a class, by default the rarest one, apart."""
    from fedul_flwr.results.evaluate import evaluate as write

    for line in write(model, labels, input_path, output, how=how):
        typer.echo(line)
    typer.echo(f"Evaluation: {output}")


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


@with_options
def export(
    how: Trusting,
    run: Annotated[Path, typer.Argument(metavar="RUN|FILE", exists=True, help=_MODEL)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", dir_okay=False, help="By default model.onnx in or beside."),
    ] = None,
) -> None:
    """Write a trained model as ONNX, from points to class probabilities.

    It needs pip install 'fedul-flwr[export]'.
    """
    from fedul_flwr.results.export import export as write

    typer.echo(f"Exported: {write(run, output, trust_modules=how.trust_modules)}")
