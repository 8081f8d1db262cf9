"""XCLP's client (Algorithm 2): takes part in a propagation, and trains on the propagated labels."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.federated.messages import FORGETFUL, SETUP
from fedul_flwr.federated.owner.ledger import spender
from fedul_flwr.federated.owner.model_check import check_model
from fedul_flwr.federated.payload import ANY, Declared
from fedul_flwr.propagation import phases
from fedul_flwr.propagation.client import (
    PHASES,
    Features,
    GraphPoints,
    PropagationClient,
    end_propagation,
)
from fedul_flwr.propagation.privacy import ClientNoise, privacy_plan
from fedul_flwr.secure.encrypted_distances import SENDS
from fedul_flwr.secure.hamming.pairwise import PLAINTEXT
from fedul_flwr.secure.identities import read_identities
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.rowsums import WrongSumError


def propagation_answers(often: str) -> Declared:
    """Sent in a propagation: which points are labeled, the backend's messages, partial sums.

    Parameters
    ----------
    often : how often a client takes part in one, in words.
    """
    which = "which of its points have a label, not which label"
    part = "its labels' part of the scores of others' points"
    wrong = {"often": "if somebody's message is wrong", "undisturbed": False}
    others = "the other clients, as a sum of all parts at their own points"

    def hidden(settings: kit.RunConfig) -> bool:
        return settings[XCLPSettings].secure != "plaintext"

    def plain(settings: kit.RunConfig) -> bool:
        return not hidden(settings)

    compared = dict(kit.all_of(which, phases.LABELED, often=often))
    for sends, when in ((PLAINTEXT.sends, plain), (SENDS, hidden)):
        for key, (says, reader) in sends.items():
            compared |= kit.all_of(says, key, often=often, reader=reader, when=when)
    complaint = kit.all_of("whose message it cannot use", COMPLAINT, when=hidden, **wrong)
    checks = kit.all_of("random words that its part of the sum began with", phases.CHECKS, **wrong)
    summed = kit.Part(ANY, says=part, often=often, when=plain)
    masked = replace(summed, says=f"{part}, under masks", reader=others, when=hidden)
    return {
        phases.COMPARE: {**compared, **complaint},
        phases.SUM: {phases.SENT: replace(summed, other=masked)},
        phases.AUDIT: checks,
    }


class XCLPClient(kit.SemiSupervisedClient):
    """Takes part in a propagation before training, and trains on the propagated labels."""

    reports = {
        **kit.CONFIDENT,
        phases.UNOPENED: kit.Part(
            combine="keep",
            says="whether it could not open its part of the sum of labels",
            optional=True,
        ),
    }
    answers = propagation_answers("every round of the second stage that it trains in")
    extra_phases, alone = frozenset(PHASES), frozenset({phases.ROWS})
    _unopened: int | None = None
    """Whether its rows of this round's sum hold no sum; ``None`` without rows."""

    @cached_property
    def graph(self) -> GraphPoints:
        """Its points in the graph: all except those to predict."""
        return GraphPoints.of_training(self.data.examples, self.data.num_classes)

    @property
    def propagation(self) -> PropagationClient:
        """Its part in a propagation."""
        return propagation_client(self, self.graph, self._features)

    def on_phase(self, name: str, content: kit.Content) -> kit.Content:
        """Answer phases of the propagation, besides those of every method."""
        if name in PHASES:
            return self.propagation.on_phase(name, content)
        if name == SETUP:  # a client that starts again leaves a running propagation
            end_propagation(self.state)
        return super().on_phase(name, content)

    def task(self, round: kit.Round) -> kit.Task:
        """Weighted cross-entropy of given and propagated labels (Algorithm 2)."""
        task = self.staged_task(round, partial(self._pseudo_labels, round))
        if self._unopened is None:
            return task
        return replace(task, reports={**task.reports, phases.UNOPENED: self._unopened})

    def _pseudo_labels(self, round: kit.Round) -> learning.PseudoLabels:
        """Labels of the unlabeled points from the propagation before this round's training.

        No labels if the message has no rows, because too few clients were left to propagate, or
        if somebody's part of the sum was wrong: then it says so.
        """

        if phases.ROWS not in round.received:
            end_propagation(self.state)
            return learning.PseudoLabels.none(len(self.data.unlabeled))
        self._unopened = 0
        try:
            propagated = self.graph.of_unlabeled(self.propagation.open(round.received[phases.ROWS]))
        except WrongSumError:
            self._unopened = 1
            return learning.PseudoLabels.none(len(self.data.unlabeled))
        finally:
            end_propagation(self.state)
        is_scaled = self.settings[XCLPSettings].is_scaled
        return (
            learning.PseudoLabels.of(propagated)
            if is_scaled
            else learning.PseudoLabels(*propagated)
        )

    def _features(self, weights: kit.Arrays, number: int) -> NDArray[np.float32]:

        check_model(self, weights, number)
        learning.load_arrays(self.model, weights)
        inputs, plan = self.data.examples.inputs, learning.local_plan(self.settings)
        views = self.labeling_views(number)
        return learning.extract_features(self.model, inputs, self.graph.rows, plan, views)


def propagation_client(
    client: kit.Client[Any], graph: GraphPoints, features: Features, **options: Any
) -> PropagationClient:
    """The part in a propagation of a ``client`` with the points of ``graph``."""
    settings, number = client.settings, client.node.partition_id
    noise = ClientNoise(
        privacy_plan(settings),
        client.state,
        number,
        resumed=bool(settings.resume),
        forgetful=FORGETFUL in client.state.values(SETUP),
        spend=spender(client.node),
    )
    return PropagationClient(
        settings[XCLPSettings],
        noise,
        client.state,
        number,
        graph.labels,
        graph.num_classes,
        features,
        client.state.run,
        read_identities(client.node.identity, number),
        **options,
    )
