"""The local loop of every method: batches, loss, corrections of the gradient, optimiser step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import evaluation_batches, training_batches
from fedul_flwr.learning.machine import autocast, place
from fedul_flwr.learning.optimizers import SGD, Adam, LocalOptimizer

Loss = Callable[[Tensor, Tensor], Tensor]
"""``(logits (b, K), targets (b,)) -> mean loss``."""


CPU = torch.device("cpu")


@dataclass(frozen=True)
class LocalPlan:
    """What a client does in one round; the fields are the settings of the same names.

    ``proximal_mu`` is the weight mu of FedProx's (mu/2)·‖w − w_global‖².
    """

    local_epochs: int = 1
    batch_size: int = 128
    optimizer: str = "adam"
    learning_rate: float = 1e-4
    momentum: float = 0.0
    weight_decay: float = 0.0
    l1: float = 0.0
    augment: str = "none"
    proximal_mu: float = 0.0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class LocalResult:
    """Outcome of a round at a client: mean loss over its steps and their number."""

    loss: float
    steps: int


def train_local(
    model: nn.Module,
    images: NDArray[np.uint8],
    points: NDArray[np.int64],
    targets: NDArray[np.int64],
    loss: Loss,
    plan: LocalPlan,
    rng: np.random.Generator,
) -> LocalResult:
    """Train ``model`` in place for one round.

    Parameters
    ----------
    model : the class model, holding the global weights.
    images : uint8 ``(N, h, w, c)``.
    points : ``(n,)``, this client's rows of ``images``.
    targets : ``(n,)``, a surrogate label or a class for each of ``points``.
    loss : mean loss of a batch.
    rng : source of everything random in this round.

    Raises
    ------
    UserError
        If the loss stops being finite.
    """
    device, dtype = plan.device, plan.dtype
    place(model, device, dtype)
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = build_optimizer(weights, plan)
    anchor = [weight.detach().clone() for weight in weights] if plan.proximal_mu else []
    torch.manual_seed(int(rng.integers(2**63)))  # dropout
    total = torch.zeros((), dtype=torch.float64, device=device)
    steps = 0
    for _ in range(plan.local_epochs):
        batches = training_batches(
            images, points, targets, batch_size=plan.batch_size, augment=plan.augment, rng=rng
        )
        for inputs, labels in batches:
            optimizer.zero_grad()
            value = loss(_forward(model, inputs, device, dtype), labels.to(device))
            value.backward()  # type: ignore[no-untyped-call]
            correct_gradients(weights, anchor, plan)
            optimizer.step()
            total += value.detach()
            steps += 1
    optimizer.zero_grad()  # as large as the model, and of no further use
    mean = float(total) / steps
    if not np.isfinite(mean):
        raise UserError(
            "The local loss is no longer finite: lower learning-rate, or check the data and priors."
        )
    return LocalResult(loss=mean, steps=steps)


def correct_gradients(weights: list[nn.Parameter], anchor: list[Tensor], plan: LocalPlan) -> None:
    """Add the gradients of the penalties, without a graph over all weights.

    L1: l1·sign(w), 0 at 0. FedProx: mu·(w − w_global).
    """
    with torch.no_grad():
        if plan.l1:
            for weight in weights:
                if weight.grad is not None:
                    _add_sign(weight.grad, weight, plan.l1)
        for weight, start in zip(weights, anchor, strict=False):
            if weight.grad is not None:
                weight.grad.add_(weight - start, alpha=plan.proximal_mu)


def _add_sign(gradient: Tensor, weight: Tensor, factor: float) -> None:
    """gradient += factor * sign(weight), in pieces that stay in the cache."""
    if not (gradient.is_contiguous() and weight.is_contiguous()):
        gradient.add_(torch.sign(weight), alpha=factor)
        return
    pieces = 1 + weight.numel() // 2**18
    gradients, weights = gradient.view(-1).chunk(pieces), weight.view(-1).chunk(pieces)
    for part, values in zip(gradients, weights, strict=True):
        part.add_(torch.sign(values), alpha=factor)


def build_optimizer(weights: Sequence[nn.Parameter], plan: LocalPlan) -> LocalOptimizer:
    """A new optimiser, as every round starts with one."""
    if plan.optimizer == "adam":
        return Adam(weights, learning_rate=plan.learning_rate, weight_decay=plan.weight_decay)
    return SGD(
        weights,
        learning_rate=plan.learning_rate,
        momentum=plan.momentum,
        weight_decay=plan.weight_decay,
    )


def _forward(model: nn.Module, inputs: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    with autocast(device, dtype):
        logits: Tensor = model(inputs.to(device, wide))
    return logits.to(wide)  # losses and comparisons of logits are never in bfloat16


def predict_logits(
    model: nn.Module,
    images: NDArray[np.uint8],
    points: NDArray[np.int64],
    plan: LocalPlan | None = None,
) -> Tensor:
    """Outputs of ``model`` in evaluation mode on rows ``points`` of ``images``: ``(n, K)``."""
    plan = plan or LocalPlan()
    # Outside inference mode: weights that are moved inside it could never be trained again.
    place(model, plan.device, plan.dtype)
    model.eval()
    with torch.inference_mode():
        return torch.cat(
            [
                _forward(model, inputs, plan.device, plan.dtype).cpu()
                for inputs in evaluation_batches(images, points)
            ]
        )


def load_arrays(model: nn.Module, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Overwrite every weight and buffer of ``model`` by name, in place.

    Raises
    ------
    ValueError
        If names or shapes differ from the model's.
    """
    state = model.state_dict(keep_vars=False)
    if set(state) != set(arrays):
        odd = sorted(set(state) ^ set(arrays))
        raise ValueError(f"arrays and model differ in {odd[0]!r} ({len(odd)} names in all)")
    with torch.no_grad():
        for name, tensor in state.items():
            if tuple(arrays[name].shape) != tuple(tensor.shape):
                raise ValueError(
                    f"array {name!r} has shape {arrays[name].shape}, "
                    f"the model's has {tuple(tensor.shape)}"
                )
            tensor.copy_(torch.from_numpy(np.asarray(arrays[name])))


def dump_arrays(model: nn.Module) -> dict[str, NDArray[np.generic]]:
    """Every weight and buffer of ``model`` by name, contiguous; may share the model's memory."""
    return {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in model.state_dict().items()
    }
