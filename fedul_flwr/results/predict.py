"""Predictions with the saved model of a run."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedul_flwr.config.class_priors import checked_prior, parse_prior
from fedul_flwr.config.model import recorded_options
from fedul_flwr.config.own_modules import refuse_strange_modules
from fedul_flwr.config.user_files import regular_file, user_path
from fedul_flwr.data.columns import COLUMNS_FILE, read_columns
from fedul_flwr.data.csv_cells import write_cell
from fedul_flwr.data.decode import Survey, join_blocks
from fedul_flwr.data.local_data import open_points
from fedul_flwr.data.local_files import as_points
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.data.standardize import constant_scaling, moments, scaled, scaling_by
from fedul_flwr.data.tables import NO_OPTIONS, Missing, Table, TableOptions
from fedul_flwr.data.types import Inputs, InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.class_priors import estimate_prior, reweigh
from fedul_flwr.models import build_model
from fedul_flwr.results.records import read_config, read_summary, saved_model

__all__ = ["Predictor", "load_model", "predict"]

MODEL_FILE = "model.safetensors"
ESTIMATE = "estimate"


@dataclass(frozen=True)
class Predictor:
    """A trained model for points as they are stored.

    Attributes
    ----------
    model : the module, in evaluation mode; maps ``(n, channels, height, width)`` or ``(n, d)`` to
        logits.
    input_shape : shape of the training points.
    class_names : K names; label ``k`` is ``class_names[k]``.
    priors : ``(K,)``, class priors that it was trained for; ``None`` if unknown.
    table : rules for tables of features, with the columns of its training if they are known.
    standardize : how vectors are standardized: ``"columns"`` by the means and scales of ``table``,
        ``"owner"`` by those of the vectors to predict, ``"none"`` not at all.
    """

    model: nn.Module
    input_shape: InputShape
    class_names: tuple[str, ...]
    priors: NDArray[np.float64] | None = None
    table: TableOptions = NO_OPTIONS
    standardize: str = "none"

    def predict(
        self, inputs: Inputs, batch_size: int = 256, priors: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Labels ``(n,)`` of points; arguments as for :meth:`predict_proba`."""
        labels: NDArray[np.int64] = self.predict_proba(inputs, batch_size, priors).argmax(axis=1)
        return labels

    def predict_proba(
        self, inputs: Inputs, batch_size: int = 256, priors: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Class probabilities ``(n, K)`` of points.

        Parameters
        ----------
        inputs : uint8 images ``(n, height, width, channels)`` or float32 vectors ``(n, d)``.
        batch_size : number of points that the model processes at once.
        priors : ``(K,)``, class priors of these points, by which the model's softmax is
            re-weighed; by default those of its training.

        Raises
        ------
        UserError
            If points have another shape than the model's, or priors cannot be used.
        """
        wanted = None if priors is None else self.checked_priors(priors)
        posterior = self._softmax(inputs, batch_size)
        return posterior if wanted is None else reweigh(posterior, self.trained_priors(), wanted)

    def estimate_priors(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Class priors ``(K,)`` of images, from the result of :meth:`predict_proba` without priors.

        By EM (:func:`fedul_flwr.learning.class_priors.estimate_prior`); needs one image or more.
        """
        try:
            return estimate_prior(probabilities, self.trained_priors())
        except ValueError as error:
            raise UserError(f"Class priors cannot be estimated: {error}.") from None

    def trained_priors(self) -> NDArray[np.float64]:
        """``(K,)``, class priors that the model was trained for, or a UserError."""
        if self.priors is None:
            raise UserError(
                "The run of this model does not say which class priors it was trained for, "
                "so its predictions cannot be re-weighed for others."
            )
        return self.priors

    def checked_priors(self, priors: ArrayLike) -> NDArray[np.float64]:
        """``priors`` as ``(K,)``, or a UserError if the model cannot be re-weighed by them."""
        trained = self.trained_priors()
        try:
            wanted = checked_prior(priors)
        except ValueError as error:
            raise UserError(f"Class priors = {np.asarray(priors).tolist()}: {error}.") from None
        if len(wanted) != len(trained):
            raise UserError(
                f"The class priors have {len(wanted)} entries; "
                f"the model has {len(trained)} classes."
            )
        return wanted

    def _softmax(self, inputs: Inputs, batch_size: int) -> NDArray[np.float64]:
        if batch_size < 1:
            raise UserError(f"The batch size must be at least 1, not {batch_size}.")
        kind, dtype = ("float32 vectors", "float32")
        if len(self.input_shape) > 1:
            kind, dtype = ("uint8 images", "uint8")
        if inputs.dtype != dtype or inputs.shape[1:] != self.input_shape:
            raise UserError(
                f"The model takes {kind} (n, {_comma(self.input_shape)}), "
                f"not {inputs.dtype} ({_comma(inputs.shape)})."
            )
        inputs = self._standardized(inputs)
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        result = np.empty((len(inputs), len(self.class_names)))
        with torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                batch = np.array(inputs[start : start + batch_size])
                logits = self.model(to_input(torch.from_numpy(batch).to(device)))
                if logits.shape != (len(batch), len(self.class_names)):
                    raise UserError(
                        f"The model returned ({_comma(logits.shape)}) for {len(batch)} points of "
                        f"{len(self.class_names)} classes; one logit per point and class is needed."
                    )
                # In float64, so that a row sums to 1 in all printed digits.
                rows = logits.double().softmax(dim=1)
                result[start : start + len(batch)] = rows.cpu().numpy()
        return result

    def _standardized(self, inputs: Inputs) -> Inputs:
        columns = self.table.columns
        if self.standardize == "columns":
            return scaled(inputs, constant_scaling(columns))
        if self.standardize == "owner":
            everything = np.arange(len(inputs), dtype=np.int64)
            return scaled(inputs, scaling_by(moments(inputs, everything), columns))
        return inputs


def load_model(model_dir: str | Path, *, trust_modules: bool = False) -> Predictor:
    """Load the best model of the run in ``model_dir``: ``load_model(d).predict(images)``.

    Parameters
    ----------
    model_dir : output directory of a run.
    trust_modules : whether a module that the directory's settings name may be imported, and so run,
        even if no run of this user on this machine has named it.

    Raises
    ------
    UserError
        If the directory has no model, or one that does not match its ``config.json``.
    """
    directory = Path(model_dir)
    weights = directory / MODEL_FILE
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; name the output directory of a run.")
    settings, data = read_config(directory)
    if not weights.is_file():
        raise UserError(f"{directory} holds no {MODEL_FILE}: the run has not saved a model yet.")
    input_shape, class_names = _describe(directory / "config.json", data)
    name = saved_model(directory, settings)
    if not trust_modules:
        refuse_strange_modules(directory, {"model": name}, "use --trust-modules")
    model = build_model(name, input_shape, len(class_names), options=recorded_options(settings))
    _load_weights(model, weights, name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # An unfinished run only has the values from its start.
    known = (read_summary(directory) or data).get("test_prior")
    return Predictor(
        model.to(device).eval(),
        input_shape,
        class_names,
        None if known is None else _trained_for(directory, known, len(class_names)),
        _table_of(directory, settings),
        {"constants": "columns", "federation": "columns", "owner": "owner"}.get(
            str(settings.get("standardize")), "none"
        ),
    )


def predict(
    model_dir: Path,
    input_path: Path,
    output: Path | None = None,
    batch_size: int = 256,
    priors: str | None = None,
    *,
    trust_modules: bool = False,
) -> Path:
    """Label the points at ``input_path`` with the model of a run, and write a CSV file.

    Parameters
    ----------
    model_dir : output directory of a run.
    input_path : an image, a folder of images, a ``.parquet`` or an ``.npz`` file; for vectors a
        ``.parquet``, ``.npz`` or ``.csv`` file.
    output : the CSV to write, by default ``<input>-predictions.csv`` in the working directory.
        An existing one is replaced only after all predictions succeeded.
    batch_size : number of points that the model processes at once.
    priors : class priors of these points, by which probabilities are re-weighed: K numbers
        separated by commas, or ``estimate`` to estimate them from the images and print them.
    trust_modules : see :func:`load_model`.

    Returns
    -------
    The CSV: ``name,label,class,confidence,p_<class>…``, one line per image; confidence is the
    probability of the label.

    Raises
    ------
    UserError
        If there is no usable model, images are missing or unreadable, priors do not fit the model,
        or the output cannot be written.
    """
    if output is None:
        # The folder "." has no name until it is resolved.
        source = user_path(input_path)
        stem = source.name if source.is_dir() else source.stem
        output = Path(f"{stem or 'images'}-predictions.csv")
    if output.is_dir() or not output.parent.is_dir():
        raise UserError(f"Cannot write {output}: it must be a file in an existing directory.")
    predictor = load_model(model_dir, trust_modules=trust_modules)
    wanted = _parse_priors(priors, predictor)
    shape = predictor.input_shape
    names, opened = open_points(input_path, shape, predictor.table)
    if not isinstance(opened, Table):
        for note in _differences(opened.survey(), shape):
            print(f"Note: {note}", file=sys.stderr)
    (points,) = as_points([opened], shape, predictor.table)
    inputs = join_blocks(points, shape)
    probabilities = predictor.predict_proba(inputs, batch_size, wanted)
    if priors == ESTIMATE:
        found = predictor.estimate_priors(probabilities)
        probabilities = reweigh(probabilities, predictor.trained_priors(), found)
        shares = zip(predictor.class_names, found, strict=True)
        print("Estimated class priors: " + ", ".join(f"{name} {p:.4f}" for name, p in shares))
    write_atomically(output, _table(names, probabilities, predictor.class_names))
    return output


def _differences(survey: Survey, shape: InputShape) -> Iterator[str]:
    """Sentences about images of another form than the model was trained on."""
    height, width, channels = shape
    others = [size for size in survey.sizes if size != (height, width)]
    if others:
        (high, wide), more = others[0], f" and {len(others) - 1} more" if len(others) > 1 else ""
        yield (
            f"images of {high} x {wide} pixels{more} are resized to {height} x {width}, which the "
            "model was trained on."
        )
    if survey.channels != channels:
        kinds = {1: "gray", 3: "RGB"}
        yield (
            f"{kinds[survey.channels]} images are converted to {kinds.get(channels, channels)}, "
            "which the model was trained on."
        )


def _table_of(directory: Path, settings: Mapping[str, Any]) -> TableOptions:
    """Rules for tables as in the run; without a columns file its columns are not known."""
    file = directory / COLUMNS_FILE
    columns = read_columns(file) if file.is_file() else None
    missing, label = settings.get("missing", "refuse"), str(settings.get("label-column", ""))
    if missing not in get_args(Missing):
        raise UserError(f'{directory / "config.json"}: unknown value {missing!r} of "missing".')
    return TableOptions(missing, label, columns)


def _table(names: list[str], probabilities: NDArray[np.float64], classes: tuple[str, ...]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "label", "class", "confidence", *(f"p_{name}" for name in classes)])
    for name, row in zip(names, probabilities, strict=True):
        label = int(row.argmax())
        numbers = (f"{value:.6g}" for value in (row[label], *row))
        writer.writerow([write_cell(name), label, write_cell(classes[label]), *numbers])
    return text.getvalue()


def _parse_priors(text: str | None, predictor: Predictor) -> NDArray[np.float64] | None:
    """Priors given as numbers; ``None`` for none, or if they are to be estimated later."""
    if text is None:
        return None
    if text == ESTIMATE:
        predictor.trained_priors()  # fail before the work, not after it
        return None
    try:
        numbers = parse_prior(text, (ESTIMATE,))
    except ValueError as error:
        raise UserError(f"Option --priors = {text!r}: {error}.") from None
    return predictor.checked_priors(numbers)


def _trained_for(directory: Path, values: Any, num_classes: int) -> NDArray[np.float64]:
    try:
        prior = checked_prior(values)
        if len(prior) == num_classes:
            return prior
    except (ValueError, TypeError):
        pass
    raise UserError(f'{directory}: "test_prior" must be {num_classes} class priors, not {values}.')


def _describe(path: Path, data: dict[str, Any]) -> tuple[tuple[int, int, int], tuple[str, ...]]:
    shape, count, names = (data.get(key) for key in ("input_shape", "num_classes", "class_names"))
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) not in (1, 3) or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise UserError(
            f'{path}: "input_shape" must be [height, width, channels] or [length], not {shape!r}.'
        )
    if not isinstance(count, int) or count < 1:
        raise UserError(f'{path}: "num_classes" must be a number of classes, not {count!r}.')
    if not isinstance(names, list) or len(names) != count:
        names = list(range(count))
    return tuple(sizes), tuple(str(name) for name in names)


def _load_weights(model: nn.Module, path: Path, name: str) -> None:
    try:
        state = load_file(regular_file(path))
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read {path} as a safetensors file ({error}).") from error
    for key, array in state.items():
        if array.is_floating_point() and not array.isfinite().all():
            raise UserError(f"{path}: array {key!r} is not finite, so the model can label nothing.")
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reasons = " ".join(line.strip() for line in str(error).splitlines()[1:])
        raise UserError(f"{path} does not fit model {name!r}: {reasons}") from error


def _comma(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)
