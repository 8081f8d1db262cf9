"""Clients of methods, with data in memory, for apps of somebody's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from numpy.typing import ArrayLike

from fedul_flwr.api.points import stored_points
from fedul_flwr.client_app import clip_by
from fedul_flwr.client_app import make_client_app as dispatched
from fedul_flwr.config.base import load_reference
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.data.class_labels import class_labels
from fedul_flwr.data.local_files import own_data
from fedul_flwr.data.types import Inputs, PartlyLabeledPoints, UnlabeledSets
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client import MethodClient, settings_from
from fedul_flwr.federated.client_data import (
    ClientData,
    ClientState,
    PartlyLabeledData,
    UnlabeledSetData,
)
from fedul_flwr.federated.messages import SETTINGS, SETUP


class PlainClient:
    """A client with data in memory; :func:`make_client_app` answers messages with it."""

    method: ClassVar[str]
    data_class: ClassVar[type[ClientData]]

    def __init__(self, content: Any) -> None:
        self._content = content

    def bind(self, context: Context) -> MethodClient[Any]:
        """The method's client that answers one message."""
        settings = _settings(context, self.method)
        config = context.node_config
        node = NodeConfig(
            partition_id=_whole(config.get("partition-id", 0)),
            num_partitions=_whole(config.get("num-partitions", 0)),
        )
        kind = load_reference(find_method(self.method).client, "method")
        content, data_class, method = self._content, self.data_class, self.method

        def data(settings: RunConfig, *others: Any) -> ClientData:
            if settings.method != method:
                raise UserError(
                    f"The server runs method {settings.method!r}; this client is one of "
                    f"{method!r}.",
                    "method-mismatch",
                )
            client_data = data_class(settings, *others)
            client_data.content = content  # type: ignore[attr-defined]
            return client_data

        state = ClientState(context.state, run=context.run_id)
        client: MethodClient[Any] = kind(settings, node, state)
        client.data_class = data
        return client


def _settings(context: Context, method: str) -> RunConfig:
    """The run's, as phase ``setup`` brought them; before it the defaults of ``method``.

    The node config is the app's, with keys of any name.
    """
    setup = ClientState(context.state).values(SETUP)
    before = {**default_flat(), "method": method}
    return settings_from(str(setup[SETTINGS])) if setup else parse_flat(before)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise OwnDataError(f"Node config: {value!r} is no number of a client.", "node-config-wrong")
    return value


class _SetsInMemory(UnlabeledSetData):
    content: UnlabeledSets

    def _open_sets(self) -> UnlabeledSets:
        _refuse_other_shape(self.content.inputs, self)
        if self.content.priors.shape[1] != self.num_classes:
            raise OwnDataError(
                f"priors have {self.content.priors.shape[1]} columns; the run has "
                f"{self.num_classes} classes.",
                "class-priors-wrong",
            )
        return self.content


class _PointsInMemory(PartlyLabeledData):
    content: PartlyLabeledPoints

    @property
    def folder(self) -> Path:
        """Not empty: the points are the client's own."""
        return Path()

    def load_points(self, folder: Path) -> PartlyLabeledPoints:
        """The points in memory."""
        del folder
        _refuse_other_shape(self.content.inputs, self)
        if (self.content.labels >= self.num_classes).any():
            raise OwnDataError(
                f"A label is not below the number of classes, {self.num_classes}.", "labels-wrong"
            )
        return self.content


def _refuse_other_shape(inputs: Inputs, data: ClientData) -> None:
    if tuple(inputs.shape[1:]) != data.input_shape:
        raise OwnDataError(
            f"The points have the shape {tuple(inputs.shape[1:])}; the run takes "
            f"{data.input_shape}.",
            "points-shape",
        )


class FedULClient(PlainClient):
    """A client of FedUL.

    Parameters
    ----------
    sets : M arrays: vectors ``(n_m, d)``, or images ``(n_m, h, w, c)``, uint8 or floats in [0, 1].
    priors : ``(M, K)``, class priors of each set.

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
    data_class = _SetsInMemory

    def __init__(self, sets: Sequence[Any], priors: ArrayLike) -> None:
        with own_data():
            if not isinstance(sets, list | tuple) or not sets:
                raise UserError(
                    "sets must be a list of arrays, one for each unlabeled set.",
                    "argument-not-allowed",
                )
            parts = [stored_points(part) for part in sets]
            shapes = {part.shape[1:] for part in parts}
            if len(shapes) > 1:
                raise UserError(
                    f"The points of sets differ in shape: {sorted(shapes)}.", "points-shape"
                )
            table = np.asarray(priors, dtype=np.float64)
            if table.ndim != 2 or len(table) != len(parts):
                raise UserError(
                    f"priors have the shape {table.shape}; they must be ({len(parts)}, classes), "
                    "a row for each set.",
                    "class-priors-wrong",
                )
        inputs = np.concatenate([part[:] for part in parts])
        numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        names = tuple(map(str, range(len(parts))))
        super().__init__(UnlabeledSets(inputs, np.arange(len(inputs)), numbers, table, names=names))


class _PartlyLabeledClient(PlainClient):
    data_class = _PointsInMemory

    def __init__(self, x: Any, y: Any) -> None:
        with own_data():
            points = stored_points(x)
            classes = class_labels(y, "y", len(points))
            if classes.kind not in ("number", ""):
                raise UserError(
                    "y must hold the numbers of classes, and -1 for no label.", "labels-wrong"
                )
            labels = classes.cells()
        new = np.zeros(len(labels), dtype=bool)
        super().__init__(PartlyLabeledPoints(points, np.arange(len(labels)), labels, new))


class FedMatchClient(_PartlyLabeledClient):
    """A client of FedMatch.

    Parameters
    ----------
    x : vectors ``(n, d)``, or images ``(n, h, w, c)``, uint8 or floats in [0, 1].
    y : ``(n,)``, classes ``0..K-1``, -1 for a point without a label.

    Raises
    ------
    OwnDataError
        If points and labels cannot be used. The text stays on the client's machine.
    """

    method = "fedmatch"


class XCLPClient(_PartlyLabeledClient):
    """A client of XCLP; parameters and errors as for :class:`FedMatchClient`."""

    method = "xclp"


def make_client_app(client_fn: Callable[[Context], PlainClient]) -> ClientApp:
    """Flower's ClientApp of a method's clients, in place of ``ClientApp(client_fn=…)``.

    Parameters
    ----------
    client_fn : builds the client of a context, for every message:
        ``lambda context: FedULClient(sets_of(context.node_config["partition-id"]), priors)``.
    """

    def build(context: Context) -> MethodClient[Any]:
        client = client_fn(context)
        if not isinstance(client, PlainClient):
            raise UserError(
                f"client_fn returned a {type(client).__name__}; it must return one of "
                "FedULClient, FedMatchClient and XCLPClient.",
                "own-code-result",
            )
        return client.bind(context)

    # Before phase `setup` nothing is clipped, whatever the method.
    return dispatched(build, clip_by(lambda context: _settings(context, FedULClient.method)))
