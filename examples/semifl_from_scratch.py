"""SemiFL on one page: digits, of which the server alone has labels. NumPy and torch.

    python examples/semifl_from_scratch.py

Diao, Ding and Tarokh (2022), "SemiFL: Semi-Supervised Federated Learning for Unlabeled Clients with
Alternate Training", Algorithm 1. A round:

1. Each client labels its points once, with the model W that it gets, on weak views. It trains on
   its *fix set*, the points of top probability tau or more, and on mixtures with its *mix set*,
   points drawn from all of them:

       L_fix = CE(f(A(x_fix)), y_fix)                                              A: strong view
       L_mix = lambda CE(f(x), y_fix) + (1 - lambda) CE(f(x), y_mix)
       x = lambda a(x_fix) + (1 - lambda) a(x_mix),  lambda ~ Beta(0.75, 0.75)     a: weak view

2. The server steps from W towards the mean of the clients that had a fix set, with momentum.
3. The server trains the result on its labels; this is the model of the round, and is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

View = Callable[[Tensor], Tensor]
Weights = dict[str, Tensor]


class Constants(NamedTuple):
    """Those of the paper; at the server batches are of 250 points if there are many labels."""

    eta: float = 0.03
    beta: float = 0.9  # momentum of clients and server
    beta_g: float = 0.5  # momentum of the steps between rounds
    decay: float = 5e-4
    E: int = 5
    B: int = 10
    tau: float = 0.95
    alpha: float = 0.75


def descend(model: nn.Module, momentum: Any, losses: Iterator[Tensor], c: Constants) -> Any:
    """A step along each loss, its gradient cut to norm 1. Momentum is Nesterov's, goes on from the
    last round of the same client or server, and is returned for the next."""
    sgd = torch.optim.SGD(
        model.parameters(), lr=c.eta, momentum=c.beta, weight_decay=c.decay, nesterov=True
    )
    if momentum is not None:
        sgd.load_state_dict(momentum)
    for loss in losses:
        sgd.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        sgd.step()
    return sgd.state_dict()


def batches(count: int, c: Constants, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """E passes over ``count`` points in random order, without the rest of a pass."""
    for _ in range(c.E):
        order, full = rng.permutation(count), max(count // c.B, 1)
        yield from order[: full * c.B].reshape(full, -1)


def run_client(
    W: nn.Module, momentum: Any, x: Tensor, views: tuple[View, View, View],
    rng: np.random.Generator, c: Constants,
) -> tuple[Weights | None, Any]:  # fmt: skip
    """The client's weights, or None without a fix set, and its momentum; ``views`` are a weak one
    for labels, a weak and a strong one for training."""
    label_view, a, A = views
    with torch.no_grad():
        top, y = W.eval()(label_view(x)).double().softmax(dim=1).max(dim=1)
    fix = (top >= c.tau).nonzero()[:, 0]
    if len(fix) == 0:
        return None, momentum
    f = deepcopy(W).train()

    def losses() -> Iterator[Tensor]:
        for batch in batches(len(fix), c, rng):
            i, j = fix[batch], rng.integers(len(x), size=len(batch))
            L_fix = functional.cross_entropy(f(A(x[i])), y[i])
            lam = float(torch.distributions.Beta(c.alpha, c.alpha).sample())
            logits = f(lam * a(x[i]) + (1 - lam) * a(x[j]))
            L_mix = lam * functional.cross_entropy(logits, y[i])
            yield L_fix + L_mix + (1 - lam) * functional.cross_entropy(logits, y[j])

    momentum = descend(f, momentum, losses(), c)
    return f.state_dict(), momentum


def train_server(
    f: nn.Module, momentum: Any, x: Tensor, y: Tensor, a: View,
    rng: np.random.Generator, c: Constants,
) -> Any:  # fmt: skip
    """Train the model on the server's labels; returns the server's momentum."""
    order = batches(len(x), c, rng)
    losses = (functional.cross_entropy(f.train()(a(x[i])), y[i]) for i in order)
    return descend(f, momentum, losses, c)


def aggregate(W: Weights, clients: list[Weights], v: Weights, beta_g: float) -> Weights:
    """W - v, where v becomes beta_g v + (W - mean of the clients); W without clients."""
    for n in W if clients else ():
        step = W[n] - torch.stack([client[n] for client in clients]).mean(dim=0)
        v[n] = beta_g * v[n] + step if n in v else step
    return {n: W[n] - v[n] for n in W} if clients else W


def weak_view(x: Tensor) -> Tensor:
    """a for vectors: noise. For images it is a flip and a shift."""
    return x + 0.1 * torch.randn_like(x)


def strong_view(x: Tensor) -> Tensor:
    """A for vectors: more noise, and a fifth of the values is 0. For images it is RandAugment."""
    return (x + 0.2 * torch.randn_like(x)) * (torch.rand_like(x) >= 0.2)


def main(num_clients: int = 10, labels: int = 100, rounds: int = 10) -> float:
    """Learn digits; returns the share of wrong predictions for points that nobody had."""
    rng, c = np.random.default_rng(0), Constants()
    torch.manual_seed(0)
    digits, y = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    x, order = (digits / 8 - 1).float(), rng.permutation(len(digits))
    test, server = order[:360], order[360 : 360 + labels]
    clients = [x[p] for p in np.array_split(order[360 + labels :], num_clients)]
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    momenta, v, error = [None] * (num_clients + 1), {}, 1.0
    for r in range(1, rounds + 1):
        views = weak_view, weak_view, strong_view
        found = [run_client(model, momenta[k], p, views, rng, c) for k, p in enumerate(clients)]
        weights, momenta[:-1] = zip(*found, strict=True)
        active = [client for client in weights if client is not None]
        model.load_state_dict(aggregate(model.state_dict(), active, v, c.beta_g))
        momenta[-1] = train_server(model, momenta[-1], x[server], y[server], weak_view, rng, c)
        error = float((model.eval()(x[test]).argmax(dim=1) != y[test]).double().mean())
        print(f"round {r}: test error {error:.1%}")
    return error


if __name__ == "__main__":
    main()
