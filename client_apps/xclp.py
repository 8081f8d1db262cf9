"""XCLP's client (Algorithm 1): codes its points, sums its labels, reads its own rows of Z."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from client_apps.partly_labeled import nothing
from client_apps.private import PrivateClient
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.semi import XCLPSettings
from fedul_flwr.data.content import Content, number
from fedul_flwr.data.types import UNLABELED, Arrays, Bytes, Propagated, below
from fedul_flwr.errors import UserError
from fedul_flwr.federated.disclosure import Sent
from fedul_flwr.federated.messages import ARRAYS
from fedul_flwr.propagation.codes import checked_features, encode
from fedul_flwr.propagation.labels import labels_from_scores, one_hot, reweigh_by_prior
from fedul_flwr.propagation.phases import (
    ATTEMPT,
    COLUMNS,
    COMPARE,
    END,
    FIRST,
    LABELED,
    MODEL,
    PARTICIPANTS,
    ROUND,
    ROWS,
    SENT,
    SUM,
    UNLABELED_POINTS,
    WITHHELD,
)
from fedul_flwr.propagation.shares import label_part, own_rows, scores_of
from fedul_flwr.secure.backends import BACKENDS
from fedul_flwr.secure.rowsums import open_rows, pair_masks, split_share
from fedul_flwr.secure.similarity import Encode, SimilarityBackend, Task

FEATURES, PRESENT, ASKED, KEPT, BACKEND = "features", "present", "asked", "kept", "backend/"
"""Names of a client's stored arrays between phases: features until they are coded, points with
nonzero features, points whose labels are requested, the part of its share that it keeps; and the
prefix of the backend's state."""

MEMORY = "xclp"
"""Name under which they are stored, in Flower's state only, until the propagation ends."""


class XCLPClient(PrivateClient):
    """Takes part in a propagation before training, and trains on the propagated labels."""

    @property
    def propagation(self) -> XCLPSettings:
        """Settings of the propagation."""
        return self.settings[XCLPSettings]

    propagates = "every round of the second stage that it trains in"
    """How often a propagation takes place, in words."""

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Inherited entries, which points are labeled, the backend's messages, and partial sums."""
        options = settings[XCLPSettings]
        compared = {
            LABELED: ("which of its points have a label, not which label", "the server"),
            **BACKENDS[options.secure].sends,
        }
        sent = [
            Sent(COMPARE, (name,), what, ARRAYS, cls.propagates, reader)
            for name, (what, reader) in compared.items()
        ]
        masked = options.secure != "plaintext"
        what = "its labels' part of the scores of others' points" + ", masked" * masked
        reader = (
            "the other clients, as a sum of all parts at their own points"
            if masked
            else "the server"
        )
        sent.append(Sent(SUM, (SENT,), what, ARRAYS, cls.propagates, reader))
        return [*super().sends(settings), *sent]

    def step(self, name: str, content: Content) -> Content:
        """Answer phases of the propagation, besides those of every method."""
        if name == COMPARE:
            return self._compare(content)
        if name == SUM:
            return self._sum(content)
        if name == END:
            self.end_propagation()
            return Content()
        if name == "prepare":  # a client that starts again leaves a running propagation
            self.end_propagation()
        return super().step(name, content)

    def pseudo_labels(self) -> Propagated:
        """Labels of the unlabeled points from the propagation before this round's training.

        No labels if the message has no rows, because too few clients were left to propagate.
        """
        found = nothing(len(self.unlabeled))
        if ROWS in self.received:
            found = self.of_unlabeled(self.open(self.received[ROWS]))
        self.end_propagation()
        return found

    def open(self, received: Mapping[str, NDArray[Any]]) -> Propagated:
        """Labels and confidences of the points in :attr:`shown`, from this client's rows.

        The label is -1 for points that no label reaches, and for points with given labels.
        """
        memory = self._memory()
        if KEPT not in memory or ROWS not in received:
            raise UserError(f"{self._name} was sent no rows of a sum that it has a part in.")
        rows = open_rows(memory[KEPT], received[ROWS])
        scores = scores_of(rows, class_scaling=self.propagation.class_scaling)
        if self.propagation.reweigh:
            scores = reweigh_by_prior(scores)
        guess, asked = nothing(len(self.shown)), memory[ASKED]
        guess.labels[asked], guess.confidence[asked] = labels_from_scores(scores)
        return guess

    def end_propagation(self) -> None:
        """Delete keys, codes and all other state of the propagation."""
        self.state.set_secrets(MEMORY, {})

    # Phases

    def _compare(self, content: Content) -> Content:
        """Answer the backend; its first message has the model, the reply which points are labeled.

        Points whose features are all zero have no direction, so no similarity, and are left out.
        """
        message = dict(content.arrays)
        reply: Arrays = {}
        if content.values[FIRST]:
            names = [name for name in message if name.startswith(MODEL)]
            weights = {name.removeprefix(MODEL): message.pop(name) for name in names}
            if weights:
                from fedul_flwr.learning.local import load_arrays

                load_arrays(self.model, weights)
            try:
                features = checked_features(self.features())
            except UserError as error:
                raise UserError(f"{self._name}: {error}") from error
            features = self.coded(features, number(content, ROUND))
            present = features.any(axis=1)
            memory: Arrays = {PRESENT: np.asarray(present), FEATURES: features[present]}
            reply[LABELED] = (self.given != UNLABELED)[present]
        else:
            memory = self._memory()

        def codes(seed: bytes) -> Bytes:
            return encode(memory.pop(FEATURES), seed, self.propagation.num_bits)

        task = self._task(content, memory[PRESENT], codes)
        own, answer = self._backend.respond(below(BACKEND, memory), message, task)
        kept = {name: memory[name] for name in (PRESENT, FEATURES) if name in memory}
        self._remember(kept, own)
        return Content(arrays={**answer, **reply})

    def _sum(self, content: Content) -> Content:
        """Partial sums: its labels' contribution to the scores of other clients' points."""
        unlabeled = _counts(content, UNLABELED_POINTS)
        participants = _counts(content, PARTICIPANTS)
        if self.node.partition_id not in participants or len(unlabeled) != len(participants):
            raise UserError(f"{self._name} is asked for a part of a sum that it is not in.")
        memory = self._memory()
        task = self._task(content, memory[PRESENT], _no_codes)
        attempt = number(content, ATTEMPT)
        of_each = dict(zip(participants, unlabeled, strict=True))
        if len(of_each) < len(participants):
            raise UserError(f"{self._name} is asked for a sum in which somebody is twice.")
        backends, keys = self._backend.mask_keys(below(BACKEND, memory), task, of_each, attempt)
        withheld = bool(content.values[WITHHELD])
        given = self.summed(number(content, ROUND))
        if withheld:
            given = np.full_like(given, UNLABELED)
        in_graph = given[memory[PRESENT]]
        position = participants.index(self.node.partition_id)
        if keys and (withheld or unlabeled[position] != (in_graph == UNLABELED).sum()):
            raise UserError(
                f"{self._name} adds up labels of its unlabeled points alone: "
                "rows of labeled ones would show labels of others."
            )
        part = label_part(
            content.arrays.get(COLUMNS, np.empty(0)),
            one_hot(in_graph[in_graph != UNLABELED], self.num_classes),
            one_hot(given, self.num_classes).sum(axis=0),
            unlabeled,
        )
        mask = pair_masks(keys, self.node.partition_id, part.shape)
        share = split_share(part, own_rows(unlabeled, position), len(unlabeled), mask)
        asked = memory[PRESENT] & (given == UNLABELED)
        self._remember({PRESENT: memory[PRESENT], ASKED: asked, KEPT: share.kept}, backends)
        return Content(arrays={SENT: share.sent})

    @property
    def _name(self) -> str:
        return f"Client {self.node.partition_id}"

    @property
    def _backend(self) -> SimilarityBackend:
        return BACKENDS[self.propagation.secure]

    def _task(self, content: Content, present: NDArray[np.bool_], codes: Encode) -> Task:
        return Task(
            own=self.node.partition_id,
            server_round=number(content, ROUND),
            num_points=int(present.sum()),
            num_bits=self.propagation.num_bits,
            fewest_labeled=self.propagation.fewest_labeled,
            seed_is_public=self.propagation.seed_is_public,
            encode=codes,
        )

    def _memory(self) -> Arrays:
        """Stored arrays of the current propagation."""
        memory = self.state.secrets(MEMORY)
        if not memory:
            raise UserError(f"{self._name} has no part in the propagation that it is asked about.")
        return memory

    def _remember(self, kept: Arrays, backends: Mapping[str, NDArray[Any]]) -> None:
        own = {BACKEND + name: array for name, array in backends.items()}
        self.state.set_secrets(MEMORY, kept | own)


def _counts(content: Content, key: str) -> list[int]:
    """Integers that are not negative, one for each participant of a sum."""
    found = content.values.get(key)
    if not isinstance(found, list) or not all(isinstance(n, int) and n >= 0 for n in found):
        raise UserError(f"The server sent no valid {key!r} with the sum of labels.")
    return cast(list[int], found)


def _no_codes(seed: bytes) -> Bytes:
    del seed
    raise ValueError("there are no features any more")
