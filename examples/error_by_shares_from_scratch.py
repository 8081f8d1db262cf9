"""The error of a model without one label: digits, from class shares of sets alone. NumPy alone.

    python examples/error_by_shares_from_scratch.py

z is what a model says of a point (one-hot), r the class shares of the point's set. If classes look
alike in all sets, E[z | set] = C^T r with the confusion matrix C, so that C fits A C = B, A = sum r
r^T, B = sum r z^T: all sums over clients. A point must not be judged by a model that has learned
from it: `without_each` says what the linear discriminant of all other points makes of each point.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

Array = np.ndarray


def without_each(x: Array, r: Array, prior: Array) -> Array:
    """Logits ``(n, K)`` of points ``(n, d)`` with class shares r, by the head of all others."""
    n, d = x.shape
    K, A, m = r.shape[1], r.T @ r, x.mean(0)
    x = x - m
    regular = np.linalg.inv(A + np.eye(K))
    mu = regular @ (r.T @ x)  # class means about the mean of all points
    p = A.sum(1) / n
    C = x.T @ x / n - (mu.T * p) @ mu
    part = d / (d + K**2 / np.trace(regular))
    values, vectors = np.linalg.eigh((C + C.T) / 2)
    values = np.maximum(values, 0)
    roots = vectors / np.sqrt((1 - part) * values + part * values.mean())  # C^-1 = roots roots^T
    X, M = x @ roots, mu @ roots
    u = r @ regular  # without a point, mean k moves by u_k (sum_j r_j mu_j - x)
    u /= (1 - (u * r).sum(1))[:, None]
    means = np.zeros((n, K, K + 1))  # of x and mu, which span all that changes
    means[:, :, 0] = -u
    means[:, :, 1:] = np.eye(K) + u[:, :, None] * r[:, None]
    E = -np.einsum("nk,nki,nkj->nij", np.maximum(A.sum(1) - r, 0) / (n - 1), means, means)
    k = np.arange(K)
    E[:, k + 1, k + 1] += n * p / (n - 1)
    E[:, 0, 0] -= 1 / (n - 1)
    G = np.empty((n, K + 1, K + 1))  # inner products under C^-1
    G[:, 0, 0], G[:, 1:, 1:] = (X * X).sum(1), M @ M.T
    G[:, 0, 1:] = G[:, 1:, 0] = X @ M.T
    inner = np.linalg.solve(np.eye(K + 1) + G @ ((1 - part) * E), G)  # under (C + change)^-1
    squares = np.einsum("nki,nij,nkj->nk", means, inner, means)
    return np.einsum("nkj,nj->nk", means, inner[:, :, 0]) - squares / 2 + np.log(prior)


def confusion(r: Array, said: Array) -> Array:
    """C ``(K, K)`` from class shares ``(n, K)`` and predictions, by chance not all in [0, 1]."""
    A, B = r.T @ r, r.T @ np.eye(r.shape[1])[said]  # all that leaves a client
    return np.linalg.solve(A, B)


def main(num_sets: int = 30) -> tuple[float, float]:
    """Print the error in percent by class shares, and by the labels that nobody has read."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x = np.maximum((x / 8 - 1) @ rng.normal(size=(64, 200)) / 8 + rng.uniform(-1, 1, 200), 0)
    odds = rng.dirichlet(np.full(num_sets, 0.5), 10)
    of_set = np.array([rng.choice(num_sets, p=odds[k]) for k in y])
    r = np.stack([np.eye(10)[y[of_set == m]].mean(0) for m in range(num_sets)])[of_set]
    prior = np.full(10, 0.1)
    said = without_each(x, r, prior).argmax(1)
    by_shares = 100 * (1 - prior @ np.diag(confusion(r, said)))
    by_labels = 100 * float((said != y).mean())
    print(f"error by class shares {by_shares:.1f} %, by labels {by_labels:.1f} %")
    return by_shares, by_labels


if __name__ == "__main__":
    main()
