"""Base strategies by name, Flower's own and ours, built from settings."""

from __future__ import annotations

from typing import Any

from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Strategy,
)

from fedul_flwr.config import RunConfig
from fedul_flwr.settings.privacy import DPSettings
from strategies.fednova import FedNova
from strategies.local_only import LocalOnly
from strategies.private_mean import PrivateMean
from strategies.scaffold import Scaffold

BASES: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedadam": FedAdam,
    "fedavgm": FedAvgM,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "fedmedian": FedMedian,
    "fedtrimmedavg": FedTrimmedAvg,
    "scaffold": Scaffold,
    "fednova": FedNova,
    "local": LocalOnly,
}


def build_base(settings: RunConfig) -> Strategy:
    """The base strategy that ``settings.base`` names, with the parameters of its table.

    It samples every node that it sees: which nodes it sees is the wrapper's choice. With
    ``dp.clipping`` on it lies behind a :class:`PrivateMean`.
    """
    table = settings.sections.get(settings.base)
    options: dict[str, Any] = table.model_dump() if table else {}
    base = BASES[settings.base](
        fraction_train=1.0,
        fraction_evaluate=1.0,
        min_train_nodes=1,
        min_evaluate_nodes=1,
        min_available_nodes=1,
        **options,
    )
    privacy = settings.section("dp", DPSettings)
    return base if privacy.clipping == "none" else PrivateMean(base, privacy)
