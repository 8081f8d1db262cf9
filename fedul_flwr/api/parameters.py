"""Parameters of the estimators: rules are those of the settings of the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.api.points import as_array
from fedul_flwr.config.base import AUTO, Settings
from fedul_flwr.errors import UserError

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
