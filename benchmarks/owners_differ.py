"""Owners whose points look different: remedies beside pooled heads and each owner's, by labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.inputs import data_folder, shifted_digits
from benchmarks.report import Bar, Outcome
from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.config.shared import FITTED_MODEL
from fedul_flwr.data.class_priors import uniform_prior
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.shift import shifted
from fedul_flwr.data.sources import read_source, source_directory
from fedul_flwr.data.split import SetTruth, build_split
from fedul_flwr.learning.batches import gather, to_input
from fedul_flwr.learning.closed_form import (
    SoftSums,
    default_shrinkage,
    fit_gaussians,
    head_of_spectrum,
    posteriors_of_sets,
    shrunk_spectrum,
    soft_sums,
)
from fedul_flwr.learning.filters import moments_of, patch_sums, with_moments
from fedul_flwr.learning.known_error import LeaveOneOut, ShareSums, known_error
from fedul_flwr.learning.owner_effects import RATIOS, EffectSums, Reference, Seen, fit_effects
from fedul_flwr.models.registry import build_model

DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
SPLITS: dict[str, dict[str, Any]] = {
    "IID": {"partition": "iid"},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet.alpha": 0.1},
    "two classes": {"partition": "pathological", "pathological.classes-per-client": 2},
}
SHIFTS = ("", "noise:0.3", "blur:2", "contrast:1", "moved:3")
SEEDS = range(51, 54)
CLIENTS, POINTS, SETS, TESTED = 10, 500, 10, 1_000

Move = Callable[[Floats], Floats]
"""What an owner makes of its features."""


class Owner(NamedTuple):
    """Features ``(n, d)`` of points and of test points as they look there, class shares ``(n, K)``
    of the points, and the test points' labels."""

    features: Floats
    shares: Floats
    tested: Floats
    labels: Ints


class Head(NamedTuple):
    """A refined head; and what takes points out of the first one."""

    weight: Floats
    bias: Floats
    first: Floats
    one: LeaveOneOut


def made(features: Sequence[Floats], shares: Sequence[Floats]) -> Head:
    """A head of these owners' points, as ``closed-form`` makes it by its defaults."""
    prior = uniform_prior(shares[0].shape[1])

    def of(soft: Sequence[Floats], *, stated: bool) -> tuple[Floats, Floats, LeaveOneOut]:
        pairs = zip(features, soft, strict=True)
        sums = SoftSums.total(soft_sums(x, r, stated=stated) for x, r in pairs)
        gaussians = fit_gaussians(sums)
        part = default_shrinkage(gaussians)
        spectrum = shrunk_spectrum(gaussians, part)
        weight, bias = head_of_spectrum(gaussians, prior, spectrum)
        rng = np.random.default_rng(0)
        one = LeaveOneOut.of(gaussians, sums.gram, prior, part, spectrum, rng)
        return weight, bias, one

    first, bias, one = of(shares, stated=True)
    soft = []
    for x, r in zip(features, shares, strict=True):
        rows, sets = np.unique(r, axis=0, return_inverse=True)
        logits = x @ first.T + bias
        soft.append(posteriors_of_sets(logits, r, prior, sets, np.zeros(len(rows))))
    weight, refined, _ = of(soft, stated=False)
    return Head(weight, refined, first, one)


def known(head: Head, features: Floats, shares: Floats) -> float:
    """The error of the first head at an owner, with its class shares, by these alone."""
    prior = shares.mean(axis=0)
    with np.errstate(divide="ignore"):
        logits = head.one.logits(features[:, None], shares, head.first, stated=True) + np.log(prior)
    try:
        return known_error(ShareSums.of(shares, logits, shares), prior).error
    except ValueError:
        return np.nan


def errors(head: Head, owner: Owner, move: Move) -> tuple[float, float]:
    """Percent wrong of test points as they look at an owner: in its class shares, which are the
    priors; and of all classes alike."""
    logits, prior = move(owner.tested) @ head.weight.T + head.bias, owner.shares.mean(axis=0)
    counts = np.bincount(owner.labels, minlength=len(prior))
    weights = (prior / counts)[owner.labels]
    with np.errstate(divide="ignore"):
        own = (logits + np.log(prior)).argmax(axis=1) != owner.labels
    every = logits.argmax(axis=1) != owner.labels
    return 100 * float(weights @ own / weights.sum()), 100 * float(every.mean())


# Remedies: what each owner makes of its features


def as_they_are(owners: Sequence[Owner]) -> list[Move]:
    return [lambda x: x for _ in owners]


def _effects(owners: Sequence[Owner]) -> tuple[EffectSums, list[Seen]]:
    flat = np.sum([EffectSums.of(one.features, one.shares).flat() for one in owners], axis=0)
    shape = owners[0].shares.shape[1], owners[0].features.shape[1]
    return EffectSums.of_flat(flat, *shape), [Seen.of(one.features, one.shares) for one in owners]


def bound(owners: Sequence[Owner]) -> list[Move]:
    """``owners-differ = "auto"``: random offsets of the likeliest variance."""
    sums, seen = _effects(owners)
    reference = fit_effects(sums)
    return [_less(reference.offset(one)) for one in seen]


def _less(offset: Floats) -> Move:
    return lambda x: x - offset


def _unbound(owners: Sequence[Owner]) -> tuple[list[Floats], Reference]:
    """Offsets without a bound: class means from differences within owners alone."""
    sums, seen = _effects(owners)
    # Σ r rᵀ - n r̄ r̄ᵀ, of which λ = 1 has nearly all.
    parts = [np.outer(one.shares, one.shares) * one.points for one in seen]
    gram = sums.gram[0] - np.sum(parts, axis=0)
    average = sums.sums[0].sum(axis=0) / sums.gram[0].sum()
    right = sums.sums[0] - np.sum(
        [np.outer(one.shares, one.features) * one.points for one in seen], axis=0
    )
    means = np.linalg.solve(gram + np.eye(len(gram)), right)
    means -= sums.gram[0].sum(axis=1) @ means / sums.gram[0].sum()
    reference = Reference(average, means, RATIOS[-1])
    return [one.features - average - one.shares @ means for one in seen], reference


def intercepts(owners: Sequence[Owner]) -> list[Move]:
    """Owner intercepts in the mean map."""
    offsets, _ = _unbound(owners)
    return [_less(offset) for offset in offsets]


def _scales(owners: Sequence[Owner], offsets: Sequence[Floats], means: Reference) -> list[Floats]:
    """Each owner's variances of features, over those that its class shares let expect."""
    centered = [owner.features - by - means.mean for owner, by in zip(owners, offsets, strict=True)]
    gram = np.sum([owner.shares.T @ owner.shares for owner in owners], axis=0)
    pooled = np.concatenate(centered).var(axis=0)
    right = np.sum(
        [o.shares.T @ (x**2 - pooled) for o, x in zip(owners, centered, strict=True)], axis=0
    )
    squares = pooled + np.linalg.solve(gram + np.eye(len(gram)), right)
    found = []
    for owner, x in zip(owners, centered, strict=True):
        prior = owner.shares.mean(axis=0)
        expected = prior @ squares - (prior @ means.from_mean) ** 2
        found.append(x.var(axis=0) / np.maximum(expected, 0.05 * pooled + 1e-12))
    return [np.maximum(one, 1e-6) for one in found]


def _rescaled(owner: Owner, offset: Floats, scale: Floats) -> Move:
    """Deviations from the owner's mean over its scale, about its mean less its offset."""
    middle = owner.features.mean(axis=0)
    return lambda x: (x - middle) / np.sqrt(scale) + middle - offset


def standardized(owners: Sequence[Owner]) -> list[Move]:
    """Mean and scale of features at home, about those that follow from the owner's class shares."""
    offsets, reference = _unbound(owners)
    scales = _scales(owners, offsets, reference)
    return [_rescaled(*three) for three in zip(owners, offsets, scales, strict=True)]


def combat(owners: Sequence[Owner]) -> list[Move]:
    """ComBat: intercepts and logarithms of scales, shrunk to their means by empirical Bayes."""
    offsets, reference = _unbound(owners)
    rest = [
        (o.features - o.shares @ reference.from_mean).var(axis=0) * len(o.features) for o in owners
    ]
    within = np.sum(rest, axis=0) / sum(len(o.features) for o in owners) + 1e-12
    shrunk = []
    for owner, offset in zip(owners, offsets, strict=True):
        in_units, count = offset / np.sqrt(within), len(owner.features)
        spread = in_units.var()
        shrunk.append(
            np.sqrt(within) * (count * spread * in_units + in_units.mean()) / (count * spread + 1)
        )
    logs = np.log(_scales(owners, shrunk, reference))
    chance = np.array([2 / len(o.features) for o in owners])[:, None]
    between = np.maximum(0, (logs**2).mean(axis=0) - chance.mean())
    scales = np.exp(logs * between / (between + chance))
    return [_rescaled(*three) for three in zip(owners, shrunk, scales, strict=True)]


REMEDIES: dict[str, Callable[[Sequence[Owner]], list[Move]]] = {
    "pooled": as_they_are,
    "auto": bound,
    "intercepts": intercepts,
    "standardized": standardized,
    "ComBat": combat,
}


def measure(quick: bool) -> Outcome:
    """Ten clients of 500 points in ten sets, class shares alone; two messages; means of seeds."""
    names = (*REMEDIES, "alone", "choice")
    outcome = Outcome(
        "owners_differ: test errors at owners, by remedy",
        ("data, split, shift", *names, "known: pooled, auto, alone"),
        notes=[
            "Errors in %, mean over owners and seeds: of test points as they look at the owner, in "
            "its class shares, which are the priors; and of all classes alike. Known ones are of "
            "first heads."
        ],
    )
    there = {title: path for name, title in DATA.items() if (path := data_folder(name))}
    folders = there or {"digits, moved by a pixel": shifted_digits(8_000)}
    seeds, points = (SEEDS[:1], 60) if quick else (SEEDS, POINTS)
    gaps: dict[str, list[float]] = {name: [] for name in names}
    ahead = []
    for name, folder in folders.items():
        for split, options in list(SPLITS.items())[: 1 if quick else None]:
            for shift in SHIFTS[: 2 if quick else None]:
                runs = [_judged(folder, seed, points, shift, options) for seed in seeds]
                own, every = (
                    {key: mean(run[key][part] for run in runs) for key in names} for part in (0, 1)
                )
                says = [mean(run[key][2] for run in runs) for key in ("pooled", "auto", "alone")]
                cells = [f"{own[key]:.1f} {every[key]:.1f}" for key in names]
                row = f"{name}, {split}, {shift or 'none'}"
                outcome.rows.append((row, *cells, " ".join(f"{value:.1f}" for value in says)))
                print("  ".join(outcome.rows[-1]), flush=True)
                best = min(own["pooled"], own["alone"])
                for key in names:
                    gaps[key].append(own[key] - best)
                if shift:
                    ahead.append(own["auto"] < best)
    outcome.bars += [
        Bar("most behind the better of pooled and alone", max(gaps["auto"]), 1.0, " points"),
        Bar("rows of shifts where it is ahead of both", sum(ahead), len(ahead) / 2, at_least=True),
    ]
    outcome.figures = {"gaps": gaps}
    return outcome


def _judged(
    folder: Path, seed: int, points: int, shift: str, options: dict[str, Any]
) -> dict[str, tuple[float, float, float]]:
    """Mean errors over owners by remedy, in their class shares and of all classes, and known."""
    owners = _owners(folder, seed, points, shift, options)
    judged: dict[str, Any] = {}
    for name, remedy in REMEDIES.items():
        moves = remedy(owners)
        features = [move(owner.features) for move, owner in zip(moves, owners, strict=True)]
        head = made(features, [owner.shares for owner in owners])
        judged[name] = [
            (*errors(head, owner, move), known(head, x, owner.shares))
            for owner, move, x in zip(owners, moves, features, strict=True)
        ]
    judged["alone"] = []
    for owner in owners:
        head = made([owner.features], [owner.shares])
        of_own = known(head, owner.features, owner.shares)
        judged["alone"].append((*errors(head, owner, lambda x: x), of_own))
    both = zip(judged["pooled"], judged["alone"], strict=True)
    judged["choice"] = [two[1] if two[1][2] < two[0][2] else two[0] for two in both]
    return {name: tuple(map(float, np.nanmean(of, axis=0))) for name, of in judged.items()}


def _owners(
    folder: Path, seed: int, points: int, shift: str, options: dict[str, Any]
) -> list[Owner]:
    """Features of clients, by filters of the sum of all."""
    fewest = {"dirichlet.min-points": points} if options["partition"] == "dirichlet" else {}
    of_run = {"method": "closed-form", "points-per-client": points, "fedul.num-sets": SETS}
    settings = parse_flat({**default_flat(), **of_run, **fewest, **options, "seed": seed})
    place = source_directory(str(folder))
    source = read_source(place)
    train, test = source.train.inputs, source.test.inputs
    rows = np.sort(stream(seed, "tested").permutation(len(source.test))[:TESTED])
    clients = build_split(place, CLIENTS, settings).clients
    looks = [shifted(train, shift, seed, number, CLIENTS, train) for number in range(CLIENTS)]
    model = build_model(FITTED_MODEL, source.input_shape, source.num_classes, seed=seed)
    state = {name: array.numpy() for name, array in model.state_dict().items()}
    side = int(model[0].filters.shape[2])  # type: ignore[index, union-attr]
    sums = np.sum(
        [patch_sums(look, c.points, side) for look, c in zip(looks, clients, strict=True)], axis=0
    )
    fitted = with_moments(state, moments_of(sums, sums[0]))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in fitted.items()})

    def features(inputs: Any, of: Ints) -> Floats:
        with torch.no_grad():
            return np.asarray(model[0](to_input(gather(inputs, of))).double())  # type: ignore[index, operator]

    owners = []
    for number, client in enumerate(clients):
        assert isinstance(client, SetTruth)
        there = shifted(test, shift, seed, number, CLIENTS, train)
        owners.append(
            Owner(
                features(looks[number], client.points),
                client.priors[client.sets],
                features(there, rows),
                np.asarray(source.test.labels)[rows],
            )
        )
    return owners
