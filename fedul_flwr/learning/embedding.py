"""Embedding of a model: its output for an image of noise (FedMatch, section 3.1)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedul_flwr.data.types import Floats, InputShape
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import LocalPlan


def noise_image(input_shape: InputShape, rng: np.random.Generator) -> Tensor:
    """One image of standard normal noise, ``(1, c, h, w)``, for ``input_shape`` ``(h, w, c)``."""
    height, width, channels = input_shape
    return torch.from_numpy(rng.standard_normal((1, channels, height, width))).float()


def embed(model: nn.Module, noise: Tensor, plan: LocalPlan) -> Floats:
    """``(K,)``: class probabilities of the image ``noise`` by ``model``."""
    model.eval()
    network = Network(model, plan.device, plan.precision)
    with torch.inference_mode():
        logits = network(network.place(noise))
    return np.asarray(logits[0].double().softmax(dim=0).cpu().numpy())
