"""Methods' strategies for apps of somebody's own."""

from __future__ import annotations

import atexit
import copy
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, QFedAvg, Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedul_flwr.api.input_data import flat_settings
from fedul_flwr.config.auto_settings import DataSize, with_auto_values
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.methods import METHODS, Method, find_method, reference_to
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.config.sections import SECTIONS
from fedul_flwr.config.shared import UNWEIGHTED
from fedul_flwr.errors import UserError
from fedul_flwr.federated.bases import BASES
from fedul_flwr.federated.grid import polled
from fedul_flwr.federated.messages import ARRAYS, CONFIG, WEIGHT, to_record
from fedul_flwr.federated.nodes import DataShape, find_nodes, setup_content
from fedul_flwr.federated.stages.server_training import learns_at_server
from fedul_flwr.federated.strategy import Strategy

Build = Callable[[tuple[int, ...], int], Any]
"""``(input_shape, num_classes) -> torch.nn.Module``."""

WITHOUT_EFFECT = (
    *("dataset", "class-names", "input-shape", "columns", "client-data", "features"),
    *("standardize", "standardize-sum"),
    *("partition", "points-per-client", "validation-fraction", "server-fraction", "image-size"),
    *("model", "start-from", "num-rounds", "base", "fraction-train", "selection", "evaluate"),
    *(
        "head",
        "calibration",
        "output",
        "resume",
        "tracking",
        "method",
        "method-options",
        "dp.clipping",
    ),
)
"""Settings of what an app of somebody's own does itself."""


class OwnStrategy(Strategy):
    """A method's strategy with arguments in place of files and settings of a run.

    Parameters
    ----------
    base : strategy that combines the updates, by default ``FedAvg()``. Which clients take part in a
        round is the method's; the base's ``fraction_train`` says how many.
    model : name of a built-in model, ``"package.module:function"``, or a function
        ``(input_shape, num_classes)`` at the top of a module, which returns the module of torch.
        Clients build the same.
    input_shape : shape of one point: ``(h, w, channels)``, or ``(d,)``.
    classes : number of classes, or their names.
    settings : settings of the method and of training, as for :func:`fedul_flwr.simulate`:
        ``{"local_epochs": 1, "fedul": {"learn_priors": True}}``.

    Raises
    ------
    UserError
        If one of these cannot be used.
    """

    method: ClassVar[str]

    def __init__(
        self,
        base: FlowerStrategy | None = None,
        *,
        model: str | Build = "mlp",
        input_shape: Sequence[int],
        classes: int | Iterable[object],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if base is not None and not isinstance(base, FlowerStrategy):
            raise UserError(
                f"base is a {type(base).__name__}; it must be a strategy of Flower's.",
                "argument-not-allowed",
            )
        refuse_base(base)
        self.base = copy.copy(base) if base is not None else FedAvg()
        self._min_nodes = int(getattr(base, "min_available_nodes", 1))
        self._min_train = int(getattr(base, "min_train_nodes", 1))
        self._shape = DataShape(checked_shape(input_shape), class_names(classes))
        self.settings = self._parsed(model, flat_settings(settings or {}))
        self.validate(self.settings)
        self._has_begun = False
        if learns_at_server(self.settings):
            raise UserError(
                f"Strategy {self.method!r} with these settings trains on labels of the server, "
                "which an app of your own does itself: before start, or between rounds.",
                "method-mismatch",
            )

    def _parsed(self, model: str | Build, stated: Mapping[str, Scalar]) -> RunConfig:
        for key in WITHOUT_EFFECT:
            if key in stated:
                raise UserError(
                    f"Setting {key} has no effect in an app of your own: it is an argument, or the "
                    "app's own business.",
                    "setting-without-effect",
                    setting=key,
                )
        name, tables = _settings_of(self.base)
        share = float(getattr(self.base, "fraction_train", 1.0))
        # The method chooses the clients: the base takes all that it sees.
        fractions = dict.fromkeys(("fraction_train", "fraction_evaluate"), 1.0)
        nodes = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes")
        for attribute, value in (fractions | dict.fromkeys(nodes, 1)).items():
            if hasattr(self.base, attribute):
                setattr(self.base, attribute, value)
        folder = tempfile.mkdtemp(prefix="fedul-own-app-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        flat: dict[str, Scalar] = {
            **default_flat(),
            "method": self.method,
            "dataset": "none",
            "class-names": ",".join(self._shape.class_names),
            "input-shape": "x".join(map(str, self._shape.input_shape)),
            "standardize": "none",
            "selection": "last",
            "learning-rate-schedule": "constant",  # as in the estimators
            "model": reference_of(model),
            "base": name,
            "fraction-train": share,
            "client-weights": _weights_of(self.base, name),
            "output": folder,
            **tables,
            **stated,
        }
        settings = parse_flat(flat)
        size = DataSize(self._shape.model_shape, None)
        return with_auto_values(settings, size)[0]

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds, as Flower's ``Strategy.start``.

        Parameters
        ----------
        initial_arrays : the first model; by default ``model`` with weights drawn from the setting
            ``seed``.
        """
        changed = {"num_rounds": num_rounds, "round_timeout": timeout}
        self.settings = self.settings.model_copy(update=changed)
        self._has_begun = False
        if initial_arrays is None:
            from fedul_flwr.learning.local import dump_arrays

            initial_arrays = to_record(dump_arrays(self._fresh_model()))
        return super().start(
            polled(grid),
            initial_arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            evaluate_fn,
        )

    def _fresh_model(self) -> Any:
        from fedul_flwr.models import build_model

        settings, shape = self.settings, self._shape
        return build_model(
            settings.model,
            shape.model_shape,
            len(shape.class_names),
            seed=settings.seed,
            options=settings.model_options,
        )

    def _begin(self, grid: Grid, arrays: ArrayRecord) -> None:
        """Take the nodes that are there when the first round begins."""
        model = self._fresh_model()
        if set(model.state_dict()) != set(arrays):
            odd = sorted(set(model.state_dict()) ^ set(arrays))[0]
            raise UserError(
                f"initial_arrays and model {self.settings.model!r} differ in {odd!r}.",
                "model-mismatch",
            )
        buffers = frozenset(name for name, _ in model.named_buffers())
        nodes, _ = find_nodes(grid, self.settings, self._min_nodes)
        setup = setup_content(self.settings, self._shape)
        super().__init__(self.settings, self.base, nodes, setup, buffers=buffers)
        self.registry.fewest_sampled = self._min_train
        self._has_begun = True

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the method choose the clients and write the messages."""
        if "clipping_norm" in config:  # a strategy around this one adds noise for clipped updates
            raise UserError(
                f"The clients of {self.method!r} do not clip their updates: take a strategy of "
                "Flower's that clips at the server.",
                "method-mismatch",
            )
        if not self._has_begun:
            self._begin(grid, arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the method and its base combine the updates."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None:
            return None, metrics
        # A wrapper of Flower's, such as one for differential privacy, adds to them in place.
        writable = {name: Array(np.array(array.numpy())) for name, array in arrays.items()}
        return ArrayRecord(writable), metrics

    def summary(self) -> None:
        """Log the base, and what of it does not apply."""
        self.base.summary()
        by = "their points" if self.settings.client_weights == "examples" else "equal shares"
        log(INFO, "\t├──> Clients count by %s in the mean", by)
        log(INFO, "\t└──> Clients evaluate nothing: evaluate_fn of start evaluates at the server")


def strategy_of(method: Method | str) -> type[OwnStrategy]:
    """The strategy of a method for an app of somebody's own, as :class:`FedUL` is that of FedUL.

    Parameters
    ----------
    method : the method, or its name. Its clients are those of
        :func:`fedul_flwr.api.own_client.client_of`.

    Raises
    ------
    UserError
        If it has no rounds, or nobody can import it.

    Examples
    --------
    >>> strategy = strategy_of("fixmatch")(input_shape=(13,), classes=3)
    >>> strategy.settings.method
    'fixmatch'
    """
    name = method if isinstance(method, str) else reference_to(method)
    chosen = find_method(name)
    if not (chosen.trains and chosen.updates and chosen.asks_clients):
        raise UserError(
            f"Method {name!r} has no rounds in which clients train, as an app of your own needs.",
            "method-mismatch",
        )
    kind = chosen.strategy_class
    return type(kind.__name__, (OwnStrategy, kind), {"method": name, "__module__": __name__})


class FedUL(OwnStrategy, METHODS["fedul"].strategy_class):  # type: ignore[misc]
    """FedUL: clients learn from unlabeled sets with known class shares, as :class:`FedULClient`."""

    method = "fedul"


class FedMatch(OwnStrategy, METHODS["fedmatch"].strategy_class):  # type: ignore[misc]
    """FedMatch: clients have a few labels, as :class:`FedMatchClient`; labels stay at clients."""

    method = "fedmatch"


class XCLP(OwnStrategy, METHODS["xclp"].strategy_class):  # type: ignore[misc]
    """XCLP: labels are propagated across clients in every round, as :class:`XCLPClient`.

    Its first rounds train on labels alone; ``settings={"semi": {"labels_only_rounds": 2}}`` says
    how many.
    """

    method = "xclp"


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


def reference_of(model: str | Build) -> str:
    """The value of setting ``model``: a name, or the place of a function."""
    if isinstance(model, str):
        return model
    name = getattr(model, "__qualname__", "<")
    if not callable(model) or "<" in name or "." in name:
        raise UserError(
            "model must be a name, or a function (input_shape, num_classes) at the top of a "
            f"module, so that clients can build the same; it is {model!r}.",
            "argument-not-allowed",
        )
    return f"{model.__module__}:{name}"


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
