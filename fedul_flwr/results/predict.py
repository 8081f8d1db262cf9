"""Predict points with a run's model, and write a file of probabilities."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import (
    PriorsLike,
    Scalar,
    checked_prior,
    in_order,
    modules_from,
    parse_prior,
)
from fedul_flwr.config.options import Prediction, takes
from fedul_flwr.config.run_config import LAST_MODEL
from fedul_flwr.config.shared import (
    RUN,
    ModelOptions,
    SharedSettings,
    is_reference,
    recorded_options,
)
from fedul_flwr.config.trusted_modules import require_trusted_modules
from fedul_flwr.config.user_files import regular_file, user_path
from fedul_flwr.data.class_priors import estimate_prior, reweigh
from fedul_flwr.data.columns import COLUMNS_FILE, FEATURES_FILE, run_columns
from fedul_flwr.data.csv_files import csv_text, write_cell
from fedul_flwr.data.decode import Survey, join_blocks
from fedul_flwr.data.local_data import as_points, open_points
from fedul_flwr.data.run_files.records import number
from fedul_flwr.data.run_files.run import BEST_MODEL, COVERAGE, TEMPERATURE, TRAINED_FOR, Run
from fedul_flwr.data.safe_files import output_file, read_header, require_whole, write_atomically
from fedul_flwr.data.standardize import Scaling, constant_scaling, scaled
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions, Texts, reading_notes
from fedul_flwr.data.types import Inputs, InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.find import Extractor, find_extractor
from fedul_flwr.federated.messages import printable
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.calibration import MARGINS, margins_for, prediction_sets
from fedul_flwr.models import build_model
from fedul_flwr.results.model_file import unpacked

ESTIMATE = "estimate"
SEPARATOR = "|"
"""Between the classes of a set."""
NAME = "name"
"""First column of the CSV where no column of the table has identifiers."""


@takes(Prediction)
def predict(
    model: str | Path,
    input_path: str | Path,
    output: str | Path | None = None,
    *,
    how: Prediction = Prediction(),
) -> Path:
    """Label the points at ``input_path`` with a trained model, and write a CSV file.

    Parameters
    ----------
    model : output directory of a run, or a file that ``fedul-flwr pack`` wrote.
    input_path : an image, a folder of images, a ``.parquet`` or an ``.npz`` file; for vectors a
        ``.parquet``, ``.npz`` or ``.csv`` file.
    output : the CSV to write, by default ``<input>-predictions.csv`` in the working directory.
        An existing one is replaced only after all predictions succeeded.

    Returns
    -------
    The CSV: ``name,label,class,confidence,p_<class>…``, one line per point; confidence is the
    probability of the label. With an ``id_column`` the first column has its name; with ``coverage``
    the last one, ``set``, has the classes of each point's set, by their probability.

    Raises
    ------
    UserError
        If there is no usable model, points are missing or unreadable, priors do not fit the model,
        the identifiers cannot be used, or the output cannot be written.
    """
    model, input_path = user_path(model), user_path(input_path)
    stem = input_path.name if input_path.is_dir() else input_path.stem
    output = Path(f"{stem or 'images'}-predictions.csv" if output is None else output)
    predictor = load_model(model, how.personal, trust_modules=how.trust_modules)
    classes = predictor.class_names
    wanted = _parse_priors(how.priors, predictor)
    header = _header(how.id_column or NAME, classes, with_sets=how.coverage is not None)
    if how.coverage is not None:
        predictor.require_coverage()
    read = [model, input_path, *([how.personal] if how.personal else [])]
    target = output_file(output, read, ".csv", csv_text([header]).strip().encode())
    if (how.threshold is None) == bool(how.positive):
        raise UserError("--threshold needs --positive CLASS, and it --threshold.", "option-missing")
    chosen = class_named(classes, how.positive) if how.positive else 0
    names, points = open_file(predictor, input_path, how.id_column)
    probabilities = predictor.predict_proba(points, how.batch_size)
    # Of the model as it was judged: how often a set is right by class depends on no class priors.
    sets = None if how.coverage is None else predictor.sets_of(probabilities, how.coverage)
    if wanted is not None:
        probabilities = reweigh(probabilities, predictor.trained_priors(), wanted)
    if how.priors == ESTIMATE:
        estimate = predictor.estimate_priors(probabilities)
        probabilities = reweigh(probabilities, predictor.trained_priors(), estimate)
        shares = zip(classes, estimate, strict=True)
        # Names come from a run's folder, and a terminal obeys control characters.
        said = ", ".join(f"{printable(name)} {share:.4f}" for name, share in shares)
        print(f"Estimated class priors: {said}")
    labels = probabilities.argmax(axis=1)
    if how.threshold is not None:
        others = np.delete(probabilities, chosen, axis=1).argmax(axis=1)
        others += others >= chosen
        labels = np.where(probabilities[:, chosen] >= how.threshold, chosen, others)
    rows: list[list[object]] = [[*header]]
    for at, (name, row, label) in enumerate(zip(names, probabilities, labels, strict=True)):
        numbers = (f"{value:.6g}" for value in (row[label], *row))
        members = [] if sets is None else [write_cell(SEPARATOR.join(compress(classes, sets[at])))]
        rows.append([write_cell(name), label, write_cell(classes[label]), *numbers, *members])
    if sets is not None:
        print(f"A set has {sets.sum(axis=1).mean():.2f} classes on average.")
    write_atomically(target, csv_text(rows))
    return output


def open_file(
    predictor: Predictor, input_path: Path, id_column: str = ""
) -> tuple[list[str], Inputs]:
    """Names of the points of a file, and the points as the model takes them; notes to stderr."""
    shape = predictor.input_shape
    names, opened = open_points(input_path, shape, predictor.table, id_column)
    notes = [f"{note}." for note in reading_notes([opened])]
    if not isinstance(opened, Table | Texts):
        notes += _differences(opened.survey(), shape)
    for note in notes:
        print(f"Note: {note}", file=sys.stderr)
    (points,) = as_points([opened], predictor.table)
    return names, join_blocks(points, shape)


def class_named(classes: tuple[str, ...], name: str) -> int:
    """Number of a class; UserError if the model has none of this name."""
    if name not in classes:
        raise UserError(
            f"--positive {name!r} is no class of the model: {', '.join(classes)}.",
            "unknown-name",
            name=name,
        )
    return classes.index(name)


def _header(first: str, classes: tuple[str, ...], *, with_sets: bool) -> list[str]:
    rest = ["label", "class", "confidence", *(f"p_{name}" for name in classes)]
    rest += ["set"] if with_sets else []
    if first in rest:
        raise UserError(
            f"--id-column {first!r} is the name of a column of predictions: rename it in "
            "the table.",
            "name-twice",
            option="--id-column",
        )
    return [write_cell(first), *rest]


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
        raise UserError(
            f"Option --priors = {text!r}: {error}.", "class-priors-wrong", option="--priors"
        ) from None
    return predictor.checked_priors(numbers)


UNKNOWN_SCALING = (
    "The run standardized each owner's points by their own means and scales (standardize = "
    "'owner'), and the server had no points to keep some for predictions: write the \"mean\" and "
    '"scale" of every number into columns.json of the run, or train with '
    "standardize = 'federation'."
)


_FORMS: dict[int, tuple[str, type[np.generic]]] = {
    0: ("texts", np.bytes_),
    1: ("float32 vectors", np.float32),
    3: ("uint8 images", np.uint8),
}
"""Points as they are stored, by the number of their axes."""


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
    temperature : divisor of the logits (:mod:`fedul_flwr.learning.calibration`).
    coverage : ``(K, 1 + G)``, how often sets have a point's class, by class and margin
        (:func:`~fedul_flwr.learning.calibration.coverage_by_margin`); ``None`` if not known.
    extractor : computes features of points, which the model takes; ``None`` if it takes points.
    table : rules for tables of features, with the columns of its training if they are known.
    scaling : standardizes what the model takes; ``"unknown"`` if the run does not say by what.
    """

    model: nn.Module
    input_shape: InputShape
    class_names: tuple[str, ...]
    priors: NDArray[np.float64] | None = None
    temperature: float = 1.0
    coverage: NDArray[np.float64] | None = None
    extractor: Extractor | None = None
    table: TableOptions = NO_OPTIONS
    scaling: Scaling | Literal["unknown"] | None = None

    def predict(
        self, inputs: Inputs, batch_size: int = 256, priors: PriorsLike | None = None
    ) -> NDArray[np.int64]:
        """Labels ``(n,)`` of points; arguments as for :meth:`predict_proba`."""
        labels: NDArray[np.int64] = self.predict_proba(inputs, batch_size, priors).argmax(axis=1)
        return labels

    def predict_proba(
        self, inputs: Inputs, batch_size: int = 256, priors: PriorsLike | None = None
    ) -> NDArray[np.float64]:
        """Class probabilities ``(n, K)`` of points.

        Parameters
        ----------
        inputs : uint8 images ``(n, height, width, channels)``, float32 vectors ``(n, d)``, or texts
            in UTF-8, bytes ``(n,)``.
        batch_size : number of points that the model processes at once.
        priors : ``(K,)``, class priors of these points, by which the model's softmax is
            re-weighed; by default those of its training.

        Raises
        ------
        UserError
            If points have another shape than the model's, or priors cannot be used.

        Examples
        --------
        >>> half, points = np.array([0.5, 0.5]), np.zeros((1, 2), dtype=np.float32)
        >>> predictor = Predictor(nn.Identity(), (2,), ("ill", "sound"), priors=half)
        >>> predictor.predict_proba(points).round(4).tolist()
        [[0.5, 0.5]]
        >>> predictor.predict_proba(points, priors=[0.1, 0.9]).round(4).tolist()
        [[0.1, 0.9]]
        """
        wanted = None if priors is None else self.checked_priors(priors)
        posterior = self._softmax(inputs, batch_size)
        return posterior if wanted is None else reweigh(posterior, self.trained_priors(), wanted)

    def require_coverage(self) -> None:
        """Refuse prediction sets of a model of which it is not known how often they are right."""
        if self.coverage is None:
            raise UserError(
                "The run of this model does not say how often sets of classes have a point's "
                "class: it has to know its error without labels (docs/known-error.md).",
                "coverage-unknown",
            )

    def sets_of(self, probabilities: NDArray[np.float64], coverage: float) -> NDArray[np.bool_]:
        """Classes ``(n, K)`` of which a point has one with probability ``coverage``, in (0, 1).

        So it is for points of each class apart, as far as these look like those of the clients.

        Parameters
        ----------
        probabilities : ``(n, K)``, of :meth:`predict_proba` without priors.
        """
        self.require_coverage()
        assert self.coverage is not None
        with np.errstate(divide="ignore"):
            logits = np.log(probabilities) * self.temperature
        return prediction_sets(logits, margins_for(self.coverage, coverage))

    def estimate_priors(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Class priors ``(K,)`` of images, from the result of :meth:`predict_proba` without priors.

        By EM (:func:`fedul_flwr.data.class_priors.estimate_prior`); needs one image or more.
        """
        try:
            return estimate_prior(probabilities, self.trained_priors())
        except ValueError as error:
            raise UserError(
                f"Class priors cannot be estimated: {error}.", "class-priors-unknown"
            ) from None

    def trained_priors(self) -> NDArray[np.float64]:
        """``(K,)``, class priors that the model was trained for, or a UserError."""
        if self.priors is None:
            raise UserError(
                "The run of this model does not say which class priors it was trained for, "
                "so its predictions cannot be re-weighed for others.",
                "class-priors-unknown",
            )
        return self.priors

    def checked_priors(self, priors: PriorsLike) -> NDArray[np.float64]:
        """``priors`` as ``(K,)``, or a UserError if the model cannot be re-weighed by them.

        With names of classes (a mapping or a Series) their order does not matter.
        """
        trained = self.trained_priors()
        try:
            wanted = checked_prior(in_order(priors, self.class_names))
        except ValueError as error:
            raise UserError(
                f"Class priors = {np.asarray(priors).tolist()}: {error}.", "class-priors-wrong"
            ) from None
        if len(wanted) != len(trained):
            raise UserError(
                f"The class priors have {len(wanted)} entries; "
                f"the model has {len(trained)} classes.",
                "class-priors-wrong",
            )
        return wanted

    def _softmax(self, inputs: Inputs, batch_size: int) -> NDArray[np.float64]:
        what, dtype = _FORMS[len(self.input_shape)]
        if not np.issubdtype(inputs.dtype, dtype) or inputs.shape[1:] != self.input_shape:
            raise UserError(
                f"The model takes {what} ({_comma(('n', *self.input_shape))}), "
                f"not {inputs.dtype} ({_comma(inputs.shape)}).",
                "points-shape",
            )
        if len(self.input_shape) == 1 and not np.isfinite(inputs[:]).all():
            raise UserError("The vectors hold values that are missing or infinite.", "points-type")
        inputs = self._taken(inputs, batch_size)
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        result = np.empty((len(inputs), len(self.class_names)))
        with torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                batch = inputs[start : start + batch_size]
                logits = self.model(to_input(torch.from_numpy(np.array(batch)).to(device)))
                if logits.shape != (len(batch), len(self.class_names)):
                    raise UserError(
                        f"The model returned ({_comma(logits.shape)}) for {len(batch)} points of "
                        f"{len(self.class_names)} classes; one logit per point and class "
                        "is needed.",
                        "own-code-result",
                    )
                # In float64, so that a row sums to 1 in all printed digits.
                rows = (logits.double() / self.temperature).softmax(dim=1)
                result[start : start + len(batch)] = rows.cpu().numpy()
        return result

    def _taken(self, inputs: Inputs, batch_size: int) -> Inputs:
        """What the model takes: points, or their features, standardized as in training."""
        if self.extractor is not None:
            starts = range(0, len(inputs), batch_size)
            blocks = [self.extractor.compute(inputs[at : at + batch_size]) for at in starts]
            inputs = np.concatenate(blocks) if blocks else np.empty((0, 1), dtype=np.float32)
        if self.scaling is None:
            return inputs
        if self.scaling == "unknown":
            raise UserError(UNKNOWN_SCALING, "model-unfit")
        return scaled(inputs, self.scaling)


def load_model(
    model: str | Path, personal: Path | None = None, *, trust_modules: bool = False
) -> Predictor:
    """Load a trained model: ``load_model(d).predict(images)``.

    Parameters
    ----------
    model : output directory of a run, whose best model it is, or a file that ``fedul-flwr pack``
        wrote.
    personal : a client's personal model of that run (docs/personal.md), whose arrays take the place
        of the run's. It says nothing about class priors, and has no temperature.
    trust_modules : whether a module that its settings name may be imported, and so run, even if no
        run of this user on this machine has named it.

    Raises
    ------
    UserError
        If there is no model, or one that does not match its ``config.json``.
    """
    path = Path(model)
    if path.is_file():
        with unpacked(path) as directory:
            run = Run.read(directory)
            if str(run.settings.get("features", "")).startswith(RUN):
                raise UserError(
                    f"{path} needs another run's model (setting features).",
                    "setting-of-one-machine",
                )
            return _predictor(run, personal, trust_modules)
    if not path.is_dir():
        raise UserError(
            f"{path} is not there: name the output directory of a run, or a file that fedul-flwr "
            "pack wrote.",
            "file-missing",
        )
    return _predictor(Run.read(path), personal, trust_modules)


def _predictor(run: Run, personal: Path | None, trust_modules: bool) -> Predictor:
    weights = run.path / BEST_MODEL
    if not weights.is_file():
        raise UserError(
            f"{run.path} holds no {BEST_MODEL}: the run has not saved a model yet.",
            "model-missing",
        )
    model, extractor = _empty_model(run, weights, trust_modules)
    state = _read_weights(weights)
    if personal is not None:
        if "personal" not in read_header(personal):
            raise UserError(f"{personal} is no personal model of a run.", "model-file-wrong")
        _refuse_other_shapes(model, personal, run.model, whole=False)
        state |= _read_weights(personal)
    model.load_state_dict(state)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    of_weights = {} if personal else read_header(weights)
    temperature = number(of_weights.get(TEMPERATURE, 1.0))
    if temperature is None or temperature <= 0:
        raise UserError(f"{weights}: its temperature must be a number above 0.", "run-file-wrong")
    return Predictor(
        model.to(device).eval(),
        run.data.shape,
        run.data.class_names,
        None if personal else _trained_for(run),
        temperature,
        _coverage(of_weights, weights, len(run.data.class_names)),
        extractor,
        _table_of(run),
        _scaling_of(run),
    )


def _coverage(header: Mapping[str, Any], weights: Path, classes: int) -> Floats | None:
    """How often sets have a point's class, of a model's header; ``None`` if it does not say."""
    if COVERAGE not in header:
        return None
    try:
        made = np.array(header[COVERAGE], dtype=np.float64)
        right = made.shape == (classes, 1 + len(MARGINS)) and ((made >= 0) & (made <= 1)).all()
    except (TypeError, ValueError):
        right = False
    if not right:
        raise UserError(
            f"{weights}: its coverage must have a row of {1 + len(MARGINS)} shares for each class.",
            "run-file-wrong",
        )
    return made


def _empty_model(
    run: Run, weights: Path, trust_modules: bool
) -> tuple[nn.Module, Extractor | None]:
    """A model of the run's settings that fits ``weights``, and the extractor before it."""
    shape, name, features = run.data.shape, run.model, str(run.settings.get("features", ""))
    folder = None
    if not trust_modules:
        named = {"model": name, "features": features}
        folder = require_trusted_modules(run.path, named, "use --trust-modules")
    with modules_from(folder):
        extractor = None
        if features:  # a packed model may name a repository of anybody
            extractor = find_extractor(features, "auto", "auto", open_run, download=False)
            shape = (extractor.num_features(shape),)
        options = _options(run.settings)
        build = partial(build_model, name, shape, run.data.num_classes, options=options)
        if not is_reference(name):  # before anything as large as a number in the file is made
            with torch.device("meta"):
                _refuse_other_shapes(build(), weights, name)
        model = build()
    _refuse_other_shapes(model, weights, name)
    return model, extractor


def extractor_of(settings: SharedSettings) -> Extractor:
    """The extractor that setting ``features`` names, which must not be empty."""
    return find_extractor(settings.features, settings.device, settings.precision, open_run)


def open_run(directory: Path) -> nn.Module:
    """The best model of an earlier run, or a UserError."""
    return load_model(user_path(str(directory))).model


def _scaling_of(run: Run) -> Scaling | Literal["unknown"] | None:
    kind = run.settings.get("standardize")
    if kind not in ("constants", "federation", "owner"):
        return None
    name = FEATURES_FILE if run.settings.get("features") else COLUMNS_FILE
    if kind == "owner" and not (run.path / name).is_file():
        return "unknown"
    columns = run_columns(run.path, name)
    return constant_scaling(columns) if kind != "owner" or columns.has_constants else "unknown"


def _table_of(run: Run) -> TableOptions:
    """Rules for tables as in the run; without a columns file its columns are not known."""
    columns = run_columns(run.path) if (run.path / COLUMNS_FILE).is_file() else None
    label, text = (str(run.settings.get(key, "")) for key in ("label-column", "text-column"))
    named: dict[str, Scalar] = {
        key: run.settings[key] for key in ("image-bits", "image-window") if key in run.settings
    }
    read = SharedSettings.parse(named)
    return TableOptions("refuse", label, columns, text, read.image_bits, read.window, trained=True)


def _trained_for(run: Run) -> NDArray[np.float64] | None:
    """Class priors of its training; of an unfinished run its last model says it, once clients have
    said it."""
    prior = run.summary.test_prior if run.summary else run.data.test_prior
    if prior is None and (run.path / LAST_MODEL).is_file():
        prior = read_header(run.path / LAST_MODEL).get(TRAINED_FOR)
    if prior is None:
        return None
    with suppress(ValueError, TypeError):
        checked = checked_prior(prior)
        if len(checked) == run.data.num_classes:
            return checked
    raise UserError(
        f'{run.path}: "test_prior" must be {run.data.num_classes} class priors, not {prior}.',
        "run-file-wrong",
    )


def _options(settings: Mapping[str, Any]) -> ModelOptions:
    """Recorded options of the model, within the ranges of the settings."""
    named = {f"model-{name}": value for name, value in recorded_options(settings)._asdict().items()}
    return SharedSettings.parse(named).model_options


def _refuse_other_shapes(model: nn.Module, path: Path, name: str, *, whole: bool = True) -> None:
    """Refuse weights that are not those of ``model``, or not ``whole``: of a part of it."""
    needed = {key: tuple(array.shape) for key, array in model.state_dict().items()}
    with _reading(path), safe_open(regular_file(path), "pt") as file:
        shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    for key in needed | shapes if whole else shapes:
        if shapes.get(key) != needed.get(key):
            raise UserError(
                f"{path} does not fit model {name!r}: {key} has the shape {shapes.get(key)}, and "
                f"{needed.get(key)} is needed.",
                "model-mismatch",
            )


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    with _reading(path):
        require_whole(regular_file(path))
        state = load_file(path)
    for key, array in state.items():
        if array.is_floating_point() and not array.isfinite().all():
            raise UserError(
                f"{path}: array {key!r} is not finite, so the model can label nothing.",
                "model-not-finite",
            )
    return state


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"Cannot read {path} as a safetensors file ({error}).", "model-file-wrong"
        ) from error


def _comma(shape: tuple[object, ...]) -> str:
    return ", ".join(str(size) for size in shape)
