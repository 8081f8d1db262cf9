"""Registry of methods by name; their classes are imported only where they run."""

from __future__ import annotations

import inspect
import re
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from typing import Any, Literal, cast, get_args

from fedul_flwr.config.base import Settings, load_reference, nearest, setting_error
from fedul_flwr.config.method_settings import (
    ConsistencySettings,
    LabelSettings,
    ScenarioSettings,
    ServerTrainingSettings,
    WeakViewSettings,
)
from fedul_flwr.config.sections import DPSettings, HeadSettings
from fedul_flwr.config.shared import OF_TRAINING, OF_VIEWS
from fedul_flwr.errors import UserError

DataKind = Literal["unlabeled-sets", "labels", "partly-labeled", "fully-labeled"]
"""Kind of a client's training data."""
PARTLY_LABELED = frozenset({"partly-labeled", "fully-labeled"})
"""Kinds in which each point belongs to one client, and some or all points have labels."""


STRATEGY = "fedul_flwr.federated.strategy:Strategy"
CLIENT = "fedul_flwr.federated.client:Client"


@dataclass(frozen=True)
class Method:
    """One federated method.

    Attributes
    ----------
    name : its name and the name of its table of settings.
    strategy, client : classes of its two sides,
        a :class:`fedul_flwr.federated.strategy.Strategy` and
        a :class:`fedul_flwr.federated.client.Client`, or ``"module:Class"``.
    settings : classes of its settings, one for each table of the run config.
    data : a simulated client's data: unlabeled sets, the points of these sets with labels, or
        points that no other client has, with labels for some or all of them.
    trains : whether it trains a model over rounds; if not, its clients label their points once.
    updates : whether its clients train, and send what they have trained; if not, a round is a sum
        over them, of which the last layer follows (docs/closed-form.md).
    head : where the last layer is not a discriminant that is refined: how its weight ``(K, d)`` and
        bias ``(K,)`` follow from the sums over labels
        (:class:`fedul_flwr.learning.closed_form.SoftSums`), the number of clients in them, class
        priors at test time ``(K,)``, and the run's settings.
    needs_labels : whether somebody must have a label, also if the first weights (``start-from``)
        tell classes apart.
    can_sum : whether a sum of its clients' models is all that the server needs (``secure-sum``).
    check : refuses settings with which it does not go, where no rule of its strategy says so.
    server_alone : whether the server trains alone in a run with given settings, and no client takes
        part.
    stages : classes of :class:`fedul_flwr.federated.stage.Stage` that its runs also have, or
        ``"module:Class"``; each says when it is on.
    unprotected : what it shows of an owner's data, in sentences for owners, with given settings.
    line : one sentence on how it learns; empty for a method of somebody's own that has none.
    needs : data that it needs.
    paper : authors, conference and arXiv id; ``"ours"`` where there is no paper.
    """

    name: str
    strategy: str | type = STRATEGY
    client: str | type = CLIENT
    settings: tuple[type[Settings], ...] | type[Settings] = ()
    data: DataKind = "unlabeled-sets"
    trains: bool = True
    updates: bool = True
    head: Callable[[Any, int, Any, Any], tuple[Any, Any]] | None = None
    needs_labels: bool = True
    can_sum: bool = True
    check: Callable[[Any], None] = lambda _: None
    server_alone: Callable[[Any], bool] = lambda _: False
    stages: tuple[str | type, ...] = ()
    unprotected: Callable[[Any], Iterable[str]] = lambda _: ()
    line: str = ""
    needs: str = ""
    paper: str = ""

    @property
    def idle(self) -> frozenset[str]:
        """Settings of all methods that have no effect with it."""
        if self.trains:
            return frozenset() if self.updates else OF_TRAINING
        return OF_TRAINING | OF_VIEWS

    @property
    def asks_clients(self) -> bool:
        """Whether its clients take part; those of ``server-only`` say who they are and no more."""
        return self.client != CLIENT

    @property
    def trains_clients(self) -> bool:
        """Whether clients send models that they have trained."""
        return self.trains and self.updates and self.asks_clients

    @property
    def strategy_class(self) -> Any:
        """Class of the server side."""
        return _loaded(self.strategy)

    @property
    def client_class(self) -> Any:
        """Class of the client side."""
        return _loaded(self.client)

    def __post_init__(self) -> None:
        if self.data not in get_args(DataKind):
            allowed = get_args(DataKind)
            raise UserError(
                f"Method {self.name!r}: data = {self.data!r} must be one of "
                f"{', '.join(map(repr, allowed))}{nearest(str(self.data), allowed)}.",
                "own-method-wrong",
            )
        for kind in self.tables.values():
            if not kind.table:
                raise UserError(
                    f"Method {self.name!r}: settings class {kind.__name__} names no table; "
                    f"give it table = {self.name!r}.",
                    "own-method-wrong",
                )

    @property
    def tables(self) -> dict[str, type[Settings]]:
        """Classes of its settings by table, with that of privacy where its clients send models."""
        kinds = self.settings if isinstance(self.settings, tuple) else (self.settings,)
        tables = {kind.table: kind for kind in kinds}
        if self.trains_clients and self.can_sum and HeadSettings.table not in tables:
            tables[DPSettings.table] = DPSettings
        return tables


def _loaded(side: str | type) -> Any:
    kind = load_reference(side, "method") if isinstance(side, str) else side
    refuse_misspelled(kind)
    return kind


MATCHING = (
    *(LabelSettings, ScenarioSettings, ConsistencySettings, ServerTrainingSettings),
    WeakViewSettings,
)
"""Settings of methods that learn from few labels and from consistency."""


class Registry(UserDict[str, Method]):
    """Methods by name; the module of one is imported when it is asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        super().__init__()
        self.data.update(cast(Mapping[str, Method], places))

    def __getitem__(self, name: str) -> Method:
        """The method, from ``"module:NAME"``."""
        entry: Any = self.data[name]
        if isinstance(entry, str):
            entry = self.data[name] = load_reference(entry, "method")
        method: Method = entry
        return method


METHODS = Registry(
    {
        "fedul": "fedul_flwr.strategies.fedul:METHOD",
        "fedul-finetune": "fedul_flwr.strategies.fedul_finetune:METHOD",
        "fedul-mix": "fedul_flwr.strategies.fedul_mix:METHOD",
        "fedul-consistency": "fedul_flwr.client_apps.fedul_consistency:METHOD",
        "fedul-assign": "fedul_flwr.client_apps.fedul_assign:METHOD",
        "closed-form": "fedul_flwr.strategies.closed_form:METHOD",
        "closed-form-labels": "fedul_flwr.strategies.closed_form:OF_LABELS",
        "afl": "fedul_flwr.baselines.afl:METHOD",
        "gh-ofl": "fedul_flwr.baselines.gh_ofl:METHOD",
        "fedul-heads": "fedul_flwr.client_apps.fedul_heads:METHOD",
        "fedpl": "fedul_flwr.baselines.fedpl:METHOD",
        "fedllp": "fedul_flwr.baselines.fedllp:FEDLLP",
        "fedllp-vat": "fedul_flwr.baselines.fedllp:FEDLLP_VAT",
        "fedllp-dc": "fedul_flwr.baselines.fedllp_dc:METHOD",
        "fedllp-pvc": "fedul_flwr.baselines.fedllp_pvc:METHOD",
        "fedllp-fc": "fedul_flwr.baselines.fedllp_fc:METHOD",
        "fedllp-dsq": "fedul_flwr.baselines.fedllp_dsq:METHOD",
        "fedllp-rot": "fedul_flwr.baselines.fedllp_rot:METHOD",
        "server-only": "fedul_flwr.baselines.server_only:METHOD",
        "supervised": "fedul_flwr.baselines.supervised:METHOD",
        "fedlc": "fedul_flwr.baselines.fedlc:METHOD",
        "xclp": "fedul_flwr.strategies.xclp:METHOD",
        "xclp-predict": "fedul_flwr.strategies.xclp_predict:METHOD",
        "labels-only": "fedul_flwr.baselines.labels_only:METHOD",
        "local-lp": "fedul_flwr.baselines.local_lp:METHOD",
        "pseudo-label": "fedul_flwr.baselines.pseudo_label:METHOD",
        "fedsem": "fedul_flwr.baselines.fedsem:METHOD",
        "fedsiam": "fedul_flwr.baselines.fedsiam:METHOD",
        "fedmatch": "fedul_flwr.strategies.fedmatch:METHOD",
        "uda": "fedul_flwr.baselines.uda:METHOD",
        "fixmatch": "fedul_flwr.baselines.fixmatch:METHOD",
        "sage": "fedul_flwr.baselines.sage:METHOD",
        "proxyfl": "fedul_flwr.baselines.proxyfl:METHOD",
        "cbafed": "fedul_flwr.baselines.cbafed:METHOD",
        "semifl": "fedul_flwr.baselines.semifl:METHOD",
        "all-labels": "fedul_flwr.baselines.all_labels:METHOD",
        "given-labels": "fedul_flwr.baselines.given_labels:METHOD",
    }
)
"""Built-in methods."""


def find_method(name: str) -> Method:
    """Built-in method ``name``, or the :class:`Method` that ``package.module:NAME`` refers to."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        choices = f"{', '.join(METHODS)} or 'package.module:NAME'{nearest(name, METHODS)}"
        why = f"must be one of {choices}"
        raise setting_error("method", name, why, "unknown-name")
    method = load_reference(name, "method")
    if not isinstance(method, Method):
        raise setting_error("method", name, "it is no fedul_flwr.Method", "own-method-wrong")
    for side in (method.strategy, method.client):
        if isinstance(side, type):  # before anything starts; others once they are loaded
            refuse_misspelled(side)
    return method


_OF_SESSION = "fedul_flwr.api.in_memory"
"""What this session's objects are in, of which other processes have none."""


def reference_to(method: Method) -> str:
    """The value of setting ``method``: a built-in method's name, or ``package.module:NAME``.

    Raises
    ------
    UserError
        If it is at the top of no module that another process can import.
    """
    if method.name in METHODS and METHODS[method.name] is method:
        return method.name
    first = [_loaded(side).__module__ for side in (method.strategy, method.client)]
    program = sys.modules["__main__"]
    for module in dict.fromkeys((*first, *sys.modules)):
        loaded = program if module == _OF_SESSION else sys.modules.get(module, program)
        for name, value in [*vars(loaded).items()] if loaded is not program else ():
            if value is method:
                return f"{module}:{name}"
    raise UserError(
        f"Method {method.name!r} is at the top of no module, where the processes of a run can find "
        "it: put it into a file such as my_methods.py, and import it from there.",
        "own-method-wrong",
    )


_PACKAGE = "fedul_flwr."
_ALIKE = 0.77
"""Least likeness of a name to that of a hook, of which it is taken for a misspelling."""


def is_ours(kind: type) -> bool:
    """Whether a class is of this package, and not of somebody's own."""
    return kind.__module__.startswith(_PACKAGE)


@cache
def refuse_misspelled(kind: type) -> None:
    """Refuse a class of somebody's own, and those that it names, with a hook that nobody calls.

    Such a name is like that of a hook, and no line of its module uses it.

    Raises
    ------
    UserError
        With the name, and the hook that may be meant.
    """
    theirs = [*takewhile(lambda parent: not is_ours(parent), kind.__mro__)]
    hooks = {name for base in kind.__mro__[len(theirs) :] for name in vars(base)}
    plain = {_plainly(hook): hook for hook in hooks if not hook.startswith("_")}
    for parent, name in ((one, name) for one in theirs for name in vars(one)):
        close = get_close_matches(_plainly(name), plain, n=1, cutoff=_ALIKE)
        if close and not name.startswith("_") and name not in hooks and not _is_used(name, parent):
            raise UserError(
                f"{parent.__name__}.{name} is no hook, and nothing calls it: did you mean "
                f"{plain[close[0]]!r}?",
                "own-method-wrong",
            )
    named = (getattr(kind, name, None) for name in ("policy_class", "data_class"))
    for other in named:
        if isinstance(other, type):
            refuse_misspelled(other)


def load_subclass(setting: str, named: str | type, base: type) -> Any:
    """The class that a setting names, or a class itself; ``None`` if it is none of ``base``.

    Raises
    ------
    UserError
        If it has a hook that nobody calls.
    """
    kind = load_reference(named, setting) if isinstance(named, str) else named
    if not (isinstance(kind, type) and issubclass(kind, base)):
        return None
    refuse_misspelled(kind)  # type: ignore[arg-type]
    return kind


def _plainly(name: str) -> str:
    return name.replace("_", "").lower()


def _is_used(name: str, kind: type) -> bool:
    """Whether the module of a class uses an attribute of a name, beside that of ``super()``."""
    try:
        source = inspect.getsource(sys.modules[kind.__module__])
    except (OSError, TypeError, KeyError):
        return False
    return re.search(rf"(?<!super\(\))\.{name}\b", source) is not None
