"""``python -m robustness.lattice``: cost of breaking ring-LWE with the parameters in use.

The ring's structure is ignored, as no known attack uses it: b = A s + e is learning with
errors (LWE) in dimension n modulo q, with any number of samples. Both attacks here
reduce a lattice by BKZ with block size beta, after which lengths of its basis fall geometrically
("GSA") by delta(beta). Their costs are those of one call for a shortest vector in dimension beta,
by lattice sieves, or of all calls.

docs/privacy.md cites the numbers; a test compares them with published ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import e, exp, log, log2, pi, sqrt

from fedul_flwr.secure.hamming.rlwe import CBD_BITS, N


@dataclass(frozen=True)
class LWE:
    """Dimension, log2 of the modulus, and standard deviations of the secret's entries and noise."""

    n: int
    log_q: float
    secret: float
    noise: float


@dataclass(frozen=True)
class Attack:
    """Block size, dimension of the lattice, and log2 of the number of repetitions."""

    beta: int
    dimension: int
    repeated: float = 0.0


TERNARY = sqrt(2 / 3)
"""Standard deviation of a number that is -1, 0 or 1 with equal probability."""

OURS = LWE(N, 96, TERNARY, sqrt(CBD_BITS / 2))


def root_hermite_factor(beta: int) -> float:
    """delta: BKZ finds a vector of delta^d vol^(1/d) in dimension d (Chen 2013)."""
    return float(((pi * beta) ** (1 / beta) * beta / (2 * pi * e)) ** (1 / (2 * (beta - 1))))


def primal(lwe: LWE) -> Attack:
    """The smallest beta that finds (e, s) as the unique shortest vector of a lattice.

    Alkim, Ducas, Pöppelmann and Schwabe (2016): once sqrt(beta) sigma <= delta^(2 beta - d - 1)
    vol^(1/d). The lattice of Bai and Galbraith (2014) has d = m + n + 1 dimensions for m samples;
    secrets are scaled to the noise's size, so its volume is q^m (noise / secret)^n.
    """
    scale = lwe.n * log(lwe.noise / lwe.secret)
    for beta in range(50, lwe.n):
        delta = log(root_hermite_factor(beta))
        # The zero of the derivative by d.
        d = round(sqrt(((lwe.n + 1) * lwe.log_q * log(2) - scale) / delta))
        volume = (d - lwe.n - 1) * lwe.log_q * log(2) + scale
        if log(beta) / 2 + log(lwe.noise) <= (2 * beta - d - 1) * delta + volume / d:
            return Attack(beta, d)
    raise ValueError("no block size below n is enough")


def dual(lwe: LWE, cost: Callable[[Attack], float]) -> Attack:
    """The cheapest beta that distinguishes b from uniform numbers by short dual vectors.

    As in the same paper: (x, y) with x A = y mod q and length l make x b = x e + y s mod q, whose
    distribution differs from uniform by exp(-2 pi^2 (l sigma / q)^2) =: epsilon. It takes
    1 / epsilon^2 such vectors; a sieve gives 2^(0.2075 beta).
    """
    volume = lwe.n * (lwe.log_q * log(2) + log(lwe.secret / lwe.noise))
    tried = []
    for beta in range(50, lwe.n):
        delta = log(root_hermite_factor(beta))
        d = round(sqrt(volume / delta))
        length = (d - 1) * delta + volume / d + log(lwe.noise) - lwe.log_q * log(2)
        log_epsilon = -2 * pi**2 * exp(2 * length) / log(2)
        tried.append(Attack(beta, d, max(0.0, -2 * log_epsilon - 0.2075 * beta)))
        if not tried[-1].repeated:
            break  # larger blocks only cost more
    return min(tried, key=cost)


def core_svp(attack: Attack) -> float:
    """log2 of one sieve, without subexponential factors: a lower bound."""
    return 0.292 * attack.beta + attack.repeated


def core_svp_quantum(attack: Attack) -> float:
    """The same with Grover's search in the sieve."""
    return 0.265 * attack.beta + attack.repeated


def standard(attack: Attack) -> float:
    """log2 of classical operations, counted as in the homomorphic encryption standard."""
    return core_svp(attack) + 16.4 + log2(8 * attack.dimension)


def standard_quantum(attack: Attack) -> float:
    """The same with Grover's search."""
    return core_svp_quantum(attack) + 16.4 + log2(8 * attack.dimension)


def gates(attack: Attack) -> float:
    """log2 of gates of a classical circuit: MATZOV (2022) on Albrecht et al. (2020).

    A sieve in dimension b takes 2^(0.29614 b + 20.388) gates, fitted to what the paper counts.
    Sieves of growing dimension add a factor C, and so do passes of BKZ. ``dimensions for free``
    (Ducas 2018) make b less than beta.
    """
    free = attack.beta * log(4 / 3) / log(attack.beta / (2 * pi * e))
    growing = -log2(1 - 2**-0.29614)
    calls = log2(attack.dimension - attack.beta)
    return 0.29614 * (attack.beta - free) + 20.388 + 2 * growing + calls + attack.repeated


COSTS: dict[str, Callable[[Attack], float]] = {
    "core-SVP, classical": core_svp,
    "core-SVP, quantum": core_svp_quantum,
    "gates": gates,
    "the standard's, classical": standard,
    "the standard's, quantum": standard_quantum,
}


def main() -> None:
    """Print the costs of both attacks on the parameters in use, by all estimates."""
    for name, cost in COSTS.items():
        for attack, found in (("primal", primal(OURS)), ("dual", dual(OURS, cost))):
            print(
                f"{name:28}{attack:8}2^{cost(found):.1f}  beta {found.beta}, "
                f"dimension {found.dimension}, repeated {2**found.repeated:.0f} times"
            )


if __name__ == "__main__":
    main()
