"""The server's data: the data set that the settings name, test and validation sets, the split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from fedul_flwr.arrays import Ints
from fedul_flwr.config.auto_settings import kind_of
from fedul_flwr.config.base import setting_error
from fedul_flwr.config.method_settings import ServerTrainingSettings, SupervisedSettings
from fedul_flwr.config.methods import DataKind, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import NaturalSettings
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.data.columns import read_columns
from fedul_flwr.data.local_data import client_folders
from fedul_flwr.data.partition import set_aside, without_sample
from fedul_flwr.data.safe_files import composed
from fedul_flwr.data.seeds import derived_seed
from fedul_flwr.data.shift import require_fit, shifted
from fedul_flwr.data.sources import read_source, source_directory
from fedul_flwr.data.split import (
    LabelTruth,
    SetTruth,
    Split,
    build_split,
    client_files,
    refuse_empty_sets,
    save_split,
)
from fedul_flwr.data.standardize import ScaledInputs, Scaling, SharedScaling
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.data.types import UNLABELED, Inputs, LabeledPoints, Source, class_counts
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.find import feature_source
from fedul_flwr.federated.client_data import scaling_of, table_options
from fedul_flwr.federated.members import ClientReport
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.results.predict import extractor_of
from fedul_flwr.run.evaluation import Evaluator


def open_named(
    dataset: str, settings: RunConfig, table: TableOptions
) -> tuple[DataShape, Path, Source]:
    """Shape, folder and content of a data set; the latter two of its features, if it has some."""
    directory = source_directory(dataset, image_size=settings.image_size, table=table)
    source = read_source(directory)
    shape = DataShape(source.input_shape, source.class_names, source.columns, bits=source.bits)
    if not settings.features:
        return shape, directory, source
    # before an extractor gets them
    settings.require_effect({"points": kind_of(shape.input_shape)})
    directory = feature_source(directory, extractor_of(settings))
    featured = read_source(directory)
    return replace(shape, num_features=featured.input_shape[0]), directory, featured


def server_tables(settings: SharedSettings) -> TableOptions:
    """Rules for the server's tables of features."""
    columns = read_columns(settings.columns) if settings.columns else None
    if isinstance(settings, RunConfig) and settings.partition == "natural":
        return table_options(settings, columns, settings[NaturalSettings].column)
    return table_options(settings, columns)


def named_shape(settings: SharedSettings) -> DataShape:
    """Input shape and classes from ``class-names``, ``input-shape`` and ``columns``."""
    names = tuple(composed(name.strip()) for name in settings.class_names.split(","))
    columns = server_tables(settings).columns
    stated = tuple(map(int, settings.input_shape.split("x"))) if settings.input_shape else ()
    shape = stated if columns is None else (len(columns.features),)
    if stated not in ((), shape):
        why = f"the columns file has {shape[0]} features; leave it out"
        raise setting_error("input-shape", settings.input_shape, why, "settings-contradict")
    count = extractor_of(settings).num_features(shape) if settings.features else 0
    return DataShape(shape, names, columns, count, settings.image_bits)


@dataclass(frozen=True)
class ServerData:
    """The server's side of the data."""

    shape: DataShape
    folder: Path | None = None
    source: Source | None = None
    split: Split | None = None
    client_data: str = ""
    validation: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    server: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    num_clients: int | None = None
    client_names: tuple[str, ...] = ()
    scaling: Callable[[], Scaling] | None = None

    def standardized(self, settings: RunConfig, shared: SharedScaling) -> ServerData:
        """A copy whose vectors are standardized as ``settings`` say.

        With ``"owner"`` the server is one, of the points that it keeps of its training split, or
        else of all of them: a test point is standardized alike whatever is predicted with it.
        """
        kind, source, columns = settings.standardize, self.source, self.shape.model_columns
        if kind == "none":
            return self
        rows = np.concatenate([self.validation, self.server])
        if source is None:
            none = np.zeros((0, 0), np.float32)
            by = None if kind == "owner" else scaling_of(kind, columns, none, rows) or shared
            return replace(self, scaling=by)
        rows = rows if len(rows) else np.arange(len(source.train), dtype=np.int64)
        by = scaling_of(kind, columns, source.train.inputs, rows) or shared
        train = replace(source.train, inputs=ScaledInputs(source.train.inputs, by))
        test = replace(source.test, inputs=ScaledInputs(source.test.inputs, by))
        return replace(self, source=replace(source, train=train, test=test), scaling=by)

    def split_over(self, num_clients: int, settings: RunConfig) -> ServerData:
        """A copy with a simulated federation of ``num_clients``."""
        if settings.client_data:
            folders = client_folders(settings.client_data, num_clients)
            return replace(
                self._with_validation(settings),
                client_data=settings.client_data,
                num_clients=num_clients,
                client_names=_unless_numbers([folder.name for folder in folders]),
            )
        if self.folder is None:
            why = "a simulation needs a data set or client-data"
            raise setting_error("dataset", "none", why, "data-set-missing")
        require_fit(settings.shift, self.shape.input_shape)
        split = build_split(self.folder, num_clients, settings)
        if find_method(settings.method).data == "unlabeled-sets":
            refuse_empty_sets(split.clients, settings)
        return replace(
            self,
            split=split,
            validation=split.validation,
            server=split.server,
            num_clients=num_clients,
            client_names=self._client_names(split, settings),
        )

    def test_at(self, client: int, settings: RunConfig) -> Inputs | None:
        """Test points as they look at a client of a simulation, if they look otherwise there."""
        if not settings.shift or self.source is None or self.num_clients is None:
            return None
        source, count = self.source, self.num_clients
        test, train = source.test.inputs, source.train.inputs
        return shifted(test, settings.shift, settings.seed, client, count, train)

    def _client_names(self, split: Split, settings: RunConfig) -> tuple[str, ...]:
        """Names of the clients of a natural partition: their values of its column."""
        if settings.partition != "natural" or self.source is None:
            return ()
        values = self.source.train.columns[settings[NaturalSettings].column]
        return _unless_numbers([str(values[client.points[0]]) for client in split.clients])

    def without_split(self, settings: RunConfig) -> ServerData:
        """A copy without a federation, for clients with their own data."""
        for key in ("client-data", "shift"):
            if value := settings.value(key):
                why = "it is for simulations, and these clients have their own data"
                raise setting_error(key, value, why, "setting-for-simulations")
        return self._with_validation(settings)

    def _with_validation(self, settings: RunConfig) -> ServerData:
        """Set aside validation data from the server's data set, if clients have their own data."""
        if self.source is None:
            return self
        _, validation, server = set_aside(np.asarray(self.source.train.labels), settings)
        return replace(self, validation=validation, server=server)

    def points_of_client(self, settings: RunConfig) -> float | None:
        """Mean number of points that a simulated client trains on; None if clients bring their own
        data, of whose number the server knows nothing yet."""
        if self.split is None:
            return None
        counts = [len(client.points) for client in self.split.clients]
        return settings[SupervisedSettings].label_fraction * sum(counts) / len(counts)

    def labeled(self, settings: RunConfig) -> LabeledPoints:
        """The labeled points that the server trains on."""
        options = settings[ServerTrainingSettings]
        if options.dataset:
            table = replace(server_tables(settings), columns=self.shape.columns)
            points, _, other = open_named(options.dataset, settings, table)
            if points != self.shape:
                why = f"it has {_describe(points)}, the run has {_describe(self.shape)}"
                raise setting_error("server.dataset", options.dataset, why, "splits-differ")
            data = other.train
            rows = np.flatnonzero(np.asarray(data.labels) != UNLABELED)
            by = self.scaling
            if by is None and settings.standardize == "owner":
                by = scaling_of("owner", self.shape.model_columns, data.inputs, rows)
            if by is not None:
                data = replace(data, inputs=ScaledInputs(data.inputs, by))
        elif self.source is not None and len(self.server):
            data, rows = self.source.train, self.server
        else:
            raise UserError(
                f"Method {settings.method!r} trains on labeled points at the server: set "
                "server-fraction above 0, or server.dataset.",
                "setting-needs-labels",
            )
        labels = np.asarray(data.labels)
        if options.points:
            rows = _sample(rows, labels[rows], options.points, settings.seed)
        return LabeledPoints(data.inputs, rows, labels[rows])

    @property
    def labels_in_words(self) -> str:
        """How many of their labels simulated clients use; empty if they have no such points."""
        truths = self.split.label_truths if self.split is not None else []
        used, there = (
            sum(int((labels != UNLABELED).sum()) for labels in of_clients)
            for of_clients in ([t.observed for t in truths], [t.labels for t in truths])
        )
        return (
            f"Labels: clients use {used:,} of the {there:,} that their points have."
            if there
            else ""
        )

    def labeled_by_owners(self) -> LabeledPoints | None:
        """The labeled points of all simulated clients, if some of their points are labeled."""
        truths = self.split.label_truths if self.split is not None else []
        if self.source is None or not truths:
            return None
        points = np.concatenate([client.points for client in truths])
        labels = np.concatenate([client.observed for client in truths])
        is_labeled = labels != UNLABELED
        return LabeledPoints(self.source.train.inputs, points[is_labeled], labels[is_labeled])

    def evaluator(
        self, settings: RunConfig, labeled: LabeledPoints | None = None
    ) -> Evaluator | None:
        """An evaluator on the server's data, and on ``labeled`` points if given."""
        if self.source is None:
            return None
        return Evaluator(settings, self.source, self.validation, labeled)

    def files(self, kind: DataKind) -> dict[str, str]:
        """Paths of a simulation's files that clients need for data of this ``kind``."""
        if self.client_data:
            return {"client-data": self.client_data}
        if self.folder is None or self.split is None:
            return {}
        return client_files(self.folder, self.split.directory, kind)

    def save_split(self, file: Path) -> None:
        """Write which client of a simulation has which points."""
        if self.split is not None and self.source is not None:
            save_split(file, self.split, np.asarray(self.source.train.labels))

    def complete(self, report: ClientReport) -> None:
        """Add values that only the simulation knows to a client's report."""
        report.name = self.client_names[report.id] if self.client_names else report.name
        if self.split is None or self.source is None:
            return
        truth = self.split.clients[report.id]
        report.class_counts = class_counts(truth.labels, self.source.num_classes).tolist()
        if isinstance(truth, SetTruth):
            report.set_sizes = np.bincount(truth.sets, minlength=len(truth.priors)).tolist()
            report.priors = truth.true_priors.tolist()
        if isinstance(truth, LabelTruth):
            report.labeled_counts = class_counts(truth.observed, self.source.num_classes).tolist()


def _unless_numbers(names: Sequence[str]) -> tuple[str, ...]:
    """Names of clients; none if they only repeat the clients' numbers."""
    return () if list(names) == [str(client) for client in range(len(names))] else tuple(names)


def _describe(shape: DataShape) -> str:
    kind, size = kind_of(shape.input_shape), "x".join(map(str, shape.input_shape))
    sized = f"{kind} of {size}" if size else kind
    features = f" ({', '.join(shape.columns.features[:5])} …)" if shape.columns else ""
    features += f" of {shape.bits} bits" if shape.bits else ""
    return f"{sized}{features} and classes {', '.join(shape.class_names)}"


def _sample(rows: Ints, labels: Ints, count: int, seed: int) -> Ints:
    if count == len(rows):
        return rows
    wrong = partial(setting_error, "server.points", count)
    if count > len(rows):
        raise wrong(f"there are only {len(rows)}", "too-few-points")
    try:
        return without_sample(rows, labels, count, derived_seed(seed, "server points"))[1]
    except ValueError as err:
        raise wrong(str(err).removesuffix("."), "setting-unfit-for-data") from err


def open_server_data(settings: RunConfig) -> ServerData:
    """Open the data set that ``settings`` names, or none."""
    if settings.dataset == "none":
        data = ServerData(named_shape(settings))
    else:
        data = ServerData(*open_named(settings.dataset, settings, server_tables(settings)))
    if len(data.shape.class_names) < 2:
        why = "there is one class; two or more are needed"
        raise setting_error("dataset", settings.dataset, why, "number-of-classes")
    refuse_other_form(settings, data.shape)
    return data


def refuse_other_form(settings: RunConfig, shape: DataShape) -> None:
    """Refuse settings for another kind of points or another number of classes."""
    kinds = {"points": kind_of(shape.input_shape), "inputs": kind_of(shape.model_shape)}
    settings.require_effect(kinds)
    priors = settings.class_priors()
    if priors is not None and len(priors) != len(shape.class_names):
        why = f"{len(priors)} numbers for {len(shape.class_names)} classes"
        raise setting_error("test-prior", settings.test_prior, why, "class-priors-wrong")
