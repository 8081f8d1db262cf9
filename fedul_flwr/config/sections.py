"""Settings of base strategies and partitions, in a table named like the base or partition."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings

Positive = Annotated[float, Field(gt=0)]
Unit = Annotated[float, Field(ge=0, lt=1)]


class FedProxSettings(Settings):
    """Proximal term (Li et al. 2020)."""

    table: ClassVar[str] = "fedprox"
    proximal_mu: Annotated[float, Field(ge=0)] = 0.01
    """Weight mu of (mu/2)·‖w − w_global‖²; 0 is FedAvg."""


class FedAdamSettings(Settings):
    """Adaptive server step (Reddi et al. 2021)."""

    table: ClassVar[str] = "fedadam"
    eta: Positive = 0.01
    """Server step size."""
    beta_1: Unit = 0.9
    """Decay of the first moment."""
    beta_2: Unit = 0.99
    """Decay of the second moment."""
    tau: Positive = 1e-3
    """Degree of adaptivity."""


class FedYogiSettings(FedAdamSettings):
    """Adaptive server step with Yogi's second moment (Reddi et al. 2021)."""

    table: ClassVar[str] = "fedyogi"


class FedAdagradSettings(Settings):
    """Adaptive server step with Adagrad's second moment (Reddi et al. 2021)."""

    table: ClassVar[str] = "fedadagrad"
    eta: Positive = 0.01
    """Server step size."""
    tau: Positive = 1e-3
    """Degree of adaptivity."""


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
    """Selects the update that is closest to its neighbors (Blanchard et al. 2017)."""

    table: ClassVar[str] = "krum"
    num_malicious_nodes: Annotated[int, Field(ge=0)] = 1
    """Malicious clients of a round (f), which may send anything; needs 2f + 3 updates."""


class MultiKrumSettings(KrumSettings):
    """Averages the updates that are closest to their neighbors (Blanchard et al. 2017)."""

    table: ClassVar[str] = "multikrum"
    num_nodes_to_select: Annotated[int, Field(ge=1)] = 2
    """Updates in the mean (m); needs 2f + 2 + m updates."""


class BulyanSettings(Settings):
    """Selects updates by Krum, then averages the values around the median of each coordinate
    (El Mhamdi et al. 2018)."""

    table: ClassVar[str] = "bulyan"
    num_malicious_nodes: Annotated[int, Field(ge=0)] = 1
    """Malicious clients of a round (f), which may send anything; needs 4f + 3 updates."""


class ScaffoldSettings(Settings):
    """Control variates against client drift (Karimireddy et al. 2020)."""

    table: ClassVar[str] = "scaffold"
    server_learning_rate: Positive = 1.0
    """Server step size; 1 takes the mean of the clients' models."""
    option: Literal["I", "II"] = "II"
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
    """Number of classes at a client."""


class ShardSettings(Settings):
    """Points sorted by label are cut into shards, assigned at random (McMahan et al. 2017)."""

    table: ClassVar[str] = "shard"
    shards_per_client: Annotated[int, Field(ge=1)] = 2
    """Number of shards at a client."""


class NaturalSettings(Settings):
    """One group of a column of the data set (writer, hospital) per client."""

    table: ClassVar[str] = "natural"
    column: str = ""
    """Name of the column. It is no feature of a table, unless `columns` has it."""


class MajoritySettings(Settings):
    """Two majority classes per client (FedUL paper, tables D.5 and D.6)."""

    table: ClassVar[str] = "majority"
    mild: bool = False
    """Majority classes have 0.15 to 0.25 each, minorities below 0.08 (the paper's main text)."""


SECTIONS: dict[str, type[Settings]] = {
    kind.table: kind
    for kind in (
        FedProxSettings,
        FedAdamSettings,
        FedYogiSettings,
        FedAdagradSettings,
        FedAvgMSettings,
        FedTrimmedAvgSettings,
        KrumSettings,
        MultiKrumSettings,
        BulyanSettings,
        ScaffoldSettings,
        DirichletSettings,
        PathologicalSettings,
        ShardSettings,
        NaturalSettings,
        MajoritySettings,
    )
}
"""Tables of base strategies and partitions by the value of `base` or `partition` they belong to."""
