"""Settings: what is refused and in which words, methods of one's own, round trips."""

import json
import re
import sys
from collections.abc import Callable
from typing import Any, get_args

import pytest

from fedul_flwr.config.base import KINDS, Settings
from fedul_flwr.config.method_settings import FedULSettings, UnlabeledSetSettings
from fedul_flwr.config.methods import METHODS, Method
from fedul_flwr.config.run_config import RunConfig, all_sections, default_flat, parse_flat
from fedul_flwr.config.sections import SECTIONS
from fedul_flwr.config.shared import BaseName, PartitionName, SharedSettings
from fedul_flwr.errors import UserError
from fedul_flwr.federated.strategy import validate
from tests.support.given_labels_method import GIVEN_METHOD
from tests.support.refusals import refuses


def parse(overrides: dict[str, Any] | None = None, **more: Any) -> RunConfig:
    return parse_flat({**default_flat(), **(overrides or {}), **more})


def refused(key: str, value: Any, rule: str, **context: Any) -> None:
    """Assert that the whole message is that ``key = value`` breaks ``rule``."""
    with pytest.raises(UserError) as error:
        parse({**context, key: value})
    end = "" if rule.endswith("?") else "."
    assert str(error.value) == f"Setting {key} = {value!r}: {rule}{end}"


WHOLE = "must be a whole number"
PRIORS = "must be 'auto', 'uniform', 'sets', 'em' or numbers separated by commas"
PRIOR = "needs every class prior between 0 and 1, both excluded"
SHAPE = (
    "must be height x width x channels of images, such as 28x28x1 (channels 1 or 3), or the "
    "length of vectors, such as 30"
)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("method", "fedull", f"must be one of {', '.join(METHODS)} or 'package.module:NAME'; "
         "did you mean 'fedul'?"),
        ("image-size", 1025, "must be at most 1024"),
        ("num-rounds", 2.0, WHOLE),
        ("learning-rate", float("nan"), "must be a finite number"),
        ("measure-test-error", 1, "must be true or false"),
        ("test-prior", "0.5,0.5,", PRIORS),
        ("test-prior", "0.5,0.5,0", PRIOR),
        ("test-prior", "nan,0.5", PRIOR),
        ("test-prior", "0.5,0.4998", "must be class priors that sum to 1"),
        *[("input-shape", text, SHAPE) for text in ("0", "030", "28x28", "28x28x2", "28X28x1")],
    ],
)  # fmt: skip
def test_given_a_wrong_value_then_its_rule_is_named(key: str, value: Any, rule: str) -> None:
    refused(key, value, rule)


BEYOND: dict[str, Callable[[Any], float]] = {
    "Ge": lambda rule: rule.ge - 1,
    "Gt": lambda rule: rule.gt,
    "Le": lambda rule: rule.le + 1,
    "Lt": lambda rule: rule.lt,
}
"""A value that breaks a rule of pydantic's."""


def choices_that_use(table: str) -> dict[str, str]:
    """Settings with which a table has an effect."""
    for name, kind in SECTIONS.items():
        if kind.table == table and kind is all_sections()[table]:
            choice = "base" if name in get_args(BaseName) else "partition"
            return {"head" if name == "closed-form" else choice: name}
    methods = [name for name, method in METHODS.items() if table in method.tables]
    return {"method": methods[0]} if methods else {"method": GIVEN_METHOD}


@pytest.mark.parametrize("table", ["", *all_sections()])
def test_given_any_setting_then_other_types_and_wide_values_are_refused(table: str) -> None:
    kind = all_sections()[table] if table else SharedSettings
    context: dict[str, Any] = choices_that_use(table) if table else {}
    if context.get("base") in ("scaffold", "fednova"):
        context["optimizer"] = "sgd"
    for name, field in kind.model_fields.items():
        key = f"{table}." * bool(table) + name.replace("_", "-")
        if key in context:
            continue
        bounds = [rule for rule in field.metadata if type(rule).__name__ in BEYOND]
        type_error = [] if isinstance(field.default, str) else "x"
        for value in (type_error, *(BEYOND[type(rule).__name__](rule) for rule in bounds)):
            with pytest.raises(UserError) as error:
                parse({**context, key: value})
            assert error.value.values == {"setting": key}


@pytest.mark.parametrize(
    ("pair", "code"),
    [
        ({"fedul.num-sets-max": 9}, "settings-contradict"),
        ({"fedul.prior-counts": 5, "fedul.prior-noise": 0.4}, "settings-contradict"),
        ({"start-from": "torchvision", "model": "resnet18"}, "settings-contradict"),
        ({"start-from": "names:of", "model": "mlp"}, "settings-contradict"),
        ({"text-column": "note", "features": "efficientnet-lite0"}, "settings-contradict"),
        ({"dataset": "none", "class-names": "a,b"}, "settings-contradict"),
        ({"base": "fednova"}, "settings-contradict"),
        ({"method-options": "num-sets=3"}, "setting-without-effect"),
    ],
)
def test_rules_over_several_settings(pair: dict[str, Any], code: str) -> None:
    with refuses(code):
        parse(pair)
    assert parse({"fedul.num-sets-max": 10})[FedULSettings].num_sets_max == 10


@pytest.mark.parametrize("method", METHODS)
def test_given_settings_with_which_a_method_does_not_go_then_they_are_refused(method: str) -> None:
    kind = METHODS[method].strategy_class
    labels = {"scenario.labels-at": "server"} if method == "semifl" else {}
    config = parse({"method": method, **labels})
    validate(config)
    for rule in [rule for one in kind.__mro__ for rule in vars(one).get("goes_with", ())]:
        table, _, name = rule.key.rpartition(".")
        changed = {name.replace("-", "_"): rule.values[0] if rule.without and rule.values else 7.0}
        if config.value(rule.key) is None:  # of a base's table
            continue
        other = config.model_copy(update={} if table else changed)
        tables = {table: config.sections[table].model_copy(update=changed)} if table else {}
        other = other.model_copy(update={"sections": {**config.sections, **tables}})
        with refuses("method-mismatch", setting=rule.key):
            validate(other)


UDA, AT_SERVER = {"method": "uda"}, {"scenario.labels-at": "server"}
SPLIT = {"labels.split": "split.npz", "method": GIVEN_METHOD}
SCHEDULE = "learning-rate-schedule"


@pytest.mark.parametrize(
    ("context", "key", "value", "cause"),
    [
        ({}, "fedopt.eta", 0.5, "base = 'fedadam', 'fedyogi' or 'fedadagrad'"),
        ({}, "dirichlet.alpha", 0.1, "partition = 'dirichlet'"),
        ({}, "supervised.label-fraction", 0.5, "method = 'supervised'"),
        # Parts of a schedule need that schedule; an earlier split leaves nothing to deal.
        *(({SCHEDULE: s}, "learning-rate-rounds", 5, "cosine") for s in ("constant", "plateau")),
        ({"client-data": "systems"}, "fedul.num-sets", 12, "client-data"),
        (SPLIT, "partition", "majority", "labels.split"),
        ({**UDA, **AT_SERVER}, "labels.total", 50, "labels-at other than 'server'"),
        (UDA, "server.points", 10, "labels-at other than 'clients'"),
    ],
)
def test_given_a_setting_without_effect_then_it_is_refused_and_says_why(
    context: dict[str, Any], key: str, value: Any, cause: str
) -> None:
    with refuses("setting-without-effect", setting=key, match=re.escape(cause)):
        parse({**context, key: value})


def test_given_settings_beside_these_then_they_have_an_effect() -> None:
    parse({"client-data": "systems", "fedul.share-priors": True, "validation-fraction": 0.1})
    parse({**SPLIT, "labels.without-client": 3, "seed": 7})
    parse({**UDA, "labels.total": 50, "labels.without-client": 1})
    validate(parse({**UDA, **AT_SERVER, "server.points": 10}))
    assert parse({SCHEDULE: "cosine", "learning-rate-rounds": 5}).learning_rate_rounds == 5
    assert parse({SCHEDULE: "plateau", "learning-rate-patience": 9}).learning_rate_patience == 9


# A method of one's own


class OwnSettings(Settings):
    table = "own"
    strength: float = 1.0
    word: str = "plain"
    twice: bool = False


OWN = Method("own", "m:S", "m:C", (OwnSettings, UnlabeledSetSettings))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    """Settings for a method of this module, as of a package of the user's."""
    monkeypatch.setitem(sys.modules, "users_package.methods", sys.modules[__name__])
    monkeypatch.setitem(sys.modules, "users_package", sys.modules[__name__])

    def build(options: str = "", **more: Any) -> RunConfig:
        return parse({"method": "users_package.methods:OWN", "method-options": options, **more})

    return build


Own = Callable[..., RunConfig]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("strength=true", "setting-wrong-type"),
        ("strenth=1", "unknown-name"),
        ("word='two words'", "setting-not-readable"),
    ],
)
def test_bad_options_of_a_method_of_ones_own(own: Own, options: str, code: str) -> None:
    with refuses(code):
        own(options)


# Round trips


BASES, PARTITIONS = get_args(BaseName), get_args(PartitionName)


def combinations(method: str) -> list[tuple[str, str]]:
    """Each base strategy once, with partitions that begin at another one for each method."""
    first = list(METHODS).index(method)
    return [
        (base, PARTITIONS[(first + position) % len(PARTITIONS)])
        for position, base in enumerate(BASES)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_given_any_method_base_and_partition_then_settings_make_a_round_trip(method: str) -> None:
    for base, partition in combinations(method):
        evaluate = "local" if base == "local" else "global"
        choices = {"method": method, "base": base, "partition": partition, "evaluate": evaluate}
        config = parse(choices, optimizer="sgd")
        flat = config.to_flat()
        assert parse_flat(flat) == config
        assert parse_flat({**default_flat(), **flat}) == config
        assert parse_flat(json.loads(json.dumps(flat))) == config
        chosen = {base, partition} - ({base} if "base" in METHODS[method].idle else set())
        used = {SECTIONS[name].table for name in chosen if name in SECTIONS}
        used |= {*METHODS[method].tables, "study"}
        assert set(config.sections) == used
        assert {key.partition(".")[0] for key in flat if "." in key} == used


def test_keys_of_an_own_methods_table_are_its_options(own: Own) -> None:
    named = {"own.strength": 2.5, "own.word": "two words", "own.twice": True}
    config = own(**named)
    assert config[OwnSettings] == OwnSettings(strength=2.5, word="two words", twice=True)
    assert parse_flat(config.to_flat()) == config
    both = own("strength=1.0 twice=true", **{"own.strength": 3.0})
    assert both[OwnSettings] == OwnSettings(strength=3.0, twice=True)
    with refuses("unknown-name", name="own.strenth"):
        own(**{"own.strenth": 1.0})


def test_given_any_rule_of_a_setting_then_it_names_a_setting_and_values_that_exist() -> None:
    fields = {
        f"{name}.{key}".lstrip("."): field
        for name, kind in {"": SharedSettings, **all_sections()}.items()
        for key, field in zip(kind.names(), kind.model_fields.values(), strict=True)
    }
    kinds: list[type[Settings]] = [SharedSettings, *all_sections().values()]
    rules = [rule for kind in kinds for found in kind.rules().values() for rule in found]
    assert len(rules) > 50
    for rule in rules:
        if rule.key in KINDS:
            assert set(rule.values) <= {"images", "vectors", "texts"}
            continue
        field = fields[rule.key]
        choices = get_args(field.annotation)
        assert not choices or set(rule.values) <= set(choices), rule
