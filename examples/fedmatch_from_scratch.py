"""FedMatch on one page: digits, of which each of ten clients has few labels. NumPy and torch.

    python examples/fedmatch_from_scratch.py

Jeong, Yoon, Yang and Hwang (2021), "Federated Semi-Supervised Learning with Inter-Client
Consistency & Disjoint Learning", Algorithm 1 (labels at clients). Symbols as in the paper: the
weights are a sum theta = sigma + psi. sigma learns from labels with psi fixed, psi from unlabeled
points with sigma fixed (* is what is fixed):

    L_s(sigma) = lambda_s CE(y, p_{sigma+psi*}(x))                                        (eq. 4)
    L_u(psi) = lambda_ICCS Phi + lambda_L2 |sigma* - psi|^2 + lambda_L1 |psi|             (eq. 5)
    Phi = CE(y_hat, p(pi(u))) + 1/H sum_j KL[p*_hj(u) || p(u)]                            (eq. 2)

Phi is about points u of which the client's own model is sure. pi makes a strong view; y_hat is the
class with most votes among the model and its H helpers (eq. 3): other clients' psi on top of the
client's own sigma. Only what has changed of sigma and psi travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

Weights = dict[str, Tensor]
Model = Callable[[Weights, Tensor], Tensor]  # f(theta, x) are logits
View = Callable[[Tensor], Tensor]
Parts = list[Weights]  # sigma and psi
Data = tuple[Tensor, Tensor, Tensor]  # labeled points, their labels, unlabeled points


class Constants(NamedTuple):
    """Those of the paper, but for eta and the batches, which are for digits."""

    eta: float = 0.02
    E: int = 1
    B_S: int = 5
    B_U: int = 50
    lambda_s: float = 10.0
    lambda_ICCS: float = 1e-2
    lambda_L2: float = 10.0
    lambda_L1: float = 1e-4
    tau: float = 0.85
    H: int = 2
    helper_interval: int = 10
    difference: float = 5e-5  # a smaller change of a weight does not travel
    cutoff: float = 5e-6  # a smaller weight of psi counts as 0 in evaluation


def theta(sigma: Weights, psi: Weights, cutoff: float = 0.0) -> Weights:
    """The weights of the network."""
    return {n: sigma[n] + torch.where(psi[n].abs() < cutoff, 0, psi[n]) for n in sigma}


def votes(log_p: Tensor, others: list[Tensor]) -> Tensor:
    """y_hat (eq. 3), from log-probabilities; in a tie the client's own class."""
    count = 1.5 * functional.one_hot(log_p.argmax(dim=1), log_p.shape[1])
    for log_q in others:
        count = count + functional.one_hot(log_q.argmax(dim=1), log_p.shape[1])
    return count.argmax(dim=1)


def inter_client_consistency(
    f: Model, local: Weights, helpers: list[Weights], u: Tensor, pi: View, tau: float
) -> Tensor:
    """Phi (eq. 2), a mean over the points of which the model is sure; 0 if there are none."""
    log_p = functional.log_softmax(f(local, u), dim=1)
    sure = (log_p.exp().amax(dim=1) >= tau).nonzero()[:, 0]
    if len(sure) == 0:
        return torch.zeros(())
    u, log_p = u[sure], log_p[sure]
    with torch.no_grad():
        others = [functional.log_softmax(f(helper, u), dim=1) for helper in helpers]
        y_hat = votes(log_p, others)
    Phi = functional.cross_entropy(f(local, pi(u)), y_hat)
    for log_q in others:  # eq. 1
        Phi = Phi + (log_q.exp() * (log_q - log_p)).sum(dim=1).mean() / len(others)
    return Phi


def descend(loss: Tensor, part: Weights, eta: float) -> None:
    """One step of the part's weights along the gradient of the loss, in place."""
    gradients = torch.autograd.grad(loss, list(part.values()))
    with torch.no_grad():
        for weight, gradient in zip(part.values(), gradients, strict=True):
            weight.sub_(eta * gradient)


def run_client(
    f: Model, parts: Parts, psi_h: list[Weights], data: Data, pi: View,
    rng: np.random.Generator, c: Constants,
) -> Parts:  # fmt: skip
    """RunClient (Algorithm 1, lines 13 to 20)."""
    x, y, unlabeled = data
    helpers = [theta(parts[0], psi) for psi in psi_h]  # line 14: the receiver's sigma
    sigma, psi = ({n: w.clone().requires_grad_() for n, w in part.items()} for part in parts)
    for _ in range(c.E):
        order, points = rng.permutation(len(x)), endless(len(unlabeled), rng)
        for start in range(0, len(x) - c.B_S + 1, c.B_S):
            s = order[start : start + c.B_S]
            u = unlabeled[[next(points) for _ in range(c.B_U)]]
            L_s = c.lambda_s * functional.cross_entropy(f(theta(sigma, psi), x[s]), y[s])
            descend(L_s, sigma, c.eta)  # line 17
            Phi = inter_client_consistency(f, theta(sigma, psi), helpers, u, pi, c.tau)
            L_2 = sum((sigma[n] - psi[n]).square().sum() for n in psi)
            L_1 = sum(weight.abs().sum() for weight in psi.values())
            L_u = c.lambda_ICCS * Phi + c.lambda_L2 * L_2 + c.lambda_L1 * L_1
            descend(L_u, psi, c.eta)  # line 18
    return [{n: w.detach() for n, w in part.items()} for part in (sigma, psi)]


def endless(count: int, rng: np.random.Generator) -> Iterator[int]:
    """Pass after pass over ``count`` points in random order."""
    while True:
        yield from rng.permutation(count)


def send(new: Parts, held: Parts, difference: float) -> Parts:
    """What the receiver has afterwards: the values that differ enough travel (section 3.2)."""
    return [
        {n: torch.where((part[n] - old[n]).abs() >= difference, part[n], old[n]) for n in part}
        for part, old in zip(new, held, strict=True)
    ]


def nearest(embeddings: dict[int, np.ndarray], client: int, H: int) -> list[int]:
    """GetNearestNeighbors: the others whose models answer the same noise most like the client's."""
    others = [other for other in embeddings if other != client]
    return sorted(others, key=lambda h: np.linalg.norm(embeddings[h] - embeddings[client]))[:H]


def run_server(
    f: Model, parts: Parts, clients: list[Data], pi: View, a: Tensor,
    draws: Callable[[int, int], np.random.Generator], rounds: int, c: Constants,
) -> Iterator[Parts]:  # fmt: skip
    """RunServer (Algorithm 1, lines 1 to 12) with all clients: sigma and psi after each round.

    ``a`` is the noise that embeds models; ``draws`` gives a client's random numbers of a round.
    """
    held: dict[int, Parts] = {}  # what each client has since its last reply, at both ends
    embeddings: dict[int, np.ndarray] = {}
    for r in range(1, rounds + 1):
        replies = []
        for client, data in enumerate(clients):
            received = send(parts, held.get(client, parts), c.difference)
            near = nearest(embeddings, client, c.H) if r % c.helper_interval == 0 else []
            psi_h = [send([held[h][1]], [received[1]], c.difference)[0] for h in near]
            trained = run_client(f, received, psi_h, data, pi, draws(client, r), c)
            replies.append(send(trained, received, c.difference))
        held = dict(enumerate(replies))
        for client, reply in held.items():  # EmbedLocalModel
            embeddings[client] = f(theta(*reply), a)[0].double().softmax(dim=0).numpy()
        parts = [mean(part) for part in zip(*replies, strict=True)]  # lines 10 and 11
        yield parts


def mean(weights: tuple[Weights, ...]) -> Weights:
    """Of the clients' sigma, or of their psi."""
    return {n: torch.stack([each[n] for each in weights]).mean(0) for n in weights[0]}


def strong_view(u: Tensor) -> Tensor:
    """pi for vectors: noise, and a fifth of the values is 0. For images it is RandAugment."""
    return (u + 0.2 * torch.randn_like(u)) * (torch.rand_like(u) >= 0.2)


def main(num_clients: int = 10, labels: int = 20, rounds: int = 20) -> float:
    """Learn digits; returns the share of wrong predictions for points that nobody had."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    digits, y = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    x = (digits / 8 - 1).float()
    order = rng.permutation(len(x))
    test, points = order[:360], np.array_split(order[360:], num_clients)
    clients = [(x[p[:labels]], y[p[:labels]], x[p[labels:]]) for p in points]
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    sigma = {n: w.detach().clone() for n, w in network.named_parameters()}
    psi = {n: 0.2 * w for n, w in sigma.items()}  # as in the authors' code

    def f(weights: Weights, inputs: Tensor) -> Tensor:
        return functional_call(network, weights, (inputs,))

    c, a, error = Constants(), torch.randn(1, 64), 1.0
    learned = run_server(f, [sigma, psi], clients, strong_view, a, lambda *_: rng, rounds, c)
    for r, (sigma, psi) in enumerate(learned, start=1):
        predicted = f(theta(sigma, psi, c.cutoff), x[test]).argmax(dim=1)
        error = float((predicted != y[test]).double().mean())
        print(f"round {r}: test error {error:.1%}")
    return error


if __name__ == "__main__":
    main()
