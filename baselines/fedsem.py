"""FedSem+: pseudo labels from the first stage's model (Albaseer et al. 2020, as in XCLP)."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedul_flwr import learning
from fedul_flwr.baselines.pseudo_label import label_by_network
from fedul_flwr.config.method_settings import LabelSettings, PseudoLabelSettings, WeakViewSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.data.types import Content, Floats, Value, number
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_policy import LabelStages
from fedul_flwr.federated.client_training import labeling_views, staged_task
from fedul_flwr.federated.messages import ARRAYS, to_arrays
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.federated.transcript import Asked
from fedul_flwr.learning.task import Round, Task

LABEL = "fedsem-label"
"""Phase in which all clients label their points, and name under which they store the labels."""
LABELED_WITH = "labeled-with"
"""Digest of the model of that phase. A training message of a secure sum names it, so that owners
train on labels of one model or on none."""


class FedSem(Strategy):
    """All clients label their points before the first round of the second stage."""

    policy: LabelStages

    can_train_alone = False
    state = {LABELED_WITH: None}

    def client_config(self) -> dict[str, Value | Floats]:
        """In a secure sum by which model points were labeled."""
        if not self.settings.sums_updates:
            return {}
        by = self.state[LABELED_WITH]
        return {LABELED_WITH: "" if by is None else by.tobytes().hex()}

    def before_train(self, round_number: int, arrays: ArrayRecord, grid: Grid) -> list[ClientRef]:
        """The sample; a client that failed to label its points trains on its given labels only."""
        first_stage = self.policy.on_labels_only
        if not first_stage(round_number) and first_stage(round_number - 1):
            model = Content(to_arrays(arrays), {"after-round": round_number - 1})
            by = Asked({ARRAYS: model.arrays}, {}).model
            self.state[LABELED_WITH] = np.frombuffer(by, np.uint8)
            self.registry.query(grid, LABEL, dict.fromkeys(self.registry.clients, model))
        return super().before_train(round_number, arrays, grid)


class FedSemClient(Client[PartlyLabeledData]):
    """Labels its points once, and trains on these labels in all later rounds."""

    reports = CONFIDENT
    extra_phases = frozenset({LABEL})

    def on_phase(self, name: str, content: Content) -> Content:
        """Label all unlabeled points with the received model."""
        if name != LABEL:
            return super().on_phase(name, content)
        by = Asked({ARRAYS: content.arrays}, {}).model
        after = number(content, "after-round")
        self.check_model(content.arrays, after + 1)
        learning.load_arrays(self.model, content.arrays)
        views = labeling_views(self.settings, self.node.partition_id, after)
        labels = label_by_network(self.model, self.data, views)
        stored = {"labels": labels.labels, "confidence": labels.confidence}
        stored[LABELED_WITH] = np.frombuffer(by, np.uint8)
        self.state.save(LABEL, after, stored)
        return Content()

    def task(self, round: Round) -> Task:
        """Training on the given and the stored labels."""

        def label() -> learning.PseudoLabels:
            stored = self.state.load(LABEL, round.number)
            by = stored[LABELED_WITH].tobytes().hex() if stored else ""
            if not stored or round.config.get(LABELED_WITH, by) != by:
                return learning.PseudoLabels.none(len(self.data.unlabeled))
            return learning.PseudoLabels(stored["labels"], stored["confidence"])

        return staged_task(self.data, self.state, round, label)


METHOD = Method(
    name="fedsem",
    line="The model's predictions are labels, made once after a stage with labels alone.",
    needs="labels for some points of clients, and their other points",
    paper="Albaseer et al. 2020, rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=FedSem,
    client=FedSemClient,
    settings=(LabelSettings, PseudoLabelSettings, WeakViewSettings),
    data="partly-labeled",
)
