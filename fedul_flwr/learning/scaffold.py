"""SCAFFOLD's local training (Karimireddy et al. 2020, algorithm 1): steps corrected by variates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.learning.device import move_model
from fedul_flwr.learning.local import LocalResult, local_normalizer, mean_gradient, train_local
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Task
from fedul_flwr.learning.variates import Variate


def train_with_variates(
    model: nn.Module,
    task: Task,
    plan: LocalPlan,
    rng: np.random.Generator,
    *,
    variates: tuple[Variate, Variate],
    option: str,
) -> tuple[LocalResult, dict[str, NDArray[np.generic]], dict[str, NDArray[np.generic]]]:
    """Train ``model`` in place by y ← y − eta·(g − c_i + c) and update the client's variate.

    Option I sets it to the gradient at the global model x, option II to
    c_i − c + (x − y) / (a·eta) for the normalizer a of the steps (their number S for plain SGD).

    Parameters
    ----------
    variates : c, an array for every trainable weight; and c_i in the same form, empty before this
        client's first round (zeros).
    option : ``"I"`` or ``"II"``; II is valid for SGD only.

    Returns
    -------
    The result of the training, the new c_i and its change.
    """
    server, variate = variates
    move_model(model, plan.device, plan.precision)
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    c = [_tensor(server[name], weight) for name, weight in named.items()]
    c_i = [
        _tensor(variate[name], weight) if variate else torch.zeros_like(weight)
        for name, weight in named.items()
    ]
    shift = [a - b for a, b in zip(c, c_i, strict=True)]
    if option == "I":
        renewed = mean_gradient(model, task, plan, rng)
        result = train_local(model, task, plan, rng, shift=shift)
    else:
        start = [weight.detach().clone() for weight in named.values()]
        result = train_local(model, task, plan, rng, shift=shift)
        scale = 1.0 / (local_normalizer(result.steps, plan) * plan.learning_rate)
        renewed = [
            (x - y.detach()) * scale - moved
            for x, y, moved in zip(start, named.values(), shift, strict=True)
        ]
    change = [new - old for new, old in zip(renewed, c_i, strict=True)]
    return result, _arrays(named, renewed), _arrays(named, change)


def _tensor(array: NDArray[np.generic], like: Tensor) -> Tensor:
    return torch.from_numpy(np.array(array)).to(like.device, like.dtype)


def _arrays(named: Mapping[str, Tensor], values: list[Tensor]) -> dict[str, NDArray[np.generic]]:
    return {
        name: value.detach().cpu().contiguous().numpy()
        for name, value in zip(named, values, strict=True)
    }
