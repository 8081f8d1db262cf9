"""XCLP's client (Algorithm 1): codes of its points, its part of the labels' sum, its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_apps.partly_labeled import nothing
from client_apps.propagating import PropagatingClient
from fedul_flwr.bridge import Arrays, Content
from fedul_flwr.data.types import UNLABELED
from fedul_flwr.errors import UserError
from fedul_flwr.learning.local import load_arrays
from fedul_flwr.propagation.codes import checked_features, encode
from fedul_flwr.propagation.labels import (
    Propagated,
    labels_from_scores,
    one_hot,
    reweigh_by_prior,
)
from fedul_flwr.propagation.phases import (
    COLUMNS,
    COMPARE,
    FIRST,
    LABELLED,
    MODEL,
    POSITION,
    ROUND,
    ROWS,
    SENT,
    SUM,
    UNLABELED_POINTS,
    WITHHELD,
)
from fedul_flwr.propagation.shares import label_part, own_rows, scores_of
from fedul_flwr.secure.backends import BACKENDS
from fedul_flwr.secure.rowsums import open_rows, split_share
from fedul_flwr.settings.semi import XCLPSettings

FEATURES, PRESENT, ASKED, KEPT, BACKEND = "features", "present", "asked", "kept", "backend/"
"""Arrays a client remembers from one phase to the next: features while the backend needs them,
points that have a direction, those whose labels are asked for, what it kept of its share; and the
prefix of what the backend remembers."""

MEMORY = "xclp"
"""Name under which it remembers them."""


class XCLPClient(PropagatingClient):
    """Takes part in a propagation before it trains, and trains on what comes of it."""

    @property
    def propagation(self) -> XCLPSettings:
        """How labels are propagated."""
        return self.settings.section("xclp", XCLPSettings)

    def step(self, name: str, content: Content) -> Content:
        """Phases of the propagation beside those of every method."""
        if name == COMPARE:
            return self._compare(content)
        if name == SUM:
            return self._sum(content)
        return super().step(name, content)

    def pseudo_labels(self) -> Propagated:
        """What the propagation before this round's training says of the unlabeled points."""
        return self.of_unlabeled(self.open(self.received[ROWS], self.server_round))

    def open(self, received: Mapping[str, NDArray[Any]], server_round: int) -> Propagated:
        """Labels and confidences of the points in :attr:`shown`, from this client's rows.

        -1 where no label reaches, and for points whose labels were given.
        """
        memory = self.state.recall(MEMORY, server_round + 1)
        rows = open_rows(memory[KEPT], received[ROWS])
        scores = scores_of(rows, class_scaling=self.propagation.class_scaling)
        if self.propagation.reweigh:
            scores = reweigh_by_prior(scores)
        guess, asked = nothing(len(self.shown)), memory[ASKED]
        guess.labels[asked], guess.confidence[asked] = labels_from_scores(scores)
        return guess

    # Phases

    def _compare(self, content: Content) -> Content:
        """Answer the backend; its first message comes with the model, the reply says who is who.

        Points without a direction, whose features are all zero, are similar to nobody and stay
        out.
        """
        server_round = int(content.values[ROUND])  # type: ignore[arg-type]
        memory = self.state.recall(MEMORY, server_round + 1)
        message = dict(content.arrays)
        reply: Arrays = {}
        if content.values[FIRST]:
            names = [name for name in message if name.startswith(MODEL)]
            weights = {name.removeprefix(MODEL): message.pop(name) for name in names}
            if weights:
                load_arrays(self.model, weights)
            try:
                features = checked_features(self.features())
            except UserError as error:
                raise UserError(f"Client {self.node.partition_id}: {error}") from error
            present = features.any(axis=1)
            memory = {PRESENT: np.asarray(present), FEATURES: features[present]}
            reply[LABELLED] = (self.given != UNLABELED)[present]
        own: Mapping[str, NDArray[Any]] = {
            name.removeprefix(BACKEND): array
            for name, array in memory.items()
            if name.startswith(BACKEND)
        }
        features = memory[FEATURES]
        num_bits = self.propagation.num_bits
        own, answer = BACKENDS[self.propagation.secure].respond(
            own, message, lambda seed: encode(features, seed, num_bits)
        )
        memory = {PRESENT: memory[PRESENT]}
        if own:  # it will be asked again
            memory |= {FEATURES: features} | {BACKEND + k: array for k, array in own.items()}
        self.state.keep(MEMORY, server_round, memory)
        return Content(arrays={**answer, **reply})

    def _sum(self, content: Content) -> Content:
        """Its labels' part of the scores of all unlabeled points, without those of its own."""
        told = content.values
        server_round = int(told[ROUND])  # type: ignore[arg-type]
        unlabeled: list[int] = list(told[UNLABELED_POINTS])  # type: ignore[arg-type]
        memory = self.state.recall(MEMORY, server_round + 1)
        given = np.full_like(self.given, UNLABELED) if told[WITHHELD] else self.given
        in_graph = given[memory[PRESENT]]
        part = label_part(
            content.arrays[COLUMNS],
            one_hot(in_graph[in_graph != UNLABELED], self.num_classes),
            one_hot(given, self.num_classes).sum(axis=0),
            unlabeled,
        )
        own = own_rows(unlabeled, int(told[POSITION]))  # type: ignore[arg-type]
        share = split_share(part, own, len(unlabeled))
        asked = memory[PRESENT] & (given == UNLABELED)
        memory = {PRESENT: memory[PRESENT], ASKED: asked, KEPT: share.kept}
        self.state.keep(MEMORY, server_round, memory)
        return Content(arrays={SENT: share.sent})
