"""Predictions with the saved model of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedul_flwr.config.class_priors import checked_prior
from fedul_flwr.config.model import recorded_options
from fedul_flwr.config.own_modules import refuse_strange_modules
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.config.user_files import regular_file, user_path
from fedul_flwr.data.safe_files import read_header
from fedul_flwr.data.types import Inputs, InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.find import Extractor, find_extractor
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.class_priors import estimate_prior, reweigh
from fedul_flwr.models import build_model
from fedul_flwr.results.records import number, read_config, read_summary, saved_model
from fedul_flwr.results.store import TEMPERATURE

__all__ = ["Predictor", "load_model"]

MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class Predictor:
    """A trained model for uint8 images as decoded from a file.

    Attributes
    ----------
    model : the module, in evaluation mode; maps ``(n, channels, height, width)`` to logits.
    input_shape : ``(height, width, channels)`` of the training images.
    class_names : K names; label ``k`` is ``class_names[k]``.
    priors : ``(K,)``, class priors that it was trained for; ``None`` if unknown.
    temperature : divisor of the logits (:mod:`fedul_flwr.learning.temperature`).
    extractor : computes features of points, which the model takes; ``None`` if it takes points.
    """

    model: nn.Module
    input_shape: InputShape
    class_names: tuple[str, ...]
    priors: NDArray[np.float64] | None = None
    temperature: float = 1.0
    extractor: Extractor | None = None

    def predict(
        self, images: NDArray[np.uint8], batch_size: int = 256, priors: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Labels ``(n,)`` of images; arguments as for :meth:`predict_proba`."""
        labels: NDArray[np.int64] = self.predict_proba(images, batch_size, priors).argmax(axis=1)
        return labels

    def predict_proba(
        self, images: NDArray[np.uint8], batch_size: int = 256, priors: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Class probabilities ``(n, K)`` of images.

        Parameters
        ----------
        images : uint8 ``(n, height, width, channels)``.
        batch_size : number of images that the model processes at once.
        priors : ``(K,)``, class priors of these images, by which the model's softmax is
            re-weighed; by default those of its training.

        Raises
        ------
        UserError
            If images have another shape than the model's, or priors cannot be used.
        """
        wanted = None if priors is None else self.checked_priors(priors)
        posterior = self._softmax(images, batch_size)
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

    def _softmax(self, images: NDArray[np.uint8], batch_size: int) -> NDArray[np.float64]:
        if batch_size < 1:
            raise UserError(f"The batch size must be at least 1, not {batch_size}.")
        if images.dtype != np.uint8 or images.shape[1:] != self.input_shape:
            raise UserError(
                f"The model takes uint8 images (n, {_comma(self.input_shape)}), "
                f"not {images.dtype} ({_comma(images.shape)})."
            )
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        result = np.empty((len(images), len(self.class_names)))
        with torch.inference_mode():
            for start in range(0, len(images), batch_size):
                batch: Inputs = np.array(images[start : start + batch_size])
                if self.extractor is not None:
                    batch = self.extractor.compute(batch)
                logits = self.model(to_input(torch.from_numpy(batch).to(device)))
                if logits.shape != (len(batch), len(self.class_names)):
                    raise UserError(
                        f"The model returned ({_comma(logits.shape)}) for {len(batch)} images of "
                        f"{len(self.class_names)} classes; one logit per image and class is needed."
                    )
                # In float64, so that a row sums to 1 in all printed digits.
                rows = (logits.double() / self.temperature).softmax(dim=1)
                result[start : start + len(batch)] = rows.cpu().numpy()
        return result


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
    features = str(settings.get("features") or "")
    if not trust_modules:
        named = {"model": name, "features": features}
        refuse_strange_modules(directory, named, "use --trust-modules")
    extractor = find_extractor(features, "auto", "auto", open_run) if features else None
    model_shape = (extractor.num_features(input_shape),) if extractor else input_shape
    model = build_model(name, model_shape, len(class_names), options=recorded_options(settings))
    _load_weights(model, weights, name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # An unfinished run only has the values from its start.
    known = (read_summary(directory) or data).get("test_prior")
    return Predictor(
        model.to(device).eval(),
        input_shape,
        class_names,
        None if known is None else _trained_for(directory, known, len(class_names)),
        _temperature(weights),
        extractor,
    )


def extractor_of(settings: SharedSettings) -> Extractor:
    """The extractor that setting ``features`` names, which must not be empty."""
    return find_extractor(settings.features, settings.device, settings.precision, open_run)


def open_run(directory: Path) -> nn.Module:
    """The best model of an earlier run, or a UserError."""
    return load_model(user_path(str(directory))).model


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
    if len(sizes) != 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise UserError(f'{path}: "input_shape" must be [height, width, channels], not {shape!r}.')
    if not isinstance(count, int) or count < 1:
        raise UserError(f'{path}: "num_classes" must be a number of classes, not {count!r}.')
    if not isinstance(names, list) or len(names) != count:
        names = list(range(count))
    return (sizes[0], sizes[1], sizes[2]), tuple(str(name) for name in names)


def _temperature(path: Path) -> float:
    value = number(read_header(path).get(TEMPERATURE, 1.0))
    if value is None or value <= 0:
        raise UserError(f"{path}: its temperature must be a number above 0.")
    return value


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
