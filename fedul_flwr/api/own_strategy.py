"""Methods' strategies for apps of somebody's own."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from flwr.serverapp.strategy import FedAvg, QFedAvg
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedul_flwr.api.arguments import flat_settings
from fedul_flwr.api.in_memory import refuse_in_memory
from fedul_flwr.config.auto_settings import DataSize, with_auto_values
from fedul_flwr.config.base import AUTO, Scalar
from fedul_flwr.config.methods import Method, find_method, reference_to
from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.config.sections import SECTIONS
from fedul_flwr.config.shared import UNWEIGHTED
from fedul_flwr.errors import UserError
from fedul_flwr.federated.bases import BASES
from fedul_flwr.federated.messages import ARRAYS, CONFIG, WEIGHT
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.federated.stages.server_training import learns_at_server
from fedul_flwr.federated.strategy import Strategy, validate

Build = Callable[[tuple[int, ...], int], Any]
"""``(input_shape, num_classes) -> torch.nn.Module``."""

WITHOUT_EFFECT = (
    *("dataset", "class-names", "input-shape", "columns", "client-data", "features"),
    *("standardize", "standardize-sum"),
    *("partition", "points-per-client", "validation-fraction", "server-fraction", "image-size"),
    *(
        "callback",
        "model",
        "start-from",
        "num-rounds",
        "base",
        "fraction-train",
        "selection",
        "evaluate",
    ),
    *(
        "calibration",
        "output",
        "resume",
        "tracking",
        "figures",
        "method",
        "method-options",
        "dp.clipping",
    ),
)
"""Settings of what an app of somebody's own does itself."""


def strategy_of(method: Method | str) -> Callable[..., Strategy]:
    """The strategy of a method for an app of somebody's own, as :data:`FedUL` is that of FedUL.

    What it returns builds the method's strategy with arguments in place of files and settings of a
    run:

    - ``base`` : strategy that combines the updates, by default FedAvg. Which clients take
      part in a round is the method's; the base's ``fraction_train`` says how many.
    - ``model`` : name of a built-in model, ``"package.module:function"``, or a function
      ``(input_shape, num_classes)`` at the top of a module, which returns the module of torch.
      Clients build the same. By default ``"mlp"``, and of a closed form that of its runs.
    - ``input_shape`` : shape of one point: ``(h, w, channels)``, or ``(d,)``.
    - ``classes`` : number of classes, or their names.
    - ``settings`` : settings of the method and of training, as for
      :func:`fedul_flwr.simulate`: ``{"local_epochs": 1, "fedul": {"learn_priors": True}}``.

    Parameters
    ----------
    method : the method, or its name. Its clients are those of
        :func:`fedul_flwr.api.own_client.client_of`.

    Raises
    ------
    UserError
        If its clients take part in no round, or nobody can import it; and from what it returns, if
        an argument cannot be used.

    Examples
    --------
    >>> strategy = strategy_of("fixmatch")(input_shape=(13,), classes=3)
    >>> strategy.settings.method
    'fixmatch'
    """
    name = method if isinstance(method, str) else reference_to(method)
    chosen = find_method(name)
    if not (chosen.trains and chosen.asks_clients):
        raise UserError(
            f"Method {name!r} has no rounds in which clients take part, as an app of your own "
            "needs.",
            "method-mismatch",
        )

    def build(
        base: FlowerStrategy | None = None,
        *,
        model: str | Build = "mlp" if chosen.updates else AUTO,
        input_shape: Sequence[int],
        classes: int | Iterable[object],
        settings: Mapping[str, Any] | None = None,
    ) -> Strategy:
        if base is not None and not isinstance(base, FlowerStrategy):
            raise UserError(
                f"base is a {type(base).__name__}; it must be a strategy of Flower's.",
                "argument-not-allowed",
            )
        refuse_base(base)
        shape = DataShape(checked_shape(input_shape), class_names(classes))
        stated = flat_settings(settings or {})
        for key in WITHOUT_EFFECT:
            if key in stated:
                raise UserError(
                    f"Setting {key} has no effect in an app of your own: it is an argument, or the "
                    "app's own business.",
                    "setting-without-effect",
                    setting=key,
                )
        chosen_model = flat_settings({"model": model})
        refuse_in_memory(chosen_model, "flwr run")  # clients are other processes
        folder = tempfile.mkdtemp(prefix="fedul-own-app-")
        of_app = {"method": name, **chosen_model, "output": folder}
        try:
            strategy = built_strategy(base or plain_mean(), shape, {**of_app, **stated})
        except BaseException:
            shutil.rmtree(folder)
            raise
        weakref.finalize(strategy, shutil.rmtree, folder, ignore_errors=True)
        return strategy

    return build


def plain_mean() -> FedAvg:
    """FedAvg of all clients, of which one is enough; Flower's own waits for two."""
    return FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)


def built_strategy(
    base: FlowerStrategy, shape: DataShape, stated: Mapping[str, Scalar]
) -> Strategy:
    """The strategy of a method around a copy of ``base``, which looks for nodes itself.

    Parameters
    ----------
    stated : settings, with the method's name, beside those of the base.
    """
    name, tables = _settings_of(base)
    flat: dict[str, Scalar] = {
        **default_flat(),
        "dataset": "none",
        "class-names": ",".join(shape.class_names),
        "input-shape": "x".join(map(str, shape.input_shape)),
        "standardize": "none",
        "selection": "last",
        "learning-rate-schedule": "constant",  # as in the estimators
        "base": name,
        "fraction-train": float(getattr(base, "fraction_train", 1.0)),
        "client-weights": _weights_of(base, name),
        **tables,
        **stated,
    }
    settings = with_auto_values(parse_flat(flat), DataSize(shape.model_shape, None))[0]
    kind: type[Strategy] = find_method(settings.method).strategy_class
    validate(settings)
    if learns_at_server(settings):
        raise UserError(
            f"Strategy {settings.method!r} with these settings trains on labels of the server, "
            "which an app of your own does itself: before start, or between rounds.",
            "method-mismatch",
        )
    around = copy.copy(base)
    # The method chooses the clients: the base takes all that it sees.
    for attribute in ("fraction_train", "fraction_evaluate"):
        if hasattr(base, attribute):
            setattr(around, attribute, 1.0)
    for attribute in ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"):
        if hasattr(base, attribute):
            setattr(around, attribute, 1)
    from fedul_flwr.models.registry import fresh_model

    model = fresh_model(settings, shape.model_shape, len(shape.class_names))
    buffers = frozenset(name for name, _ in model.named_buffers())
    strategy = kind(settings, around, setup_content(settings, shape), buffers=buffers)
    strategy.registry.fewest_nodes = int(getattr(base, "min_available_nodes", 1))
    strategy.registry.fewest_sampled = int(getattr(base, "min_train_nodes", 1))
    return strategy


FedUL = strategy_of("fedul")
"""FedUL: clients learn from unlabeled sets with known class shares, as :class:`FedULClient`. Its
arguments are those of :func:`strategy_of`."""
FedMatch = strategy_of("fedmatch")
"""FedMatch: clients have a few labels, as :class:`FedMatchClient`; labels stay at clients. Its
arguments are those of :func:`strategy_of`."""
FixMatch = strategy_of("fixmatch")
"""FixMatch: clients have labels for some points, as :class:`FixMatchClient`. Its arguments are
those of :func:`strategy_of`."""
Supervised = strategy_of("supervised")
"""Training on labels of all points, as those of :class:`SupervisedClient`. Its arguments are those
of :func:`strategy_of`."""
ClosedForm = strategy_of("closed-form")
"""A last layer from sums over clients with sets, as :class:`ClosedFormClient`, which train nothing.
Its arguments are those of :func:`strategy_of`; ``num_rounds`` of ``start`` is 1, and one more for
each of ``settings={"closed-form": {"refinements": 1}}``."""
XCLP = strategy_of("xclp")
"""XCLP: labels are propagated across clients in every round, as :class:`XCLPClient`. Its arguments
are those of :func:`strategy_of`.

Its first rounds train on labels alone; ``settings={"semi": {"labels_only_rounds": 2}}`` says how
many."""


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of one point, or a UserError."""
    sides = tuple(shape) if isinstance(shape, Iterable) else ()
    if len(sides) not in (1, 3) or not all(isinstance(n, Integral) and n > 0 for n in sides):
        raise UserError(
            f"input_shape is {shape!r}; it must be (h, w, channels) or (d,).",
            "argument-not-allowed",
        )
    return tuple(map(int, sides))


def class_names(classes: int | Iterable[object]) -> tuple[str, ...]:
    """Names of the classes, numbers from 0 by default."""
    listed = range(int(classes)) if isinstance(classes, Integral) else classes
    names = tuple(map(str, listed)) if isinstance(listed, Iterable) else ()
    if len({*names}) < max(2, len(names)) or any("," in n or n != n.strip() for n in names):
        raise UserError(
            f"classes is {classes!r}; two or more are needed, named differently without commas.",
            "class-names-wrong",
        )
    return names


def refuse_base(base: FlowerStrategy | None) -> None:
    """Refuse bases whose messages or replies are not those of the methods' clients."""
    keys = {"arrayrecord_key": ARRAYS, "configrecord_key": CONFIG, "weighted_by_key": WEIGHT}
    other = next((key for key, name in keys.items() if getattr(base, key, name) != name), None)
    wrong = f"its {other} must be {keys[other]!r}" if other else ""
    default = FedAvg().evaluate_metrics_aggr_fn
    if getattr(base, "evaluate_metrics_aggr_fn", default) is not default:
        wrong = "its evaluate_metrics_aggr_fn is never called: evaluate with evaluate_fn of start"
    if isinstance(base, QFedAvg):
        wrong = "it needs losses that clients measure before training, which these do not send"
    ours = [kind.partition(":")[0] for kind in BASES.values() if isinstance(kind, str)]
    if type(base).__module__ in ours:
        wrong = "it changes how clients train: take the command line's app, with setting base"
    if wrong:
        raise UserError(f"base is a {type(base).__name__}: {wrong}.", "argument-not-allowed")


def _weights_of(base: FlowerStrategy, name: str) -> str:
    """How Flower weighs the updates for a base: by points, unless it has no weights of its own."""
    is_weighted = hasattr(base, "weighted_by_key") and name not in UNWEIGHTED
    return "examples" if is_weighted else "uniform"


def _settings_of(base: FlowerStrategy) -> tuple[str, dict[str, Scalar]]:
    """Name of a base strategy, and the settings that it was built with."""
    names = {kind: name for name, kind in BASES.items() if not isinstance(kind, str)}
    name = next((names[kind] for kind in type(base).__mro__ if kind in names), "fedavg")
    kind = SECTIONS.get(name)
    settings: dict[str, Scalar] = {}
    if kind is None:
        return name, {}
    for field in kind.model_fields:
        value = getattr(base, field, None)
        if isinstance(value, int | float):
            settings[f"{kind.table}.{field.replace('_', '-')}"] = value
    return name, settings
