"""A model from one message: digits from unlabeled sets and their class shares. NumPy alone.

    python examples/closed_form_from_scratch.py

A client has sets of points x of which it knows the class shares Pi. All that it sends are sums, and
sums over clients are all that the server needs:

    A = sum Pi Pi^T,   B = sum Pi x^T,   Q = sum x x^T   (over points; Pi is that of a point's set)
    mu = m + (A + I)^-1 (B - A 1 m^T),   m the mean of all x               (class means)
    C = Q/n - m m^T - sum_k p_k (mu_k - m)(mu_k - m)^T,   p = A 1 / n      (their covariance)

The classifier is the linear discriminant of mu and C, about m: w_k = C^-1 (mu_k - m). In a second
message each point counts for the classes by its posteriors under the shares of its set, which add
up to the numbers of points of each class in it, and A is the diagonal of their sums.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

Array = np.ndarray
Sums = tuple[Array, Array, Array]


def client_sums(x: Array, r: Array, stated: bool) -> Sums:
    """A, B and Q of points ``(n, d)`` with soft labels r ``(n, K)``: shares, or posteriors."""
    return (r.T @ r if stated else np.diag(r.sum(0))), r.T @ x, x.T @ x


def head(A: Array, B: Array, Q: Array) -> tuple[Array, Array]:
    """Weight ``(K, d)`` and bias ``(K,)`` of the linear discriminant for equally likely classes."""
    n, K, d = A.sum(), len(A), len(Q)
    m, regular = B.sum(0) / n, A + np.eye(len(A))
    apart = np.linalg.solve(regular, B - np.outer(A.sum(1), m))  # mu - m
    C = Q / n - np.outer(m, m) - (apart.T * (A.sum(1) / n)) @ apart
    shrinkage = d / (d + K**2 / np.trace(np.linalg.inv(regular)))
    values, vectors = np.linalg.eigh((C + C.T) / 2)
    values = np.maximum(values, 0)
    values = (1 - shrinkage) * values + shrinkage * values.mean()
    weight = (apart @ vectors / values) @ vectors.T
    return weight, np.log(1 / K) - (weight * (m + apart / 2)).sum(1)


def posteriors(x: Array, shares: Array, m: Array, weight: Array, bias: Array) -> Array:
    """Soft labels ``(n, K)`` by the model, which in each set m add up to its class shares."""
    with np.errstate(divide="ignore"):
        scores = x @ weight.T + bias + np.log(shares)
    plain = np.exp(np.maximum(scores - scores.max(1, keepdims=True), -50)) * (shares > 0)
    members = (m == np.arange(m.max() + 1)[:, None]).astype(float)
    factors, wanted = np.ones((len(members), shares.shape[1])), members @ shares
    for _ in range(100):
        sums = members @ (plain / (plain * factors[m]).sum(1, keepdims=True))
        factors = np.divide(wanted, sums, out=np.zeros(sums.shape), where=sums > 0)
    soft = plain * factors[m]
    return soft / soft.sum(1, keepdims=True)


def draw_shares(y: Array, num_sets: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Deal a client's points into sets; returns the class shares of each point's set, and sets."""
    one_hot, odds = np.eye(10)[y], rng.dirichlet(np.full(num_sets, 0.5), 10)
    m = np.array([rng.choice(num_sets, p=odds[k]) for k in y])
    return np.stack([one_hot[m == chosen].mean(0) for chosen in m]), m


def main(num_clients: int = 5, num_sets: int = 10, rounds: int = 2) -> float:
    """Learn digits; returns the share of wrong predictions for points that nobody had."""
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x = np.maximum((x / 8 - 1) @ rng.normal(size=(64, 500)) / 8 + rng.uniform(-1, 1, 500), 0)
    order = rng.permutation(len(x))
    test, rest = order[:360], order[360:]
    parts = np.array_split(rest[np.argsort(y[rest], kind="stable")], num_clients)  # two digits each
    clients = [(x[part], *draw_shares(y[part], num_sets, rng)) for part in parts]
    error, model = 1.0, None
    for number in range(1, rounds + 1):
        messages = [
            client_sums(points, shares, stated=True)
            if model is None
            else client_sums(points, posteriors(points, shares, m, *model), stated=False)
            for points, shares, m in clients
        ]
        model = head(*(sum(parts) for parts in zip(*messages, strict=True)))
        error = float(((x[test] @ model[0].T + model[1]).argmax(1) != y[test]).mean())
        print(f"round {number}: test error {error:.1%}")
    return error


if __name__ == "__main__":
    main()
