"""Supervised training at the server, on a labelled set of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord
from torch.nn import functional

from fedul_flwr.bridge import to_arrays, to_record
from fedul_flwr.config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import LabeledPoints
from fedul_flwr.federation import DataShape
from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.local import dump_arrays, load_arrays, on_logits, train_local
from fedul_flwr.local_plan import local_plan, rate_factor
from fedul_flwr.models import build_model
from fedul_flwr.settings.server import ServerTrainingSettings


class ServerTrainer:
    """Trains models on the server's labelled points by cross-entropy, an optimiser a round.

    Parameters
    ----------
    settings : the run's settings; table ``server`` says how long and how fast.
    shape : input and classes of the model.
    data : the labelled points.
    """

    def __init__(self, settings: RunConfig, shape: DataShape, data: LabeledPoints) -> None:
        options = settings.section("server", ServerTrainingSettings)
        self._settings = settings
        self._data = data
        self._plan = replace(
            local_plan(settings),
            local_epochs=options.epochs,
            learning_rate=options.learning_rate or settings.learning_rate,
        )
        self._model = build_model(settings.model, shape.image_shape, len(shape.class_names))

    def train(
        self, arrays: ArrayRecord, server_round: int, told_factor: float = 1.0
    ) -> tuple[ArrayRecord, float]:
        """``arrays`` after the epochs of one round, and the mean loss of the steps.

        ``told_factor`` multiplies the step size (`plateau`).
        """
        load_arrays(self._model, to_arrays(arrays))
        data = self._data
        factor = rate_factor(self._settings, server_round, self._settings.num_rounds)
        plan = replace(self._plan, learning_rate=self._plan.learning_rate * factor * told_factor)
        result = train_local(
            self._model,
            point_batches(data.images, data.points, data.labels, plan),
            on_logits(functional.cross_entropy),
            plan,
            stream(self._settings.seed, "server", server_round),
        )
        # Copies: the next round trains the very same tensors.
        trained = {name: np.array(value) for name, value in dump_arrays(self._model).items()}
        return to_record(trained), result.loss
