"""Settings of base strategies and partitions: each a table named after the choice it belongs to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings

Positive = Annotated[float, Field(gt=0)]
Unit = Annotated[float, Field(ge=0, lt=1)]


class FedProxSettings(Settings):
    """Proximal term (Li et al. 2020)."""

    proximal_mu: Annotated[float, Field(ge=0)] = 0.01
    """Weight mu of (mu/2)·‖w − w_global‖²; 0 is FedAvg."""


class FedAdamSettings(Settings):
    """Adaptive server step (Reddi et al. 2021)."""

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


class FedAdagradSettings(Settings):
    """Adaptive server step with Adagrad's second moment (Reddi et al. 2021)."""

    eta: Positive = 0.01
    """Server step size."""
    tau: Positive = 1e-3
    """Degree of adaptivity."""


class FedAvgMSettings(Settings):
    """Server momentum (Hsu et al. 2019)."""

    server_learning_rate: Positive = 1.0
    """Server step size."""
    server_momentum: Unit = 0.9
    """Server momentum."""


class FedTrimmedAvgSettings(Settings):
    """Coordinate-wise trimmed mean (Yin et al. 2018)."""

    beta: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """Fraction cut off at both ends."""


class KrumSettings(Settings):
    """The one update that is nearest to its neighbours (Blanchard et al. 2017)."""

    num_malicious_nodes: Annotated[int, Field(ge=0)] = 1
    """Clients of a round (f) that may send anything. It takes 2f + 3 updates."""


class MultiKrumSettings(KrumSettings):
    """The mean of the updates that are nearest to their neighbours (Blanchard et al. 2017)."""

    num_nodes_to_select: Annotated[int, Field(ge=1)] = 2
    """Updates in the mean (m). It takes 2f + 2 + m updates."""


class BulyanSettings(Settings):
    """Krum's choice, and of it coordinate by coordinate what lies around the median
    (El Mhamdi et al. 2018)."""

    num_malicious_nodes: Annotated[int, Field(ge=0)] = 1
    """Clients of a round (f) that may send anything. It takes 4f + 3 updates."""


class ScaffoldSettings(Settings):
    """Control variates against client drift (Karimireddy et al. 2020)."""

    server_learning_rate: Positive = 1.0
    """Server step size; 1 takes the mean of the clients' models."""
    option: Literal["I", "II"] = "II"
    """How clients renew their variate: gradient at the global model (one more pass over the data),
    or from the steps made, which holds for SGD only."""


class DirichletSettings(Settings):
    """Class proportions of every client drawn from Dirichlet(alpha)."""

    alpha: Positive = 0.5
    """Concentration; small is skewed."""
    min_points: Annotated[int, Field(ge=0)] = 10
    """Fewest points of a client; draws are repeated until all have them."""


class PathologicalSettings(Settings):
    """Every client holds few classes."""

    classes_per_client: Annotated[int, Field(ge=1)] = 2
    """Number of classes at a client."""


class ShardSettings(Settings):
    """Points sorted by label are cut into shards, dealt at random (McMahan et al. 2017)."""

    shards_per_client: Annotated[int, Field(ge=1)] = 2
    """Number of shards at a client."""


class NaturalSettings(Settings):
    """One group of a column of the data set (writer, hospital) per client."""

    column: str = ""
    """Name of the column."""


class MajoritySettings(Settings):
    """Two majority classes per client (FedUL paper, tables D.5 and D.6)."""

    mild: bool = False
    """Majority classes 0.15 to 0.25 each, minorities below 0.08 (the paper's body)."""


SECTIONS: dict[str, type[Settings]] = {
    "fedprox": FedProxSettings,
    "fedadam": FedAdamSettings,
    "fedyogi": FedYogiSettings,
    "fedadagrad": FedAdagradSettings,
    "fedavgm": FedAvgMSettings,
    "fedtrimmedavg": FedTrimmedAvgSettings,
    "krum": KrumSettings,
    "multikrum": MultiKrumSettings,
    "bulyan": BulyanSettings,
    "scaffold": ScaffoldSettings,
    "dirichlet": DirichletSettings,
    "pathological": PathologicalSettings,
    "shard": ShardSettings,
    "natural": NaturalSettings,
    "majority": MajoritySettings,
}
"""Tables of base strategies and partitions by the value of `base` or `partition` they belong to."""
