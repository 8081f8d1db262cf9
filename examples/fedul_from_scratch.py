"""FedUL on one page: digits learned from unlabeled sets and their class shares. NumPy and torch.

    python examples/fedul_from_scratch.py

Lu et al. (2022), "Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing
Clients", Algorithm 1. Symbols as in the paper: a client has M unlabeled sets, of which it knows the
class priors Pi (M, K) and the sizes n_m. The point x has the number of its set for a label, the
surrogate label. Theorem 1: for a transition Q that Pi alone determines,

    eta_bar(x) = Q(eta(x)),   eta_bar_m(x) proportional to sum_k pi_bar_m Pi_mk / pi_k * eta_k(x),

where eta are the posteriors of classes and eta_bar those of sets. So a client trains the network
that gives eta to predict sets *through* Q, and what is averaged is the classifier of classes.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

Weights = dict[str, Tensor]


def log_transition(Pi: Tensor, n: Tensor, pi: Tensor) -> Tensor:
    """log(pi_bar_m Pi_mk / pi_k), (M, K): the fixed layer Q of Theorem 1."""
    pi_bar = n / n.sum()
    return (pi_bar[:, None] * Pi / pi[None, :]).log()


def surrogate_loss(logits: Tensor, m: Tensor, log_Q: Tensor) -> Tensor:
    """Negative log-likelihood of the sets' numbers m through Q (eq. 9)."""
    log_eta = functional.log_softmax(logits, dim=1)
    log_eta_bar = torch.logsumexp(log_eta[:, None, :] + log_Q[None], dim=2)  # (n, M)
    return functional.nll_loss(functional.log_softmax(log_eta_bar, dim=1), m)


def train_client(
    model: nn.Module,
    x: Tensor,
    m: Tensor,
    log_Q: Tensor,
    rng: np.random.Generator,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
) -> None:
    """Procedure B: local training from the global weights in ``model``, in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - batch_size + 1, batch_size):
            batch = order[start : start + batch_size]
            optimizer.zero_grad()
            surrogate_loss(model(x[batch]), m[batch], log_Q).backward()
            optimizer.step()


def federated_averaging(updates: list[Weights]) -> Weights:
    """The mean of the clients' weights (Algorithm 1)."""
    return {name: torch.stack([update[name] for update in updates]).mean(0) for name in updates[0]}


def draw_sets(
    labels: np.ndarray, num_sets: int, rng: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    """Deal a client's points into sets with different class shares; returns the sets and Pi.

    In a real federation the sets are there already: the patients of a month, the users of a town.
    """
    K = labels.max() + 1
    sets: list[list[int]] = [[] for _ in range(num_sets)]
    for k in range(K):
        points = rng.permutation(np.flatnonzero(labels == k))
        shares = rng.dirichlet(np.full(num_sets, 0.5))
        cuts = (np.cumsum(shares)[:-1] * len(points)).astype(int)
        for chosen, part in zip(sets, np.split(points, cuts), strict=True):
            chosen.extend(part)
    kept = [np.array(chosen) for chosen in sets if chosen]
    Pi = np.stack([np.bincount(labels[chosen], minlength=K) / len(chosen) for chosen in kept])
    return kept, Pi


def network(inputs: int, K: int) -> nn.Module:
    """One hidden layer; FedUL takes any network."""
    return nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, K))


def main(num_clients: int = 5, num_sets: int = 10, rounds: int = 10) -> float:
    """Train on digits; returns the share of wrong predictions for points that nobody had."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x = torch.from_numpy(x / 8 - 1).float()
    order = rng.permutation(len(x))
    test, parts = order[:360], np.array_split(order[360:], num_clients)

    clients = []
    for part in parts:
        sets, Pi = draw_sets(y[part], num_sets, rng)
        points = part[np.concatenate(sets)]
        n = torch.tensor([len(chosen) for chosen in sets])
        m = torch.repeat_interleave(torch.arange(len(sets)), n)  # the surrogate labels
        pi = torch.full((10,), 0.1, dtype=torch.float64)
        clients.append((x[points], m, log_transition(torch.from_numpy(Pi), n, pi).float()))

    server, client = network(64, 10), network(64, 10)
    error = 1.0
    for round_number in range(1, rounds + 1):
        updates = []
        for inputs, m, log_Q in clients:
            client.load_state_dict(server.state_dict())
            train_client(
                *(client, inputs, m, log_Q, rng), epochs=5, batch_size=16, learning_rate=3e-3
            )
            updates.append({name: w.clone() for name, w in client.state_dict().items()})
        server.load_state_dict(federated_averaging(updates))
        predicted = server(x[test]).argmax(dim=1).numpy()
        error = float((predicted != y[test]).mean())
        print(f"round {round_number}: test error {error:.1%}")
    return error


if __name__ == "__main__":
    main()
