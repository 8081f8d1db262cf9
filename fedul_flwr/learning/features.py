"""Features of points: the inputs of a model's last linear layer, or the points themselves."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.data.types import Inputs
from fedul_flwr.learning.batches import gather, to_input
from fedul_flwr.learning.local import predict_logits
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.models.last_layer import feature_layer, inputs_of


def features_and_logits(
    model: nn.Module,
    stored: Inputs,
    points: NDArray[np.int64],
    plan: LocalPlan | None = None,
    views: np.random.Generator | None = None,
) -> tuple[NDArray[np.float32], Tensor]:
    """Features ``(n, d)`` and outputs ``(n, K)`` of rows ``points`` of ``stored``, in one pass.

    The model is in evaluation mode, and ``views`` augments, as in
    :func:`fedul_flwr.learning.local.predict_logits`.

    Raises
    ------
    UserError
        If the model has no linear layer.
    """
    layer = feature_layer(model)
    if len(points) == 0:
        empty = np.zeros((0, layer.in_features), dtype=np.float32)
        return empty, torch.zeros(0, layer.out_features)
    with inputs_of(layer) as batches:
        logits = predict_logits(model, stored, points, plan, views)
    return torch.cat(batches).float().cpu().numpy(), logits


def extract_features(
    model: nn.Module,
    stored: Inputs,
    points: NDArray[np.int64],
    plan: LocalPlan | None = None,
    views: np.random.Generator | None = None,
) -> NDArray[np.float32]:
    """Features ``(n, d)`` of rows ``points`` of ``stored``: see :func:`features_and_logits`."""
    return features_and_logits(model, stored, points, plan, views)[0]


def pixel_features(stored: Inputs, points: NDArray[np.int64]) -> NDArray[np.float32]:
    """Rows ``points`` of ``stored``: pixels ``(n, h·w·c)`` in [-1, 1], or vectors ``(n, d)``."""
    inputs = to_input(gather(stored, points))
    if inputs.dim() == 4:
        inputs = inputs.permute(0, 2, 3, 1)
    features: NDArray[np.float32] = inputs.flatten(1).numpy()
    return features
