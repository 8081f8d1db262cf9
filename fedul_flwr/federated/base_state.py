"""The memory of base strategies between rounds, so that a run can resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

ATTRIBUTES = ("m_t", "v_t", "momentum_vector", "control", "used", "ledger")
"""Where Flower 1.41 keeps moments (FedOpt family, dicts) and momentum (FedAvgM, a list), SCAFFOLD
its variate and whose updates are in it, and differential privacy what was spent."""


def dump_base_state(base: Strategy) -> dict[str, NDArray[Any]]:
    """Moments and momentum of ``base`` as flat named arrays; empty if it has none."""
    found: dict[str, NDArray[Any]] = {}
    for attribute in ATTRIBUTES:
        value = getattr(base, attribute, None)
        if isinstance(value, dict):
            found |= {f"{attribute}/dict/{key}": array for key, array in value.items()}
        elif isinstance(value, list):
            found |= {f"{attribute}/list/{i:06d}": array for i, array in enumerate(value)}
    return found


def load_base_state(base: Strategy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Give ``base`` back what :func:`dump_base_state` found."""
    found: dict[str, Any] = {}
    for name in sorted(arrays):
        attribute, kind, key = name.split("/", 2)
        if kind == "dict":
            found.setdefault(attribute, {})[key] = arrays[name]
        else:
            found.setdefault(attribute, []).append(arrays[name])
    for attribute, value in found.items():
        setattr(base, attribute, value)
