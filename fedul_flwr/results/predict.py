"""The saved model of a run, put to use."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fedul_flwr.data.owned import load_images
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import to_input
from fedul_flwr.models import build_model
from fedul_flwr.results.records import read_config, write_atomically

__all__ = ["Predictor", "load_model", "predict"]

MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class Predictor:
    """A trained model that takes images as they are: uint8, as decoded from a file.

    Attributes
    ----------
    model : the module, in evaluation mode; maps ``(n, channels, height, width)`` to logits.
    image_shape : ``(height, width, channels)`` the model was trained on.
    class_names : K names; label ``k`` is ``class_names[k]``.
    """

    model: nn.Module
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]

    def predict(self, images: NDArray[np.uint8], batch_size: int = 256) -> NDArray[np.int64]:
        """Labels ``(n,)`` of uint8 images ``(n, height, width, channels)``."""
        labels: NDArray[np.int64] = self.predict_proba(images, batch_size).argmax(axis=1)
        return labels

    def predict_proba(
        self, images: NDArray[np.uint8], batch_size: int = 256
    ) -> NDArray[np.float64]:
        """Class probabilities ``(n, K)`` (softmax) of images ``(n, height, width, channels)``."""
        if batch_size < 1:
            raise UserError(f"The batch size must be at least 1, not {batch_size}.")
        if images.dtype != np.uint8 or images.shape[1:] != self.image_shape:
            raise UserError(
                f"The model takes uint8 images (n, {_comma(self.image_shape)}), "
                f"not {images.dtype} ({_comma(images.shape)})."
            )
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        result = np.empty((len(images), len(self.class_names)))
        with torch.inference_mode():
            for start in range(0, len(images), batch_size):
                batch = np.array(images[start : start + batch_size])
                logits = self.model(to_input(torch.from_numpy(batch).to(device)))
                if logits.shape != (len(batch), len(self.class_names)):
                    raise UserError(
                        f"The model returned ({_comma(logits.shape)}) for {len(batch)} images of "
                        f"{len(self.class_names)} classes; one logit per image and class is needed."
                    )
                # In float64 the probabilities of a row sum to 1 to the last digit written.
                rows = logits.double().softmax(dim=1)
                result[start : start + len(batch)] = rows.cpu().numpy()
        return result


def load_model(model_dir: str | Path) -> Predictor:
    """Load the best model of the run in ``model_dir``: ``load_model(d).predict(images)``.

    Raises
    ------
    UserError
        When the directory holds no model, or one that its ``config.json`` does not describe.
    """
    directory = Path(model_dir)
    weights = directory / MODEL_FILE
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; name the output directory of a run.")
    settings, data = read_config(directory)
    if not weights.is_file():
        raise UserError(f"{directory} holds no {MODEL_FILE}: the run has not saved a model yet.")
    image_shape, class_names = _describe(directory / "config.json", data)
    name = settings.get("model")
    if not isinstance(name, str):
        raise UserError(f'{directory / "config.json"}: needs the setting "model".')
    model = build_model(name, image_shape, len(class_names))
    _load_weights(model, weights, name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Predictor(model.to(device).eval(), image_shape, class_names)


def predict(
    model_dir: Path, input_path: Path, output: Path | None = None, batch_size: int = 256
) -> Path:
    """Label the images at ``input_path`` with the model of a run, into a CSV file.

    Parameters
    ----------
    model_dir : output directory of a run.
    input_path : an image, a folder of images, a ``.parquet`` or an ``.npz`` file.
    output : the CSV to write, by default ``<input>-predictions.csv`` in the working directory.
        An existing one is replaced once everything is predicted, and stays as it is on errors.
    batch_size : images that go through the model at once.

    Returns
    -------
    The CSV: ``name,label,class,confidence,p_<class>…``, one line an image; confidence is the
    probability of the label.

    Raises
    ------
    UserError
        No usable model, images that are missing or unreadable, or an output that cannot be written.
    """
    if output is None:
        # The folder "." has no name before it is resolved.
        source = input_path.expanduser().resolve()
        stem = source.name if source.is_dir() else source.stem
        output = Path(f"{stem or 'images'}-predictions.csv")
    if output.is_dir() or not output.parent.is_dir():
        raise UserError(f"Cannot write {output}: it must be a file in an existing directory.")
    predictor = load_model(model_dir)
    names, images = load_images(input_path, predictor.image_shape)
    probabilities = predictor.predict_proba(images, batch_size)
    write_atomically(output, _table(names, probabilities, predictor.class_names))
    return output


def _table(names: list[str], probabilities: NDArray[np.float64], classes: tuple[str, ...]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "label", "class", "confidence", *(f"p_{name}" for name in classes)])
    for name, row in zip(names, probabilities, strict=True):
        label = int(row.argmax())
        numbers = (f"{value:.6g}" for value in (row[label], *row))
        writer.writerow([name, label, classes[label], *numbers])
    return text.getvalue()


def _describe(path: Path, data: dict[str, Any]) -> tuple[tuple[int, int, int], tuple[str, ...]]:
    shape, count, names = (data.get(key) for key in ("image_shape", "num_classes", "class_names"))
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) != 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise UserError(f'{path}: "image_shape" must be [height, width, channels], not {shape!r}.')
    if not isinstance(count, int) or count < 1:
        raise UserError(f'{path}: "num_classes" must be a number of classes, not {count!r}.')
    if not isinstance(names, list) or len(names) != count:
        names = list(range(count))
    return (sizes[0], sizes[1], sizes[2]), tuple(str(name) for name in names)


def _load_weights(model: nn.Module, path: Path, name: str) -> None:
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read {path} as a safetensors file ({error}).") from error
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reasons = " ".join(line.strip() for line in str(error).splitlines()[1:])
        raise UserError(f"{path} does not fit model {name!r}: {reasons}") from error


def _comma(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)
