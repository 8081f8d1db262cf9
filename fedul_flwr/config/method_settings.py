"""Settings of methods: one class for each table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedul_flwr.config.base import ADAPTIVE, OR_ADAPTIVE, Settings, only_with, only_without
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.shared import NEW_SPLIT, SIMULATED, UNWEIGHTED

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
    total: Annotated[int, Field(ge=0), *NEW_LABELS, only_without("labels.fraction")] = 100
    """Labels of all clients together (n_L), split as evenly as possible over those with labels."""
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
    when: Annotated[Literal["auto", "before", "after", "parallel"], LABELED_SERVER] = "auto"
    """When the server trains in a round: `before` the clients; `after` them, from the mean of their
    models; or in `parallel`, from the model that they receive, and its model has half of the weight
    in the mean. `auto` is the order of the method's paper: `after` for `semifl`, `fedul-finetune`
    and `fedul-mix`, `before` for the others."""


class FedULMixSettings(Settings):
    """Mixing FedUL's model with one trained at the server (bi-objective FedUL, method 2)."""

    table: ClassVar[str] = "fedul-mix"
    mixing_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight lambda of the server's model f' in (1 − lambda)·f + lambda·f'."""
    independent: Literal["restart", "persistent"] = "restart"
    """Whether f' restarts from the aggregated f in every round, or continues from its own last
    round."""


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
    prior_counts: Annotated[int, Field(ge=0, le=1_000_000), SIMULATED] = 0
    """Labels per set, drawn at random, from which clients estimate its class priors (posterior mean
    under Jeffreys' prior); 0 is exact."""

    @model_validator(mode="after")
    def _check_sets(self) -> Self:
        if self.prior_counts and self.prior_noise:
            raise ValueError(
                "fedul.prior-counts and fedul.prior-noise exclude each other: "
                "class priors are estimated from labels, or exact with noise"
            )
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


class FedULSettings(AdmissionSettings):
    """Settings of FedUL."""

    surrogate_loss: Literal["nll", "release"] = "nll"
    """Negative log-likelihood (eq. 9), or the loss of the authors' code."""
    absent_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a second loss, by which a client's points are of no class that all its sets lack;
    0 is the paper's, and says nothing of such classes. Without such classes it is 0."""
    heldout_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Fraction of every set that is held out, if the best round is selected by held-out loss."""
    learn_priors: Annotated[bool, only_with("fedul.surrogate-loss", "nll")] = False
    """Clients learn Pi from the model within the uncertainty of what they were told (intervals or
    counts; in a simulation `prior-counts` or `prior-noise`). Exact rows stay as they are told."""
    fewer_sets: bool = False
    """Accept clients with fewer sets than classes, at least two: other clients' sets have to tell
    the classes apart that its own do not. With `share-priors` the server checks that they do."""

    @model_validator(mode="after")
    def _check_own(self) -> Self:
        if self.fewer_sets and self.strict_rank:
            raise ValueError(
                "fedul.fewer-sets and fedul.strict-rank exclude each other: "
                "fewer sets than classes have a rank below K"
            )
        return self


def fewer_sets(options: AdmissionSettings) -> bool:
    """Whether clients with fewer sets than classes can take part."""
    return isinstance(options, FedULSettings) and options.fewer_sets


def may_ask_for_shares(fedul: FedULSettings, dp: DPSettings) -> bool:
    """Whether ``test-prior = "sets"`` is possible: the loss takes class priors, and differential
    privacy does not forbid their mean without noise."""
    return fedul.surrogate_loss != "release" and dp.clipping == "none"


class FedULConsistencySettings(Settings):
    """FedUL with consistency between weak and strong views, of `fedul-assign` too."""

    table: ClassVar[str] = "fedul-consistency"
    strong_views: ClassVar[bool] = True
    weight: Annotated[float, Field(ge=0)] = 0.3
    """Weight of the consistency loss; 0 is FedUL."""
    threshold: Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE] = 0.95
    """Smallest top probability of the weak view with which the strong view is trained on; with
    `fedul-assign` the smallest probability of the assigned class.
    `adaptive` is the mean top probability of a client's points by the model that it received:
    some point always reaches it, and wrong targets count early."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 20
    """First rounds, over which the weight grows as exp(-5·(1 − t)²)."""


class SupervisedSettings(Settings):
    """Supervised federated training, the upper bound for methods without labels."""

    table: ClassVar[str] = "supervised"
    label_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of every client's points that have labels; it trains only on these."""
    steps: Annotated[Literal["labeled", "sets"], SIMULATED] = "labeled"
    """Steps per epoch: one pass over the labeled points, or as many as FedUL makes in a pass over
    the client's unlabeled sets, which repeats labeled points."""


class FedPLSettings(Settings):
    """Pseudo labels from class priors (Diao et al. 2021, as in the FedUL paper, eq. 14 to 17)."""

    table: ClassVar[str] = "fedpl"
    threshold: Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE] = 0.4
    """Smallest top probability (tau) with which a point is confident: it is then trained on its
    pseudo label alone. `adaptive` is the mean top probability of a client's points, in every
    round."""
    warm_up_rounds: Annotated[int, Field(ge=0), *OR_ADAPTIVE] = ADAPTIVE
    """First rounds, with plain cross-entropy on all pseudo labels. With `adaptive` a client is in
    warm-up in every round in which fewer than half of its points are confident, by the model that
    it received; so it always trains. With a number (5 in the authors' code) a client without
    confident points trains nothing afterwards."""
    recipe: Annotated[Literal["paper", "release"], SIMULATED] = "paper"
    """Form of the method: the paper's, or that of the authors' code. In the paper's, the label of a
    set is the class with the largest prior that the client knows, every confident point is paired
    with a random other one, and points are mixed. In the other, it is the class with the largest of
    the priors from which the simulation assigned the points (class m mod K for set m with
    `fedul.priors = "dominant"`; the two differ if a client has few points of a class), only as many
    points are paired as the smaller group has, steps without one of the groups are skipped, and the
    model's outputs are mixed."""
    relabel: bool = False
    """After the warm-up, use the current model's prediction in each step as a point's label
    (authors' code); the labels of sets then have no effect."""


class FedLLPSettings(Settings):
    """Label proportions (Dulac-Arnold et al. 2019, as in the FedUL paper, eq. 18)."""

    table: ClassVar[str] = "fedllp"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability of dropout in training after every layer but the last, or between the stages of
    a ResNet (authors' code: 0.2)."""
    bag_size: Annotated[int, Field(ge=0)] = 0
    """If set, a step has as many bags of this size as `batch-size` allows, at least one. A bag is a
    whole set or, of a larger set, a random part. A part has the class shares of its set in
    expectation only, and is trained as if it had them exactly; `fedllp-pvc` refuses parts. With 0
    every set is a step of its own, and `batch-size` has no effect."""


class FedLLPVATSettings(Settings):
    """Virtual adversarial training in addition to label proportions (Tsai & Lin 2020)."""

    table: ClassVar[str] = "fedllp-vat"
    alpha: Annotated[float, Field(ge=0)] = 5e-4
    """Weight of the consistency loss (FedUL paper: MNIST 5e-4, others 0.05)."""
    radius: Annotated[float, Field(gt=0)] = 1e-2
    """L2 norm of a point's perturbation, for images in [-1, 1] (FedUL paper: MNIST 1e-2,
    others 6.0)."""
    recipe: Literal["paper", "release"] = "paper"
    """Form of the method: the paper's, or that of the authors' code. There the ramp takes 20 epochs
    and begins anew in each, so that the weight stays at 0.7 to 1.1 % of alpha, and `radius` is in
    units of the pixels' standard deviation in MNIST (gray) or CIFAR-10 (color): 0.6 or 0.4 times
    as large."""


class FedLLPDCSettings(Settings):
    """Consistency with assigned classes in addition to label proportions (LLP-DC)."""

    table: ClassVar[str] = "fedllp-dc"
    strong_views: ClassVar[bool] = True
    weight: Annotated[float, Field(ge=0)] = 0.5
    """Weight of the cross-entropy of strong views; 0 is FedLLP."""
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.6
    """Smallest probability that the weak view gives the assigned class, with which the strong view
    is trained on it."""


Weight = Annotated[float, Field(ge=0)]
Confidence = Annotated[float, Field(ge=0, lt=1)]
AdaptiveConfidence = Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE]


class LabelSourceSettings(Settings):
    """Where labels are (FedMatch, section 2.2)."""

    table: ClassVar[str] = "scenario"
    labels_at: Literal["clients", "server"] = "clients"
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


class FixMatchSettings(Settings):
    """FixMatch with the unchanged image as weak view (Sohn et al. 2020, as in FedMatch)."""

    table: ClassVar[str] = "fixmatch"
    threshold: AdaptiveConfidence = ADAPTIVE
    """Smallest top probability (τ) with which a point is trained on its pseudo label. `adaptive` is
    the mean top probability of a client's unlabeled points by the model that it received, so some
    point always reaches it; 0.85 in FedMatch's paper."""


class SemiFLSettings(Settings):
    """SemiFL (Diao et al. 2022), and what (FL)² adds to it (Lee et al. 2024)."""

    table: ClassVar[str] = "semifl"
    threshold: AdaptiveConfidence = 0.95
    """Smallest top probability, by the model that a client received, of the points that it trains
    on. `adaptive` is (FL)²'s: the mean top probability of the client's points, less for classes
    that the model seldom predicts there."""
    mix_weight: Weight = 1.0
    """Weight of the loss of points mixed with others, sure or not; (FL)² has 0."""
    learning_status: Annotated[
        bool, only_without("base", *UNWEIGHTED), only_without("client-weights", "examples")
    ] = False
    """Weigh clients by 1 − the mean top probability of their points ((FL)²): those whose points the
    model knows least count most. They send that number. Otherwise `client-weights` counts."""
    alignment: bool = False
    """Whether a client scales its points' probabilities before it makes pseudo labels, so that the
    mean over the last round's clients is the class shares of the server's labels. Only with a
    server whose labels have about the clients' shares. Clients send the mean of theirs."""
    sharpness: Weight = 0.0
    """Radius ρ of (FL)²'s consistency between the weights and the worst ones near them; 0 leaves it
    out, (FL)² has 0.1, and 1 for CIFAR-100. A step then costs three times as much."""


class SAGESettings(Settings):
    """SAGE: FixMatch whose pseudo labels the received model corrects (Liu et al. 2025)."""

    table: ClassVar[str] = "sage"
    threshold: Confidence = 0.95
    """Smallest top probability, of the client's own model or of the one that it received, with
    which a point is trained on its pseudo label."""


PARTS = only_with("fedmatch.decomposition", True)
HELPERS = only_without("fedmatch.helpers", 0)


class FedMatchSettings(Settings):
    """FedMatch: inter-client consistency and disjoint learning of sigma and psi."""

    table: ClassVar[str] = "fedmatch"
    consistency_weight: Weight = 1e-2
    """Weight λ_ICCS of the consistency loss Φ (eq. 2)."""
    l2_weight: Annotated[Weight, PARTS] = 10.0
    """Weight λ_L2 of ‖σ − ψ‖² (eq. 5)."""
    l1_weight: Annotated[Weight, PARTS] = 1e-4
    """Weight λ_L1 of ‖ψ‖₁ (eq. 5); the text has 1e-5 with labels at the server."""
    threshold: AdaptiveConfidence = ADAPTIVE
    """Smallest top probability (τ) with which a point is trained on. `adaptive` is the mean top
    probability of a client's unlabeled points by the model that it received, so some point always
    reaches it; 0.85 in the text, 0.75 in the authors' code."""
    helpers: Annotated[int, Field(ge=0)] = 2
    """Number of other clients' models (H) that vote on pseudo labels and are targets of the
    consistency loss; 0 is FedMatch without inter-client consistency."""
    helper_interval: Annotated[int, Field(ge=1), HELPERS] = 10
    """Helpers are sent in every round whose number is a multiple of this."""
    keep_helpers: Annotated[bool, HELPERS] = False
    """Whether clients reuse their last helpers in the rounds between; not in the authors' code."""
    decomposition: bool = True
    """Whether the model's weights are θ = σ + ψ, with σ trained on labeled and ψ on unlabeled
    points; otherwise both train θ."""
    evaluate_with: Annotated[Literal["both", "sigma", "psi"], PARTS] = "both"
    """Weights of the model that is evaluated and saved: σ + ψ, or one of them alone (ablation)."""
    psi_cutoff: Annotated[Weight, PARTS] = 5e-6
    """Values of ψ smaller than this in magnitude count as 0 at evaluation; 1e-5 in the authors'
    code with labels at the server."""
    difference_threshold: Annotated[Weight, only_with("secure-sum", "off")] = 5e-5
    """Changes of a weight smaller than this in magnitude are not sent, in either direction; 1e-5 in
    the authors' code with labels at the server; 0 sends all."""


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


class PseudoLabelSettings(StageSettings):
    """Use of pseudo labels in local training."""

    operations: Annotated[int, Field(ge=0, le=13), IMAGES] = 0
    """Number of RandAugment's 13 operations, each of magnitude 2 to 5 of 10, on every
    pseudo-labeled image in training; labels come from the unchanged image. 0 applies `augment`
    only, as in the text."""
    recipe: Literal["paper", "release"] = "paper"
    """Form of the method: the paper's, or that of the authors' code. There points are labeled in
    views by `augment`, drawn anew each time, and batches of clients without labels have twice
    `batch-size` points, as many as those of the others with their pseudo-labeled half."""


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
