"""FedSem+: pseudo labels from the first stage's model (Albaseer et al. 2020, as in XCLP)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.pseudo_label import label_by_network
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.owner.model_check import check_model

LABEL = "fedsem-label"
"""Phase in which all clients label their points, and name under which they store the labels."""
LABELED_WITH = "labeled-with"
"""Digest of the model of that phase. A training message of a secure sum names it, so that owners
train on labels of one model or on none."""


class FedSem(kit.Strategy):
    """All clients label their points before the first round of the second stage."""

    policy: kit.LabelStages

    goes_with = (kit.NOT_ALONE,)
    state = {LABELED_WITH: None}

    def client_config(self) -> dict[str, kit.Value | kit.Floats]:
        """In a secure sum by which model points were labeled."""
        if not kit.are_hidden(self.settings):
            return {}
        by = self.state[LABELED_WITH]
        return {LABELED_WITH: "" if by is None else by.tobytes().hex()}

    def choose_clients(self, round: kit.RoundAtServer) -> Sequence[kit.ClientRef]:
        """The sample; a client that failed to label its points trains on its given labels only."""
        first_stage = self.policy.on_labels_only
        if not first_stage(round.number) and first_stage(round.number - 1):
            model = kit.Content(kit.to_arrays(round.model), {"after-round": round.number - 1})
            by = Asked({kit.ARRAYS: model.arrays}, {}).model
            self.state[LABELED_WITH] = np.frombuffer(by, np.uint8)
            self.registry.query(round.grid, LABEL, dict.fromkeys(self.registry.clients, model))
        return super().choose_clients(round)


class FedSemClient(kit.SemiSupervisedClient):
    """Labels its points once, and trains on these labels in all later rounds."""

    reports = kit.CONFIDENT
    extra_phases = frozenset({LABEL})

    def on_phase(self, name: str, content: kit.Content) -> kit.Content:
        """Label all unlabeled points with the received model."""
        if name != LABEL:
            return super().on_phase(name, content)
        by = Asked({kit.ARRAYS: content.arrays}, {}).model
        after = kit.number(content, "after-round")
        check_model(self, content.arrays, after + 1)
        learning.load_arrays(self.model, content.arrays)
        views = self.labeling_views(after)
        labels = label_by_network(self.model, self.data, views)
        stored = {"labels": labels.labels, "confidence": labels.confidence}
        stored[LABELED_WITH] = np.frombuffer(by, np.uint8)
        self.state.save(LABEL, after, stored)
        return kit.Content()

    def task(self, round: kit.Round) -> kit.Task:
        """Training on the given and the stored labels."""

        def label() -> learning.PseudoLabels:
            stored = self.state.load(LABEL, round.number)
            by = stored[LABELED_WITH].tobytes().hex() if stored else ""
            if not stored or round.config.get(LABELED_WITH, by) != by:
                return learning.PseudoLabels.none(len(self.data.unlabeled))
            return learning.PseudoLabels(stored["labels"], stored["confidence"])

        return self.staged_task(round, label)


METHOD = kit.Method(
    name="fedsem",
    line="The model's predictions are labels, made once after a stage with labels alone.",
    needs="labels for some points of clients, and their other points",
    paper="Albaseer et al. 2020, rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=FedSem,
    client=FedSemClient,
    settings=(kit.LabelSettings, kit.PseudoLabelSettings, kit.WeakViewSettings),
    data="partly-labeled",
)
