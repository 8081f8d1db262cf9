"""Local training of all methods: network, batches, loss, optimizer step, a client's task.

Optimizers are ours: constructing torch's ``Optimizer`` imports torch's compiler, which takes four
seconds and 150 MB; on a device every message starts a new process.

A step goes along g + l1·sign(w) + mu·(w − w_global) + (c − c_i): the gradient g of the loss, the
L1 penalty, FedProx's proximal term (Li et al. 2020) and SCAFFOLD's correction (Karimireddy et al.
2020). FedNova (Wang et al. 2020) does not change steps, only counts them: :func:`local_normalizer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.config.base import load_reference, user_code, without_exit
from fedul_flwr.config.shared import OPTIMIZERS
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError
from fedul_flwr.learning import lanes
from fedul_flwr.learning.batches import Draws, evaluation_batches, gather, to_input
from fedul_flwr.learning.device import (
    move_model,
    reuse_all_memory,
    seed_draws,
)
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Batch, BatchLoss, Task
from fedul_flwr.models.parts import feature_layer, inputs_of, only_heads


class LocalOptimizer:
    """Updates ``weights`` by their gradients; a weight without a gradient does not change."""

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        self.weights = list(weights)

    def zero_grad(self) -> None:
        """Delete gradients and free their memory."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step of all weights."""
        indices = [index for index, weight in enumerate(self.weights) if weight.grad is not None]
        self._step(indices, [grad for w in self.weights if (grad := w.grad) is not None])

    def _step(self, indices: list[int], gradients: list[Tensor]) -> None:
        raise NotImplementedError


def _rate(learning_rate: float, weights: Sequence[nn.Parameter]) -> Tensor:
    """A step size as fused kernels read it: it can change under a recorded step."""
    device = weights[0].device if weights else torch.device("cpu")
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    return torch.tensor(learning_rate, dtype=dtype, device=device)


class Adam(LocalOptimizer):
    """Adam (Kingma & Ba 2015) with beta = (0.9, 0.999) and epsilon = 1e-8, fused."""

    def __init__(
        self, weights: Sequence[nn.Parameter], *, learning_rate: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weights)
        self._rate, self._decay = _rate(learning_rate, self.weights), weight_decay
        self._means = [torch.zeros_like(weight) for weight in self.weights]
        self._squares = [torch.zeros_like(weight) for weight in self.weights]
        # On the device of its weight, where fused kernels count steps.
        self._steps = [torch.zeros((), device=weight.device) for weight in self.weights]

    def _step(self, indices: list[int], gradients: list[Tensor]) -> None:
        adam(
            [self.weights[index] for index in indices],
            gradients,
            [self._means[index] for index in indices],
            [self._squares[index] for index in indices],
            [],
            [self._steps[index] for index in indices],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._rate,
            weight_decay=self._decay,
            eps=1e-8,
            maximize=False,
        )


class SGD(LocalOptimizer):
    """Stochastic gradient descent with heavy-ball or Nesterov momentum, fused.

    Attributes
    ----------
    velocity : the momentum of every weight; none without momentum.
    """

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        *,
        learning_rate: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(weights)
        self._rate, self._momentum = _rate(learning_rate, self.weights), momentum
        self._decay = weight_decay
        self._nesterov = nesterov and momentum > 0
        # Zeros are the right start, as nothing is dampened: 0 * momentum + gradient.
        self.velocity = [torch.zeros_like(weight) for weight in self.weights] if momentum else []

    def _step(self, indices: list[int], gradients: list[Tensor]) -> None:
        sgd(
            [self.weights[index] for index in indices],
            gradients,
            [self.velocity[index] if self.velocity else None for index in indices],
            fused=True,
            weight_decay=self._decay,
            momentum=self._momentum,
            lr=self._rate,
            dampening=0.0,
            nesterov=self._nesterov,
            maximize=False,
        )


def anchor_of(weights: Sequence[nn.Parameter], plan: LocalPlan) -> list[Tensor]:
    """Copies of the global ``weights`` for the proximal term; empty without it."""
    return [weight.detach().clone() for weight in weights] if plan.proximal_mu else []


@torch.no_grad()
def correct_gradients(
    weights: Sequence[nn.Parameter],
    plan: LocalPlan,
    anchor: Sequence[Tensor] = (),
    shift: Sequence[Tensor] = (),
) -> None:
    """Add penalties and corrections to the gradients, without a graph over all weights.

    Parameters
    ----------
    anchor : global weights, for the proximal term; empty leaves it out.
    shift : SCAFFOLD's c − c_i for every weight; empty leaves it out.
    """
    for index, weight in enumerate(weights):
        gradient = weight.grad
        if gradient is None:
            continue
        if plan.l1:
            _add_sign(gradient, weight, plan.l1)
        if anchor:
            gradient.add_(weight - anchor[index], alpha=plan.proximal_mu)
        if shift:
            gradient.add_(shift[index])


def local_normalizer(steps: int, plan: LocalPlan) -> float:
    """FedNova's a_i: distance after ``steps`` steps along a unit gradient, in step sizes.

    With plain SGD that is their number; momentum and the proximal term change it (Wang et al. 2020,
    section 4.1). It is valid for SGD, where (w_global − w_i)/(eta·a_i) is a mean of gradients.
    """
    velocity = distance = 0.0
    for _ in range(steps):
        pull = plan.proximal_mu * plan.learning_rate * distance
        velocity = plan.momentum * velocity + 1.0 - pull
        distance += velocity
    return distance


def _add_sign(gradient: Tensor, weight: Tensor, factor: float) -> None:
    """gradient += factor * sign(weight), in pieces that fit into the cache."""
    pieces = 1 + weight.numel() // 2**18
    if pieces == 1 or not (gradient.is_contiguous() and weight.is_contiguous()):
        gradient.add_(torch.sign(weight), alpha=factor)
        return
    gradients, weights = gradient.view(-1).chunk(pieces), weight.view(-1).chunk(pieces)
    for part, values in zip(gradients, weights, strict=True):
        part.add_(torch.sign(values), alpha=factor)


EVALUATED = {"cpu": 128, "cuda": 2048}
"""Points of a batch in evaluation, by device. On a CPU the maps of 128 images stay in its caches,
which takes a sixth to two fifths off the time of 512 for most convolutional networks, with the same
bits. On a GPU few large batches start few kernels."""


@dataclass(frozen=True)
class LocalResult:
    """Result of a round at a client: mean loss over its steps, and their number."""

    loss: float
    steps: int


def train_local(
    model: nn.Module,
    task: Task,
    plan: LocalPlan,
    rng: np.random.Generator,
    *,
    shift: Sequence[Tensor] = (),
    velocity: Arrays | None = None,
) -> LocalResult:
    """Train ``model`` in place for one round.

    Parameters
    ----------
    model : the class model, with the global weights.
    task : batches and loss.
    rng : generator of all random numbers in this round.
    shift : added to the gradient of every weight in every step (SCAFFOLD's c − c_i).
    velocity : SGD's momentum by name of the weight, with which the round begins; replaced by that
        at its end. Weights that it has not begin at 0. Other optimizers have none.

    Raises
    ------
    UserError
        If the loss is not finite.
    """
    network = _begin(model, plan, rng)
    steps = 0
    with _trained(model, plan) as weights:
        step = _Step(task.loss, network, weights, plan, shift)
        momentum = _momentum_by_name(model, step.optimizer) if velocity is not None else {}
        for name in momentum.keys() & (velocity or {}).keys():
            momentum[name].copy_(torch.from_numpy(np.array((velocity or {})[name])))
        with reuse_all_memory(), lanes.recorded(step, model) as run:
            for batch in task.batches.of_round(plan, rng):
                run(batch.to(network))
                steps += 1
            step.optimizer.zero_grad()  # frees gradients as large as the model
    lanes.wait()
    if velocity is not None:
        velocity |= {name: value.cpu().numpy() for name, value in momentum.items()}
    mean = float(step.total) / steps
    require_finite(mean)
    return LocalResult(loss=mean, steps=steps)


LOSS_NOT_FINITE = "The local loss is no longer finite"
"""What a client says whose training has diverged; a server reads it in the client's reason."""


def require_finite(*losses: float) -> None:
    """Refuse losses of diverged training."""
    if not np.isfinite(losses).all():
        raise UserError(
            f"{LOSS_NOT_FINITE}: lower learning-rate, or check the data and priors.",
            "loss-not-finite",
        )


class _Step:
    """One step on a batch: it changes tensors that it refers to, and no other values."""

    def __init__(
        self,
        loss: BatchLoss,
        network: Network,
        weights: Sequence[nn.Parameter],
        plan: LocalPlan,
        shift: Sequence[Tensor],
    ) -> None:
        self.loss, self.network, self.weights = loss, network, weights
        self.optimizer = build_optimizer(weights, plan)
        self.anchor, self.shift = anchor_of(weights, plan), shift
        self.plan = replace(plan, learning_rate=0.0)  # the optimizer has it
        self.total = torch.zeros((), dtype=torch.float64, device=plan.device)

    def __call__(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        value = _backward(self.loss, self.network, batch)
        correct_gradients(self.weights, self.plan, self.anchor, self.shift)
        if self.plan.max_gradient_norm:
            nn.utils.clip_grad_norm_(self.weights, self.plan.max_gradient_norm)
        self.optimizer.step()
        self.total += value


def _momentum_by_name(model: nn.Module, optimizer: LocalOptimizer) -> dict[str, Tensor]:
    """The momentum of SGD's weights, the tensors themselves; empty for other optimizers."""
    if not isinstance(optimizer, SGD):
        return {}
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    return dict(zip(names, optimizer.velocity, strict=True)) if optimizer.velocity else {}


def mean_gradient(
    model: nn.Module,
    task: Task,
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
        for batch in task.batches(rng):
            _backward(task.loss, network, batch.to(network))
            count += 1
    means = [w.grad / count if w.grad is not None else torch.zeros_like(w) for w in weights]
    for weight, gradient in zip(weights, means, strict=True):
        weight.grad = gradient
    correct_gradients(weights, plan)
    for weight in weights:
        weight.grad = None
    return means


def _begin(model: nn.Module, plan: LocalPlan, rng: np.random.Generator) -> Network:
    move_model(model, plan.device, plan.precision)
    model.train()
    seed_draws(plan.device, int(rng.integers(2**63)))  # for dropout and random objectives
    return Network(model, plan.device, plan.precision)


@contextmanager
def _trained(model: nn.Module, plan: LocalPlan) -> Iterator[list[nn.Parameter]]:
    """Context with the weights that the plan trains."""
    with only_heads(model) if plan.heads_only else nullcontext():
        yield [weight for weight in model.parameters() if weight.requires_grad]


def _backward(loss: BatchLoss, network: Network, batch: Batch) -> Tensor:
    """Add the gradients of one batch to the weights'; returns its loss, without a graph."""
    value = loss(network, batch)
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
        return _optimizer_by_reference(weights, plan)
    if plan.optimizer == "adam":
        return Adam(weights, learning_rate=plan.learning_rate, weight_decay=plan.weight_decay)
    return SGD(
        weights,
        learning_rate=plan.learning_rate,
        momentum=plan.momentum,
        weight_decay=plan.weight_decay,
        nesterov=plan.nesterov,
    )


def _optimizer_by_reference(weights: Sequence[nn.Parameter], plan: LocalPlan) -> LocalOptimizer:
    what = f"Setting optimizer = {plan.optimizer!r}"
    build = load_reference(plan.optimizer, "optimizer")
    with user_code(what):
        optimizer: LocalOptimizer = build(list(weights), plan.learning_rate)
    if not all(callable(getattr(optimizer, name, None)) for name in ("step", "zero_grad")):
        raise UserError(
            f"{what} returned no optimizer: it needs step() and zero_grad().", "own-code-result"
        )
    return optimizer


@without_exit("A prediction")
def predict_logits(
    model: nn.Module,
    stored: Inputs,
    points: NDArray[np.int64],
    plan: LocalPlan | None = None,
    views: Draws | None = None,
    *,
    repeatable: bool = True,
) -> Tensor:
    """Outputs of ``model`` in evaluation mode on rows ``points`` of ``stored``: ``(n, K)``.

    ``views`` draws augmented views of the points by ``plan.augment``; without it there are none.
    In a lane batches repeat a recorded one, unless hooks have to see each (``repeatable``).
    """
    plan = plan or LocalPlan()
    # Not in inference mode: weights moved within it could not be trained afterwards.
    move_model(model, plan.device, plan.precision)
    model.eval()
    network = Network(model, plan.device, plan.precision)
    batches = evaluation_batches(stored, points, EVALUATED[plan.device.type], plan, views)
    step = _Outputs(network)
    recorded = lanes.recorded(step, model) if repeatable else nullcontext(step)
    with torch.inference_mode(), recorded as run:
        made = (cast(Tensor, run(_unlabeled(network, inputs))).clone() for inputs in batches)
        outputs = torch.cat([*made])
    lanes.wait()
    return outputs.cpu()


class _Outputs:
    """A step that computes outputs and changes nothing."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def __call__(self, batch: Batch) -> Tensor:
        return self.network(batch.inputs)


def _unlabeled(network: Network, inputs: Tensor) -> Batch:
    return Batch(network.to_device(inputs), inputs.new_empty(0))


def features_and_logits(
    model: nn.Module,
    stored: Inputs,
    points: NDArray[np.int64],
    plan: LocalPlan | None = None,
    views: Draws | None = None,
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
        logits = predict_logits(model, stored, points, plan, views, repeatable=False)
    return torch.cat(batches).float().cpu().numpy(), logits


class _Always:
    """Draws that mirror every image."""

    def random(self, size: int) -> Floats:
        return np.zeros(size)


def features_of_views(
    model: nn.Module,
    stored: Inputs,
    points: NDArray[np.int64],
    plan: LocalPlan,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Features ``(n, V, d)`` of points and of a view of each.

    The view is drawn by ``plan.augment``, with which V is 2; ``flip`` mirrors every image.
    """
    features = extract_features(model, stored, points, plan)
    if plan.augment == "none":
        return features[:, None]
    views = cast(Draws, _Always()) if plan.augment == "flip" else rng
    return np.stack([features, extract_features(model, stored, points, plan, views)], 1)


def extract_features(
    model: nn.Module,
    stored: Inputs,
    points: NDArray[np.int64],
    plan: LocalPlan | None = None,
    views: Draws | None = None,
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


def load_arrays(model: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Overwrite every weight and buffer of ``model`` by name, in place, by arrays or tensors.

    A float32 model becomes float64 if the arrays are float64, so that nothing is rounded.

    Raises
    ------
    ValueError
        If names or shapes differ from the model's.
    """
    if {array.dtype for array in arrays.values()} & {np.dtype(np.float64), torch.float64}:
        model.double()
    state = model.state_dict(keep_vars=False)
    if set(state) != set(arrays):
        odd = sorted(set(state) ^ set(arrays))
        raise ValueError(f"arrays and model differ in {odd[0]!r} ({len(odd)} names in all)")
    for name, tensor in state.items():
        if tuple(arrays[name].shape) != tuple(tensor.shape):
            raise ValueError(
                f"array {name!r} has shape {arrays[name].shape}, "
                f"the model's has {tuple(tensor.shape)}"
            )
    tensors = {name: array for name, array in arrays.items() if isinstance(array, Tensor)}
    others = [name for name in state if name not in tensors]
    with torch.no_grad():
        if others and any(tensor.is_cuda for tensor in state.values()):
            uploaded = _uploaded([arrays[name] for name in others])
            tensors |= dict(zip(others, uploaded, strict=True))
        if tensors:
            torch._foreach_copy_([state[name] for name in tensors], [*tensors.values()])
        for name in state.keys() - tensors.keys():
            if state[name].device.type == "cpu":
                np.copyto(state[name].numpy(), arrays[name], casting="unsafe")
            else:  # torch does not accept read-only arrays
                state[name].copy_(torch.from_numpy(np.require(arrays[name], requirements="W")))


_last_uploads: dict[int, tuple[list[NDArray[np.generic]], list[Tensor]]] = {}


def _uploaded(arrays: list[NDArray[np.generic]]) -> list[Tensor]:
    """``arrays`` on the GPU; the clients of a round get one model, which is moved once."""
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream()
    before, tensors = _last_uploads.get(device, ([], []))
    if not arrays or list(map(_origin, arrays)) != list(map(_origin, before)):
        # torch does not accept read-only arrays
        tensors = [torch.from_numpy(np.require(a, requirements="W")).cuda() for a in arrays]
        if all(not array.flags.writeable for array in arrays):  # else they may change in place
            _last_uploads[device] = arrays, tensors
        stream.synchronize()  # other lanes read them
    for tensor in tensors:
        tensor.record_stream(stream)
    return tensors


def _origin(array: NDArray[np.generic]) -> tuple[Any, ...]:
    """Where an array is in memory, and its form."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str


def tensors_of(model: nn.Module) -> Any:
    """Copies of every weight and buffer of ``model`` by name, on its device."""
    copies = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    lanes.wait()  # others read them on a stream of their own
    return copies


def dump_arrays(model: nn.Module) -> dict[str, NDArray[np.generic]]:
    """Every weight and buffer of ``model`` by name, contiguous; may share the model's memory."""
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    if not any(tensor.is_cuda for tensor in state.values()):
        return {name: tensor.contiguous().numpy() for name, tensor in state.items()}
    arrays: dict[str, NDArray[np.generic]] = {}
    for dtype in {tensor.dtype for tensor in state.values()}:  # each in one copy
        named = {name: tensor for name, tensor in state.items() if tensor.dtype == dtype}
        flat = torch.cat([tensor.reshape(-1) for tensor in named.values()]).cpu()
        parts = torch.split(flat, [tensor.numel() for tensor in named.values()])
        for (name, tensor), part in zip(named.items(), parts, strict=True):
            arrays[name] = part.view(tensor.shape).numpy()
    return {name: arrays[name] for name in state}
