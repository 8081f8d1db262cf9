"""Make unlabeled sets out of labeled points: the part of a simulation that plays nature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.fedul import UnlabeledSetSettings
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Floats, Ints

DOMINANT_FACTOR = 10.0
"""Authors' code: the entry of class m mod K of set m is multiplied by this."""


@dataclass(frozen=True)
class GeneratedSets:
    """Unlabeled sets of one client.

    Attributes
    ----------
    points : ``(n_c,)``, training points, set after set (a shared point appears once per set).
    sets : ``(n_c,)``, the set of every point.
    priors : ``(M, K)``, what the client is told: realised proportions, with noise if asked for.
    true_priors : ``(M, K)``, realised proportions.
    drawn_priors : ``(M, K)``, what the points were dealt by, each row divided by its sum. Sets
        differ from it where a client has too few points of a class.
    """

    points: Ints
    sets: Ints
    priors: Floats
    true_priors: Floats
    drawn_priors: Floats


def generate_sets(
    labels: Ints,
    points: Ints,
    num_classes: int,
    client: int,
    settings: UnlabeledSetSettings,
    seed: int,
    *,
    num_clients: int = 1,
) -> GeneratedSets:
    """Deal a client's points into M unlabeled sets with shifted class priors.

    Parameters
    ----------
    labels : ``(N,)``, classes of all training points.
    points : ``(n,)``, this client's points.
    num_classes : K.
    client : c, from 0.
    num_clients : C; the number of sets can depend on c and C (``num-sets-spread``).
    """
    rng = stream(seed, "sets", client)
    num_sets = _number_of_sets(settings, client, num_clients, rng)
    if settings.same_priors:
        weights = equal_columns(_same_priors(settings, num_classes, seed)[:num_sets])
    else:
        weights = draw_priors(num_sets, num_classes, settings.priors, rng)
    pools = [rng.permutation(points[labels[points] == k]) for k in range(num_classes)]
    if settings.overlap == "shared":
        members = _deal_shared(pools, weights, rng)
    else:
        members = _deal_disjoint(pools, weights)
    order = [rng.permutation(np.concatenate(parts)) for parts in members]
    counts = np.array([[len(part) for part in parts] for parts in members], dtype=np.float64)
    realised = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    told = realised
    if settings.prior_noise:
        told = add_prior_noise(
            realised, settings.prior_noise, settings.prior_noise_form, stream(seed, "noise", client)
        )
    return GeneratedSets(
        points=np.concatenate(order).astype(np.int64),
        sets=np.repeat(np.arange(num_sets), [len(part) for part in order]).astype(np.int64),
        priors=told,
        true_priors=realised,
        drawn_priors=weights / weights.sum(axis=1, keepdims=True),
    )


def _number_of_sets(
    settings: UnlabeledSetSettings, client: int, num_clients: int, rng: np.random.Generator
) -> int:
    least, most = settings.num_sets, settings.num_sets_max
    if not most:
        return least
    if settings.num_sets_spread == "even":
        return int(np.linspace(least, most, num_clients).round()[client])
    return int(rng.integers(least, most + 1))


def _same_priors(settings: UnlabeledSetSettings, num_classes: int, seed: int) -> Floats:
    """The sum of ``prior-draws`` draws, for as many sets as any client has: ``(most, K)``."""
    most, rng = max(settings.num_sets, settings.num_sets_max), stream(seed, "same-priors")
    draws = [
        draw_priors(most, num_classes, settings.priors, rng) for _ in range(settings.prior_draws)
    ]
    return np.asarray(np.sum(draws, axis=0), dtype=np.float64)


def draw_priors(num_sets: int, num_classes: int, kind: str, rng: np.random.Generator) -> Floats:
    """Rows of class priors ``(M, K)``.

    ``"uniform"``: U[0.1, 0.9] normalised (the paper's text). ``"dominant"``: U[0.1, 1], entry
    m mod K times 10, normalised (the authors' code).
    """
    if kind == "uniform":
        draw = rng.uniform(0.1, 0.9, (num_sets, num_classes))
    else:
        draw = rng.uniform(0.1, 1.0, (num_sets, num_classes))
        rows = np.arange(num_sets)
        draw[rows, rows % num_classes] *= DOMINANT_FACTOR
    priors: Floats = draw / draw.sum(axis=1, keepdims=True)
    return priors


def equal_columns(priors: Floats) -> Floats:
    """Scale every column to the sum 1, so that all sets together need every class equally.

    Set m takes n/M times its row (:func:`_deal_shared`), so M sets hold K/M of a client's n points
    (authors' code): all at M = K, half of them at M = 2K.

    ``priors`` and the result are ``(M, K)``; no column of ``priors`` may be 0 throughout.
    """
    scaled: Floats = priors / priors.sum(axis=0, keepdims=True)
    return scaled


def add_prior_noise(priors: Floats, epsilon: float, form: str, rng: np.random.Generator) -> Floats:
    """Disturb priors as in the paper's section 4.2 (table E.9).

    ``"symmetric"``: Pi·(1 + eps·(2·gamma − 1)), the identity at eps = 0. ``"literal"``: the text's
    Pi·(1 + (2·eps − 1)·gamma). gamma ~ U[0, 1] per entry; clipped to [0, 1]; rows normalised. A row
    that is clipped to nothing stays as it was.

    Parameters
    ----------
    priors : ``(M, K)``, rows of class priors.
    epsilon : strength of the noise, at least 0.
    form : ``"symmetric"`` or ``"literal"``.

    Returns
    -------
    ``(M, K)``, rows of class priors.
    """
    gamma = rng.random(priors.shape)
    literal = form == "literal"
    factor = 1 + (2 * epsilon - 1) * gamma if literal else 1 + epsilon * (2 * gamma - 1)
    noisy = np.clip(priors * factor, 0, 1)
    sums = noisy.sum(axis=1, keepdims=True)
    result: Floats = np.where(sums > 0, noisy / np.where(sums > 0, sums, 1), priors)
    return result


def _deal_shared(pools: list[Ints], weights: Floats, rng: np.random.Generator) -> list[list[Ints]]:
    """Set m draws floor((n/M)·w_mk) points of class k, or what there is, from the whole pool."""
    size = sum(len(pool) for pool in pools) / len(weights)
    wanted = np.floor(size * weights).astype(np.int64)
    return [
        [
            rng.choice(pool, min(count, len(pool)), replace=False)
            for pool, count in zip(pools, row, strict=True)
        ]
        for row in wanted
    ]


def _deal_disjoint(pools: list[Ints], weights: Floats) -> list[list[Ints]]:
    """Cut every class's pool into M parts in proportion to its column; every point is used once."""
    parts = [
        np.split(pool, _cuts(len(pool), column))
        for pool, column in zip(pools, weights.T, strict=True)
    ]
    return [[parts[k][m] for k in range(len(pools))] for m in range(len(weights))]


def _cuts(total: int, column: NDArray[np.float64]) -> Ints:
    bounds = np.round(np.cumsum(column / column.sum())[:-1] * total)
    return np.minimum(bounds, total).astype(np.int64)
