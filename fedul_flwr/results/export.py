"""Trained models in files that need neither this package nor its training code."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.data.safe_files import output_file, write_atomically
from fedul_flwr.errors import UserError, require
from fedul_flwr.learning.batches import to_input
from fedul_flwr.results.predict import UNKNOWN_SCALING, Predictor, load_model

INPUT, OUTPUT = "points", "probabilities"
"""Names of the ONNX model's input and output."""
CLASSES, COLUMNS, FEATURES = "class-names", "columns", "features"
"""Keys of the metadata, as JSON: names of the classes; for tables the columns as in
``columns.json``, and the names of the numbers that a point consists of, in order."""
_TOLERANCE = 1e-4
"""Largest difference of a probability from the run's own prediction."""
_CHECKED = 8
"""Points that a new file is compared on."""


class WholeModel(nn.Module):
    """From points as they are stored to class probabilities, as in :class:`Predictor`.

    NaN in a vector is a missing value, which becomes the ``fill`` of its column.
    """

    fills: Tensor
    means: Tensor
    scales: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.model = predictor.model
        self.temperature = predictor.temperature
        scaling, columns = predictor.scaling, predictor.table.columns
        assert scaling != "unknown"
        fills = np.array(columns.fills() if columns else [])
        self.is_filled = bool(np.isfinite(fills).any())
        if self.is_filled:
            self.register_buffer("fills", torch.from_numpy(fills).float())
        self.is_scaled = scaling is not None
        if scaling is not None:
            self.register_buffer("means", torch.from_numpy(scaling.means))
            self.register_buffer("scales", torch.from_numpy(scaling.scales))

    def forward(self, points: Tensor) -> Tensor:
        """``(n, K)`` float32 probabilities of ``(n, h, w, c)`` uint8 images or ``(n, d)`` float32
        vectors."""
        if self.is_filled:
            points = torch.where(points.isnan(), self.fills, points)
        if self.is_scaled:
            points = ((points.double() - self.means) / self.scales).float()
        logits = self.model(to_input(points))
        probabilities: Tensor = (logits.float() / self.temperature).softmax(dim=1)
        return probabilities


def export(run: str | Path, output: Path | None = None, *, trust_modules: bool = False) -> Path:
    """Write the best model of a run as an ONNX file, and check that it predicts the same."""
    require("export", "An export", "onnx", "onnxscript", "onnxruntime")
    predictor = load_model(run, trust_modules=trust_modules)
    if predictor.extractor is not None:
        raise UserError(
            "A model on features cannot be exported: another network computes its inputs "
            "(setting features). Export takes models of points.",
            "model-unfit",
        )
    if predictor.scaling == "unknown":
        raise UserError(UNKNOWN_SCALING, "model-unfit")
    beside = Path(run) / "model.onnx" if Path(run).is_dir() else Path(run).with_suffix(".onnx")
    target = output_file(output, [Path(run)], ".onnx") if output else beside
    predictor.model.cpu()
    points = _examples(predictor)
    about: dict[str, Any] = {CLASSES: predictor.class_names}
    if columns := predictor.table.columns:
        about |= {COLUMNS: json.loads(columns.to_json()), FEATURES: columns.features}
    content = _onnx(WholeModel(predictor).eval(), points, about)
    difference = _difference(content, points, predictor.predict_proba(points))
    if not difference <= _TOLERANCE:
        raise UserError(
            f"The exported model differs from the run's by {difference:.2g} in a probability, so "
            "that it was not written.",
            "export-differs",
        )
    write_atomically(target, content)
    return output or target


def _examples(predictor: Predictor) -> NDArray[np.uint8] | NDArray[np.float32]:
    """Random points of the model's shape, as spread as its training points."""
    generator = np.random.default_rng(0)
    shape = (_CHECKED, *predictor.input_shape)
    if len(predictor.input_shape) > 1:
        return generator.integers(0, 256, shape, dtype=np.uint8)
    rows = generator.standard_normal(shape)
    if predictor.scaling is not None and predictor.scaling != "unknown":
        rows = rows * predictor.scaling.scales + predictor.scaling.means
    return rows.astype(np.float32)


def _difference(content: bytes, points: NDArray[np.generic], wanted: NDArray[np.float64]) -> float:
    """Largest difference of a probability, for all points and for a single one."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    if isinstance(session.get_inputs()[0].shape[0], int):
        raise UserError(
            f"The exported model takes {len(points)} points at a time and no other number, as its "
            "layers fix the size of a batch. It was not written.",
            "export-differs",
        )
    answers = (session.run([OUTPUT], {INPUT: points[:n]})[0] for n in (len(points), 1))
    return max(float(np.abs(answer - wanted[: len(answer)]).max()) for answer in answers)


def _onnx(model: WholeModel, points: NDArray[np.generic], about: Mapping[str, Any]) -> bytes:
    """The file's content, with metadata."""
    # A named dimension would be fixed by recurrent layers.
    several = {"points": {0: torch.export.Dim.DYNAMIC}}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model,
            (torch.from_numpy(points),),
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=several,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    for key, value in about.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value)
    content: bytes = proto.SerializeToString()
    return content
