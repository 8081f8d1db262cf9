"""Bi-objective FedUL, method 2: a model trained at the server is mixed into the aggregated one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fedul_flwr.config.server import FedULMixSettings
from fedul_flwr.data.types import Arrays
from fedul_flwr.federated.messages import to_arrays, to_record
from strategies.fedul import FedUL

INDEPENDENT = "independent/"
"""Prefix of f' among the arrays that a run resumes from."""


class FedULMix(FedUL):
    """FedUL with f ← (1 − lambda)·f + lambda·f′ after every aggregation, f′ trained on labels."""

    trains_at_server = True
    _independent: ArrayRecord | None = None

    @property
    def mixing(self) -> FedULMixSettings:
        """lambda, and what f′ starts from."""
        return self.settings.section("fedul-mix", FedULMixSettings)

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """Train f′ and mix it into the aggregated model (procedure C, method 2)."""
        if self.mixing.independent == "restart":
            start = model
        else:  # in the first round f′ begins as the global model did
            start = self._independent or self.global_arrays
        independent = self.train_at_server(start)
        if self.mixing.independent == "persistent":
            self._independent = independent
        return mix(model, independent, self.mixing.mixing_weight)

    def state_dict(self) -> Arrays:
        """The base's, and f′ where it lives on."""
        own = to_arrays(self._independent) if self._independent else {}
        return super().state_dict() | {INDEPENDENT + name: array for name, array in own.items()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        own = {
            name.removeprefix(INDEPENDENT): array
            for name, array in state.items()
            if name.startswith(INDEPENDENT)
        }
        self._independent = to_record(own) if own else None


def mix(one: ArrayRecord, other: ArrayRecord, weight: float) -> ArrayRecord:
    """(1 − weight)·one + weight·other in the dtypes of ``one``, whose whole numbers stay."""
    mixed: Arrays = {}
    for name, array in one.items():
        value = array.numpy()
        if np.issubdtype(value.dtype, np.floating):
            value = np.asarray((1 - weight) * value + weight * other[name].numpy(), value.dtype)
        mixed[name] = value
    return to_record(mixed)
