"""Other names of settings: Flower's own of the rounds, and those in runs of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedul_flwr.errors import UserError

RENAMED_KEYS = {
    "image-shape": "input-shape",
    "xclp.fewest-labeled": "xclp.min-labeled-clients",
    "fedadam.eta": "fedopt.eta",
    "fedyogi.eta": "fedopt.eta",
    "fedadagrad.eta": "fedopt.eta",
    "multikrum.num-malicious-nodes": "krum.num-malicious-nodes",
    "multikrum.num-nodes-to-select": "krum.num-nodes-to-select",
    "bulyan.num-malicious-nodes": "krum.num-malicious-nodes",
}
"""Keys in stored settings, old and new."""

MERGED_KEYS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    (
        {"fedpl.mix": "inputs", "fedpl.pairing": "all", "fedpl.labels": "realized"},
        {"fedpl.recipe": "paper"},
    ),
    (
        {"fedpl.mix": "outputs", "fedpl.pairing": "shorter", "fedpl.labels": "drawn"},
        {"fedpl.recipe": "release"},
    ),
    ({"ssl.randaugment": "paper", "fedmatch.ties": "own"}, {"ssl.recipe": "paper"}),
    ({"ssl.randaugment": "release", "fedmatch.ties": "lowest"}, {"ssl.recipe": "release"}),
    (
        {"xclp.power": 3.0, "xclp.class-scaling": True, "semi.relative-confidence": True},
        {"xclp.recipe": "release"},
    ),
    (
        {"xclp.power": 1.0, "xclp.class-scaling": False, "semi.relative-confidence": False},
        {"xclp.recipe": "paper"},
    ),
    ({"fedul.same-priors": False}, {"fedul.shared-prior-draws": 0}),
    ({"fedul.num-sets-spread": "even"}, {}),
    (
        {"fedul.num-sets-spread": "random", "fedul.num-sets-max": 0},
        {"fedul.num-sets-max": 0},
    ),
    ({"learning-rate-patience-scope": "server"}, {}),
    (
        {"learning-rate-patience-scope": "client", "learning-rate-schedule": "plateau"},
        {"learning-rate-schedule": "client-plateau"},
    ),
    ({"majority.mild": False}, {}),
    ({"majority.mild": True, "partition": "majority"}, {"partition": "majority-mild"}),
    (
        {"fedul.on-refusal": "stop", "on-client-failure": "stop"},
        {"on-client-failure": "stop"},
    ),
    (
        {"fedul.on-refusal": "drop", "on-client-failure": "continue"},
        {"on-client-failure": "continue"},
    ),
)
"""Stored settings with these values, as far as they are there, and what they are now; the first key
is an old one and must be there."""

SUCCESSORS = {
    "fedul.prior-draws": "fedul.shared-prior-draws",
    "fedul.num-sets-spread": "fedul.num-sets-max",
    "learning-rate-patience-scope": "learning-rate-schedule = 'client-plateau'",
    "majority.mild": "partition = 'majority-mild'",
}
"""What takes the place of an old key where values alone do not say so."""

REMOVED_KEYS: dict[str, Any] = {
    "fedadam.beta-1": 0.9,
    "fedadam.beta-2": 0.99,
    "fedyogi.beta-1": 0.9,
    "fedyogi.beta-2": 0.99,
    "fedadam.tau": 1e-3,
    "fedyogi.tau": 1e-3,
    "fedadagrad.tau": 1e-3,
    "scaffold.server-learning-rate": 1.0,
    "learning-rate-factor": 3.0,
    "labels.sampling": "balanced",
    "fedul.prior-noise-form": "symmetric",
    "fedul.learn-priors-after": 5,
    "fedul.check-priors": True,
    "fedul-consistency.form": "fixmatch",
    "fedul-consistency.temperature": 0.4,
    "fedul-consistency.target": "set-posterior",
    "fedpl.mix-weight": 0.3,
    "fedpl.mixup-alpha": 0.75,
    "fedllp-vat.xi": 1e-3,
    "fedllp-vat.ramp-up-rounds": 10,
    "fedsiam.decay": 0.97,
    "fedsiam.consistency-weight": 100.0,
    "fedsiam.ramp-up-rounds": 5,
    "fedsiam.logit-cost": 0.01,
    "semi.labeled-share": 0.6,
    "semi.top-fraction": 1.0,
    "semi.surest": 1.0,
    "semi.class-weights": False,
    "ssl.min-magnitude": 2,
    "ssl.least-magnitude": 2,
    "ssl.max-magnitude": 5,
    "ssl.most-magnitude": 5,
    "fedmatch.psi-factor": 0.2,
    "uda.signal-annealing": "exponential",
    "uda.threshold": 0.0,
    "uda.temperature": 1.0,
    "xclp-predict.compare": True,
}
"""Keys in stored settings that are settings no more, and the value that each has now."""

RENAMED_METHODS = {"perclient-lp": "local-lp", "network-labels": "pseudo-label"}
"""Values of `method` in stored settings, old and new."""

FLOWER_ROUNDS, ROUNDS = "num-server-rounds", "num-rounds"
"""The number of rounds as Flower's own apps call it, and as it is called here."""


def with_rounds(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``flat`` with the number of rounds under its name here; 0 under Flower's name is none.

    Raises
    ------
    UserError
        If there are two different numbers.
    """
    settings = dict(flat)
    rounds = settings.pop(FLOWER_ROUNDS, 0)
    if rounds == 0 and rounds is not False:
        return settings
    # Flower passes defaults, too: only another value than the default was set by somebody.
    from fedul_flwr.config.shared import SharedSettings

    if settings.get(ROUNDS, rounds) not in (rounds, SharedSettings().num_rounds):
        raise UserError(
            f"Settings {FLOWER_ROUNDS} and {ROUNDS} are two names of one: leave one of them out.",
            "settings-contradict",
        )
    return settings | {ROUNDS: rounds}


def current_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a run stored, under their current names.

    An old setting with a value that no current one gives keeps its old name.
    """
    settings = {RENAMED_KEYS.get(key, key): value for key, value in stored.items()}
    if settings.get("fedul.same-priors") is True:
        del settings["fedul.same-priors"]
        settings["fedul.shared-prior-draws"] = settings.pop("fedul.prior-draws", 1)
    for old, new in MERGED_KEYS:
        if next(iter(old)) in settings and all(settings.get(k, v) == v for k, v in old.items()):
            settings = {key: v for key, v in settings.items() if key not in old} | new
    settings = {k: v for k, v in settings.items() if REMOVED_KEYS.get(k, settings) != v}
    if "fedul.shared-prior-draws" in settings:
        settings.pop("fedul.prior-draws", None)
    if name := RENAMED_METHODS.get(str(settings.get("method"))):
        settings["method"] = name
    return settings


def old_keys(settings: Mapping[str, Any]) -> list[str]:
    """Those of the keys that are old names."""
    merged = {key for old, new in MERGED_KEYS for key in old.keys() - new.keys()}
    return [key for key in settings if key in {*RENAMED_KEYS, *merged, *REMOVED_KEYS}]


def what_is_now(key: str) -> str:
    """What has taken the place of an old key; empty for another key."""
    if key in RENAMED_KEYS:
        return f"its name is {RENAMED_KEYS[key]} now"
    if key in REMOVED_KEYS:
        value = REMOVED_KEYS[key]
        return f"it is always {str(value).lower() if isinstance(value, bool) else repr(value)} now"
    targets = {name for old, new in MERGED_KEYS for name in new if key in old}
    if key in SUCCESSORS:
        targets = {SUCCESSORS[key]}
    return f"{' and '.join(sorted(targets))} takes its place" if targets else ""
