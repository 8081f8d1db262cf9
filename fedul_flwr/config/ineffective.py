"""Settings that have no effect because of another setting, mostly those of simulated data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedul_flwr.config.method_settings import LabelSettings, UnlabeledSetSettings
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.errors import UserError

_POINTS = ("partition", "points-per-client")
_SETS = tuple(f"fedul.{name}" for name in UnlabeledSetSettings.names())
_DEALT = ("fedpl.labels", "supervised.steps")
_LABELS = tuple(f"labels.{name}" for name in LabelSettings.names())
_OF_ANY_SPLIT = ("labels.split", "labels.without-client")

POINTLESS = {
    "augment = 'none', which makes no view": ("views.weak",),
    "client-data, where clients bring their own data": (*_POINTS, *_SETS, *_DEALT, *_LABELS),
    "dp.clipping = 'none', without noise": tuple(
        f"dp.{name}" for name in DPSettings.names() if name != "clipping"
    ),
    "fedllp-vat.recipe = 'release', whose ramp is one of steps": ("fedllp-vat.ramp-up-rounds",),
    "labels.fraction, which says how many labels there are": ("labels.total",),
    "scenario.labels-at = 'server', where no client has labels": (
        *(key for key in _LABELS if key not in ("labels.split", "labels.new-fraction")),
        "uda.signal-annealing",
    ),
    "xclp.secure = 'plaintext', which hides nothing": (
        "xclp.codes-seed",
        "xclp.min-labeled-clients",
    ),
    "labels.split, which says who holds what": (
        *_POINTS,
        "validation-fraction",
        "server-fraction",
        *(key for key in _LABELS if key not in _OF_ANY_SPLIT),
    ),
}
"""Settings that must keep their defaults, by the setting that makes them ineffective (and why)."""


def refuse_pointless(flat: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse settings that have no effect because of another setting.

    Raises
    ------
    UserError
        With the name of the setting.
    """
    for choice, keys in POINTLESS.items():
        if not _is_made(choice.partition(",")[0], flat):
            continue
        for key in keys:
            if flat.get(key, defaults[key]) != defaults[key]:
                raise UserError(
                    f"Setting {key} = {flat[key]!r} has no effect with {choice}: leave it out."
                )


def _is_made(choice: str, flat: Mapping[str, Any]) -> bool:
    """Whether ``flat`` makes ``choice``: sets that setting, to the given value if there is one."""
    key, _, value = choice.partition(" = ")
    return flat.get(key) == value.strip("'") if value else bool(flat.get(key))
