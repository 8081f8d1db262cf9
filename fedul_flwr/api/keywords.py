"""Settings as keyword arguments: ``num_rounds=5``, ``fedul={"num_sets": 5}``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.overrides import flatten
from fedul_flwr.config.renamed import current_names


def flat_settings(keywords: Mapping[str, Any]) -> dict[str, Scalar]:
    """Flat settings by the names that the command line uses, ``{"fedul.num-sets": 5}``.

    Underscores stand for dashes, and a table is a dict. A sequence, such as
    ``test_prior=[0.9, 0.1]``, becomes its values separated by commas, and ``None`` leaves a setting
    out.

    Raises
    ------
    UserError
        For a value that no setting can have.
    """
    return current_names(flatten(_plain(keywords)))


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
