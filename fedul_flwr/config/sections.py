"""Settings of base strategies, partitions and heads, in tables of their own."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr.config.base import (
    AUTO,
    OR_AUTO,
    ColumnName,
    Settings,
    only_with,
    only_without,
)
from fedul_flwr.config.shared import UNPROTECTED

Positive = Annotated[float, Field(gt=0)]
Unit = Annotated[float, Field(ge=0, lt=1)]


class FedProxSettings(Settings):
    """Proximal term (Li et al. 2020)."""

    table: ClassVar[str] = "fedprox"
    proximal_mu: Annotated[float, Field(ge=0)] = 0.01
    """Weight mu of (mu/2)·‖w − w_global‖²; 0 is FedAvg."""


class FedOptSettings(Settings):
    """Adaptive server step (Reddi et al. 2021)."""

    table: ClassVar[str] = "fedopt"
    eta: Positive = 0.01
    """Server step size."""


class FedAvgMSettings(Settings):
    """Server momentum (Hsu et al. 2019)."""

    table: ClassVar[str] = "fedavgm"
    server_learning_rate: Positive = 1.0
    """Server step size."""
    server_momentum: Unit = 0.9
    """Server momentum."""


class FedTrimmedAvgSettings(Settings):
    """Coordinate-wise trimmed mean (Yin et al. 2018)."""

    table: ClassVar[str] = "fedtrimmedavg"
    beta: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """Fraction cut off at both ends."""


class KrumSettings(Settings):
    """Updates that are closest to their neighbors: one (`krum`) or the mean of some (`multikrum`,
    Blanchard et al. 2017), or the values around the median of each coordinate among these
    (`bulyan`, El Mhamdi et al. 2018)."""

    table: ClassVar[str] = "krum"
    num_malicious_nodes: Annotated[int, Field(ge=0)] = 1
    """Malicious clients of a round (f), which may send anything; `krum` needs 2f + 3 updates,
    `bulyan` 4f + 3."""


class MultiKrumSettings(KrumSettings):
    """Averages the updates that are closest to their neighbors (Blanchard et al. 2017)."""

    num_nodes_to_select: Annotated[int, Field(ge=1), only_with("base", "multikrum")] = 2
    """Updates in the mean (m); `multikrum` needs 2f + 2 + m updates."""


class ScaffoldSettings(Settings):
    """Control variates against client drift (Karimireddy et al. 2020)."""

    table: ClassVar[str] = "scaffold"
    option: Annotated[Literal["I", "II"], only_with("optimizer", "sgd", of=("II",))] = "II"
    """How clients update their variate: gradient at the global model (one more pass over the data),
    or from their steps, which is valid for SGD only."""


class DirichletSettings(Settings):
    """Class proportions of every client drawn from Dirichlet(alpha)."""

    table: ClassVar[str] = "dirichlet"
    alpha: Positive = 0.5
    """Concentration; small values give skewed proportions."""
    min_points: Annotated[int, Field(ge=0)] = 10
    """Fewest points of a client; draws are repeated until all have them."""


class PathologicalSettings(Settings):
    """Every client has few classes."""

    table: ClassVar[str] = "pathological"
    classes_per_client: Annotated[int, Field(ge=1)] = 2
    """Number of classes at a client. Together clients have all classes, if this times their number
    is not less."""


class ShardSettings(Settings):
    """Points sorted by label are cut into shards, assigned at random (McMahan et al. 2017)."""

    table: ClassVar[str] = "shard"
    shards_per_client: Annotated[int, Field(ge=1)] = 2
    """Number of shards at a client."""


class NaturalSettings(Settings):
    """One group of a column of the data set (writer, hospital) per client."""

    table: ClassVar[str] = "natural"
    column: ColumnName = ""
    """Name of the column. It is no feature of a table, unless `columns` has it."""


ONE_MESSAGE = only_with("method", "closed-form", "closed-form-labels")
"""Rule for settings of methods that send sums for a head and nothing else."""
REFINED = only_without("method", "afl", "gh-ofl", why="its head is another one")
"""Rule for settings of our discriminant."""


class HeadSettings(Settings):
    """Last layers in closed form, from sums over clients (docs/closed-form.md)."""

    table: ClassVar[str] = "closed-form"
    every: Annotated[int, Field(ge=0), *OR_AUTO] = AUTO
    """Also make a new head before every so many rounds of training; with 0 the last round alone
    makes one. `auto` is 1 with `fedul-heads`, else 0."""
    refinements: Annotated[int, Field(ge=0, le=2), REFINED] = 1
    """Messages after the first in which clients sum again, by posteriors of the model with the head
    so far under the class shares of a point's set; of points without labels a client finds these.
    Method `closed-form` spends a round on each, and the best round is chosen as always."""
    sum: Annotated[
        Literal["masked", "plaintext"], only_with("secure-sum", "off", of=("plaintext",))
    ] = "masked"
    """With `masked` the server reads sums over three clients or more, and none of a single one
    (docs/privacy.md); with `plaintext` it sees each client's."""
    shrinkage: Annotated[float, Field(gt=0, le=1), *OR_AUTO, REFINED] = AUTO
    """How far eigenvalues of the classes' covariance are pulled to their mean. `auto` follows from
    the numbers of features and of points, and from how well class shares tell classes apart."""

    owners_differ: Annotated[
        Literal["off", "auto"],
        only_with("method", "closed-form"),
        only_with("closed-form.sum", "masked"),
        only_without("closed-form.epsilon", code=UNPROTECTED, why="one more sum has no noise"),
        only_with("personal", "off"),
    ] = "off"
    """With `auto` each client takes out of its features what they are off by, beside its class
    shares, as far as owners differ at all; that stays with it (docs/owners-differ.md)."""

    epsilon: Annotated[float, Field(ge=0), ONE_MESSAGE, only_with("closed-form.sum", "masked")] = (
        0.0
    )
    """Differential privacy of a client's single points: each client adds Gaussian noise to its
    sums, so that all of a run's together are (epsilon, delta)-private; 0 adds none. Under masks
    alone, where a client answers each sum once."""
    delta: Annotated[float, Field(gt=0, lt=1), only_with("closed-form.epsilon")] = 1e-5
    """Delta; far below 1 / number of points."""
    feature_norm: Annotated[float, Field(gt=0), only_with("closed-form.epsilon")] = 1.0
    """L2 norm to which the features of a point are cut before they are added with noise; about that
    of most points, but not read from them."""


CLOSED_FORM = "closed-form"
SECTIONS: dict[str, type[Settings]] = {
    CLOSED_FORM: HeadSettings,
    "fedprox": FedProxSettings,
    "fedadam": FedOptSettings,
    "fedyogi": FedOptSettings,
    "fedadagrad": FedOptSettings,
    "fedavgm": FedAvgMSettings,
    "fedtrimmedavg": FedTrimmedAvgSettings,
    "krum": KrumSettings,
    "multikrum": MultiKrumSettings,
    "bulyan": KrumSettings,
    "scaffold": ScaffoldSettings,
    "dirichlet": DirichletSettings,
    "pathological": PathologicalSettings,
    "shard": ShardSettings,
    "natural": NaturalSettings,
}
"""Tables by the value of `base`, `partition` or `head` that they belong to."""


class StudySettings(Settings):
    """What a run is for, in words that owners read before they approve it."""

    table: ClassVar[str] = "study"
    title: str = ""
    """Purpose of the run, such as `Sepsis within 24 hours, study 17`; stands in owners' requests
    for approval, in the report and in the model card."""
    contact: str = ""
    """Person who answers questions about it, and how to reach them."""


# Settings of differential privacy for the clients of a run.

PLAIN_MEANS = ("fedavg", "fedprox")
"""Bases that average updates like FedAvg, the only mean that epsilon is known for."""
CLIPPED = only_with("dp.clipping", "server", "client")


class DPSettings(Settings):
    """Differential privacy of clients: clipped updates, and Gaussian noise on their mean.

    McMahan et al. 2018 (arXiv:1710.06963). Methods whose clients send more are refused: XCLP,
    FedMatch, FedSiam.
    """

    table: ClassVar[str] = "dp"
    clipping: Annotated[
        Literal["none", "server", "client"],
        only_with("base", *PLAIN_MEANS, code=UNPROTECTED, why="others take no plain mean"),
        only_with("head", "trained", code=UNPROTECTED, why="sums for a head have no noise"),
        only_with("client-weights", "uniform", code=UNPROTECTED, why="noise covers equal shares"),
        only_with("secure-sum", "off", of=("server",), code=UNPROTECTED),
        only_without("test-prior", "sets", code=UNPROTECTED, why="their mean has no noise"),
    ] = "none"
    """Who clips a client's update: with `server` the server sees unclipped updates, with `client`
    only clipped ones. The server adds the noise; with `secure-sum = "on"` each client adds a part.
    `none`: no clipping, no noise."""
    norm: Annotated[Positive, CLIPPED] = 1.0
    """C, the L2 norm to which an update (the client's model minus the global one) is clipped."""
    noise_multiplier: Annotated[Positive, CLIPPED] = 1.0
    """z: the mean over n clients gets Gaussian noise of standard deviation z·C/n, or somewhat more
    with `secure-sum = "on"`."""
    delta: Annotated[float, Field(gt=0, lt=1), CLIPPED] = 1e-5
    """Delta at which epsilon is reported; far below 1 / number of clients."""
    max_epsilon: Annotated[float, Field(ge=0), CLIPPED] = 0.0
    """The run ends before the round that would exceed this epsilon; 0 sets no limit."""
