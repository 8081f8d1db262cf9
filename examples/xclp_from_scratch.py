"""XCLP on one page: digits of which few have labels, in the hands of ten clients. NumPy and torch.

    python examples/xclp_from_scratch.py

Scott, Yeo and Lampert (2023), "Cross-client Label Propagation for Transductive and Semi-Supervised
Federated Learning". Algorithm 1, XCLP: all clients' points stand in one graph of similar points,
and labels spread along its edges from client to client. With Y the one-hot labels (zero rows for
points without) and W the normalized graph, label propagation is

    Z = S Y,  S = (I - alpha W)^-1,  label = argmax_k z_k,  confidence = 1 - entropy(z) / log K.

S follows from similarities alone, and S Y = sum_i S_i Y_i, with one summand for each client. So
nobody has to show points or labels. Algorithm 2, FedAvg+XCLP: every round labels the points anew,
by the features of the current network, and trains on these labels, weighted by confidence. The
paper's text is followed; the authors' code adds a few scalings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

Array = np.ndarray


def influence(B: Array, k: int, alpha: float) -> Array:
    """Phase 2, at the server: S, (n, n), from the codes' Hamming distances H."""
    n, L = B.shape
    signs = 2.0 * B - 1
    H = (L - signs @ signs.T) / 2  # from SecureHamming: the server never sees B
    s = np.where(2 * H < L, np.cos(np.pi * H / L), 0)  # cosines (eq. 3), no negative ones
    np.fill_diagonal(H, L + 1)
    nearest = np.argsort(H, axis=1, kind="stable")[:, :k]
    A = np.zeros((n, n))
    np.put_along_axis(A, nearest, np.take_along_axis(s, nearest, axis=1), axis=1)
    W = A + A.T
    root = np.sqrt(np.where(W.any(axis=1), W.sum(axis=1), 1))
    return np.linalg.inv(np.eye(n) - alpha * W / np.outer(root, root))


def secure_row_sums(parts: list[Array], rows: list[Array], rng: np.random.Generator) -> list[Array]:
    """SecureRowSums (section 3.2): client i gets the rows R_i of sum_j parts_j, the server noise.

    Numbers are multiples of 2^-40 modulo 2^64. The masks add up to 0; client i withholds its R_i.
    """
    masked = [np.rint(part * 2.0**40).astype(np.int64) for part in parts]
    for i in range(len(parts)):
        for j in range(i):  # from a seed that only clients i and j have
            M_ij = rng.integers(-(2**63), 2**63, masked[i].shape, dtype=np.int64)
            masked[i], masked[j] = masked[i] + M_ij, masked[j] - M_ij
    withheld = [part[R_i] for part, R_i in zip(masked, rows, strict=True)]
    for part, R_i in zip(masked, rows, strict=True):
        part[R_i] = 0
    return [(sum(masked)[R_i] + part) / 2.0**40 for part, R_i in zip(withheld, rows, strict=True)]


def labels_of(Z: Array) -> tuple[Array, Array]:
    """Labels and confidences from class scores; the confidence is 0 where no label comes."""
    total = Z.sum(axis=1, keepdims=True)
    p = np.divide(Z, total, out=np.zeros_like(Z), where=total > 0)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1)
    return p.argmax(axis=1), np.where(p.any(axis=1), 1 - entropy / np.log(Z.shape[1]), 0)


def xclp(
    V: list[Array], y: list[Array], K: int, P: Array, rng: np.random.Generator, k: int, alpha: float
) -> tuple[list[Array], list[Array]]:
    """Algorithm 1: labels and confidences of each client's points; labels that it has stay, with 1.

    y is -1 for points without a label; P, (d, L), is Gaussian, and the server does not know it.
    """
    B = np.concatenate([V_i @ P > 0 for V_i in V])  # phase 1, at each client
    S = influence(B, k, alpha)
    owner = np.repeat(np.arange(len(V)), [len(V_i) for V_i in V])
    y_hat, w = np.concatenate(y), (np.concatenate(y) >= 0).astype(float)
    labeled, unlabeled = np.flatnonzero(y_hat >= 0), np.flatnonzero(y_hat < 0)
    # Phase 3, at each client: S_i Y_i. Rows of labeled points would tell others' labels.
    columns = [labeled[owner[labeled] == i] for i in range(len(V))]
    parts = [S[np.ix_(unlabeled, L_i)] @ np.eye(K)[y_hat[L_i]] for L_i in columns]
    rows = [np.flatnonzero(owner[unlabeled] == i) for i in range(len(V))]
    for R_i, Z_i in zip(rows, secure_row_sums(parts, rows, rng), strict=True):
        y_hat[unlabeled[R_i]], w[unlabeled[R_i]] = labels_of(Z_i)
    ends = np.flatnonzero(np.diff(owner)) + 1
    return np.split(y_hat, ends), np.split(w, ends)


def train_client(
    model: nn.Module, x: Tensor, y: Array, y_hat: Array, w: Array, rng: np.random.Generator,
    *, epochs: int, batch_size: int, learning_rate: float,
) -> None:  # fmt: skip
    """ClientUpdate of Algorithm 2, in place: as many propagated as given labels in a step."""
    labeled, pseudo = np.flatnonzero(y >= 0), np.flatnonzero((y < 0) & (w > 0))
    halves = [half for half in (pseudo, labeled) if len(half)]
    size = min(batch_size, len(labeled) or batch_size)
    targets, weights = torch.from_numpy(y_hat), torch.from_numpy(w).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for _ in range(epochs):
        streams = [endless(half, rng) for half in halves]
        for _ in range(len(halves[0]) // size):
            batch = np.array([next(stream) for stream in streams for _ in range(size)])
            optimizer.zero_grad()
            losses = functional.cross_entropy(model(x[batch]), targets[batch], reduction="none")
            (weights[batch] * losses).mean().backward()
            optimizer.step()


def endless(points: Array, rng: np.random.Generator) -> Iterator[int]:
    """Pass after pass over ``points`` in random order."""
    while True:
        yield from rng.permutation(points)


def main(num_clients: int = 10, labels: int = 100, first: int = 5, rounds: int = 10) -> float:
    """Learn digits; returns the share of wrong predictions for points that nobody had."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x = torch.from_numpy(x / 8 - 1).float()
    order = rng.permutation(len(x))
    test, parts = order[:360], np.array_split(order[360:], num_clients)
    y_l = [np.where(np.arange(len(p)) < labels // num_clients, y[p], -1) for p in parts]
    P = rng.standard_normal((128, 4096))
    phi = nn.Sequential(nn.Linear(64, 128), nn.Tanh())  # the features; then comes the classifier
    server = nn.Sequential(phi, nn.Linear(128, 10))
    for number in range(1, rounds + 1):
        y_hat, w, right = y_l, [(y_i >= 0).astype(float) for y_i in y_l], ""
        if number > first:  # the first rounds train on labels alone
            V = [phi(x[p]).detach().numpy() for p in parts]
            y_hat, w = xclp(V, y_l, 10, P, rng, k=10, alpha=0.99)
            hits = (np.concatenate(y_hat) == y[order[360:]])[np.concatenate(y_l) < 0]
            right = f", {hits.mean():.1%} of the propagated labels right"
        updates, start = [], {name: v.clone() for name, v in server.state_dict().items()}
        for i, p in enumerate(parts):
            server.load_state_dict(start)
            data = x[p], y_l[i], y_hat[i], w[i]
            train_client(server, *data, rng, epochs=5, batch_size=5, learning_rate=0.2)
            updates.append({name: v.clone() for name, v in server.state_dict().items()})
        server.load_state_dict({n: torch.stack([u[n] for u in updates]).mean(0) for n in start})
        error = float((server(x[test]).argmax(dim=1).numpy() != y[test]).mean())
        print(f"round {number}: test error {error:.1%}{right}")
    return error


if __name__ == "__main__":
    main()
