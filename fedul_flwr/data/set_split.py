"""Unlabeled sets of simulated clients: how they are generated, and where they are stored.

Clients get the paths of ``sets.npz`` and of the images; clients of supervised methods also that of
``labels.npz``. ``truth.npz`` is for the simulation only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.method_settings import UnlabeledSetSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.partition import ClientTruth, assign_points
from fedul_flwr.data.safe_files import open_array, read_arrays
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.set_priors import Dirichlet, effective_labels
from fedul_flwr.data.types import (
    UNLABELED,
    Floats,
    Ints,
    LabeledPoints,
    Source,
    UnlabeledSets,
    bounds_of,
    part_of,
)
from fedul_flwr.errors import UserError

DOMINANT_FACTOR = 10.0
"""Authors' code: the entry of class m mod K of set m is multiplied by this."""


NOISE_DRAWS = 200
"""Draws of the noise on priors from which its variance is estimated."""


@dataclass(frozen=True)
class GeneratedSets:
    """Unlabeled sets of one client.

    Attributes
    ----------
    points : ``(n_c,)``, training points, set by set (a shared point appears once per set).
    sets : ``(n_c,)``, the set of every point.
    priors : ``(M, K)``, priors for the client: realized proportions, with noise if set.
    true_priors : ``(M, K)``, realized proportions.
    drawn_priors : ``(M, K)``, proportions used to assign the points, each row divided by its sum.
        Realized proportions differ if a client has too few points of a class.
    posterior : the priors for the client and how uncertain they are.
    """

    points: Ints
    sets: Ints
    priors: Floats
    true_priors: Floats
    drawn_priors: Floats
    posterior: Dirichlet


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
    """Assign a client's points to M unlabeled sets with different class priors.

    Parameters
    ----------
    labels : ``(N,)``, classes of all training points.
    points : ``(n,)``, this client's points.
    num_classes : K.
    client : c, from 0.
    num_clients : C; the number of sets can depend on c and C (``num-sets-max``).
    """
    rng = stream(seed, "sets", client)
    num_sets, most = settings.num_sets, settings.num_sets_max
    if most:
        num_sets = int(np.linspace(num_sets, most, num_clients).round()[client])
    if settings.shared_prior_draws:
        # For as many sets as any client has.
        largest, shared_rng = max(settings.num_sets, most), stream(seed, "same-priors")
        draws = [
            draw_priors(largest, num_classes, settings.priors, shared_rng)
            for _ in range(settings.shared_prior_draws)
        ]
        weights = equal_columns(np.sum(draws, axis=0)[:num_sets])
    else:
        weights = draw_priors(num_sets, num_classes, settings.priors, rng)
    pools = [rng.permutation(points[labels[points] == k]) for k in range(num_classes)]
    if settings.overlap == "shared":
        members = _deal_shared(pools, weights, rng)
    else:
        members = _deal_disjoint(pools, weights)
    order = [rng.permutation(np.concatenate(parts)) for parts in members]
    counts = np.array([[len(part) for part in parts] for parts in members], dtype=np.float64)
    realized = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    stated, posterior = _stated(counts, realized, client, settings, seed)
    return GeneratedSets(
        points=np.concatenate(order).astype(np.int64),
        sets=np.repeat(np.arange(num_sets), [len(part) for part in order]).astype(np.int64),
        priors=stated,
        true_priors=realized,
        drawn_priors=weights / weights.sum(axis=1, keepdims=True),
        posterior=posterior,
    )


def _stated(
    counts: Floats, realized: Floats, client: int, settings: UnlabeledSetSettings, seed: int
) -> tuple[Floats, Dirichlet]:
    """Priors for the client ``(M, K)``, and how uncertain they are."""
    if settings.prior_counts:
        rng = stream(seed, "labels for priors", client)
        sizes = counts.astype(np.int64)
        intervals = [
            rng.multivariate_hypergeometric(row, min(settings.prior_counts, int(row.sum())))
            for row in sizes
        ]
        posterior = Dirichlet.from_counts(intervals)
        return posterior.means, posterior
    if not settings.prior_noise:
        return realized, Dirichlet.exact(realized)
    epsilon = settings.prior_noise
    stated = add_prior_noise(realized, epsilon, stream(seed, "noise", client))
    # The owner knows how strong the noise is, not what it did: other draws of it.
    rng = stream(seed, "strength of noise", client)
    draws = [add_prior_noise(realized, epsilon, rng) for _ in range(NOISE_DRAWS)]
    worth = effective_labels(realized, np.mean([(draw - realized) ** 2 for draw in draws], axis=0))
    return stated, Dirichlet.from_noise(stated, float(np.median(worth)))


def draw_priors(num_sets: int, num_classes: int, kind: str, rng: np.random.Generator) -> Floats:
    """Rows of class priors ``(M, K)``.

    ``"uniform"``: U[0.1, 0.9] normalized (the paper's text). ``"dominant"``: U[0.1, 1], entry
    m mod K times 10, normalized (the authors' code).
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
    """Scale every column to the sum 1, so that all sets together need equally many of each class.

    Set m takes n/M times its row (:func:`_deal_shared`), so M sets contain K/M of a client's n
    points (authors' code): all for M = K, half for M = 2K.

    ``priors`` and the result are ``(M, K)``; no column of ``priors`` may be all zero.

    Examples
    --------
    >>> equal_columns(np.array([[3.0, 1.0], [1.0, 1.0]])).tolist()
    [[0.75, 0.5], [0.25, 0.5]]
    """
    scaled: Floats = priors / priors.sum(axis=0, keepdims=True)
    return scaled


def add_prior_noise(priors: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Add noise to priors as in the paper's section 4.2 (table E.9).

    Pi·(1 + eps·(2·gamma − 1)), gamma ~ U[0, 1] per entry, the identity at eps = 0 (the text's
    factor 1 + (2·eps − 1)·gamma is not); clipped to [0, 1]; rows normalized. A row that is clipped
    to all zeros keeps its old values.

    Parameters
    ----------
    priors : ``(M, K)``, rows of class priors.
    epsilon : strength of the noise, at least 0.

    Returns
    -------
    ``(M, K)``, rows of class priors.
    """
    factor = 1 + epsilon * (2 * rng.random(priors.shape) - 1)
    noisy = np.clip(priors * factor, 0, 1)
    sums = noisy.sum(axis=1, keepdims=True)
    result: Floats = np.where(sums > 0, noisy / np.where(sums > 0, sums, 1), priors)
    return result


def _deal_shared(pools: list[Ints], weights: Floats, rng: np.random.Generator) -> list[list[Ints]]:
    """Draw floor((n/M)·w_mk) points of class k, or all, for set m from the whole pool."""
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
    """Cut each class's pool into M parts in proportion to its column; each point is used once."""
    parts = []
    for pool, column in zip(pools, weights.T, strict=True):
        bounds = np.round(np.cumsum(column / column.sum())[:-1] * len(pool))
        parts.append(np.split(pool, np.minimum(bounds, len(pool)).astype(np.int64)))
    return [list(of_set) for of_set in zip(*parts, strict=True)]


SETS, LABELS, TRUTH = "sets.npz", "labels.npz", "truth.npz"


@dataclass(frozen=True)
class SetTruth(ClientTruth):
    """True labels of a client with unlabeled sets: points set by set, twice if in two sets."""

    sets: Ints
    priors: Floats
    true_priors: Floats


def write_sets(folder: Path, source: Source, num_clients: int, config: RunConfig) -> None:
    """Split ``source`` into clients' sets, and write the files to ``folder``."""
    labels = np.asarray(source.train.labels)
    if (labels == UNLABELED).any():
        raise UserError(
            "A simulation makes unlabeled sets of known class priors, so it needs the label of "
            f"every training point; {int((labels == UNLABELED).sum())} have none.",
            "labels-missing",
        )
    of_owners, validation, server = assign_points(source, num_clients, config)
    settings = config[UnlabeledSetSettings]
    clients = [
        generate_sets(
            labels,
            points,
            source.num_classes,
            client,
            settings,
            config.seed,
            num_clients=num_clients,
        )
        for client, points in enumerate(of_owners)
    ]
    np.savez(
        folder / SETS,
        points=np.concatenate([client.points for client in clients]),
        sets=np.concatenate([client.sets for client in clients]),
        priors=np.concatenate([client.priors for client in clients]),
        drawn_priors=np.concatenate([client.drawn_priors for client in clients]),
        posterior_means=np.concatenate([client.posterior.means for client in clients]),
        concentrations=np.concatenate([client.posterior.concentrations for client in clients]),
        point_bounds=bounds_of([client.points for client in clients]),
        set_bounds=bounds_of([client.priors for client in clients]),
    )
    # All points of a client, because sets that share points need not cover all of them.
    np.savez(
        folder / LABELS,
        points=np.concatenate(of_owners),
        labels=labels[np.concatenate(of_owners)],
        point_bounds=bounds_of(of_owners),
    )
    np.savez(
        folder / TRUTH,
        labels=np.concatenate([labels[client.points] for client in clients]),
        true_priors=np.concatenate([client.true_priors for client in clients]),
        validation=validation,
        server=server,
    )


def refuse_empty_sets(clients: Sequence[ClientTruth], config: RunConfig) -> None:
    """Refuse simulated clients of which a set got no point, and so none could take part."""
    for number, client in enumerate(clients):
        if not isinstance(client, SetTruth):
            return
        empty = set(range(len(client.priors))) - set(client.sets.tolist())
        if empty and config.on_client_failure == "stop":
            key = "dirichlet.min-points" if config.partition == "dirichlet" else "points-per-client"
            raise UserError(
                f"Client {number} has {len(client.points)} points for {len(client.priors)} sets, "
                f"and set {min(empty)} gets none: raise {key}, or lower the number of clients or "
                "sets.",
                "too-few-points",
                setting=key,
            )


def read_sets(directory: Path) -> tuple[SetTruth, ...]:
    """Read the true labels of every client."""
    sets, truth = read_arrays(directory / SETS), read_arrays(directory / TRUTH)
    bounds = [_bounds(sets, client) for client in range(len(sets["point_bounds"]) - 1)]
    return tuple(
        SetTruth(
            points=sets["points"][of_points],
            labels=truth["labels"][of_points],
            sets=sets["sets"][of_points],
            priors=sets["priors"][of_sets],
            true_priors=truth["true_priors"][of_sets],
        )
        for of_points, of_sets in bounds
    )


def open_unlabeled_sets(files: Mapping[str, str], client: int) -> UnlabeledSets:
    """One client's unlabeled sets, from the files ``inputs`` and ``sets``."""
    arrays = read_arrays(Path(files["sets"]))
    of_points, of_sets = _bounds(arrays, client)
    return UnlabeledSets(
        inputs=open_array(Path(files["inputs"])),
        points=arrays["points"][of_points],
        sets=arrays["sets"][of_points],
        priors=arrays["priors"][of_sets],
        drawn_priors=arrays["drawn_priors"][of_sets],
        posterior=Dirichlet(arrays["posterior_means"][of_sets], arrays["concentrations"][of_sets]),
    )


def open_labeled_points(files: Mapping[str, str], client: int) -> LabeledPoints:
    """All points of the same client, in a set or not, with labels, for supervised methods."""
    arrays = read_arrays(Path(files["labels"]))
    bounds = part_of(arrays["point_bounds"], client)
    inputs = open_array(Path(files["inputs"]))
    return LabeledPoints(inputs, arrays["points"][bounds], arrays["labels"][bounds])


def _bounds(arrays: dict[str, NDArray[Any]], client: int) -> tuple[slice, slice]:
    return part_of(arrays["point_bounds"], client), part_of(arrays["set_bounds"], client)
