"""FedSiam: agreement with a moving average of the student (Long et al. 2020).

XCLP's paper compares with it and does not describe it: what it computes here is the authors' code.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common.typing import NDArrays
from flwr.common.typing import Scalar as FlowerScalar
from numpy.typing import NDArray

from client_apps.local import TrainingData
from client_apps.partly_labeled import PartlyLabeledClient
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import ScaffoldSettings
from fedul_flwr.config.semi import FedSiamSettings
from fedul_flwr.data.types import Arrays, Floats
from fedul_flwr.errors import UserError
from fedul_flwr.federated.aggregation import average_buffers
from fedul_flwr.federated.base_strategies import ROBUST
from fedul_flwr.federated.disclosure import AVERAGED, EVERY_ROUND, TRAIN, Sent
from fedul_flwr.federated.messages import ARRAYS, METRICS, Value, to_arrays, to_record
from fedul_flwr.federated.replies import STEPS
from fedul_flwr.learning.batches import Batches, paired_batches
from fedul_flwr.learning.local import dump_arrays, load_arrays
from fedul_flwr.learning.local_plan import local_plan
from fedul_flwr.learning.machine import place
from fedul_flwr.learning.mean_teacher import MeanTeacherObjective
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.schedules import ramp_up
from strategies.partly_labeled import PartlyLabeled

TEACHER = "teacher"
"""Record of the teacher in messages and replies; prefix of its arrays where a run resumes from."""
TEACHER_STEPS = "teacher-steps"
"""Steps of all students so far, by which the teacher's decay goes."""


class FedSiam(PartlyLabeled):
    """The base strategy on students; teachers are averaged and live on from round to round.

    A teacher begins as the first global model. Every client of a round gets the mean of the
    teachers that came back in the round before, weighted as the clients are; where the base is
    robust, their median. The student is the model that is evaluated.
    """

    can_train_alone = False
    bounded = (ARRAYS, TEACHER)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._teacher = ArrayRecord()
        self._steps = 0

    @classmethod
    def check(cls, settings: RunConfig) -> None:
        """Refuse what passes over the data before it trains: the teacher would count its steps."""
        super().check(settings)
        scaffold = settings.section("scaffold", ScaffoldSettings)
        if settings.base == "scaffold" and scaffold.option == "I":
            raise UserError("Setting scaffold.option = 'I': method 'fedsiam' goes with 'II' only.")

    def begin_round(self, server_round: int, arrays: ArrayRecord) -> int:
        """As others; before the first round the teacher is the model itself."""
        self._teacher = self._teacher or arrays
        return super().begin_round(server_round, arrays)

    def round_config(self) -> dict[str, Value]:
        """As others, and how many steps the teacher has followed."""
        return {**super().round_config(), TEACHER_STEPS: self._steps}

    def expected(self, message: RecordDict, model: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """As others, and a teacher."""
        return {**super().expected(message, model), TEACHER: self._teacher}

    def write_messages(self, messages: Iterable[Message]) -> None:
        """As others, with the teacher."""
        written = list(messages)
        for message in written:
            message.content[TEACHER] = self._teacher
        super().write_messages(written)

    def combine_own(self, replies: Sequence[Message], weights: Floats) -> None:
        """Average the teachers, and count the steps that they followed."""
        records = []
        for reply in replies:
            content = reply.content
            records.append(cast(ArrayRecord, content[TEACHER]))
            self._steps += int(cast(float, cast(MetricRecord, content[METRICS])[STEPS]))
            reply.content = RecordDict({name: content[name] for name in content if name != TEACHER})
        robust = self.settings.base in ROBUST
        self._teacher = ArrayRecord(
            average_buffers(records, weights, list(self._teacher), self._teacher, robust=robust)
        )

    def memory(self) -> dict[str, NDArray[Any]]:
        """The base's, the teacher and its steps."""
        teacher = {f"{TEACHER}/{name}": a for name, a in to_arrays(self._teacher).items()}
        return super().memory() | teacher | {TEACHER_STEPS: np.array(self._steps)}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`memory` gave."""
        super().recall(memory)
        prefix = f"{TEACHER}/"
        self._teacher = to_record(
            {n.removeprefix(prefix): a for n, a in memory.items() if n.startswith(prefix)}
        )
        self._steps = int(memory.get(TEACHER_STEPS, 0))


class FedSiamClient(PartlyLabeledClient):
    """Learns from all its points in both stages, without a label for most."""

    def training_data(self) -> TrainingData:
        """Labeled points, then unlabeled ones, which have class -1."""
        positions = np.concatenate([self.labeled, self.unlabeled])
        self.classes = self.data.labels[positions]
        points = self.data.points[positions]
        return TrainingData(self.data.images, points, np.arange(len(points), dtype=np.int64))

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Two views of labeled points and of as many others."""
        return paired_batches(data.images, data.points, len(self.labeled), plan, views=2)

    def objective(self, server_round: int) -> MeanTeacherObjective:
        """Labels and agreement, whose weight grows over the first rounds."""
        options, plan = self.settings.section("fedsiam", FedSiamSettings), local_plan(self.settings)
        teacher = copy.deepcopy(self.model)
        load_arrays(teacher, self.received[TEACHER])
        self.taught = MeanTeacherObjective(
            torch.from_numpy(self.classes),
            place(teacher, plan.device, plan.precision).train(),
            weight=options.consistency_weight * ramp_up(server_round, options.ramp_up_rounds),
            decay=options.decay,
            logit_cost=options.logit_cost,
            steps=self.teacher_steps,
        )
        return self.taught

    def fit(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """A round of local training, after which the teacher goes back as well."""
        self.teacher_steps = int(config[TEACHER_STEPS])
        arrays, num_points, metrics = super().fit(parameters, config)
        if num_points:
            self.taught.follow(self.model)
            self.returned = {**self.returned, TEACHER: self._arrays_of_teacher()}
        return arrays, num_points, metrics

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """As others, and the teacher."""
        what = "the teacher, a moving average of the model in training"
        return [
            *super().sends(settings),
            Sent(TRAIN, ("*",), what, TEACHER, EVERY_ROUND, AVERAGED),
        ]

    def update(self) -> Mapping[str, Arrays]:
        """As others, and a teacher as large as the model."""
        return {**super().update(), TEACHER: self.model_arrays()}

    def _arrays_of_teacher(self) -> Arrays:
        return {name: np.asarray(a) for name, a in dump_arrays(self.taught.teacher).items()}
