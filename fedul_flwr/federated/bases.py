"""Base strategies, which combine updates: Flower's, and ours by reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
)
from flwr.serverapp.strategy import (
    Strategy as FlowerStrategy,
)

from fedul_flwr.config.base import (
    Settings,
    load_reference,
    setting_error,
)
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import (
    SECTIONS,
    FedTrimmedAvgSettings,
    KrumSettings,
    MultiKrumSettings,
)
from fedul_flwr.data.types import Content
from fedul_flwr.federated.nodes import ClientRef

if TYPE_CHECKING:
    pass


class SentModelMomentum(FedAvgM):
    """Server momentum whose step is taken from the model that the clients got (Hsu et al. 2019).

    Flower's own goes on from the model that it has combined in the round before. Where the server
    trains in between, the momentum would count that training as a step of the clients, and a
    resumed run would differ.
    """

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Flower's messages, with ``arrays`` as the model that the step starts from."""
        self.current_arrays = arrays
        return super().configure_train(server_round, arrays, config, grid)


BASES: dict[str, type[FedAvg] | str] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedadam": FedAdam,
    "fedavgm": SentModelMomentum,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "fedmedian": FedMedian,
    "fedtrimmedavg": FedTrimmedAvg,
    "krum": Krum,
    "multikrum": MultiKrum,
    "bulyan": Bulyan,
    "scaffold": "fedul_flwr.strategies.scaffold:Scaffold",
    "fednova": "fedul_flwr.strategies.fednova:FedNova",
    "local": "fedul_flwr.strategies.local_only:LocalOnly",
}
"""Flower's classes, one of them corrected, and references to ours."""

PLAIN_MEANS = (FedAvg, FedProx, FedAdam, SentModelMomentum, FedYogi, FedAdagrad)
"""Bases to which one reply with the mean of all is as good as all."""
ROBUST = frozenset({"fedmedian", "fedtrimmedavg", "krum", "multikrum", "bulyan"})
"""Bases that stay correct when some clients send arbitrary updates."""


@runtime_checkable
class UsesClientList(Protocol):
    """A base that must know all clients of the run, not only those of a round."""

    def set_clients(self, clients: Sequence[ClientRef]) -> None:
        """Receive the full list of clients; called whenever one was added."""

    def check_client(self, client: int, answer: Content) -> None:
        """Refuse a malformed registration answer before its client takes part (again)."""


def _table(settings: RunConfig) -> Settings | None:
    """The settings of the run's base; ``None`` if it has none."""
    kind = SECTIONS.get(settings.base)
    return settings[kind] if kind else None


def fewest_updates(settings: RunConfig) -> int:
    """Least number of updates with which the run's base is robust; 1 for bases that never are.

    Of n updates, f of them from clients that may send anything, Krum needs n > 2f + 2, for the last
    of m choices n - m + 1 > 2f + 2 (Blanchard et al. 2017), and Bulyan n >= 4f + 3 (El Mhamdi et
    al. 2018); a trimmed mean cuts off floor(beta·n) at either end, and has to cut off somebody.
    """
    table = _table(settings)
    if settings.base == "bulyan" and isinstance(table, KrumSettings):
        return 4 * table.num_malicious_nodes + 3
    if isinstance(table, KrumSettings):
        selected = table.num_nodes_to_select if isinstance(table, MultiKrumSettings) else 1
        return 2 * table.num_malicious_nodes + 2 + selected
    if isinstance(table, FedTrimmedAvgSettings) and table.beta > 0:
        return math.ceil(1 / table.beta)
    return 1


def refuse_too_few(settings: RunConfig, updates: int) -> None:
    """Refuse a round with fewer updates than :func:`fewest_updates`."""
    needed, table = fewest_updates(settings), _table(settings)
    if updates < needed:
        assert table is not None  # without a table the minimum is 1
        options = [f"{key} = {value}" for key, value in table.to_flat(f"{table.table}.").items()]
        why = f"{updates} clients in a round, and {' and '.join(options)} need {needed}"
        raise setting_error("base", settings.base, why, "too-few-clients")


def build_base(settings: RunConfig) -> FlowerStrategy:
    """The base strategy that ``settings.base`` names, with the parameters of its table.

    It samples every node that it sees; the wrapper decides which nodes these are.
    """
    table = _table(settings)
    options: dict[str, Any] = table.model_dump() if table else {}
    named = BASES[settings.base]
    kind = load_reference(named, "base") if isinstance(named, str) else named
    base: FedAvg = kind(
        fraction_train=1.0,
        fraction_evaluate=1.0,
        min_train_nodes=1,
        min_evaluate_nodes=1,
        min_available_nodes=1,
        **options,
    )
    return base
