"""What a resumed run needs of its strategy, its base and its stages, as arrays by name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedul_flwr.arrays import below
from fedul_flwr.config.base import nearest
from fedul_flwr.errors import UserError
from fedul_flwr.federated.payload import Part
from fedul_flwr.federated.stage import ServerStage

BASE, OF_STAGE = "base/", "stage/"
"""Prefixes of the state of the base and of stages."""


def is_taken_in_state(name: str) -> bool:
    """Whether a state of this name would be read as that of the base or of a stage."""
    return f"{name}/".startswith((BASE, OF_STAGE))


def state_of(strategy: Any) -> dict[str, NDArray[Any]]:
    """State that a resumed run needs.

    Parameters
    ----------
    strategy : a :class:`fedul_flwr.federated.strategy.Strategy`.

    Raises
    ------
    UserError
        If a part of it would be lost.
    """
    flat = {BASE + name: array for name, array in dump_base_state(strategy.base).items()}
    first = first_state(strategy)
    for name, value in strategy.state.items():
        if name not in first:
            raise _lost(strategy, name, f"is not declared in state{nearest(name, first)}")
        if isinstance(value, dict) != isinstance(first[name], dict) and value is not None:
            raise _lost(strategy, name, "is arrays by name at first or now, but not both")
        if isinstance(value, dict):
            flat |= {f"{name}/{key}": array for key, array in value.items()}
        elif value is not None:
            flat[name] = _as_numbers(strategy, name, value)
    for stage in strategy.stages:
        prefix = _prefix(stage)
        state = stage.state.items()
        flat |= {prefix + name: _as_numbers(stage, name, value) for name, value in state}
    return flat


def go_on(strategy: Any, state: Mapping[str, NDArray[Any]], rounds_done: int) -> None:
    """Let a new strategy go on after ``rounds_done`` rounds with the state of :func:`state_of`."""
    strategy.round_offset = strategy.record.round = rounds_done
    load_base_state(strategy.base, below(BASE, state))
    for name, first in first_state(strategy).items():
        if isinstance(first, dict):
            strategy.state[name] = below(f"{name}/", state)
        elif name in state:
            plain = isinstance(first, int | float | list)
            strategy.state[name] = state[name].tolist() if plain else state[name]
    for stage in strategy.stages:
        stage.state |= below(_prefix(stage), state)


def first_state(strategy: Any) -> dict[str, Any]:
    """The method's state before round 1."""
    sizes = strategy.registry.sizes
    first: dict[str, Any] = {}
    for name, value in type(strategy).state.items():
        is_part = isinstance(value, Part)
        zeros = ({} if value.is_group else value.zeros(sizes)) if is_part else None
        first[name] = zeros if is_part else copy.deepcopy(value)
    return first


def _prefix(stage: ServerStage) -> str:
    """Of a stage's state."""
    return f"{OF_STAGE}{type(stage).__module__}/{type(stage).__name__}/"


def _lost(of: object, name: str, why: str) -> UserError:
    return UserError(
        f"self.state[{name!r}] of {type(of).__name__} {why}: a run that resumes would lose it.",
        "own-method-wrong",
    )


def _as_numbers(of: object, name: str, value: Any) -> NDArray[Any]:
    """A value of somebody's state as a file can have it."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        array = np.array("")
    if array.dtype.kind not in "biufc":
        raise _lost(of, name, f"is a {type(value).__name__}, and must be numbers")
    return array


ATTRIBUTES = ("m_t", "v_t", "momentum_vector", "control", "used", "ledger")
"""Attributes with state: moments (FedOpt family, dicts), momentum (FedAvgM, a list),
SCAFFOLD's variate and the clients in it, and the ledger of differential privacy."""


def dump_base_state(base: FlowerStrategy) -> dict[str, NDArray[Any]]:
    """Moments and momentum of ``base`` as flat named arrays; empty if it has none."""
    state: dict[str, NDArray[Any]] = {}
    for attribute in ATTRIBUTES:
        value = getattr(base, attribute, None)
        if isinstance(value, dict):
            state |= {f"{attribute}/dict/{key}": array for key, array in value.items()}
        elif isinstance(value, list):
            state |= {f"{attribute}/list/{i:06d}": array for i, array in enumerate(value)}
    return state


def load_base_state(base: FlowerStrategy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Restore the state that :func:`dump_base_state` returned."""
    state: dict[str, Any] = {}
    for name in sorted(arrays):
        attribute, kind, key = name.split("/", 2)
        if kind == "dict":
            state.setdefault(attribute, {})[key] = arrays[name]
        else:
            state.setdefault(attribute, []).append(arrays[name])
    for attribute, value in state.items():
        setattr(base, attribute, value)
