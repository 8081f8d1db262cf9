"""A client's data, its own or part of a simulated split, and what it keeps between messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedul_flwr.arrays import Arrays, Bools, Floats, Ints
from fedul_flwr.config.method_settings import (
    AdmissionSettings,
    ScenarioSettings,
    ViewSettings,
    fewer_sets,
)
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import POINT_FORMATS, SET_FORMATS, NodeConfig
from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.data.class_priors import class_masses, rounded_shares
from fedul_flwr.data.columns import Columns, parse_columns
from fedul_flwr.data.safe_files import make_folder, save_arrays
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.set_priors import SetCheck, alikeness, check_sets
from fedul_flwr.data.shift import shifted
from fedul_flwr.data.split import label_scenario, open_partly_labeled_points, open_unlabeled_sets
from fedul_flwr.data.standardize import (
    MEANS,
    SCALES,
    ScaledInputs,
    Scaling,
    constant_scaling,
    moments,
    scaling_by,
)
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.data.types import (
    UNLABELED,
    Inputs,
    InputShape,
    OwnPoints,
    PartlyLabeledPoints,
    UnlabeledSets,
    Value,
    labeled_own_points,
    set_aside,
)
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.messages import to_arrays, to_record
from fedul_flwr.federated.payload import ANY, TEXT, Part, Parts, only_when
from fedul_flwr.learning.closed_form import posteriors, posteriors_of_sets

if TYPE_CHECKING:
    from fedul_flwr.learning.task import Batches, Round


@lru_cache(maxsize=4)
def settings_from(text: str) -> RunConfig:
    """Settings from their JSON text, as the server sends them."""
    return parse_flat(json.loads(text))


def part_of_step(positions: Ints, settings: RunConfig, round_number: int) -> Ints:
    """The part of ``positions`` that is of the streaming step of a round."""
    scenario = settings[ScenarioSettings]
    steps = scenario.streaming_steps
    step = min((round_number - 1) // scenario.rounds_per_step, steps - 1)
    return np.array_split(positions, steps)[step]


def table_options(
    settings: SharedSettings, columns: Columns | None, group: str = ""
) -> TableOptions:
    """Rules for tables of features, of which ``group`` is the column that says whose a row is."""
    return TableOptions(
        settings.missing,
        settings.label_column,
        columns,
        settings.text_column,
        settings.image_bits,
        settings.window,
        group,
    )


def scaling_of(
    kind: str, columns: Columns | None, inputs: Inputs, rows: Ints
) -> Callable[[], Scaling] | None:
    """The scaling by ``constants`` of the columns, or of an ``owner`` with ``rows`` of ``inputs``;
    ``None`` for that of the federation."""
    if kind == "federation":
        return None
    is_owner = kind == "owner"
    scaling = scaling_by(moments(inputs, rows), columns) if is_owner else constant_scaling(columns)
    return lambda: scaling


class PointShares(NamedTuple):
    """What a client can say of its points' classes, for a head in closed form.

    Attributes
    ----------
    inputs : images or vectors.
    points : ``(n,)``, rows of them.
    shares : ``(n, K)``, class shares among which a point is drawn: a label's one-hot row, those of
        its set, or equal ones of the classes that are possible; a row of zeros says nothing.
    stated : ``(n,)``, whether a row is that of a label or of a set.
    sets : ``(n,)``, numbers of the points' sets; ``None`` for labels.
    drawn : ``(M,)``, how uncertain the number of a class's points is in each set: its variance
        relative to that of points drawn by the class shares.
    """

    inputs: Inputs
    points: Ints
    shares: Floats
    stated: Bools
    sets: Ints | None = None
    drawn: Floats = np.zeros(0)

    @classmethod
    def of_sets(cls, sets: UnlabeledSets, shares: Floats, drawn: Floats) -> PointShares:
        """Of the points of sets with class shares ``(M, K)``."""
        every = np.ones(len(sets.points), bool)
        return cls(sets.inputs, sets.points, shares[sets.sets], every, sets.sets, drawn)

    def posteriors(
        self,
        logits: Floats,
        prior: Floats | None,
        chosen: Bools | None = None,
        *,
        alone: bool = False,
    ) -> Floats:
        """Soft labels of points (all, or those ``chosen``) by a model for the class priors
        ``prior``: those of a set add up to its class shares, unless each point is ``alone``."""
        rows = np.ones(len(self.points), bool) if chosen is None else chosen
        shares = self.shares[rows]
        if self.sets is None or alone:
            return posteriors(logits, shares, prior)
        return posteriors_of_sets(logits, shares, prior, self.sets[rows], self.drawn)


_ALIKE = (
    "how alike the class shares of its sets are (from 1; infinite if they alone do not tell all "
    "classes apart)"
)
OF_SETS: Parts = {
    "reason": Part(TEXT, says="whether its sets can be used"),
    **dict.fromkeys(("num-sets", "num-points"), Part.count(says="how many sets and points it has")),
    "condition-number": Part(ANY, says=_ALIKE),
    **only_when(
        lambda settings: settings[AdmissionSettings].share_priors,
        {
            "priors": Part(("num-sets", "classes"), says="class shares and size of every set"),
            "set-sizes": Part("num-sets", at_least=0, says="class shares and size of every set"),
        },
    ),
}
"""What a client with sets tells before round 1."""


class ClientData:
    """Base of a client's data; a client without data has this one.

    Parameters
    ----------
    settings : the run's settings.
    node : the node config.
    setup : :func:`fedul_flwr.federated.nodes.setup_content`.
    """

    registers: ClassVar[Parts] = {}
    """What :meth:`register` tells."""

    def __init__(self, settings: RunConfig, node: NodeConfig, setup: Mapping[str, Any]) -> None:
        self.settings = settings
        self.node = node
        self.setup = setup

    def register(self) -> dict[str, Value]:
        """Values about the data that the client sends before round 1."""
        return {}

    def describe(self) -> Iterator[str]:
        """Lines about the data for their owner; they may contain paths, names and labels."""
        yield from ()

    def check(self) -> None:
        """Check whether the client can take part."""

    @property
    def class_names(self) -> list[str]:
        """Names of the K classes."""
        return list(self.setup["class-names"])

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.setup["class-names"])

    @property
    def input_shape(self) -> InputShape:
        """Shape of the model's inputs."""
        return tuple(self.setup["input-shape"])

    @property
    def model_shape(self) -> InputShape:
        """Shape of what the model takes: a point, or its features."""
        return tuple(self.setup["model-shape"])

    @property
    def table(self) -> TableOptions:
        """Rules for the client's tables of features."""
        described = self.setup.get("columns")
        return table_options(self.settings, parse_columns(described) if described else None)

    def shifted(self, inputs: Inputs) -> Inputs:
        """A simulation's ``inputs`` as setting `shift` lets them look at this client."""
        node, of = self.node, self.settings
        return shifted(inputs, of.shift, of.seed, node.partition_id, node.num_partitions, inputs)

    def standardized(self, inputs: Inputs, points: Ints) -> Inputs:
        """``inputs`` as setting `standardize` says, for a client with rows ``points`` of them."""
        kind = self.settings.standardize
        if kind == "none" or isinstance(inputs, ScaledInputs) or len(self.model_shape) > 1:
            return inputs
        columns = None if self.settings.features else self.table.columns
        by = scaling_of(kind, columns, inputs, points) or self._federation_scaling
        return ScaledInputs(inputs, by)

    def _federation_scaling(self) -> Scaling:
        if MEANS not in self.setup:
            raise UserError(
                "The server has not sent the means and scales of columns yet.", "not-sent-yet"
            )
        return Scaling(np.array(self.setup[MEANS]), np.array(self.setup[SCALES]))

    @property
    def own_rows(self) -> tuple[Inputs, Ints]:
        """An array of points, and which rows of it are the client's; the federation standardizes
        vectors by these."""
        raise UserError(
            f"Method {self.settings.method!r} does not say which points clients have.",
            "method-mismatch",
        )

    @property
    def own_points(self) -> OwnPoints:
        """What a personal model learns from (setting `personal`)."""
        inputs, points = self.own_rows
        return OwnPoints(inputs, points, missing="it has no labels and no sets")

    def point_shares(self) -> PointShares:
        """What is stated of the classes of its points; by default nothing."""
        inputs, points = self.own_rows
        nothing = np.zeros((len(points), self.num_classes))
        return PointShares(inputs, points, nothing, np.zeros(len(points), bool))

    @property
    def share_variances(self) -> Floats:
        """``(M,)``, variances of the stated class shares of its sets, as a part of those of one
        point's class; empty for a client that states none."""
        return np.zeros(0)

    @property
    def folder(self) -> Path | None:
        """Folder of the client's own data; ``None`` in a simulated split."""
        if self.node.data:
            return Path(self.node.data)
        if "client-data" not in self.setup:
            return None
        from fedul_flwr.data.local_data import client_folders

        folders = client_folders(self.setup["client-data"], self.node.num_partitions)
        return folders[self.node.partition_id]

    def load_points(self, folder: Path) -> PartlyLabeledPoints:
        """The points in ``folder`` with the owner's labels."""
        from fedul_flwr.data.local_data import load_partly_labeled

        self.node.expect_format(self.settings.method, POINT_FORMATS)
        points = load_partly_labeled(
            folder,
            self.class_names,
            self.input_shape,
            form=self.node.format,
            known_labels=self.node.known_labels,
            table=self.table,
        )
        return replace(points, inputs=self.featured(points.inputs))

    def featured(self, points: Inputs) -> Inputs:
        """The features of own points, computed once, if the run has some; else the points."""
        if not self.settings.features:
            return points
        from fedul_flwr.extractors.find import feature_array, find_extractor

        settings = self.settings
        extractor = find_extractor(settings.features, settings.device, settings.precision)
        return feature_array(points, extractor)


class UnlabeledSetData(ClientData):
    """Unlabeled sets with class priors; FedUL needs as many sets as classes."""

    registers = OF_SETS

    @property
    def min_sets(self) -> int | None:
        """Fewest sets with which the client can take part; ``None`` is the number of classes."""
        return 2 if fewer_sets(self.settings[AdmissionSettings]) else None

    @cached_property
    def all_sets(self) -> UnlabeledSets:
        """The sets, with the points that are held out."""
        sets = self._open_sets()
        return replace(sets, inputs=self.standardized(sets.inputs, sets.points))

    @cached_property
    def sets(self) -> UnlabeledSets:
        """The sets without the points that are held out: what a method learns from."""
        return self._among_all(~self._is_held_out) if self.settings.holds_out else self.all_sets

    @cached_property
    def held_out(self) -> UnlabeledSets:
        """The points of the sets that no method learns from, by which models are judged."""
        return self._among_all(self._is_held_out)

    def _among_all(self, mask: Bools) -> UnlabeledSets:
        every = self.all_sets
        return replace(every, points=every.points[mask], sets=every.sets[mask])

    @cached_property
    def _is_held_out(self) -> Bools:
        """Bool ``(n_c,)``: entries held out, the same in every round."""
        sets, settings = self.all_sets, self.settings
        mask = np.zeros(len(sets.points), dtype=bool)
        if settings.holds_out:
            # Hold out points, not entries of sets: sets may share points, and a point must be held
            # out of all of them. All points have the same chance, so that the expected class
            # proportions of every set, and so the transition, do not change.
            rng = stream(settings.seed, "held-out", self.node.partition_id)
            distinct = rng.permutation(np.unique(sets.points))
            count = int(settings[AdmissionSettings].heldout_fraction * len(distinct))
            mask = np.isin(sets.points, distinct[:count])
            for m in range(len(sets.priors)):  # every set keeps at least one point for training
                entries = np.flatnonzero(sets.sets == m)
                if len(entries) and mask[entries].all():
                    mask &= sets.points != sets.points[entries[0]]
        return mask

    def _open_sets(self) -> UnlabeledSets:
        folder = self.folder
        if folder is None:
            sets = open_unlabeled_sets(self.setup, self.node.partition_id)
            return replace(sets, inputs=self.shifted(sets.inputs))
        self.node.expect_format(self.settings.method, SET_FORMATS)
        from fedul_flwr.data.local_data import load_unlabeled_sets

        sets = load_unlabeled_sets(
            folder, self.class_names, self.num_classes, self.input_shape, table=self.table
        )
        return replace(sets, inputs=self.featured(sets.inputs))

    @property
    def own_rows(self) -> tuple[Inputs, Ints]:
        """The points of all sets."""
        return self.all_sets.inputs, self.all_sets.points

    @property
    def own_points(self) -> OwnPoints:
        """The points of all sets, each with its set as target."""
        sets, rank = self.all_sets, self.set_check.rank
        present = int((sets.priors > 0).any(axis=0).sum())
        if rank < present:
            few = f"class shares of its sets have rank {rank}, and they have {present} classes"
            return OwnPoints(sets.inputs, sets.points, missing=few)
        return OwnPoints(
            *(sets.inputs, sets.points, sets.points, sets.sets),
            priors=sets.priors,
            set_sizes=sets.set_sizes,
        )

    def point_shares(self) -> PointShares:
        """Class shares of each point's set, of the points that it learns from."""
        return PointShares.of_sets(self.sets, self.sets.priors, self.drawn)

    @property
    def drawn(self) -> Floats:
        """``(M,)``, variance of the number of a class's points in each set, of those that it learns
        from, relative to that of points drawn by the set's class shares.

        Shares are of whole sets: of points held out a part of the variance of drawing is left.
        """
        settings = self.settings
        aside = settings[AdmissionSettings].heldout_fraction if settings.holds_out else 0.0
        sizes = np.bincount(self.sets.sets, minlength=len(self.share_variances))
        return np.asarray(aside + sizes * self.share_variances)

    @property
    def share_variances(self) -> Floats:
        """``(M,)``, 1 / (κ + 1) for class shares that are worth κ labels; 0 for exact ones."""
        posterior = self.all_sets.posterior
        sets = len(self.all_sets.priors)
        return np.zeros(sets) if posterior is None else 1 / (posterior.concentrations + 1)

    @property
    def set_names(self) -> list[str]:
        """Names of the sets; their numbers from 0 if they have none."""
        return list(self.all_sets.names) or [str(m) for m in range(len(self.all_sets.priors))]

    @cached_property
    def set_check(self) -> SetCheck:
        """Result of this client's check of its own sets."""
        return check_sets(
            self.all_sets.priors,
            self.all_sets.set_sizes,
            strict_rank=self.settings[AdmissionSettings].strict_rank,
            min_sets=self.min_sets,
            class_names=self.class_names,
            tolerances=self.all_sets.tolerances,
        )

    def register(self) -> dict[str, Value]:
        """The result of the check; priors only with ``fedul.share-priors``."""
        check = self.set_check
        # Of simulated sets the server says the same.
        about = (check.in_words(self.set_names), *check.warnings) if self.folder is not None else ()
        for line in filter(None, (*self.all_sets.notes, *about)):
            print(f"Client {self.node.partition_id}: {line}")
        values: dict[str, Value] = {
            "reason": check.reason,
            "num-sets": check.num_sets,
            "num-points": check.num_points,
            "condition-number": check.condition_number,
        }
        self._require_size()
        if self.settings[AdmissionSettings].share_priors:
            counts = self.sent_priors * self.all_sets.set_sizes[:, None]
            self.require_counts(counts, "fedul.share-priors")
            values["priors"] = self.sent_priors.ravel().tolist()
            values["set-sizes"] = self.all_sets.set_sizes.tolist()
        return values

    @cached_property
    def sent_priors(self) -> Floats:
        """``(M, K)``, class shares of the sets as they may leave: with the owner's digits."""
        return rounded_shares(self.all_sets.priors, self.node.share_digits)

    def class_masses(self) -> Floats:
        """``(K,)``, how many points of each class the sets have together, as it may leave."""
        masses = class_masses(self.sent_priors, self.all_sets.set_sizes)
        self.require_counts(masses, "test-prior = 'sets'")
        return masses

    def require_counts(self, counts: Floats, what: str) -> None:
        """Refuse to send numbers of points of classes below the owner's floor; 0 tells nobody."""
        least = self.node.min_class_count
        if least and ((counts > 0) & (counts < least)).any():
            tells = f"{what} would tell of a class with fewer points"
            raise self._below_floor(tells, "min-class-count", least)

    def _require_size(self) -> None:
        least, sizes = self.node.min_set_size, self.all_sets.set_sizes
        if len(sizes) and sizes.min() < least:
            small = self.set_names[int(sizes.argmin())]
            raise self._below_floor(f"set {small!r} has {sizes.min()}", "min-set-size", least)

    def _below_floor(self, what: str, limit: str, least: int) -> OwnDataError:
        text = f"Node config has {limit} = {least}, and {what}."
        return OwnDataError(text, "owner-does-not-allow", limit=limit)

    def describe(self) -> Iterator[str]:
        """Sets, rank and condition number of their priors, and warnings."""
        sets, check = self.all_sets, self.set_check
        yield f"{check.num_points} points in {check.num_sets} sets, {self.num_classes} classes"
        for name, size in zip(sets.names, sets.set_sizes, strict=True):
            yield f"set {name}: {size} points"
        if check.condition_number < np.inf:
            yield f"the sets tell all classes apart; {alikeness(check.condition_number)}"
        yield from sets.notes
        yield from (f"warning: {warning}" for warning in check.warnings)

    def check(self) -> None:
        """Raise an error if the check of the sets refuses them."""
        check = self.set_check
        if not check.accepted:
            why = check.in_words(self.set_names)
            text = f"Client {self.node.partition_id} cannot take part: {why}."
            raise OwnDataError(text, check.code)


class AnySetsData(UnlabeledSetData):
    """Unlabeled sets with class priors, of which one is enough."""

    @property
    def min_sets(self) -> int:
        """One."""
        return 1


class PartlyLabeledData(ClientData):
    """Points with labels for some of them."""

    registers = dict.fromkeys(
        ("num-points", "num-labeled"), Part.count(says="how many points and labels")
    )

    @cached_property
    def _all(self) -> PartlyLabeledPoints:
        """The points; without labels if only the server has some (``scenario.labels-at``)."""
        folder = self.folder
        if folder is None:
            points = open_partly_labeled_points(self.setup, self.node.partition_id)
            points = replace(points, inputs=self.shifted(points.inputs))
        else:
            points = self.load_points(folder)
        points = replace(points, inputs=self.standardized(points.inputs, points.points))
        return points.without_labels() if label_scenario(self.settings) == "server" else points

    @cached_property
    def _aside(self) -> Ints:
        """Positions of the labeled points that the run does not train on (setting `personal`)."""
        if self.settings.personal == "off":
            return np.empty(0, dtype=np.int64)
        labeled = np.flatnonzero(self._all.labels != UNLABELED)
        return set_aside(labeled, self.settings.seed, self.node.partition_id)

    @cached_property
    def examples(self) -> PartlyLabeledPoints:
        """The points, without the labels of those that are set aside: these count as new."""
        examples = self._all
        if not len(self._aside):
            return examples
        labels, new = examples.labels.copy(), examples.new.copy()
        labels[self._aside], new[self._aside] = UNLABELED, True
        return replace(examples, labels=labels, new=new)

    @property
    def own_points(self) -> OwnPoints:
        """The points that the run trains on, the labels among them, and those set aside."""
        trained = self.examples.points[~self.examples.new]
        return labeled_own_points(self._all, trained, self.labeled, self._aside)

    @property
    def own_rows(self) -> tuple[Inputs, Ints]:
        """All points, with or without a label."""
        return self.examples.inputs, self.examples.points

    @cached_property
    def labeled(self) -> Ints:
        """Positions of the labeled points among all."""
        return np.flatnonzero(self.examples.labels != UNLABELED)

    @cached_property
    def unlabeled(self) -> Ints:
        """Positions of the unlabeled points that may be used in training."""
        return self.examples.unlabeled

    def point_shares(self) -> PointShares:
        """Labels, and for the other points equal shares of all classes, of which it may have points
        without a label."""
        examples, of_labels = self.examples, self.examples.labels[self.labeled]
        rows = np.concatenate([self.labeled, self.unlabeled])
        shares = np.ones((len(rows), self.num_classes))
        shares[: len(of_labels)] = np.eye(self.num_classes)[of_labels]
        stated = np.arange(len(rows)) < len(of_labels)
        return PointShares(examples.inputs, examples.points[rows], shares, stated)

    def arrived(self, positions: Ints, round_number: int) -> Ints:
        """Those of ``positions`` that arrive in a round's streaming step, in random order."""
        order = stream(self.settings.seed, "streaming", self.node.partition_id)
        return part_of_step(order.permutation(positions), self.settings, round_number)

    def labeled_and_unlabeled(self, round: Round) -> Batches:
        """Batches of labeled points and of the unlabeled ones of this round's step."""
        from fedul_flwr.learning.batches import matching_batches

        positions = np.concatenate([self.labeled, self.arrived(self.unlabeled, round.number)])
        return matching_batches(
            self.examples.inputs,
            self.examples.points[positions],
            self.examples.labels[positions],
            round.plan,
            self.settings[ViewSettings].unlabeled_batch_size,
        )

    def register(self) -> dict[str, Value]:
        """Numbers of points and of labels."""
        for line in self.examples.notes:
            print(f"Client {self.node.partition_id}: {line}")
        return {"num-points": len(self.examples.points), "num-labeled": len(self.labeled)}

    def describe(self) -> Iterator[str]:
        """Numbers of points and of labels by class."""
        yield f"{len(self.examples.points)} points, {len(self.labeled)} with a label"
        counts = np.bincount(self.examples.labels[self.labeled], minlength=self.num_classes)
        for name, count in zip(self.class_names, counts, strict=True):
            yield f"class {name}: {count} with a label"
        yield from self.examples.notes
        if not len(self.labeled):
            yield "warning: no point has a label, it learns from unlabeled ones alone"


DATA: Mapping[str, type[ClientData]] = {
    "unlabeled-sets": UnlabeledSetData,
    "partly-labeled": PartlyLabeledData,
    "fully-labeled": PartlyLabeledData,
    "labels": ClientData,
}
"""Class of the clients' data by the kind that a method declares."""


def data_class_of(settings: RunConfig) -> type[ClientData]:
    """Class of the clients' data in a run: that of the method's client, or of the method's kind."""
    method = find_method(settings.method)
    if not method.asks_clients:
        return ClientData
    chosen: type[ClientData] | None = method.client_class.data_class
    return chosen or DATA[method.data]


class ClientState:
    """A client's state between messages.

    On a device every message runs in a new process, so anything not stored here is lost. Values are
    stored in Flower's ``context.state``, on a device arrays too. A simulation stores arrays in
    files: Flower would copy hundreds of models with every message, and a run could not resume.

    Parameters
    ----------
    records : Flower's ``context.state``.
    directory : this client's own in a simulation; ``None`` on a device.
    run : Flower's id of the run that the state belongs to.
    """

    def __init__(self, records: RecordDict, directory: Path | None = None, run: int = 0) -> None:
        self._records = records
        self.directory = directory
        self.run = run

    def within(self, directory: Path | None) -> ClientState:
        """The same state with its arrays in ``directory``."""
        return ClientState(self._records, directory, self.run)

    def values(self, name: str) -> dict[str, Value]:
        """The values stored under ``name``, empty if there are none."""
        record = self._records.get(name)
        return dict(cast(ConfigRecord, record)) if record is not None else {}

    def set_values(self, name: str, values: Mapping[str, Value]) -> None:
        """Store values under ``name``."""
        self._records[name] = ConfigRecord(dict(values))

    def load(self, name: str, server_round: int) -> Arrays:
        """The arrays stored under ``name`` in the last round before ``server_round``; {} if none.

        Arrays in files are memory-mapped, copy on write: changing them does not change the files.
        """
        if self.directory is None:
            return self.ephemeral(name)
        earlier = [number for number in self._rounds(name) if number < server_round]
        return _mapped_arrays(self._file(name, max(earlier))) if earlier else {}

    def save(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Store arrays under ``name`` as of the end of ``server_round``.

        In a simulation the server removes earlier versions once the round is complete on disk
        (``Run.drop_client_versions``), so a run that is interrupted within a round
        resumes from the end of the last complete one.
        """
        if self.directory is None:
            self.set_ephemeral(name, arrays)
            return
        make_folder(self.directory)
        # Not synced: hundreds of clients would wait for the disk in every round.
        save_arrays(self._file(name, server_round), arrays, sync=False)

    def ephemeral(self, name: str) -> Arrays:
        """Arrays stored in Flower's state, in a simulation too, never in a file; {} if none."""
        record = self._records.get(name)
        return to_arrays(cast(ArrayRecord, record)) if record is not None else {}

    def set_ephemeral(self, name: str, arrays: Arrays) -> None:
        """Store arrays in Flower's state only; an empty mapping deletes the stored ones."""
        self._records.pop(name, None)
        if arrays:
            self._records[name] = to_record(arrays)

    def publish(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Write arrays for a simulation's reports; the client itself does not read them."""
        if self.directory is not None:
            self.save(name, server_round, arrays)

    def _file(self, name: str, server_round: int) -> Path:
        assert self.directory is not None
        return self.directory / f"{name}-{server_round}.safetensors"

    def _rounds(self, name: str) -> list[int]:
        assert self.directory is not None
        stems = [path.stem for path in self.directory.glob(f"{name}-*.safetensors")]
        return [int(stem.rpartition("-")[2]) for stem in stems]


def file_of(node: NodeConfig, state: ClientState, name: str) -> Path:
    """Where a file of a client's own goes: next to an owner's data, or to the results."""
    if state.directory is not None:
        state.directory.mkdir(parents=True, exist_ok=True)
        return state.directory / name
    folder = Path(node.data).expanduser().resolve()
    return folder.with_name(f"{folder.name}-{name}")


def _mapped_arrays(file: Path) -> Arrays:
    # On devices there are no files, nor need for torch.
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    # Torch's loader maps the file into memory, copy on write; numpy's loader reads all of it.
    try:
        return {name: tensor.numpy() for name, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{file} is damaged: begin the run anew in another output.", "file-damaged"
        ) from error


def state_directory(setup: Mapping[str, Any], node: NodeConfig) -> Path | None:
    """Directory that keeps a simulated client's state; a node with own data keeps it in memory.

    Parameters
    ----------
    setup : the setup from phase ``setup``. It comes from the server, which must not name a path on
        an owner's machine.
    """
    if node.data or "memory" not in setup:
        return None
    return Path(str(setup["memory"])) / str(node.partition_id)


def admitted_settings(node: NodeConfig, text: str) -> RunConfig:
    """Settings of a run from their JSON text, if the limits of the data's owner admit the run."""
    if node.data:
        node.check_modules(json.loads(text))
    settings = settings_from(text)
    if node.data:
        node.check_run(settings)
    return settings
