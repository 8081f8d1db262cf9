"""The commands that use a trained model: ``fedul-flwr predict | pack | export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedul_flwr.cli.options import TrustModules

_MODEL = "Directory of a run, or a file that fedul-flwr pack wrote."
Model = Annotated[Path, typer.Option(metavar="RUN|FILE", exists=True, help=_MODEL)]
IdColumn = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Column of the table that names its rows: it is copied to the CSV, and is never a "
        "feature.",
    ),
]
Positive = Annotated[
    str, typer.Option(metavar="CLASS", help="The class that --threshold is about.")
]
Threshold = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Probability of the class from which a point is of it."),
]
FinishedRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", exists=True, file_okay=False, help="Directory of a finished run."
    ),
]


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
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="CSV file to write.")
    ] = None,
    id_column: IdColumn = "",
    batch_size: Annotated[int, typer.Option(min=1, help="Images or rows at a time.")] = 256,
    priors: Annotated[
        str | None,
        typer.Option(
            metavar="P1,P2,…|estimate",
            help="Class priors of these points: re-weigh for K numbers, or for an estimate.",
        ),
    ] = None,
    positive: Positive = "",
    threshold: Threshold = None,
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
    from fedul_flwr.results.predict import Prediction, write_predictions

    how = Prediction(batch_size, priors, id_column, positive, threshold, personal, trust_modules)
    typer.echo(f"Predictions: {write_predictions(model, input_path, output, how)}")


def evaluate(
    model: Model,
    labels: Annotated[Path, typer.Option(exists=True, help="Table with the true classes.")],
    input_path: Annotated[
        Path | None, typer.Option("--input", exists=True, help="The points, if not in --labels.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path(
        "evaluation.html"
    ),
    label_column: Annotated[str, typer.Option(help="By default the model's, or label.")] = "",
    id_column: IdColumn = "",
    by: Annotated[str, typer.Option(metavar="A,B,…", help="Columns to evaluate apart by.")] = "",
    positive: Positive = "",
    threshold: Threshold = None,
    sensitivity: Annotated[
        float | None, typer.Option(help="Instead: the share of the class that must be found.")
    ] = None,
    trust_modules: TrustModules = False,
) -> None:
    """Write a page about how well a model tells a class, by default the rarest one, apart."""
    from fedul_flwr.results.evaluate import Evaluation
    from fedul_flwr.results.evaluate import evaluate as write

    how = Evaluation(
        label_column=label_column,
        id_column=id_column,
        by=[name.strip() for name in by.split(",") if name.strip()],
        positive=positive,
        threshold=threshold,
        sensitivity=sensitivity,
        trust_modules=trust_modules,
    )
    for line in write(model, labels, input_path, output, how):
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


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN|FILE", exists=True, help=_MODEL)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", dir_okay=False, help="By default model.onnx in or beside."),
    ] = None,
    trust_modules: TrustModules = False,
) -> None:
    """Write a trained model as ONNX, from points to class probabilities.

    It needs pip install 'fedul-flwr[export]'.
    """
    from fedul_flwr.results.export import export as write

    typer.echo(f"Exported: {write(run, output, trust_modules=trust_modules)}")
