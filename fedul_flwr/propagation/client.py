"""The client's half of a propagation (XCLP, Algorithm 1), without Flower and without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays, Bytes, Floats, Ints, below
from fedul_flwr.config.method_settings import PropagationSettings, XCLPSettings
from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.data.types import UNLABELED, Content, PartlyLabeledPoints, Propagated, number
from fedul_flwr.errors import UserError
from fedul_flwr.propagation import phases
from fedul_flwr.propagation.central import Propagation
from fedul_flwr.propagation.codes import checked_features, encode
from fedul_flwr.propagation.privacy import ClientNoise, Store
from fedul_flwr.propagation.solve import (
    check_counts,
    label_part,
    one_hot,
    own_rows,
    reweigh_by_prior,
    scores_of,
)
from fedul_flwr.secure.encrypted_distances import backend_of
from fedul_flwr.secure.identities import Identities
from fedul_flwr.secure.messages import checked_array
from fedul_flwr.secure.rowsums import check_row, check_words, open_rows, pair_masks, split_share
from fedul_flwr.secure.similarity import Encode, SimilarityBackend, Task


@dataclass(frozen=True)
class GraphPoints:
    """A client's points in the similarity graph.

    Attributes
    ----------
    examples : all of the client's points.
    positions : int64 ``(n,)``, positions in ``examples`` of the points in the graph.
    num_classes : K.
    """

    examples: PartlyLabeledPoints
    positions: Ints
    num_classes: int

    @classmethod
    def of_training(cls, examples: PartlyLabeledPoints, num_classes: int) -> GraphPoints:
        """All points except those to predict."""
        return cls(examples, np.flatnonzero(~examples.new), num_classes)

    @property
    def labels(self) -> Ints:
        """``(n,)``, their given labels, -1 for unlabeled ones."""
        return self.examples.labels[self.positions]

    @property
    def rows(self) -> Ints:
        """``(n,)``, their rows of ``examples.inputs``."""
        return self.examples.points[self.positions]

    def of_unlabeled(self, propagated: Propagated) -> Propagated:
        """Restrict a result for these points to the client's unlabeled training points.

        A training point outside of the graph has no label.
        """
        count = len(self.examples.points)
        labels, confidence = np.full(count, UNLABELED, dtype=np.int64), np.zeros(count)
        labels[self.positions], confidence[self.positions] = propagated
        unlabeled = self.examples.unlabeled
        return Propagated(labels[unlabeled], confidence[unlabeled])

    def own_scores(self, features: NDArray[np.float32], options: PropagationSettings) -> Floats:
        """Scores ``(n, K)`` of propagation from this client's labels alone.

        Parameters
        ----------
        features : ``(n, d)``.
        """
        how = Propagation(
            k=options.k,
            num_bits=options.num_bits,
            alpha=options.alpha,
            power=options.power,
            class_scaling=options.is_scaled,
        )
        return how.scores(features, self.labels, self.num_classes)


PHASES = (phases.COMPARE, phases.SUM, phases.AUDIT, phases.END)
"""Phases that :class:`PropagationClient` answers."""

RUN_SEED = "run-seed"
"""Name of the secret seed of the codes, and name under which it is stored until the run ends: were
the same features coded by a new seed in every round, each would tell the server more of them."""

FEATURES, PRESENT, MISSING_LABELS, OWN_SHARE, BACKEND = (
    "features",
    "present",
    "asked",
    "kept",
    "backend/",
)
"""Names of a client's stored arrays between phases: features until they are coded, points with
nonzero features, points whose labels are requested, the part of its share that it keeps; and the
prefix of the backend's state."""

STORED = "xclp"
"""Name under which they are stored, in Flower's state only, until the propagation ends."""

Features = Callable[[Arrays, int], NDArray[np.floating[Any]]]
"""``(the model's arrays, empty for pixels, number of the round) -> (n, d)``, features of the
client's points."""


def end_propagation(store: Store) -> None:
    """Delete a client's keys, codes and all other state of a propagation."""
    store.set_ephemeral(STORED, {})


def end_propagations(store: Store) -> None:
    """Also delete the seed of the codes: no other propagation of the run follows."""
    end_propagation(store)
    store.set_ephemeral(RUN_SEED, {})


@dataclass(eq=False, repr=False)
class PropagationClient:
    """One client's part in propagations: codes its points, sums its labels, reads its own rows.

    Parameters
    ----------
    options : settings of the propagation.
    noise : differential privacy of features and labels.
    store : the client's state between phases.
    client : the client's number.
    labels : ``(n,)``, given labels of its points in the graph, -1 for unlabeled ones.
    num_classes : K.
    features : computes their features.
    run : Flower's id of the run.
    identities : who the owners are; ``None`` if nobody has said so.
    """

    options: XCLPSettings
    noise: ClientNoise
    store: Store
    client: int
    labels: Ints
    num_classes: int
    features: Features
    run: int
    identities: Identities | None
    name_edges: Callable[[NDArray[np.floating[Any]]], Arrays] = lambda _: {}
    """Edges of points with given features to the names of classes, if these are in the graph."""

    def __post_init__(self) -> None:
        self._name = f"Client {self.client}"

    def on_phase(self, name: str, content: Content) -> Content:
        """Answer one of :data:`PHASES`."""
        if name == phases.COMPARE:
            return self._compare(content)
        if name == phases.SUM:
            return self._sum(content)
        if name == phases.AUDIT:
            return self._audit()
        end_propagation(self.store)
        return Content()

    def open(self, received: Mapping[str, NDArray[Any]]) -> Propagated:
        """Labels and confidences of the points in the graph, from this client's rows.

        The label is -1 for points that no label reaches, and for points with given labels.
        """
        stored, of_names = self._stored(), received.get(phases.NAMES)
        if OWN_SHARE in stored and phases.ROWS in received:
            rows, missing = open_rows(stored[OWN_SHARE], received[phases.ROWS]), MISSING_LABELS
        elif OWN_SHARE not in stored and of_names is not None:  # nobody has a label
            rows, missing = np.zeros((int(stored[PRESENT].sum()) + 1, self.num_classes)), PRESENT
        else:
            raise UserError(
                f"{self._name} was sent no rows of a sum that it has a part in.",
                "server-out-of-turn",
            )
        check_counts(rows[-1])
        if of_names is not None:  # each name is a label of its class
            part = checked_array(
                "The server sent", received, phases.NAMES, np.float64, (len(rows) - 1, len(rows[0]))
            )
            rows = rows + np.concatenate([part, np.ones((1, self.num_classes))])
        scores = scores_of(rows, class_scaling=self.options.is_scaled)
        if self.options.reweigh:
            scores = reweigh_by_prior(scores)
        count, chosen = len(self.labels), stored[missing]
        labels, confidence = np.full(count, UNLABELED, dtype=np.int64), np.zeros(count)
        labels[chosen], confidence[chosen] = labels_from_scores(scores)
        return Propagated(labels, confidence)

    def _compare(self, content: Content) -> Content:
        """Answer the backend; its first message has the model, the reply the labeled points."""
        message = dict(content.arrays)
        reply: Arrays = {}
        if content.values[phases.FIRST]:
            names = [name for name in message if name.startswith(phases.MODEL)]
            weights = {name.removeprefix(phases.MODEL): message.pop(name) for name in names}
            round_number = number(content, phases.ROUND)
            try:
                features = checked_features(self.features(weights, round_number))
            except UserError as error:
                raise UserError(f"{self._name}: {error}", error.code, **error.values) from error
            exact, features = features, self.noise.features(features, round_number)
            present = features.any(axis=1)
            reply |= self.name_edges(exact[present])
            stored: Arrays = {PRESENT: np.asarray(present), FEATURES: features[present]}
            reply[phases.LABELED] = (self.labels != UNLABELED)[present]
        else:
            stored = self._stored()

        def codes(seed: bytes) -> Bytes:
            if not self.options.seed_is_public:
                self.store.set_ephemeral(RUN_SEED, {RUN_SEED: np.frombuffer(seed, np.uint8)})
            return encode(stored.pop(FEATURES), seed, self.options.num_bits)

        task = self._task(content, stored[PRESENT], codes)
        to_store, answer = self._backend.respond(below(BACKEND, stored), message, task)
        rest = {name: stored[name] for name in (PRESENT, FEATURES) if name in stored}
        self._store_arrays(rest, to_store)
        return Content(arrays={**answer, **reply})

    def _sum(self, content: Content) -> Content:
        """Partial sums: its labels' contribution to the scores of other clients' points."""
        unlabeled = _counts(content, phases.UNLABELED_POINTS)
        participants = _counts(content, phases.PARTICIPANTS)
        of_each = dict(zip(participants, unlabeled, strict=False))
        if self.client not in of_each or not len(of_each) == len(participants) == len(unlabeled):
            raise UserError(
                f"{self._name} is asked for a part of a sum that it is not in once.",
                "server-names-others",
            )
        stored = self._stored()
        task = self._task(content, stored[PRESENT], _no_codes)
        attempt = number(content, phases.ATTEMPT)
        backends, keys = self._backend.mask_keys(below(BACKEND, stored), task, of_each, attempt)
        withheld = bool(content.values[phases.WITHHELD])
        labels = self.noise.labels(self.labels, self.num_classes, number(content, phases.ROUND))
        if withheld:
            labels = np.full_like(labels, UNLABELED)
        in_graph = labels[stored[PRESENT]]
        position = participants.index(self.client)
        if keys and (withheld or unlabeled[position] != (in_graph == UNLABELED).sum()):
            raise UserError(
                f"{self._name} adds up labels of its unlabeled points alone: "
                "rows of labeled ones would show labels of others.",
                "server-asks-too-much",
            )
        part = label_part(
            content.arrays.get(phases.COLUMNS, np.empty(0)),
            one_hot(in_graph[in_graph != UNLABELED], self.num_classes),
            one_hot(labels, self.num_classes).sum(axis=0),
            unlabeled,
        )
        mask = pair_masks(keys, self.client, part.shape)
        share = split_share(part, own_rows(unlabeled, position), len(unlabeled), mask)
        is_missing = stored[PRESENT] & (labels == UNLABELED)
        words = check_words(keys, self.num_classes)
        to_store = {
            PRESENT: stored[PRESENT],
            MISSING_LABELS: is_missing,
            OWN_SHARE: share.stored,
            phases.CHECKS: words,
        }
        self._store_arrays(to_store, backends)
        row = check_row(words, self.client, keys)
        return Content(arrays={phases.SENT: np.concatenate([row, share.sent])})

    def _audit(self) -> Content:
        """Tell the words of the last sum's check row, which hide nothing."""
        stored = self._stored()
        if phases.CHECKS not in stored:
            raise UserError(
                f"{self._name} is asked about a sum that it has no part in.", "server-out-of-turn"
            )
        return Content(arrays={phases.CHECKS: stored[phases.CHECKS]})

    @property
    def _backend(self) -> SimilarityBackend:
        return backend_of(self.options.secure)

    def _task(self, content: Content, present: NDArray[np.bool_], codes: Encode) -> Task:
        coded = self.store.ephemeral(RUN_SEED)  # in earlier propagations
        return Task(
            client=self.client,
            server_round=number(content, phases.ROUND),
            num_points=int(present.sum()),
            num_bits=self.options.num_bits,
            min_labeled_clients=self.options.min_labeled_clients,
            run=self.run,
            identities=self.identities,
            seed_is_public=self.options.seed_is_public,
            run_seed=coded[RUN_SEED].tobytes() if coded else b"",
            encode=codes,
        )

    def _stored(self) -> Arrays:
        """Stored arrays of the current propagation."""
        stored = self.store.ephemeral(STORED)
        if not stored:
            raise UserError(
                f"{self._name} has no part in the propagation that it is asked about.",
                "server-out-of-turn",
            )
        return stored

    def _store_arrays(self, arrays: Arrays, backend: Mapping[str, NDArray[Any]]) -> None:
        of_backend = {BACKEND + name: array for name, array in backend.items()}
        self.store.set_ephemeral(STORED, arrays | of_backend)


def _counts(content: Content, key: str) -> list[int]:
    """Integers that are not negative, one for each participant of a sum."""
    counts = content.values.get(key)
    if not isinstance(counts, list) or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise UserError(f"The server sent no valid {key!r} with the sum of labels.", "message-form")
    return cast(list[int], counts)


def _no_codes(seed: bytes) -> Bytes:
    del seed
    raise ValueError("there are no features any more")
