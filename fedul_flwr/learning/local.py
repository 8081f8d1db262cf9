"""Local training of all methods: batches, loss, corrections of the gradient, optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.config.references import load_reference, own_code
from fedul_flwr.config.training_settings import OPTIMIZERS
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import Batches, evaluation_batches
from fedul_flwr.learning.corrections import anchor_of, correct_gradients
from fedul_flwr.learning.device import place, reuse_all_memory, seed_draws
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.optimizers import SGD, Adam, LocalOptimizer
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.models.last_layer import only_heads

Loss = Callable[[Tensor, Tensor], Tensor]
"""``(logits (b, K), targets (b,)) -> mean loss``."""

Objective = Callable[[Network, Tensor, Tensor], Tensor]
"""``(network, inputs (b, c, h, w), targets (b,)) -> mean loss``: for methods whose loss needs more
than the logits of a batch. Its random numbers come from torch's own generator."""

EVALUATED = {"cpu": 128, "cuda": 512}
"""Points of a batch in evaluation, by device. On a CPU the maps of 128 images stay in its caches,
which takes a sixth to two fifths off the time of 512 for most convolutional networks, with the same
bits."""


def on_logits(loss: Loss) -> Objective:
    """The objective that applies ``loss`` to the network's outputs."""

    def objective(network: Network, inputs: Tensor, targets: Tensor) -> Tensor:
        return loss(network(inputs), targets)

    return objective


@dataclass(frozen=True)
class LocalResult:
    """Result of a round at a client: mean loss over its steps, and their number."""

    loss: float
    steps: int


def train_local(
    model: nn.Module,
    batches: Batches,
    objective: Objective,
    plan: LocalPlan,
    rng: np.random.Generator,
    *,
    shift: Sequence[Tensor] = (),
) -> LocalResult:
    """Train ``model`` in place for one round.

    Parameters
    ----------
    model : the class model, with the global weights.
    batches : yields the batches of one epoch.
    objective : mean loss of a batch.
    rng : generator of all random numbers in this round.
    shift : added to the gradient of every weight in every step (SCAFFOLD's c − c_i).

    Raises
    ------
    UserError
        If the loss is not finite.
    """
    network = _begin(model, plan, rng)
    total = torch.zeros((), dtype=torch.float64, device=plan.device)
    steps = 0
    with _trained(model, plan) as weights:
        optimizer = build_optimizer(weights, plan)
        anchor = anchor_of(weights, plan)
        with reuse_all_memory():
            for _ in range(plan.local_epochs):
                for inputs, targets in batches(rng):
                    optimizer.zero_grad()
                    value = _backward(objective, network, inputs, targets, plan)
                    correct_gradients(weights, plan, anchor, shift)
                    optimizer.step()
                    total += value
                    steps += 1
            optimizer.zero_grad()  # frees gradients as large as the model
    mean = float(total) / steps
    if not np.isfinite(mean):
        raise UserError(
            "The local loss is no longer finite: lower learning-rate, or check the data and priors."
        )
    return LocalResult(loss=mean, steps=steps)


def mean_gradient(
    model: nn.Module,
    batches: Batches,
    objective: Objective,
    plan: LocalPlan,
    rng: np.random.Generator,
) -> list[Tensor]:
    """Gradient of every trainable weight at ``model``, mean over the batches of one epoch.

    It includes penalties of ``plan``. The model and its batch-norm statistics do not change.
    """
    network = _begin(model, plan, rng)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    count = 0
    for weight in weights:
        weight.grad = None
    with frozen_statistics(model):
        for inputs, targets in batches(rng):
            _backward(objective, network, inputs, targets, plan)
            count += 1
    found = [w.grad / count if w.grad is not None else torch.zeros_like(w) for w in weights]
    for weight, gradient in zip(weights, found, strict=True):
        weight.grad = gradient
    correct_gradients(weights, plan)
    for weight in weights:
        weight.grad = None
    return found


def _begin(model: nn.Module, plan: LocalPlan, rng: np.random.Generator) -> Network:
    """Prepare ``model`` for training."""
    place(model, plan.device, plan.precision)
    model.train()
    seed_draws(plan.device, int(rng.integers(2**63)))  # for dropout and random objectives
    return Network(model, plan.device, plan.precision)


@contextmanager
def _trained(model: nn.Module, plan: LocalPlan) -> Iterator[list[nn.Parameter]]:
    """Context with the weights that the plan trains."""
    with only_heads(model) if plan.heads_only else nullcontext():
        yield [weight for weight in model.parameters() if weight.requires_grad]


def _backward(
    objective: Objective, network: Network, inputs: Tensor, targets: Tensor, plan: LocalPlan
) -> Tensor:
    """Add the gradients of one batch to the weights'; returns its loss, without a graph."""
    value = objective(network, network.place(inputs), targets.to(plan.device))
    value.backward()  # type: ignore[no-untyped-call]
    return value.detach()


def build_optimizer(weights: Sequence[nn.Parameter], plan: LocalPlan) -> LocalOptimizer:
    """A new optimizer; every round starts with one.

    Raises
    ------
    UserError
        If a function of the user's own fails, or returns no optimizer.
    """
    if plan.optimizer not in OPTIMIZERS:
        return _own_optimizer(weights, plan)
    if plan.optimizer == "adam":
        return Adam(weights, learning_rate=plan.learning_rate, weight_decay=plan.weight_decay)
    return SGD(
        weights,
        learning_rate=plan.learning_rate,
        momentum=plan.momentum,
        weight_decay=plan.weight_decay,
    )


def _own_optimizer(weights: Sequence[nn.Parameter], plan: LocalPlan) -> LocalOptimizer:
    what = f"Setting optimizer = {plan.optimizer!r}"
    build = load_reference(plan.optimizer, "optimizer")
    with own_code(what):
        found: LocalOptimizer = build(list(weights), plan.learning_rate)
    if not all(callable(getattr(found, name, None)) for name in ("step", "zero_grad")):
        raise UserError(f"{what} returned no optimizer: it needs step() and zero_grad().")
    return found


def predict_logits(
    model: nn.Module,
    stored: Inputs,
    points: NDArray[np.int64],
    plan: LocalPlan | None = None,
    views: np.random.Generator | None = None,
) -> Tensor:
    """Outputs of ``model`` in evaluation mode on rows ``points`` of ``stored``: ``(n, K)``.

    ``views`` draws augmented views of the points by ``plan.augment``; without it there are none.
    """
    plan = plan or LocalPlan()
    # Not in inference mode: weights moved within it could not be trained afterwards.
    place(model, plan.device, plan.precision)
    model.eval()
    network = Network(model, plan.device, plan.precision)
    batches = evaluation_batches(stored, points, EVALUATED[plan.device.type], plan, views)
    with torch.inference_mode():
        return torch.cat([network(network.place(inputs)).cpu() for inputs in batches])


def load_arrays(model: nn.Module, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Overwrite every weight and buffer of ``model`` by name, in place.

    A float32 model becomes float64 if the arrays are float64, so that nothing is rounded.

    Raises
    ------
    ValueError
        If names or shapes differ from the model's.
    """
    if any(array.dtype == np.float64 for array in arrays.values()):
        model.double()
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
            if tensor.device.type == "cpu":
                np.copyto(tensor.numpy(), arrays[name], casting="unsafe")
            else:  # torch does not accept read-only arrays
                tensor.copy_(torch.from_numpy(np.require(arrays[name], requirements="W")))


def dump_arrays(model: nn.Module) -> dict[str, NDArray[np.generic]]:
    """Every weight and buffer of ``model`` by name, contiguous; may share the model's memory."""
    return {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in model.state_dict().items()
    }
