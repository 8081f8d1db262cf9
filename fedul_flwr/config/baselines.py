"""Settings of baselines."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr.config.base import ADAPTIVE, OR_ADAPTIVE, Settings


class SupervisedSettings(Settings):
    """Supervised federated training, the upper bound for methods without labels."""

    table: ClassVar[str] = "supervised"
    label_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of every client's points that have labels; it trains only on these."""
    steps: Literal["labeled", "sets"] = "labeled"
    """Steps per epoch: one pass over the labeled points, or as many as FedUL makes in a pass over
    the client's unlabeled sets, which repeats labeled points. `sets` is for simulations: an owner
    of labeled points has no sets."""


class FedPLSettings(Settings):
    """Pseudo labels from class priors (Diao et al. 2021, as in the FedUL paper, eq. 14 to 17)."""

    table: ClassVar[str] = "fedpl"
    labels: Literal["realized", "drawn"] = "realized"
    """Pseudo label of a set: the class with the largest prior that the client knows (text), or the
    largest of the priors from which the simulation assigned the points: class m mod K for set m
    with `fedul.priors = "dominant"` (authors' code). The two differ if a client has few points of
    a class. `drawn` is for simulations: an owner's priors are not drawn."""
    threshold: Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE] = 0.4
    """Smallest top probability (tau) with which a point is confident: it is then trained on its
    pseudo label alone. `adaptive` is the mean top probability of a client's points, in every
    round."""
    mix_weight: Annotated[float, Field(ge=0)] = 0.3
    """Weight of the loss of mixed points."""
    mixup_alpha: Annotated[float, Field(gt=0)] = 0.75
    """Alpha of the mixing ratios, drawn from Beta(alpha, alpha), one per batch."""
    warm_up_rounds: Annotated[int, Field(ge=0), *OR_ADAPTIVE] = ADAPTIVE
    """First rounds, with plain cross-entropy on all pseudo labels. With `adaptive` a client is in
    warm-up in every round in which fewer than half of its points are confident, by the model that
    it received; so it always trains. With a number (5 in the authors' code) a client without
    confident points trains nothing afterwards."""
    relabel: bool = False
    """After the warm-up, use the current model's prediction in each step as a point's label
    (authors' code); the labels of sets then have no effect."""
    mix: Literal["inputs", "outputs"] = "inputs"
    """Whether images are mixed, or the model's outputs (authors' code)."""
    pairing: Literal["all", "shorter"] = "all"
    """Pair every confident point with a random other one, or only as many as the smaller group has,
    and skip steps in which a group is empty (authors' code)."""


class FedLLPSettings(Settings):
    """Label proportions (Dulac-Arnold et al. 2019, as in the FedUL paper, eq. 18)."""

    table: ClassVar[str] = "fedllp"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability of dropout in training after every layer but the last, or between the stages of
    a ResNet (authors' code: 0.2)."""


class FedLLPVATSettings(Settings):
    """Virtual adversarial training in addition to label proportions (Tsai & Lin 2020)."""

    table: ClassVar[str] = "fedllp-vat"
    alpha: Annotated[float, Field(ge=0)] = 5e-4
    """Weight of the consistency loss (FedUL paper: MNIST 5e-4, others 0.05)."""
    radius: Annotated[float, Field(gt=0)] = 1e-2
    """L2 norm of a point's perturbation, for images in [-1, 1] (FedUL paper: MNIST 1e-2,
    others 6.0)."""
    xi: Annotated[float, Field(gt=0)] = 1e-3
    """Step of the finite difference that finds the perturbation."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 10
    """Rounds over which the weight grows to alpha, as exp(-5·(1 − t)²)."""
    recipe: Literal["paper", "release"] = "paper"
    """Form of the method: the paper's, or that of the authors' code. There the ramp takes 20 epochs
    and begins anew in each, so that the weight stays at 0.7 to 1.1 % of alpha, and `radius` is in
    units of the pixels' standard deviation in MNIST (gray) or CIFAR-10 (color): 0.6 or 0.4 times
    as large."""
