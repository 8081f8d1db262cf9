"""Statistics of batch norm computed anew from points (static batch norm; Diao et al. 2021).

Running means of training follow its last batches. Here they are means over all batches of a pass
over unchanged points, so that clients' statistics can be averaged by their numbers of batches.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from fedul_flwr.arrays import Arrays
from fedul_flwr.data.types import Inputs
from fedul_flwr.learning.batches import evaluation_batches
from fedul_flwr.learning.device import move_model
from fedul_flwr.learning.network import Network, tracking_layers
from fedul_flwr.learning.plan import LocalPlan

BATCH = 250
"""Points of a batch (authors' code)."""


def statistic_names(model: nn.Module) -> list[str]:
    """Names of the means and variances among the model's arrays."""
    layers = {id(layer) for layer in tracking_layers(model)}
    return [
        f"{prefix}{'.' if prefix else ''}{name}"
        for prefix, module in model.named_modules()
        if id(module) in layers
        for name in ("running_mean", "running_var")
    ]


def num_statistic_batches(num_points: int) -> int:
    """Number of batches of a pass over so many points."""
    return -(-num_points // BATCH)


def norm_statistics(
    model: nn.Module, stored: Inputs, points: NDArray[np.int64], plan: LocalPlan
) -> tuple[Arrays, int]:
    """Means and variances of every batch norm of ``model``, means over the batches of ``points``.

    Parameters
    ----------
    model : its weights stay; its statistics are overwritten.
    stored, points : the data, and rows of it, at least one.

    Returns
    -------
    The statistics by name, and the number of batches.
    """
    move_model(model, plan.device, plan.precision)
    model.train()
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
    layers = tracking_layers(model)
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a cumulative mean
    network = Network(model, plan.device, plan.precision)
    count = 0
    with torch.no_grad():
        for inputs in evaluation_batches(stored, points, BATCH):
            network(network.to_device(inputs))
            count += 1
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    state = model.state_dict()
    return {name: state[name].cpu().numpy().copy() for name in statistic_names(model)}, count
