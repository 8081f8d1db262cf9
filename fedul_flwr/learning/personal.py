"""Personal models: a client's own head, or its own statistics of batch norm, on the global model.

A head is the last linear layer. Its inputs, the features, do not change, so the loss is one of few
weights on fixed vectors. Steps are full-batch gradient steps of length 1/L with Nesterov's momentum
(Nesterov 1983), where L bounds the second derivatives. How many there are is chosen by
cross-validation (early stopping); none is a choice, too, and is the global model.

Own statistics of batch norm are AdaBN (Li et al. 2017, *Revisiting Batch Normalization for
Practical Domain Adaptation*): means and variances of the client's points in place of all clients'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedul_flwr.arrays import Arrays, Ints
from fedul_flwr.data.class_priors import class_masses, floored
from fedul_flwr.data.types import OwnPoints
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batch_statistics import norm_statistics
from fedul_flwr.learning.local import features_and_logits, predict_logits
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.models.parts import feature_layer
from fedul_flwr.surrogate import SurrogateLoss

MOST_STEPS, FOLDS = 100, 5
"""Largest number of steps of a head, and parts of cross-validation."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""``(logits (n, K), targets (n,)) -> mean loss``; second derivatives by logits at most 1/2."""


class Personal(NamedTuple):
    """What a personal model has of its own.

    Attributes
    ----------
    arrays : by name; empty if the global model is better, or nothing could be learned.
    steps : of the head; 0 for other kinds.
    loss, global_loss : losses by which it was chosen, and that of the global model; ``None``
        without targets.
    """

    arrays: Arrays
    steps: int = 0
    loss: float | None = None
    global_loss: float | None = None


def own_loss(examples: OwnPoints) -> Loss:
    """Cross-entropy of labels, or FedUL's loss of sets (eq. 9) for the client's class shares."""
    if examples.priors is None or examples.set_sizes is None:
        return nn.functional.cross_entropy
    masses = floored(class_masses(examples.priors, examples.set_sizes))
    return SurrogateLoss(
        torch.tensor(examples.priors), torch.tensor(examples.set_sizes), torch.from_numpy(masses)
    )


def descend(
    features: Tensor, targets: Tensor, start: Tensor, loss: Loss, steps: int
) -> Iterator[Tensor]:
    """Weights of a head before the first step and after each of ``steps``.

    Parameters
    ----------
    features : ``(n, d)``, in float64.
    targets : ``(n,)``.
    start : ``(K, d)``; logits are ``features @ start.T``.
    """
    yield start
    bound = float(torch.linalg.matrix_norm(features, ord=2)) ** 2 / (2 * len(features))
    length = 1 / bound if bound else 0.0  # without features there is no gradient
    weights = before = start
    for step in range(steps):
        ahead = (weights + step / (step + 3) * (weights - before)).requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(loss(features @ ahead.T, targets), ahead)
        before, weights = weights, ahead.detach() - length * gradient
        yield weights


def best_steps(
    features: Tensor, targets: Tensor, start: Tensor, loss: Loss, fold_of: Ints
) -> tuple[int, float, float]:
    """The number of steps with the smallest loss on points that were left out.

    Parameters
    ----------
    features, targets, start, loss : as for :func:`descend`.
    fold_of : ``(n,)``, the part that each point is left out with, from 0; two parts or more.

    Returns
    -------
    The number, the fewest of several equal ones; the mean loss with it, and with no step.
    """
    count = int(fold_of.max()) + 1
    total = torch.zeros(MOST_STEPS + 1, dtype=torch.float64)
    for fold in range(count):
        out = torch.from_numpy(fold_of == fold)
        path = descend(features[~out], targets[~out], start, loss, MOST_STEPS)
        for step, weights in enumerate(path):
            value = loss(features[out] @ weights.T, targets[out])
            total[step] += int(out.sum()) / len(out) * value.double()
    steps = int(total.argmin())
    return steps, float(total[steps]), float(total[0])


def own_head(
    model: nn.Module, examples: OwnPoints, plan: LocalPlan, rng: np.random.Generator
) -> Personal:
    """A head tuned on the client's targets; ``model``, the global one, does not change.

    Parameters
    ----------
    rng : divides points into the parts of cross-validation.
    """
    layer = feature_layer(model)
    inputs, logits = features_and_logits(model, examples.inputs, examples.tuned, plan)
    features = torch.from_numpy(inputs).double()
    parameters = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
    if layer.bias is not None:
        features = torch.cat([features, torch.ones(len(features), 1)], dim=1)
    columns = [p.detach().cpu().double().reshape(layer.out_features, -1) for p in parameters]
    start = torch.cat(columns, dim=1)
    # In bfloat16 logits have three digits.
    if not torch.allclose(features @ start.T, logits.double(), rtol=0.05, atol=0.05):
        raise UserError(
            "Setting personal = 'head': the outputs of the model's last linear layer are not its "
            "logits; choose another model.",
            "model-unfit",
        )
    targets, loss = torch.from_numpy(examples.targets), own_loss(examples)
    steps, value, before = best_steps(features, targets, start, loss, _folds(examples.tuned, rng))
    if steps == 0:
        return Personal({}, 0, value, before)
    *_, weights = descend(features, targets, start, loss, steps)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    width = columns[0].shape[1]
    parts = (weights[:, :width], weights[:, width:])
    arrays = {
        names[id(parameter)]: part.reshape(parameter.shape).to(parameter.dtype).numpy()
        for parameter, part in zip(parameters, parts, strict=False)  # no bias, no second part
    }
    return Personal(arrays, steps, value, before)


def _folds(points: Ints, rng: np.random.Generator) -> Ints:
    """The part of each entry; all entries of one point are in the same part."""
    distinct, position = np.unique(points, return_inverse=True)
    order = rng.permutation(len(distinct)) % min(FOLDS, len(distinct))
    return np.asarray(order[position], dtype=np.int64)


def own_statistics(model: nn.Module, examples: OwnPoints, plan: LocalPlan) -> Personal:
    """Statistics of batch norm over the client's points; its targets say whether they are better.

    Without targets they are always taken. The statistics of ``model`` are overwritten.
    """
    loss = own_loss(examples)

    def measured() -> float | None:
        if not len(examples.tuned):
            return None
        logits = predict_logits(model, examples.inputs, examples.tuned, plan).double()
        return float(loss(logits, torch.from_numpy(examples.targets)))

    before = measured()
    arrays, _ = norm_statistics(model, examples.inputs, examples.points, plan)
    after = measured()
    if before is not None and after is not None and not after < before:
        return Personal({}, 0, before, before)
    return Personal(arrays, 0, after, before)
