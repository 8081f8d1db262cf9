"""Bi-objective FedUL, method 2: a model trained at the server is mixed into the aggregated one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedul_flwr.config.method_settings import FedULMixSettings
from fedul_flwr.data.types import Arrays, below
from fedul_flwr.federated.messages import to_arrays, to_record
from fedul_flwr.federated.updates import mix
from fedul_flwr.strategies.fedul import FedULStrategy

INDEPENDENT = "independent/"
"""Prefix of f' in a resumed run's state."""


class FedULMix(FedULStrategy):
    """FedUL with f ← (1 − lambda)·f + lambda·f′ after every aggregation; f′ learns from labels."""

    trains_at_server = True
    server_order = "after"
    _independent: ArrayRecord | None = None

    @property
    def mixing(self) -> FedULMixSettings:
        """Settings in table ``fedul-mix``: lambda, and how f′ starts each round."""
        return self.settings[FedULMixSettings]

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """Train f′ and mix it into ``arrays`` (procedure C, method 2)."""
        start = arrays
        if self.mixing.independent == "persistent":
            # In the first round f′ starts from the initial global model.
            is_after = self.trains_in_turn(self.settings, "after")
            start = self._independent or (self.global_arrays if is_after else arrays)
        independent, loss = super().learn_labels(start, round_number)
        if self.mixing.independent == "persistent":
            self._independent = independent
        return mix(arrays, independent, self.mixing.mixing_weight), loss

    def state_dict(self) -> Arrays:
        """The base's state, and f′ if it is persistent."""
        state = to_arrays(self._independent) if self._independent else {}
        return super().state_dict() | {INDEPENDENT + name: array for name, array in state.items()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state from :meth:`state_dict`."""
        super().load_state_dict(state)
        independent = below(INDEPENDENT, state)
        self._independent = to_record(independent) if independent else None
