"""Settings of what methods are compared with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings


class SupervisedSettings(Settings):
    """Supervised federated training, the ceiling of methods without labels."""

    label_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of every client's points that has labels; it trains on these alone."""
    steps: Literal["labeled", "sets"] = "labeled"
    """Steps of an epoch: those of a pass over the labeled points, or as many as FedUL makes in a
    pass over the client's unlabeled sets, where every labeled point comes again and again. `sets`
    is for simulations: an owner of labeled points has no sets."""


class FedPLSettings(Settings):
    """Pseudo labels from class priors (Diao et al. 2021, as in the FedUL paper, eq. 14 to 17)."""

    labels: Literal["realized", "drawn"] = "realized"
    """Pseudo label of a set: the class with the largest prior that the client is told (text), or
    with the largest in the priors that the simulation drew to deal the points, which is class m
    mod K for set m with `fedul.priors = "dominant"` (authors' code). The two differ where a client
    has few points of a class. `drawn` is for simulations: nobody draws an owner's priors."""
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Least top probability (tau) of a point that is trained on its label alone."""
    mix_weight: Annotated[float, Field(ge=0)] = 0.3
    """Weight of the loss of mixed points."""
    mixup_alpha: Annotated[float, Field(gt=0)] = 0.75
    """Mixing ratios are drawn from Beta(alpha, alpha), one per batch."""
    warm_up_rounds: Annotated[int, Field(ge=0)] = 5
    """First rounds with plain cross-entropy on the pseudo labels, until some points are
    confident."""
    relabel: bool = False
    """After the warm-up a point's label is what the model in training predicts for it in that very
    step (authors' code); the labels of sets then have no say."""
    mix: Literal["inputs", "outputs"] = "inputs"
    """What is mixed: images, or the model's outputs (authors' code)."""
    pairing: Literal["all", "shorter"] = "all"
    """Every confident point with a random other one, or pairs up to the shorter half and no step
    without both (authors' code)."""


class FedLLPSettings(Settings):
    """Label proportions (Dulac-Arnold et al. 2019, as in the FedUL paper, eq. 18)."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability of dropout in training after every layer but the last, or between the stages of
    a ResNet (authors' code: 0.2)."""


class FedLLPVATSettings(Settings):
    """Virtual adversarial training beside label proportions (Tsai & Lin 2020)."""

    alpha: Annotated[float, Field(ge=0)] = 5e-4
    """Weight of the consistency loss (FedUL paper: MNIST 5e-4, others 0.05)."""
    radius: Annotated[float, Field(gt=0)] = 1e-2
    """L2 norm of a point's perturbation, images lying in [-1, 1] (FedUL paper: MNIST 1e-2,
    others 6.0)."""
    xi: Annotated[float, Field(gt=0)] = 1e-3
    """Step of the finite difference that finds the perturbation."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 10
    """Rounds over which the weight grows to alpha, as exp(-5·(1 − t)²)."""
