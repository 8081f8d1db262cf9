"""Settings of methods that train on partly labeled clients."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import Settings


class StageSettings(Settings):
    """Training on labels first, then also on unlabeled points (XCLP, section 4.2)."""

    labels_only_rounds: Annotated[int, Field(ge=0)] = 10
    """Rounds of the first stage, on labels alone; 0 with `start-from` goes on from a model. A
    step-size schedule begins anew with the second stage. `fedsiam` trains on unlabeled points in
    both stages, and samples clients with labels alone in the first."""


class SamplingSettings(StageSettings):
    """Who is sampled in the second stage."""

    labeled_share: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Least part of a round's clients that has labels, where some clients have none (paper: 3 of
    5)."""


class PseudoLabelSettings(StageSettings):
    """How much pseudo labels count in local training."""

    surest: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of a client's pseudo-labeled points, the surest, that is trained on; 1 takes all,
    as the text."""
    operations: Annotated[int, Field(ge=0, le=13)] = 0
    """Operations of RandAugment, of 13, each of magnitude 2 to 5 of 10, on every pseudo-labeled
    image that is trained on; images are labeled as they are. 0 leaves them to `augment`, as the
    text."""
    class_weights: bool = False
    """Weigh classes by n/(K·count) of the labels a client trains on. The authors' code does so over
    all clients; from one client's counts it harms where clients lack classes."""


class PropagatedLabelSettings(PseudoLabelSettings):
    """How much labels count that were propagated."""

    relative_confidence: bool = True
    """Divide confidences by the largest that the client knows of its points: of all of them in
    `perclient-lp`, as the authors' code, and of the unlabeled ones in `xclp`, where that code takes
    the largest over all points of all clients. The text does not divide."""


class SemiSupervisedSettings(PseudoLabelSettings, SamplingSettings):
    """Two stages, on labels and then on pseudo labels too (XCLP, section 4.2)."""


class CrossClientSettings(PropagatedLabelSettings, SemiSupervisedSettings):
    """The same with labels that were propagated across clients."""


class PropagationSettings(Settings):
    """Label propagation (XCLP, section 3 and appendix A.2)."""

    k: Annotated[int, Field(ge=1)] = 10
    """Neighbours of a point in the graph."""
    num_bits: Annotated[int, Field(ge=8, multiple_of=8)] = 4096
    """Length of the codes (L)."""
    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """How far labels travel along the graph."""
    power: Annotated[float, Field(gt=0)] = 3.0
    """Edge weights are cosines to this power: 3 in the authors' code, 1 in the text."""
    class_scaling: bool = True
    """Divide scores by the number of labels of the class, as the authors' code; not in the text."""


class XCLPSettings(PropagationSettings):
    """Label propagation across clients."""

    reweigh: bool = False
    """Re-weigh scores at every client by class priors estimated there (ours, see
    docs/propagation.md). From one client's labels alone it does harm, so it is for these only."""
    secure: Literal["rlwe", "paillier", "ot", "plaintext"] = "rlwe"
    """How similarities are computed and labels summed: encrypted by ring-LWE, by Paillier's scheme
    or with oblivious transfer (docs/privacy.md), or `plaintext`, which shows the server all codes
    (the paper's placeholder, for simulations)."""
    fewest_labeled: Annotated[int, Field(ge=1)] = 3
    """Clients with labels that a propagation in secret needs: with two, each can tell what the
    other's labels contribute, and with one everybody can. Against t clients that put together what
    they know, set it to t + 2 (docs/privacy.md)."""
    codes_seed: Literal["secret", "run"] = "secret"
    """Where the seed of the codes comes from: clients agree on one that the server never knows, so
    no two runs have the same codes; or `run`, the run's `seed`, so that a run can be repeated;
    the server, who then knows it, can test guesses at points. `plaintext` always takes the
    run's."""
    codes_epsilon: Annotated[float, Field(ge=0)] = 0.0
    """If set, codes of the whole run together are differentially private with this ε, for
    replacing one point of a client: noise is added to features. 0 adds none."""
    dp_delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ that goes with `codes-epsilon`."""
    labels_epsilon: Annotated[float, Field(ge=0)] = 0.0
    """If set, what others learn of a given label in the propagations of the whole run is
    differentially private with this ε: labels are randomised once. 0 takes them as they are."""

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

    features: Literal["pixels", "model"] = "pixels"
    """What similarities are computed on: pixels, or the inputs of the model's last layer, with
    weights from `start-from`."""
    groups: Annotated[int, Field(ge=1)] = 1
    """Groups of clients, drawn at random, that propagate among themselves (FEMNIST in the paper:
    50)."""
    use_unlabeled: bool = True
    """Whether unlabeled training points are in the graph, or only labeled and new ones
    (`labels.new-fraction`)."""
    leave_one_out: bool = False
    """Propagate once more for each client without its labels, to all of its points."""
    compare: bool = True
    """Also label by propagation within each client, and by the model itself if it has features."""


class FedSiamSettings(Settings):
    """A student and a teacher that is its moving average (Long et al. 2020, as XCLP's code has it).

    Clients return both, and both are averaged from round to round."""

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.97
    """Largest decay of the teacher; after t steps, counted over all rounds and clients, it is
    min(1 − 1/(t+1), this)."""
    consistency_weight: Annotated[float, Field(ge=0)] = 100.0
    """Weight of the squared difference between the softmax outputs of both."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 5
    """Rounds from the first on over which that weight grows, as exp(−5·(1 − t)²)."""
    logit_cost: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the squared difference between the logits of both heads of a model `NAME+head`;
    without a second head it has no effect."""
