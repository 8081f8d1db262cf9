"""Clients of methods, with data in memory, for apps of somebody's own."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from numpy.typing import ArrayLike, NDArray

from fedul_flwr.api.input_data import is_frame, training_points
from fedul_flwr.config.base import in_order, is_named
from fedul_flwr.config.methods import Method, find_method, reference_to
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.data.class_labels import ClassLabels, class_labels
from fedul_flwr.data.columns import Column, Columns, read_columns
from fedul_flwr.data.local_data import own_data
from fedul_flwr.data.seeds import draws_of
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.data.types import Inputs, PartlyLabeledPoints, UnlabeledSets
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import (
    DATA,
    AnySetsData,
    ClientData,
    ClientState,
    settings_from,
)
from fedul_flwr.federated.messages import SETTINGS, SETUP
from fedul_flwr.federated.owner.door import make_client_app as dispatched


class OwnClient:
    """A client with data in memory; :func:`make_client_app` answers messages with it."""

    method: ClassVar[str]
    in_memory: ClassVar[Any]
    """Reads what is in memory, in front of the method's class of data."""

    @classmethod
    def data_class(cls) -> type[ClientData]:
        """Data of the method's clients, in memory."""
        chosen = find_method(cls.method)
        of_method: Any = chosen.client_class.data_class or DATA[chosen.data]
        if not hasattr(of_method, cls.in_memory.reads):
            raise UserError(
                f"Clients of method {cls.method!r} have neither unlabeled sets nor points with "
                "labels, as an app of your own takes them.",
                "method-mismatch",
            )
        return type(of_method.__name__, (cls.in_memory, of_method), {"__module__": __name__})

    def __init__(self, content: Any, classes: tuple[str, ...] | ClassLabels) -> None:
        self._content = content
        self._classes = classes

    def bind(self, context: Context) -> Client[Any]:
        """The method's client that answers one message."""
        settings = _settings(context, self.method)
        config = context.node_config
        node = NodeConfig(
            partition_id=int(config.get("partition-id", 0)),
            num_partitions=int(config.get("num-partitions", 0)),
        )
        kind = find_method(self.method).client_class
        data_class, method = self.data_class(), self.method

        def data(settings: RunConfig, *others: Any) -> ClientData:
            if settings.method != method:
                raise UserError(
                    f"The server runs method {settings.method!r}; this client is one of "
                    f"{method!r}.",
                    "method-mismatch",
                )
            client_data = data_class(settings, *others)
            client_data.content = self._content  # type: ignore[attr-defined]
            client_data.classes = self._classes  # type: ignore[attr-defined]
            return client_data

        state = ClientState(context.state, run=context.run_id)
        client: Client[Any] = kind(settings, node, state)
        client.data_class = data
        return client


def _settings(context: Context, method: str) -> RunConfig:
    """The run's, as phase ``setup`` brought them; before it the defaults of ``method``."""
    setup = ClientState(context.state).values(SETUP)
    before = {**default_flat(), "method": method}
    return settings_from(str(setup[SETTINGS])) if setup else parse_flat(before)


class _SetsInMemory(ClientData):
    reads: ClassVar = "sets"
    content: UnlabeledSets
    classes: tuple[str, ...]
    """Classes of the columns of the priors, if they have names."""

    def _open_sets(self) -> UnlabeledSets:
        _refuse_other_shape(self.content.inputs, self)
        priors = self.content.priors
        if priors.shape[1] != self.num_classes:
            raise OwnDataError(
                f"priors have {priors.shape[1]} columns; the run has {self.num_classes} classes.",
                "class-priors-wrong",
            )
        if not self.classes:
            return self.content
        by_class = dict(zip(self.classes, priors.T, strict=True))
        return replace(self.content, priors=_by_name(by_class, self.class_names).T)


class _AnySetsInMemory(_SetsInMemory, AnySetsData):
    pass


class _PointsInMemory(ClientData):
    reads: ClassVar = "examples"
    content: PartlyLabeledPoints
    classes: ClassLabels
    """Labels as they were given."""

    @property
    def folder(self) -> Path:
        """Not empty: the points are the client's own."""
        return Path()

    def load_points(self, folder: Path) -> PartlyLabeledPoints:
        """The points in memory."""
        del folder
        _refuse_other_shape(self.content.inputs, self)
        labels, names = self.classes, self.class_names
        if all(name.isdecimal() for name in names):  # 3 is class "3", wherever that stands
            labels = replace(labels, kind="name")
        with own_data():
            return replace(self.content, labels=labels.numbered_by(tuple(names), "y").numbers)


def _refuse_other_shape(inputs: Inputs, data: ClientData) -> None:
    if tuple(inputs.shape[1:]) != data.input_shape:
        raise OwnDataError(
            f"The points have the shape {tuple(inputs.shape[1:])}; the run takes "
            f"{data.input_shape}.",
            "points-shape",
        )


def _by_name(values: Any, names: Sequence[object]) -> NDArray[np.float64]:
    """Class priors by their names in the order of ``names``, or a UserError."""
    try:
        return np.asarray(in_order(values, names), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OwnDataError(f"Class priors: {error}.", "class-priors-wrong") from None


def _points(points: Any, columns: str | Path | Sequence[str] | None) -> Inputs:
    """Points as a model takes them; a table's columns are the declared ones, by their names."""
    if not is_frame(points) or not is_named(points.columns):
        if columns is not None:
            raise UserError(
                "columns names the columns of a table; the points are an array without names.",
                "argument-without-effect",
            )
        return training_points(np.asarray(points) if is_frame(points) else points)
    if columns is None:
        raise UserError(
            "The points are a table, of which each client may have other columns: name those of "
            "the model in their order, columns=['age', 'bmi'], or a columns file, the same for all "
            "clients.",
            "columns-file-needed",
        )
    if isinstance(columns, str | Path):
        described = read_columns(columns)
    else:
        described = Columns(tuple(Column(str(name)) for name in columns))
    return training_points(
        points, (len(described.features),), TableOptions(columns=described, trained=True)
    )


class FedULClient(OwnClient):
    """A client of FedUL.

    Parameters
    ----------
    sets : M arrays: vectors ``(n_m, d)``, or images ``(n_m, h, w, c)``, uint8 or floats in [0, 1];
        or M tables. A mapping gives each set a name.
    priors : ``(M, K)``, class priors of each set. In a DataFrame the columns name the classes, and
        the index the sets.
    columns : of tables: the names of the d columns of numbers that the model takes, in its order;
        or a columns file, which may also have categories. The same for all clients.

    Raises
    ------
    OwnDataError
        If sets and priors cannot be used. The text stays on the client's machine.

    Examples
    --------
    >>> ill_and_sound = [[[38.5, 110.0], [36.6, 70.0]], [[36.5, 68.0], [36.8, 72.0]]]
    >>> client = FedULClient(ill_and_sound, priors=[[0.5, 0.5], [0.1, 0.9]])
    >>> FedULClient(ill_and_sound, priors=[[0.5, 0.5]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedul_flwr.errors.OwnDataError: priors have the shape (1, 2); they must be (2, classes), ...
    """

    method = "fedul"
    in_memory = _SetsInMemory

    def __init__(
        self,
        sets: Sequence[Any] | Mapping[Any, Any],
        priors: ArrayLike,
        columns: str | Path | Sequence[str] | None = None,
    ) -> None:
        with own_data():
            named = isinstance(sets, Mapping)
            parts = [_points(one, columns) for one in (sets.values() if named else sets)]  # type: ignore[union-attr]
            shapes = {part.shape[1:] for part in parts}
            if len(shapes) != 1:
                raise UserError(
                    "sets must be a list of arrays, one for each unlabeled set, all of one shape; "
                    f"they have {sorted(shapes)}.",
                    "points-shape",
                )
            names = tuple(map(str, sets if named else range(len(parts))))
            table = _by_name(priors, names)
            if table.ndim != 2 or len(table) != len(parts):
                raise UserError(
                    f"priors have the shape {table.shape}; they must be ({len(parts)}, classes), "
                    "a row for each set.",
                    "class-priors-wrong",
                )
        inputs = np.concatenate([part[:] for part in parts])
        numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        content = UnlabeledSets(inputs, np.arange(len(inputs)), numbers, table, names=names)
        classes = [*map(str, getattr(priors, "columns", ()))]
        are_numbers = classes == [*map(str, range(len(classes)))]
        super().__init__(content, () if are_numbers else tuple(classes))


class CheckedSetsClient(OwnClient):
    """A client of FedUL whose sets were checked with those of all clients: one is enough.

    Parameters
    ----------
    sets : its sets.
    """

    method = "fedul"

    in_memory = _AnySetsInMemory

    def __init__(self, sets: UnlabeledSets) -> None:
        super().__init__(sets, ())


class _PartlyLabeledClient(OwnClient):
    in_memory = _PointsInMemory

    def __init__(self, x: Any, y: Any, columns: str | Path | Sequence[str] | None = None) -> None:
        with own_data():
            points = _points(x, columns)
            labels = class_labels(y, "y", len(points))
        rows, new = np.arange(len(labels)), np.zeros(len(labels), dtype=bool)
        super().__init__(PartlyLabeledPoints(points, rows, labels.numbers, new), labels)


class FedMatchClient(_PartlyLabeledClient):
    """A client of FedMatch.

    Parameters
    ----------
    x : vectors ``(n, d)``, or images ``(n, h, w, c)``, uint8 or floats in [0, 1].
        Or a table.
    y : ``(n,)``, the classes by their names, or by their numbers ``0..K-1`` if the names are no
        numbers; -1 or a missing value for a point without a label.
    columns : of a table, as for :class:`FedULClient`.

    Raises
    ------
    OwnDataError
        If points and labels cannot be used. The text stays on the client's machine.
    """

    method = "fedmatch"


class FixMatchClient(_PartlyLabeledClient):
    """A client of FixMatch; parameters and errors as for :class:`FedMatchClient`."""

    method = "fixmatch"


class SupervisedClient(_PartlyLabeledClient):
    """A client with labels for all points; parameters and errors as for :class:`FedMatchClient`."""

    method = "supervised"


class ClosedFormClient(FedULClient):
    """A client with sets for a closed form; parameters and errors as for :class:`FedULClient`."""

    method = "closed-form"


class XCLPClient(_PartlyLabeledClient):
    """A client of XCLP; parameters and errors as for :class:`FedMatchClient`."""

    method = "xclp"


def client_of(method: Method | str) -> type[OwnClient]:
    """The clients of a method with data in memory, for an app of somebody's own.

    Parameters
    ----------
    method : the method, or its name. A method of unlabeled sets has clients like
        :class:`FedULClient`, one of points with labels for some such as :class:`FedMatchClient`.

    Raises
    ------
    UserError
        If its clients have neither, or nobody can import it.
    """
    name = method if isinstance(method, str) else reference_to(method)
    chosen = find_method(name)
    kind: Any = FedULClient if chosen.data == "unlabeled-sets" else _PartlyLabeledClient
    attributes = {"method": name, "__module__": __name__}
    built: type[OwnClient] = type(chosen.client_class.__name__, (kind,), attributes)
    built.data_class()  # refuses others
    return built


def make_client_app(client_fn: Callable[[Context], OwnClient]) -> ClientApp:
    """Flower's ClientApp of a method's clients, in place of ``ClientApp(client_fn=…)``.

    Parameters
    ----------
    client_fn : builds the client of a context, for every message:
        ``lambda context: FedULClient(sets_of(context.node_config["partition-id"]), priors)``.
    """

    def build(context: Context) -> Client[Any]:
        # It is built for every message, with the same points.
        with draws_of(0, "client", int(context.node_config.get("partition-id", 0))):
            client = client_fn(context)
        if not isinstance(client, OwnClient):
            raise UserError(
                f"client_fn returned a {type(client).__name__}; it must return one of "
                "FedULClient, FedMatchClient and others, or of client_of(METHOD).",
                "own-code-result",
            )
        return client.bind(context)

    _load_from_bundle(client_fn)
    return dispatched(build)


def _load_from_bundle(client_fn: Callable[[Context], OwnClient]) -> None:
    """Load a module of the run's bundle in place of one of an earlier app.

    Flower's SuperLink runs in the folder of the app that has started it, and the simulation of a
    later app looks there first (docs/notes-upstream.md). Whoever imports the module gets what is in
    ``sys.modules`` at the end: that of the bundle.
    """
    name = str(getattr(client_fn, "__module__", ""))
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if not loaded or name == "__main__":
        return
    file = Path(loaded).resolve()
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    home = os.environ.get("FLWR_HOME")
    apps = ((Path(home) if home else Path.home() / ".flwr") / "apps").resolve()
    bundles = [one for one in map(Path, sys.path) if apps in one.resolve().parents]
    if len(bundles) != 1 or not (bundles[0] / file.relative_to(root)).is_file():
        return
    bundle = bundles[0].resolve()
    if root == bundle:
        return
    for other, module in [*sys.modules.items()]:
        path = Path(getattr(module, "__file__", None) or "/")
        if path.is_relative_to(root) and (bundle / path.relative_to(root)).is_file():
            del sys.modules[other]
    sys.path.remove(str(bundles[0]))
    sys.path.insert(0, str(bundles[0]))
    importlib.invalidate_caches()
    importlib.import_module(name)
