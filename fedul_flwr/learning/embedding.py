"""Embedding of a model: its output for an input of noise (FedMatch, section 3.1)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedul_flwr.data.types import Floats, InputShape, network_shape
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import LocalPlan


def noise_point(input_shape: InputShape, rng: np.random.Generator) -> Tensor:
    """One input of standard normal noise, ``(1, c, h, w)`` or ``(1, d)``."""
    return torch.from_numpy(rng.standard_normal((1, *network_shape(input_shape)))).float()


def embed(model: nn.Module, noise: Tensor, plan: LocalPlan) -> Floats:
    """``(K,)``: class probabilities of the input ``noise`` by ``model``."""
    model.eval()
    network = Network(model, plan.device, plan.precision)
    with torch.inference_mode():
        logits = network(network.place(noise))
    return np.asarray(logits[0].double().softmax(dim=0).cpu().numpy())
