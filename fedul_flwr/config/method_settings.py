"""Settings of methods: one class for each table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import (
    AUTO,
    OR_ADAPTIVE,
    OR_AUTO,
    Settings,
    only_with,
    only_without,
)
from fedul_flwr.config.shared import MORE_THAN_MODELS, NEW_SPLIT, SIMULATED

LABELED_CLIENTS = only_without("scenario.labels-at", "server")
LABELED_SERVER = only_without("scenario.labels-at", "clients")
NEW_LABELS = (SIMULATED, LABELED_CLIENTS, NEW_SPLIT)
"""Rules for settings of which of a simulation's points have labels."""
IMAGES = only_with("inputs", "images")


class LabelSettings(Settings):
    """Which of a simulation's points have labels, for methods on partly labeled data.

    Not used on devices, where a client has its own points and ``labels.csv``.
    """

    table: ClassVar[str] = "labels"
    total: Annotated[int, Field(ge=0), *OR_AUTO, *NEW_LABELS, only_without("labels.fraction")] = (
        AUTO
    )
    """Labels of all clients together (n_L), split as evenly as possible over those with labels.
    `auto` is 100 where all training points have labels. Where some have none, clients use every
    label that there is."""
    fraction: Annotated[float, Field(ge=0, le=1), *NEW_LABELS] = 0.0
    """If set, every client with labels has them for this fraction of its points."""
    labeled_clients: Annotated[float, Field(gt=0, le=1), *NEW_LABELS] = 1.0
    """Fraction of the clients that have labels; at least one has."""
    classes_per_client: Annotated[int, Field(ge=0), *NEW_LABELS] = 0
    """If set, the labels of each client are of so many classes alone, and its other points stay as
    the partition has them (XCLP paper, Non-IID with 5). Every class comes equally often: among as
    many clients as there are classes, their sets of classes differ by a rotation."""
    new_fraction: Annotated[float, Field(ge=0, lt=1), SIMULATED, NEW_SPLIT] = 0.0
    """Fraction of every client's points that are new: no method trains on them, methods only
    predict their labels."""
    without_client: Annotated[int, Field(ge=-1), SIMULATED, LABELED_CLIENTS] = -1
    """Withhold the labels of this client and change no others; -1 withholds none."""
    split: Annotated[str, SIMULATED] = ""
    """Path of an earlier run's `split.npz`, or of a split file of the XCLP authors' code
    (`.txt`), to use in place of a new split of points and labels."""


class ServerTrainingSettings(Settings):
    """Training on labeled points at the server, with the shared optimizer, batch size and L1."""

    table: ClassVar[str] = "server"
    dataset: Annotated[str, LABELED_SERVER] = ""
    """Data set whose train split has the labeled points; empty takes `server-fraction` of the run's
    own training data."""
    points: Annotated[int, Field(ge=0), LABELED_SERVER] = 0
    """Use only this many labeled points, in the proportions of the classes; 0 uses all."""
    epochs: Annotated[int, Field(ge=1), LABELED_SERVER] = 1
    """Epochs per round."""
    learning_rate: Annotated[float, Field(ge=0), LABELED_SERVER] = 0.0
    """Step size (learning rate) at the server; 0 takes the shared `learning-rate`."""
    when: Annotated[
        Literal["auto", "before", "after", "parallel"],
        LABELED_SERVER,
        only_without("base", *MORE_THAN_MODELS, of=("parallel",), why="they count clients' steps"),
    ] = "auto"
    """When the server trains in a round: `before` the clients; `after` them, from the mean of their
    models; or in `parallel`, from the model that they receive, and its model has half of the weight
    in the mean. `auto` is the order of the method's paper: `after` for `semifl`, `fedul-finetune`
    and `fedul-mix`, `before` for the others."""


class UnlabeledSetSettings(Settings):
    """How a simulation generates the clients' unlabeled sets and their class priors.

    Not used on devices, where a client has its own sets and ``priors.csv``.
    """

    table: ClassVar[str] = "fedul"
    num_sets: Annotated[int, Field(ge=1, le=1_000_000), SIMULATED] = 10
    """Unlabeled sets per client (M)."""
    num_sets_max: Annotated[int, Field(ge=0, le=1_000_000), SIMULATED] = 0
    """If set, M differs between clients, from `num-sets` for the first client in equal steps to
    this for the last (table E.12: 10, 20, 30, 40, 50)."""
    priors: Annotated[Literal["dominant", "uniform"], SIMULATED] = "dominant"
    """Rows of Pi: U[0.1, 1] with one class times 10 (authors' code), or U[0.1, 0.9] (text)."""
    shared_prior_draws: Annotated[int, Field(ge=0, le=1_000_000), SIMULATED] = 0
    """If set, all clients assign their points to sets by one matrix, the sum of so many draws of Pi
    with columns scaled to sum to 1 (authors' code, MNIST IID, as many as clients: 5 in table 1 and
    10 in table E.13). More draws make Pi easier to invert. With `overlap = "shared"` the sets of a
    client then contain K/M of its points: all for M = K, half for M = 2K. A client with fewer sets
    than others takes the first rows."""
    overlap: Annotated[Literal["disjoint", "shared"], SIMULATED] = "disjoint"
    """Whether sets of one client may share points (`shared`: the paper's benchmark)."""
    prior_noise: Annotated[float, Field(ge=0, le=1e6), SIMULATED] = 0.0
    """Noise epsilon on the priors that clients use (table E.9); 0 is exact."""
    prior_counts: Annotated[
        int,
        Field(ge=0, le=1_000_000),
        SIMULATED,
        only_without("fedul.prior-noise", code="settings-contradict"),
    ] = 0
    """Labels per set, drawn at random, from which clients estimate its class priors (posterior mean
    under Jeffreys' prior); 0 is exact."""

    @model_validator(mode="after")
    def _check_sets(self) -> Self:
        if 0 < self.num_sets_max < self.num_sets:
            raise ValueError(
                f"fedul.num-sets-max = {self.num_sets_max} must be 0 or at least "
                f"fedul.num-sets = {self.num_sets}"
            )
        return self


class AdmissionSettings(UnlabeledSetSettings):
    """Checks of clients' sets, for every method that trains on unlabeled sets."""

    strict_rank: bool = False
    """Refuse a client whose own Pi has rank below K; otherwise only warn."""
    share_priors: bool = False
    """Clients send Pi to the server, for its rank check and for reports."""
    heldout_fraction: Annotated[
        float, Field(gt=0, lt=1), only_with("selection", "auto", "heldout", "shares")
    ] = 0.1
    """Fraction of every client's points that are held out of training, and judge the model."""


OF_SETS = only_without("method", "fedul-heads")
"""Rule for settings of the loss of eq. 9."""


class FedULSettings(AdmissionSettings):
    """Settings of FedUL."""

    surrogate_loss: Annotated[Literal["nll", "release"], OF_SETS] = "nll"
    """Negative log-likelihood (eq. 9), or the loss of the authors' code."""
    absent_weight: Annotated[float, Field(ge=0), OF_SETS] = 0.0
    """Weight of a second loss, by which a client's points are of no class that all its sets lack;
    0 is the paper's, and says nothing of such classes. Without such classes it is 0."""
    learn_priors: Annotated[bool, only_with("fedul.surrogate-loss", "nll")] = False
    """Clients learn Pi from the model within the uncertainty of what they were told (intervals or
    counts; in a simulation `prior-counts` or `prior-noise`). Exact rows stay as they are told."""
    fewer_sets: Annotated[bool, only_without("fedul.strict-rank", of=(True,))] = False
    """Accept clients with fewer sets than classes, at least two: other clients' sets have to tell
    the classes apart that its own do not. With `share-priors` the server checks that they do."""


def fewer_sets(options: AdmissionSettings) -> bool:
    """Whether clients with fewer sets than classes can take part."""
    return isinstance(options, FedULSettings) and options.fewer_sets


class SupervisedSettings(Settings):
    """Supervised federated training, the upper bound for methods without labels."""

    table: ClassVar[str] = "supervised"
    label_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of every client's points that have labels; it trains only on these."""
    steps: Annotated[Literal["labeled", "sets"], SIMULATED] = "labeled"
    """Steps per epoch: one pass over the labeled points, or as many as FedUL makes in a pass over
    the client's unlabeled sets, which repeats labeled points."""


Weight = Annotated[float, Field(ge=0)]
Confidence = Annotated[float, Field(ge=0, lt=1)]
AdaptiveConfidence = Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE]


class LabelSourceSettings(Settings):
    """Where labels are (FedMatch, section 2.2)."""

    table: ClassVar[str] = "scenario"
    labels_at: Annotated[
        Literal["clients", "server"], only_without("base", "local", of=("server",))
    ] = "clients"
    """Who has labels: the clients for some of their points, or only the server, which then trains
    on its own labeled set in every round (table `server`)."""


class ScenarioSettings(LabelSourceSettings):
    """Where labels are, and when unlabeled points arrive (FedMatch, sections 2.2 and 6.1)."""

    streaming_steps: Annotated[int, Field(ge=1)] = 1
    """Steps (T) in which the clients' unlabeled points arrive, equally many in each; a client
    trains on those of the current step. With 1 all points are there from the start. With
    `all-labels` the labeled points arrive in this way."""
    rounds_per_step: Annotated[int, Field(ge=1), only_without("scenario.streaming-steps", 1)] = 10
    """Rounds per step; the last step lasts until the end of the run."""


class SupervisedPartSettings(Settings):
    """Training on labeled points."""

    table: ClassVar[str] = "ssl"
    supervised_weight: Annotated[float, Field(gt=0)] = 10.0
    """Weight λ_s of the cross-entropy of labeled points, at clients and server."""


class WeakViewSettings(Settings):
    """The view of an unlabeled point on which its pseudo label is judged."""

    table: ClassVar[str] = "views"
    weak: Annotated[bool, only_without("augment", "none")] = False
    """Judge pseudo labels on a random view by `augment`, such as a flipped and shifted image or a
    vector with noise (Sohn et al. 2020), and make strong views of such views. By default they are
    judged on points as they are, as in FedMatch's paper."""


class StrongViewSettings(Settings):
    """Strong views of unlabeled points."""

    table: ClassVar[str] = "ssl"
    strong_views: ClassVar[bool] = True
    recipe: Annotated[Literal["paper", "release"], IMAGES] = "paper"
    """RandAugment as in its paper (distinct operations per image, magnitudes of 2 to 5 of 10), or
    as in the code of FedMatch's authors (operations may repeat, other strengths, all weaker except
    for rotations). In a tie of votes `fedmatch` takes the client's own class if it is among them,
    or as that code the lowest one."""
    operations: Annotated[int, Field(ge=1, le=13), IMAGES] = 6
    """Number of RandAugment's 13 operations applied to every image."""


class ViewSettings(StrongViewSettings, SupervisedPartSettings):
    """Unlabeled points in consistency methods: batches and RandAugment."""

    unlabeled_batch_size: Annotated[int, Field(ge=0)] = 100
    """Unlabeled points per step (B_U), along with each batch of `batch-size` labeled ones. 0
    spreads all of them evenly over the labeled batches of an epoch; a client without labels then
    takes `batch-size`."""


class ConsistencySettings(ViewSettings):
    """Labeled and unlabeled points in one loss: weights, batches and views."""

    unsupervised_weight: Weight = 1.0
    """Weight λ_u of the consistency loss."""


class StageSettings(Settings):
    """Training on labels first, then also on unlabeled points (XCLP, section 4.2)."""

    table: ClassVar[str] = "semi"
    labels_only_rounds: Annotated[int, Field(ge=0)] = 10
    """Rounds of the first stage, on labeled points only; use 0 with `start-from` to continue from a
    model. A step-size schedule restarts in the second stage. `fedsiam` trains on unlabeled points
    in both stages, and samples only clients with labels in the first."""


class LabelsOnlySettings(Settings):
    """Loss of training on given labels alone, as FLamby has it for Fed-ISIC2019."""

    table: ClassVar[str] = "labels-only"
    focal_gamma: Annotated[float, Field(ge=0)] = 0.0
    """Exponent γ of the focal loss −(1 − p)^γ log p of a label with probability p (2 for
    Fed-ISIC2019). 0 is cross-entropy."""


class PseudoLabelSettings(StageSettings):
    """Use of pseudo labels in local training."""

    operations: Annotated[int, Field(ge=0, le=13), IMAGES] = 0
    """Number of RandAugment's 13 operations, each of magnitude 2 to 5 of 10, on every
    pseudo-labeled image in training; labels come from the unchanged image. 0 applies `augment`
    only, as in the text."""
    recipe: Literal["paper", "release"] = "paper"
    """Form of the method: the paper's, or that of the authors' code. There points are labeled in
    views by `augment`, drawn anew each time, batches of clients without labels have twice
    `batch-size` points, as many as those of the others with their pseudo-labeled half, and
    confidences of a network are of its logits divided by their sum: 0 for almost all points, which
    stay in batches with weight 0."""


class PropagationSettings(Settings):
    """Label propagation (XCLP, section 3 and appendix A.2)."""

    table: ClassVar[str] = "xclp"
    k: Annotated[int, Field(ge=1)] = 10
    """Number of neighbors of a point in the graph."""
    num_bits: Annotated[int, Field(ge=8, le=2**20, multiple_of=8)] = 4096
    """Length of the codes in bits (L)."""
    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """How far labels spread along the graph (0: not at all)."""
    recipe: Literal["paper", "release"] = "release"
    """Form of propagation: with the paper's text edge weights are cosines, and scores and
    confidences are not divided. In the authors' code weights are cubes of cosines, scores are
    divided by the number of labels of the class, and in training confidences by the largest one of
    the client's points: of all its points in `local-lp`, of its unlabeled ones in `xclp`, where
    that code takes the largest of all clients."""

    @property
    def power(self) -> float:
        """Exponent of the cosines that are edge weights."""
        return 3.0 if self.recipe == "release" else 1.0

    @property
    def is_scaled(self) -> bool:
        """Whether scores are divided by labels of their class, and confidences by the largest."""
        return self.recipe == "release"


ENCRYPTED = only_without("xclp.secure", "plaintext")


class XCLPSettings(PropagationSettings):
    """Label propagation across clients."""

    reweigh: bool = False
    """Re-weigh scores at every client by class priors estimated there (ours, see
    docs/propagation.md). Only across clients: with the labels of one client it does harm."""
    secure: Literal["rlwe", "paillier", "ot", "plaintext"] = "rlwe"
    """How similarities are computed and labels summed: encrypted with ring-LWE; for simulations
    alone, with Paillier's scheme, with oblivious transfer (docs/privacy.md), or `plaintext`, which
    shows the server all codes (the paper's placeholder)."""
    min_labeled_clients: Annotated[int, Field(ge=1), ENCRYPTED] = 3
    """Fewest clients with labels in an encrypted propagation: with two, each can compute what the
    other's labels contribute; with one, every client can. Against t clients that share their
    knowledge, set it to t + 2 (docs/privacy.md)."""
    codes_seed: Annotated[Literal["secret", "run"], ENCRYPTED] = "secret"
    """Seed of the codes: `secret`, clients agree on one that the server does not know, so no two
    runs have the same codes; or `run`, the run's `seed`, so that a run can be repeated, but the
    server knows it and can test guesses at points. `plaintext` always takes the run's."""
    codes_epsilon: Annotated[float, Field(ge=0)] = 0.0
    """If set, all codes of the run together are differentially private with this ε, for
    replacing one point of a client: noise is added to features. 0 adds none."""
    dp_delta: Annotated[float, Field(gt=0, lt=1), only_without("xclp.codes-epsilon", 0)] = 1e-5
    """δ for `codes-epsilon`."""
    labels_epsilon: Annotated[float, Field(ge=0)] = 0.0
    """If set, all propagations of the run together are differentially private with this ε for each
    given label: labels are randomized once. 0 does not change them."""

    @property
    def seed_is_public(self) -> bool:
        """Whether the server knows the seed of the codes."""
        return self.codes_seed == "run" or self.secure == "plaintext"
