"""Turns a flat run config into a checked, frozen :class:`RunConfig`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import Field

from fedul_flwr.config.base import (
    KINDS,
    Scalar,
    Settings,
    any_of,
    setting_error,
    unknown_key,
)
from fedul_flwr.config.method_settings import (
    AdmissionSettings,
    LabelSettings,
)
from fedul_flwr.config.methods import METHODS, Method, find_method
from fedul_flwr.config.sections import (
    CLOSED_FORM,
    SECTIONS,
    HeadSettings,
    StudySettings,
)
from fedul_flwr.config.shared import BUILT_IN, PRETRAINED, RUN, SharedSettings, starts_from_names
from fedul_flwr.config.trusted_modules import name_again, require_trusted_modules
from fedul_flwr.config.user_files import read_object, user_path, with_rounds
from fedul_flwr.errors import UserError

S = TypeVar("S", bound=Settings)

LAST_MODEL = "last.safetensors"
"""Model after the last complete round; a directory with this file is a run."""
METRICS = "metrics.jsonl"
"""One line for each round that is complete and evaluated."""
LOCATION_SETTINGS = ("output", "resume", "tracking", "figures", "device", "lanes")
"""Settings about a run's place, machine and pictures; they do not change its results."""
RESOLVED_SETTINGS = ("calibration", "selection", "standardize", "standardize-sum", "test-prior")
"""Keys whose `auto` a run resolves by its method and data; it records what it took."""


T = TypeVar("T")


class _Same:
    """An object as a key that equals itself alone."""

    def __init__(self, value: RunConfig) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


def once(follows: Callable[[RunConfig], T]) -> Callable[[RunConfig], T]:
    """A function of settings, which never change, that is called once for each object."""

    @lru_cache(maxsize=16)
    def cached(same: _Same) -> T:
        return follows(same.value)

    @wraps(follows)
    def call(settings: RunConfig) -> T:
        return cached(_Same(settings))

    return call


class RunConfig(SharedSettings):
    """All settings of one run: the shared ones and the tables that its choices use."""

    sections: Mapping[str, Settings] = Field(default_factory=dict, exclude=True, repr=False)
    """Tables in use by name (method, base, partition)."""

    def __getitem__(self, kind: type[S]) -> S:
        """The run's settings of class ``kind``, or its defaults if the run has no such table."""
        section = self.sections.get(kind.table)
        if section is None:
            return kind()
        if not isinstance(section, kind):
            raise TypeError(
                f"table {kind.table!r} is a {type(section).__name__}, not {kind.__name__}"
            )
        return section

    def find(self, kind: type[S]) -> S | None:
        """The run's settings of class ``kind``; ``None`` if it has none, or a table of that name of
        another class, as ``local-lp`` has."""
        section = self.sections.get(kind.table)
        return section if isinstance(section, kind) else None

    @property
    def makes_heads(self) -> bool:
        """Whether last layers follow from sums over clients."""
        return self.find(HeadSettings) is not None

    @property
    def holds_out(self) -> bool:
        """Whether clients with sets hold points out of training, by which models are judged."""
        has_sets = self.find(AdmissionSettings) is not None and find_method(self.method).updates
        return has_sets and self.selection in ("heldout", "shares")

    @property
    def sums_heads(self) -> bool:
        """Whether the server reads sums over clients alone of what makes a head."""
        return self.makes_heads and self[HeadSettings].sum == "masked"

    def value(self, key: str) -> Scalar | None:
        """The value of the setting ``key``; ``None`` if its table is not in use."""
        table, dot, name = key.rpartition(".")
        holder = self.sections.get(table) if dot else self
        value: Scalar | None = getattr(holder, name.replace("-", "_"), None)
        return value

    def require_effect(self, kinds: Mapping[str, str] | None = None) -> None:
        """Refuse settings that do not go with another setting or the data.

        Parameters
        ----------
        kinds : kind of the points by :data:`~fedul_flwr.config.base.KINDS`, once it is known.
        """
        strong_views = any(table.strong_views for table in self.sections.values())
        for table, settings in (("", self), *self.sections.items()):
            for name, rules in type(settings).rules().items():
                value = getattr(settings, name)
                is_default = value == type(settings).model_fields[name].default
                for rule in rules:
                    if value not in rule.of if rule.of else is_default or value in rule.idle:
                        continue
                    kind = kinds.get(rule.key) if kinds else None
                    other = kind if rule.key in KINDS else self.value(rule.key)
                    if not (rule.matches(other) or (rule.or_strong_views and strong_views)):
                        raise rule.error(
                            f"{table}.{name}".lstrip(".").replace("_", "-"), value, kind
                        )

    def to_flat(self, prefix: str = "") -> dict[str, Scalar]:
        """Every setting in use; parsing it again gives an equal object."""
        # The table of a user's own method is passed as text, see `method-options`.
        as_text = "" if self.method in METHODS else find_method(self.method).name
        tables = {"": self} | {k: table for k, table in self.sections.items() if k != as_text}
        return {
            f"{prefix}{name}.{key}" if name else prefix + key: value
            for name, table in tables.items()
            for key, value in table.model_dump(by_alias=True).items()
        }


@cache
def all_sections() -> Mapping[str, type[Settings]]:
    """Every table that exists, with its widest settings class."""
    # Users' own methods may use this table, too.
    sections: dict[str, type[Settings]] = {}
    of_methods = (kind for method in METHODS.values() for kind in method.tables.values())
    kinds: list[type[Settings]] = [*SECTIONS.values(), LabelSettings, StudySettings, *of_methods]
    for kind in kinds:
        if issubclass(kind, sections.get(kind.table, kind)):
            sections[kind.table] = kind
    return sections


def default_flat() -> dict[str, Scalar]:
    """Every key of every table with its default, as in ``[tool.flwr.app.config]``."""
    flat = dict(SharedSettings.defaults())
    for name, kind in all_sections().items():
        flat |= {f"{name}.{key}": value for key, value in kind.defaults().items()}
    return flat


def parse_flat(flat: Mapping[str, Any]) -> RunConfig:
    """Check a flat run config and build the frozen object.

    A key of a table that the run does not use (another method's or base's) must have its default
    value: setting a key without effect is an error.

    Examples
    --------
    >>> parse_flat({"method": "fedul", "local-epochs": 2}).local_epochs
    2
    >>> parse_flat({"num-round": 5})
    Traceback (most recent call last):
    fedul_flwr.errors.UserError: Unknown setting 'num-round'; did you mean 'num-rounds'?
    """
    flat = _with_method_table(with_rounds(flat))
    shared_values = {key: value for key, value in flat.items() if "." not in key}
    shared = SharedSettings.parse(shared_values)
    method = find_method(shared.method)
    used = _sections_in_use(shared, method)
    values: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        table, dot, rest = key.partition(".")
        if not dot:
            continue
        if table in used and rest in used[table].names():
            values.setdefault(table, {})[rest] = value
            continue
        tables = all_sections()
        if table not in tables or rest not in tables[table].names():
            raise unknown_key(key, default_flat())
        if value != tables[table].defaults()[rest]:
            why = f"it has an effect only with {users_of(table, rest)}"
            raise setting_error(key, value, why, "setting-without-effect")
    if shared.method_options:
        if shared.method in METHODS:
            why = f"it is for methods of your own; {shared.method!r} has a table of its name"
            raise setting_error(
                "method-options", shared.method_options, why, "setting-without-effect"
            )
        if method.name not in used:
            why = f"method {shared.method!r} has no table {method.name!r}"
            raise setting_error("method-options", shared.method_options, why, "own-method-wrong")
        values[method.name] = _parse_options(shared.method_options)
    sections = {
        name: kind.parse(values.get(name, {}), prefix=f"{name}.") for name, kind in used.items()
    }
    shared = _without_updates(shared, method, sections)
    if shared.secure_sum == "on" and not method.can_sum:
        why = f"the server of method {shared.method!r} needs more than a sum of clients' models"
        raise setting_error("secure-sum", "on", why, "method-mismatch")
    config = RunConfig.model_construct(
        **{name: getattr(shared, name) for name in SharedSettings.model_fields}, sections=sections
    )
    config.require_effect()
    return config


def _without_updates(
    shared: SharedSettings, method: Method, sections: Mapping[str, Settings]
) -> SharedSettings:
    """``shared`` with the rounds of a method without updates."""
    heads = sections.get(CLOSED_FORM)
    if method.updates or not isinstance(heads, HeadSettings):
        return shared
    rounds = 1 if method.head else 1 + heads.refinements
    if shared.num_rounds not in (rounds, SharedSettings.model_fields["num_rounds"].default):
        why = f"method {shared.method!r} has one round and closed-form.refinements more"
        raise setting_error("num-rounds", shared.num_rounds, why, "setting-without-effect")
    return shared.model_copy(update={"num_rounds": rounds})


def keys_in_use(flat: Mapping[str, Any]) -> frozenset[str]:
    """Keys that can have an effect with the method, base and partition that ``flat`` chooses."""
    shared = SharedSettings.parse({key: value for key, value in flat.items() if "." not in key})
    method = find_method(shared.method)
    tables = _sections_in_use(shared, method)
    of_tables = (f"{table}.{key}" for table, kind in tables.items() for key in kind.names())
    of_others = {"method-options"} if shared.method in METHODS else frozenset()
    return frozenset([*SharedSettings.names(), *of_tables]) - method.idle - of_others


def keys_of_options(flat: Mapping[str, Any]) -> frozenset[str]:
    """Keys of the table of a user's own method that ``method-options`` sets: ``flexfed.weight``."""
    options = _parse_options(str(flat.get("method-options", "")))
    if not options:
        return frozenset()
    name = find_method(str(flat.get("method"))).name
    return frozenset(f"{name}.{key}" for key in options)


def resolve(overrides: Mapping[str, Any], base_dir: Path) -> RunConfig:
    """Overrides on top of the defaults, with paths made absolute.

    With ``resume`` the settings are those of the interrupted run; only ``num-rounds`` may change.

    Parameters
    ----------
    overrides : flat settings, ``{"num-rounds": 5, "fedul.num-sets": 20}``.
    base_dir : directory that relative paths start from.

    Raises
    ------
    UserError
        With the setting that is unknown, not allowed or cannot change, or the directory without a
        run to resume.
    """
    defaults, overrides = default_flat(), _with_method_table(with_rounds(overrides))
    for key in overrides:
        if key not in defaults:
            raise unknown_key(key, default_flat())
    if overrides.get("resume"):
        directory = user_path(str(overrides["resume"]), base_dir)
        return _resume(overrides, defaults, directory, base_dir)
    config = parse_flat({**defaults, **overrides})
    method = find_method(config.method)
    fixed = frozenset() if method.updates else {"num-rounds"}  # which may be stated, too
    for key in sorted((method.idle - fixed) & overrides.keys()):
        if overrides[key] != defaults[key]:
            why = f"method {config.method!r} trains nothing"
            raise setting_error(key, overrides[key], why, "setting-without-effect")
    return with_absolute_paths(config, base_dir)


def _resume(
    overrides: Mapping[str, Any],
    defaults: Mapping[str, Scalar],
    directory: Path,
    base_dir: Path,
) -> RunConfig:
    written = read_object(directory / "config.json")
    if written is None:
        raise UserError(
            f"{directory} holds no interrupted run: config.json is missing.", "run-missing"
        )
    saved = written.get("settings")
    if not isinstance(saved, dict) or not saved:
        raise UserError(
            f'{directory / "config.json"} is damaged: it needs the object "settings". Restore it, '
            "or begin anew in another output.",
            "file-damaged",
        )
    require_trusted_modules(directory, saved, name_again(saved), overrides)
    saved = {key: value for key, value in saved.items() if key in defaults}
    # Flower passes every key, so a default value does not show that the user set it.
    changed = {
        key: value
        for key, value in overrides.items()
        if key not in ("resume", "output") and value not in (defaults[key], saved.get(key))
    }
    paths = _absolute_paths(changed, base_dir)
    changed = {k: v for k, v in (changed | paths).items() if v != saved.get(k)}
    refused = sorted(set(changed) - {"num-rounds"})
    if refused:
        raise UserError(
            f"Setting {refused[0]} cannot change when a run resumes (only num-rounds can).",
            "setting-fixed-by-run",
        )
    output = overrides.get("output")
    if output and user_path(str(output), base_dir) != directory:
        raise UserError(
            "Settings output and resume exclude each other: a run resumes in place.",
            "settings-contradict",
        )
    target = {"resume": str(directory), "output": str(directory)}
    return parse_flat({**defaults, **saved, **changed, **target})


def with_absolute_paths(config: RunConfig, base_dir: Path) -> RunConfig:
    """``config`` with absolute paths of data, of files from earlier runs, and of results.

    A data set stays a name if it is not an existing path and does not look like one.
    """
    name = f"{config.method}-{Path(config.dataset).name}".replace(":", ".")
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    if config.output:
        output = user_path(config.output, base_dir)
        refuse_existing(output)
    else:
        output = _unused(user_path(f"runs/{name}-{stamp}", base_dir))
    paths = _absolute_paths({key: config.value(key) for key in _PATHS}, base_dir)
    changed: dict[str, Any] = {"output": str(output), "sections": dict(config.sections)}
    for key, path in paths.items():
        table, dot, name = key.rpartition(".")
        if dot:
            changed["sections"][table] = config.sections[table].model_copy(update={name: path})
        else:
            changed[name.replace("-", "_")] = path
    return config.model_copy(update=changed)


def refuse_existing(output: Path) -> None:
    """Refuse a directory of results that has a model of a round, or a round's metrics."""
    metrics = output / METRICS
    if (output / LAST_MODEL).exists() or (metrics.is_file() and metrics.stat().st_size):
        raise UserError(
            f"{output} holds a run already: name another output, or continue it with resume.",
            "run-exists",
        )


def _unused(directory: Path) -> Path:
    """``directory``, or the first with a number behind it that does not exist: short runs may begin
    in the same second."""
    free, number = directory, 1
    while free.exists():
        number += 1
        free = directory.with_name(f"{directory.name}-{number}")
    return free


_DATA_SETS = ("dataset", "server.dataset")
_PATHS = (*_DATA_SETS, "client-data", "columns", "labels.split", "start-from", "features")
"""Settings that may name a file or a folder."""


def _absolute_paths(settings: Mapping[str, Any], base_dir: Path) -> dict[str, str]:
    """Those of :data:`_PATHS` that are set, absolute where they are paths."""
    absolute = {}
    for key in _PATHS:
        if not (named := str(settings.get(key) or "")):
            continue
        is_path, prefix = True, ""
        if key in _DATA_SETS:
            looks_so = named.startswith(("/", ".", "~"))
            is_built_in = named in (*BUILT_IN, "none")
            is_path = not is_built_in and (looks_so or user_path(named, base_dir).exists())
        elif key == "start-from":
            is_path = named != PRETRAINED and not starts_from_names(named)
        elif key == "features":
            is_path, prefix = named.startswith(RUN), RUN
        path = named.removeprefix(prefix)
        absolute[key] = f"{prefix}{user_path(path, base_dir)}" if is_path else named
    return absolute


def options_of(settings: RunConfig) -> Settings:
    """Settings in the table of a run's method."""
    method = find_method(settings.method)
    if method.name not in method.tables:
        raise UserError(
            f"Method {method.name!r} has no settings in a table of its name.", "own-method-wrong"
        )
    return settings[method.tables[method.name]]


def _sections_in_use(shared: SharedSettings, method: Method) -> dict[str, type[Settings]]:
    base = "" if "base" in method.idle else shared.base
    chosen = (base, shared.partition, shared.head)
    kinds = [SECTIONS[name] for name in chosen if name in SECTIONS] + [StudySettings]
    return {kind.table: kind for kind in kinds} | method.tables


def users_of(table: str, key: str = "") -> str:
    """The choices that use a table, or one of its keys: ``base = 'fedprox'``."""
    tables = {name: {kind.table: kind} for name, kind in SECTIONS.items()}
    tables |= {name: method.tables for name, method in METHODS.items()}
    users = [
        name
        for name, kinds in tables.items()
        if table in kinds and (not key or key in kinds[table].names())
    ]
    bases = get_args(SharedSettings.model_fields["base"].annotation)
    choice = "base" if users[0] in bases else "partition" if users[0] in SECTIONS else "method"
    choice = "head" if users[0] == CLOSED_FORM else choice
    return f"{choice} = {any_of([repr(name) for name in users])}"


def _with_method_table(flat: Mapping[str, Any]) -> Mapping[str, Any]:
    """``flat`` with the keys of the table of a user's own method in ``method-options``.

    Flower refuses keys that an app's own file does not list, so they travel as one text.
    """
    name = flat.get("method")
    if not isinstance(name, str) or name in METHODS or ":" not in name:
        return flat
    method = find_method(name)
    table = {
        key.partition(".")[2]: value
        for key, value in flat.items()
        if key.partition(".")[0] == method.name and method.name not in all_sections()
    }
    if not table:
        return flat
    options = {**_parse_options(str(flat.get("method-options", ""))), **table}
    # Without spaces, which separate the pairs.
    text = " ".join(
        f"{key}={json.dumps(value).replace(' ', chr(92) + 'u0020')}"
        for key, value in options.items()
    )
    rest = {key: v for key, v in flat.items() if key.partition(".")[0] != method.name}
    return {**rest, "method-options": text}


def _parse_options(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads("\n".join(text.split()))
    except tomllib.TOMLDecodeError:
        why = "must be 'key=value key=value …' with TOML values and no spaces inside a value"
        raise setting_error("method-options", text, why, "setting-not-readable") from None
