"""ProxyFL: rows of the last layer stand for classes, at clients and server (Chen & Wang 2026)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, Message
from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.class_shares import (
    CLASS_COUNTS,
    CLASS_SHARES,
    ClassShareStrategy,
    class_counts,
)
from fedul_flwr.federated.stages.heads import last_layer


class ProxyFLSettings(kit.Settings):
    """ProxyFL: the last layer's rows stand for classes (Chen & Wang 2026)."""

    table: ClassVar[str] = "proxyfl"
    threshold: kit.Confidence = 0.95
    """Smallest top probability, of the client's own model or of the one that it received, with
    which a point is trained on its pseudo label, and has one class in the contrast of points."""
    row_epochs: Annotated[int, Field(ge=0)] = 100
    """Passes of the server over all clients' rows in a round; 0 leaves their mean (10 for
    CIFAR-100)."""
    row_learning_rate: Annotated[float, Field(gt=0)] = 0.005
    """Step size (learning rate) of these passes."""


DECAY = 0.99
"""Weight of the shares before in those after a round (authors' code)."""


class ProxyFL(ClassShareStrategy):
    """The base strategy, then training of the last layer's rows on those of the clients."""

    goes_with = (
        kit.only_without("base", *kit.ROBUST, why="it trains rows on those of single clients"),
    )

    @cached_property
    def _name(self) -> str:
        return last_layer(self.settings, self.registry.model_shape, self.num_classes)[0]

    def weigh(self, replies: Sequence[Message]) -> kit.Floats:
        """Also take the rows of the clients' last layers."""
        models = [reply.content.array_records[kit.ARRAYS] for reply in replies]
        self._rows = np.stack([model[self._name].numpy() for model in models]).astype(np.float64)
        return super().weigh(replies)

    def after_round(self, reports: Mapping[str, Any]) -> None:
        """Move the class shares towards those of the round."""
        counts, before = reports[CLASS_COUNTS], self.client_config()[CLASS_SHARES]
        if counts.any():
            now = counts / counts.sum()
            self.state[CLASS_SHARES] = DECAY * np.asarray(before) + (1 - DECAY) * now

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """Train the rows, then on the server's labels if it is its turn."""
        options, arrays = self.settings[ProxyFLSettings], kit.to_arrays(model)
        mean, draws = arrays[self._name], kit.stream(self.settings.seed, "rows", self.record.round)
        plan = options.row_learning_rate, options.row_epochs
        rows = learning.trained_rows(mean.astype(np.float64), self._rows, *plan, draws)
        arrays[self._name] = rows.astype(mean.dtype)
        return super().after_train(kit.to_record(arrays))


class ProxyFLClient(kit.SemiSupervisedClient):
    """Trains on labels and sure predictions, and moves all points to the rows of their classes."""

    reports = {
        **kit.CONFIDENT,
        **class_counts("how often its labels and sure predictions are of each class"),
    }

    def task(self, round: kit.Round) -> kit.Task:
        """Three losses on labeled and unlabeled batches."""
        shares = round.config[CLASS_SHARES]
        objective = learning.ProxyObjective(
            received=self.received_model(round),
            shares=shares,
            counts=shares.new_zeros(self.num_classes),
            threshold=self.settings[ProxyFLSettings].threshold,
            **self.weights_and_views(),
        )
        task = self.streamed_task(round, objective)
        return replace(task, reports={**task.reports, CLASS_COUNTS: objective.counts})


METHOD = kit.Method(
    name="proxyfl",
    line="SAGE's successor: rows of the last layer stand for classes, at clients and server.",
    needs="labels for some points of clients or of the server, and clients' other points",
    paper="Chen and Wang, CVPR 2026, arXiv:2602.21078",
    strategy=ProxyFL,
    client=ProxyFLClient,
    settings=(*kit.MATCHING, ProxyFLSettings),
    data="partly-labeled",
    needs_labels=False,
    can_sum=False,
)
