"""Features of images by a fixed network: the inputs of its last linear layer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fedul_flwr.data.types import Inputs
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.device import place
from fedul_flwr.learning.network import Network
from fedul_flwr.models.last_layer import feature_layer, inputs_of


class NetworkFeatures:
    """Maps points to what the last linear layer of a network gets.

    Parameters
    ----------
    load : returns a model, which maps inputs ``(n, c, h, w)`` in [-1, 1] to any outputs, by a
        linear layer at the end; called at the first point.
    side : height and width to which images are resized before (bilinear, antialiased); 0 keeps
        their size.
    device, precision : as in :class:`~fedul_flwr.learning.network.Network`.
    """

    def __init__(
        self, load: Callable[[], nn.Module], side: int, device: torch.device, precision: str
    ) -> None:
        self._load, self._side = load, side
        self._device, self._precision = device, precision

    @cached_property
    def _network(self) -> Network:
        """The network, prepared at the first point: features on disk need none."""
        model = fold_batch_norm(copy.deepcopy(self._load()).eval().requires_grad_(False))
        placed = place(model, self._device, self._precision)
        return Network(placed, self._device, self._precision)

    def __call__(self, points: Inputs) -> NDArray[np.float32]:
        """Features ``(n, d)`` of points ``(n, …)``."""
        inputs = to_input(torch.from_numpy(np.array(points)))
        network = self._network
        with torch.inference_mode(), inputs_of(feature_layer(network.model)) as seen:
            network(network.place(resized(inputs, self._side)))
        found: NDArray[np.float32] = seen[0].float().cpu().numpy()
        return found


def resized(inputs: Tensor, side: int) -> Tensor:
    """Images ``(n, c, h, w)`` with ``side`` rows and columns; 0 leaves them as they are."""
    if side == 0 or inputs.shape[2:] == (side, side):
        return inputs
    sizes = (side, side)
    return functional.interpolate(inputs, sizes, mode="bilinear", antialias=True).contiguous(
        memory_format=torch.channels_last
    )


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """``model`` with every batch norm behind a convolution made part of the convolution's weights.

    The outputs of a model in evaluation mode stay the same up to rounding. A model whose steps
    depend on its inputs cannot be followed, and is returned as it is.
    """
    try:
        graph = _Layers().trace(model)
    except Exception:  # a user's own model may raise anything while it is followed
        return model
    modules = dict(model.named_modules())
    for node in list(graph.nodes):
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        before = node.args[0] if node.args else None
        if not isinstance(norm, _BatchNorm) or not isinstance(before, fx.Node):
            continue
        convolution = modules.get(str(before.target)) if before.op == "call_module" else None
        if not isinstance(convolution, nn.Conv2d) or len(before.users) != 1:
            continue
        modules[str(before.target)] = fuse_conv_bn_eval(convolution, norm)
        model.set_submodule(str(before.target), modules[str(before.target)])
        node.replace_all_uses_with(before)
        graph.erase_node(node)
    return fx.GraphModule(model, graph)


class _Layers(fx.Tracer):
    """Follows a model down to its layers, also those of a class derived from torch's."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Conv2d | nn.Linear | _BatchNorm) or super().is_leaf_module(
            m, module_qualified_name
        )
