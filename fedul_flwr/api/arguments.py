"""Settings as keyword arguments of a call, and parameters of estimators by the same rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.api.in_memory import reference_in_memory
from fedul_flwr.api.input_data import CLIENT, dataset_of, number_of_clients
from fedul_flwr.api.input_sets import settings_of_sets
from fedul_flwr.config.base import AUTO, Scalar, Settings
from fedul_flwr.config.methods import Method, reference_to
from fedul_flwr.config.user_files import flatten, with_rounds
from fedul_flwr.errors import UserError


def flat_settings(keywords: Mapping[str, Any]) -> dict[str, Scalar]:
    """Flat settings by the names that the command line uses, ``{"fedul.num-sets": 5}``.

    Underscores stand for dashes, and a table is a dict. A sequence, such as
    ``test_prior=[0.9, 0.1]``, becomes its values separated by commas, and ``None`` leaves a setting
    out.

    Examples
    --------
    >>> flat_settings({"local_epochs": 1, "fedul": {"num_sets": 5}, "test_prior": [0.9, 0.1]})
    {'local-epochs': 1, 'fedul.num-sets': 5, 'test-prior': '0.9,0.1'}
    """
    return with_rounds(flatten(_plain(keywords)))


def settings_of_call(
    keywords: Mapping[str, Any],
    data: Any,
    test: Any,
    rounds: int | None,
    clients: Any,
    sets: Any = None,
    priors: Any = None,
) -> tuple[dict[str, Scalar], int | None]:
    """Flat settings of a call: its keywords, its data (:func:`dataset_of`,
    :func:`settings_of_sets`) and its rounds; and its number of clients, ``None`` without one.

    An array ``clients`` with the client of each point becomes a natural partition.
    """
    settings = flat_settings(keywords)
    owners = None if clients is None or isinstance(clients, int | np.integer) else clients
    owners = None if sets is not None else owners
    names = {"num-rounds": "rounds", "dataset": "data"}
    if owners is not None:
        names |= {"partition": "clients", "natural.column": "clients"}
    if sets is not None:
        names |= {"client-data": "sets"}
    for key in names.keys() & settings:
        raise UserError(
            f"Setting {key} is given as {names[key]}=… in Python.",
            "argument-not-allowed",
            setting=key,
        )
    if priors is not None and sets is None:
        raise UserError("priors belong to sets: give sets=….", "argument-without-effect")
    if sets is None and data is None and (test is not None or owners is not None):
        raise UserError(
            "test, and clients of each point, belong to data: give data=….",
            "argument-without-effect",
        )
    count = number_of_clients(clients)
    if sets is not None:
        of_sets, count = settings_of_sets(sets, priors, clients, settings, data, test)
        settings |= of_sets
        data, test = (data, test) if data is not None or test is None else (test, test)
    if owners is not None:
        settings |= {"partition": "natural", "natural.column": CLIENT}
    if data is not None:
        settings["dataset"] = dataset_of(data, test, str(settings.get("label-column", "")), owners)
    if rounds is not None:
        settings["num-rounds"] = _value(rounds)
    return settings, count


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        str(name).replace("_", "-"): _value(value)
        for name, value in values.items()
        if value is not None
    }


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Method):
        try:
            return reference_to(value)
        except UserError:
            return reference_in_memory(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return ",".join(str(_value(part)) for part in value)
    if callable(value):
        return reference_of(value)
    return value


def reference_of(value: Any) -> str:
    """``"module:name"`` of a function or class, of another object one for this session."""
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "<")
    is_there = getattr(sys.modules.get(module), name, None) is value
    if module in ("", "__main__") or not is_there:
        return reference_in_memory(value)
    return f"{module}:{name}"


Rules = Mapping[str, "tuple[type[Settings], str]"]
"""For each parameter the settings, and the setting in them, whose rules it has."""


def check_parameters(estimator: Any, rules: Rules) -> None:
    """Refuse parameters that the settings of a run would refuse."""
    for name, (kind, setting) in rules.items():
        value = getattr(estimator, name)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, str) and value == AUTO and name != "device":
            raise ValueError(f"{name} = {value!r}: an estimator needs the value itself.")
        try:
            kind.parse({setting: value})
        except UserError as error:
            rule = str(error).partition(": ")[2]
            if name != "device":
                rule = rule.replace(f" or {AUTO!r}", "")
            raise ValueError(f"{name} = {value!r}: {rule}") from None
