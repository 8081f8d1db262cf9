"""Settings as keyword arguments, and parameters of the estimators by the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.api.input_data import CLIENT, dataset_of
from fedul_flwr.api.points import as_array
from fedul_flwr.config.base import AUTO, Scalar, Settings
from fedul_flwr.config.overrides import flatten, with_rounds
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
    keywords: Mapping[str, Any], data: Any, test: Any, rounds: int | None, clients: Any
) -> dict[str, Scalar]:
    """Flat settings of a call: its keywords, its data (:func:`dataset_of`) and its rounds.

    An array ``clients`` with the client of each point becomes a natural partition.
    """
    settings = flat_settings(keywords)
    for key, name in (("num-rounds", "rounds"), ("dataset", "data")):
        if key in settings:
            raise UserError(
                f"Setting {key} is given as {name}=… in Python.",
                "argument-not-allowed",
                setting=key,
            )
    owners = None if clients is None or isinstance(clients, int | np.integer) else clients
    if owners is not None:
        for key in ("partition", "natural.column"):
            if key in settings:
                raise UserError(
                    f"Setting {key} contradicts clients, which name one of each point.",
                    "settings-contradict",
                    setting=key,
                )
        if data is None:
            raise UserError(
                "clients name the client of each point of data: give data=…",
                "argument-without-effect",
            )
        settings |= {"partition": "natural", "natural.column": CLIENT}
    if data is not None:
        settings["dataset"] = dataset_of(data, test, str(settings.get("label-column", "")), owners)
    elif test is not None:
        raise UserError(
            "test has no effect without data: leave it out, or give data=….",
            "argument-without-effect",
        )
    if rounds is not None:
        settings["num-rounds"] = _value(rounds)
    return settings


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
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return ",".join(str(_value(part)) for part in value)
    return value


Rules = Mapping[str, "tuple[type[Settings], str]"]
"""For each parameter the settings, and the setting in them, whose rules it has."""


def check_parameters(estimator: Any, rules: Rules) -> None:
    """Refuse parameters that the settings of a run would refuse.

    Parameters
    ----------
    estimator : has the parameters as attributes.
    rules : names the settings; an automatic value is allowed for ``device`` alone.

    Raises
    ------
    ValueError
        With the parameter, its value, and what is allowed.
    """
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


def refuse_no_truth_value(estimator: Any, *names: str) -> None:
    """Refuse a parameter that is neither True nor False, with a ValueError."""
    for name in names:
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise ValueError(f"{name} = {getattr(estimator, name)!r}: must be True or False.")


def missing_values(y: Any) -> NDArray[np.bool_]:
    """``(n,)``, whether a value is None, NaN, masked or another missing one."""
    import pandas as pd

    missing = np.asarray(pd.isna(np.asarray(y, dtype=object)), dtype=bool)
    return missing | np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else missing


def unmasked(values: Any) -> Any:
    """A masked array with NaN in place of masked values; others are unchanged."""
    return as_array(values) if isinstance(values, np.ma.MaskedArray) else values
