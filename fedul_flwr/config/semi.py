"""Settings of methods that train on partly labeled clients."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import Settings


class StageSettings(Settings):
    """Training on labels first, then also on unlabeled points (XCLP, section 4.2)."""

    table: ClassVar[str] = "semi"
    labels_only_rounds: Annotated[int, Field(ge=0)] = 10
    """Rounds of the first stage, on labeled points only; use 0 with `start-from` to continue from a
    model. A step-size schedule restarts in the second stage. `fedsiam` trains on unlabeled points
    in both stages, and samples only clients with labels in the first."""


class LabelsOnlySettings(Settings):
    """Steps and loss of training on given labels alone, as FLamby has them for Fed-ISIC2019."""

    table: ClassVar[str] = "labels-only"
    epoch_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of an epoch, in which points come again after a pass over all, or some do not come (100
    for Fed-ISIC2019). 0 is one pass."""
    focal_gamma: Annotated[float, Field(ge=0)] = 0.0
    """Exponent γ of the focal loss −(1 − p)^γ log p of a label with probability p (2 for
    Fed-ISIC2019). 0 is cross-entropy."""


class SamplingSettings(StageSettings):
    """Sampling of clients in the second stage."""

    labeled_share: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Smallest fraction of a round's clients that have labels, if some clients have none (paper: 3
    of 5)."""


class PseudoLabelSettings(StageSettings):
    """Use of pseudo labels in local training."""

    top_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of a client's pseudo-labeled points to train on, those of highest confidence; 1
    takes all, as in the text."""
    operations: Annotated[int, Field(ge=0, le=13)] = 0
    """Number of RandAugment's 13 operations, each of magnitude 2 to 5 of 10, on every
    pseudo-labeled image in training; labels come from the unchanged image. 0 applies `augment`
    only, as in the text."""
    recipe: Literal["paper", "release"] = "paper"
    """Form of the method: the paper's, or that of the authors' code. There points are labeled in
    views by `augment`, drawn anew each time, and batches of clients without labels have twice
    `batch-size` points, as many as those of the others with their pseudo-labeled half."""
    class_weights: bool = False
    """Weigh classes by n/(K·count) of the labels a client trains on. The authors' code counts over
    all clients; counts of one client do harm if it lacks classes."""


class PropagatedLabelSettings(PseudoLabelSettings):
    """Use of propagated labels in local training."""

    relative_confidence: bool = True
    """Divide confidences by the largest one of the client's points: of all its points in
    `local-lp`, as in the authors' code; of its unlabeled ones in `xclp`, where that code takes
    the largest of all clients. The text does not divide."""


class SemiSupervisedSettings(PseudoLabelSettings, SamplingSettings):
    """Two stages: first labels only, then pseudo labels too (XCLP, section 4.2)."""


class CrossClientSettings(PropagatedLabelSettings, SemiSupervisedSettings):
    """Two stages, with pseudo labels that are propagated across clients."""


class PropagationSettings(Settings):
    """Label propagation (XCLP, section 3 and appendix A.2)."""

    table: ClassVar[str] = "xclp"
    k: Annotated[int, Field(ge=1)] = 10
    """Number of neighbors of a point in the graph."""
    num_bits: Annotated[int, Field(ge=8, le=2**20, multiple_of=8)] = 4096
    """Length of the codes in bits (L)."""
    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """How far labels spread along the graph (0: not at all)."""
    power: Annotated[float, Field(gt=0)] = 3.0
    """Exponent of the cosines that are edge weights: 3 in the authors' code, 1 in the text."""
    class_scaling: bool = True
    """Divide scores by the number of labels of the class: in the authors' code, not in the text."""


class XCLPSettings(PropagationSettings):
    """Label propagation across clients."""

    reweigh: bool = False
    """Re-weigh scores at every client by class priors estimated there (ours, see
    docs/propagation.md). Only across clients: with the labels of one client it does harm."""
    secure: Literal["rlwe", "paillier", "ot", "plaintext"] = "rlwe"
    """How similarities are computed and labels summed: encrypted with ring-LWE; for simulations
    alone, with Paillier's scheme, with oblivious transfer (docs/privacy.md), or `plaintext`, which
    shows the server all codes (the paper's placeholder)."""
    min_labeled_clients: Annotated[int, Field(ge=1)] = 3
    """Fewest clients with labels in an encrypted propagation: with two, each can compute what the
    other's labels contribute; with one, every client can. Against t clients that share their
    knowledge, set it to t + 2 (docs/privacy.md)."""
    codes_seed: Literal["secret", "run"] = "secret"
    """Seed of the codes: `secret`, clients agree on one that the server does not know, so no two
    runs have the same codes; or `run`, the run's `seed`, so that a run can be repeated, but the
    server knows it and can test guesses at points. `plaintext` always takes the run's."""
    codes_epsilon: Annotated[float, Field(ge=0)] = 0.0
    """If set, all codes of the run together are differentially private with this ε, for
    replacing one point of a client: noise is added to features. 0 adds none."""
    dp_delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ for `codes-epsilon`."""
    labels_epsilon: Annotated[float, Field(ge=0)] = 0.0
    """If set, all propagations of the run together are differentially private with this ε for each
    given label: labels are randomized once. 0 does not change them."""

    @property
    def seed_is_public(self) -> bool:
        """Whether the server knows the seed of the codes."""
        return self.codes_seed == "run" or self.secure == "plaintext"

    @model_validator(mode="after")
    def _check_delta(self) -> Self:
        default = XCLPSettings.model_fields["dp_delta"].default
        if self.dp_delta != default and not self.codes_epsilon:
            raise ValueError(
                f"xclp.dp-delta = {self.dp_delta} has no effect with xclp.codes-epsilon = 0: leave "
                "it out"
            )
        return self


class XCLPPredictSettings(Settings):
    """Labels for the clients' own points, without training (XCLP, section 4.1)."""

    table: ClassVar[str] = "xclp-predict"
    features: Literal["pixels", "model"] = "pixels"
    """Features for similarities: pixels, or the inputs of the model's last layer, with weights from
    `start-from`."""
    groups: Annotated[int, Field(ge=1)] = 1
    """Number of random groups of clients; labels are propagated within each group (FEMNIST in the
    paper: 50)."""
    use_unlabeled: bool = True
    """Whether the graph contains unlabeled training points, or only labeled and new ones
    (`labels.new-fraction`)."""
    leave_one_out: bool = False
    """For each client, also propagate without its labels to all of its points."""
    compare: bool = True
    """Also label by propagation within each client, and with `features = "model"` by the model."""


class FedSiamSettings(Settings):
    """A student and a teacher that is its moving average (Long et al. 2020, as XCLP's code has it).

    Clients return both, and the server averages both."""

    table: ClassVar[str] = "fedsiam"
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.97
    """Largest decay of the teacher; after t steps, counted over all rounds and clients, the decay
    is min(1 − 1/(t+1), this)."""
    consistency_weight: Annotated[float, Field(ge=0)] = 100.0
    """Weight of the squared difference between the softmax outputs of both."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 5
    """First rounds, over which that weight grows as exp(−5·(1 − t)²)."""
    logit_cost: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the squared difference between the logits of the two heads of a model `NAME+head`;
    no effect without a second head."""
