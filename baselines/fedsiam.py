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
from flwr.serverapp import Grid
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
from fedul_flwr.federated.codec import UpdateCodec
from fedul_flwr.federated.disclosure import AVERAGED, EVERY_ROUND, TRAIN, Sent
from fedul_flwr.federated.messages import ARRAYS, METRICS, Value, to_arrays, to_record
from fedul_flwr.federated.registry import ClientRef
from fedul_flwr.federated.reply_checks import STEPS
from fedul_flwr.federated.round_record import RoundRecord
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


class TeacherCodec(UpdateCodec):
    """Sends the teacher beside the model.

    Attributes
    ----------
    teacher : of the round in hand.
    """

    bounded = (ARRAYS, TEACHER)
    teacher = ArrayRecord()

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, ClientRef],
        arrays: ArrayRecord,
        record: RoundRecord,
    ) -> None:
        """Add the teacher to what others send."""
        written = list(messages)
        for message in written:
            message.content[TEACHER] = self.teacher
        super().encode(written, clients, arrays, record)

    def expected(self, message: RecordDict, arrays: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """A model and a teacher."""
        return {**super().expected(message, arrays), TEACHER: self.teacher}


class FedSiam(PartlyLabeled):
    """The base strategy on students; teachers are averaged and live on from round to round.

    A teacher begins as the first global model. Every client of a round gets the mean of the
    teachers that came back in the round before, weighted as the clients are; where the base is
    robust, their median. The student is the model that is evaluated.
    """

    can_train_alone = False
    codec: TeacherCodec
    _steps = 0

    def make_codec(self) -> TeacherCodec:
        """The model and its teacher."""
        return TeacherCodec()

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse what passes over the data before it trains: the teacher would count its steps."""
        super().validate(settings)
        scaffold = settings.section("scaffold", ScaffoldSettings)
        if settings.base == "scaffold" and scaffold.option == "I":
            raise UserError("Setting scaffold.option = 'I': method 'fedsiam' goes with 'II' only.")

    def before_train(self, round_number: int, arrays: ArrayRecord, grid: Grid) -> list[ClientRef]:
        """The sample; before the first round the teacher is the model itself."""
        self.codec.teacher = self.codec.teacher or arrays
        return super().before_train(round_number, arrays, grid)

    def client_config(self) -> dict[str, Value]:
        """How many steps the teacher has followed."""
        return {TEACHER_STEPS: self._steps}

    def before_aggregate(self, replies: Sequence[Message], weights: Floats) -> None:
        """Average the teachers, and count the steps that they followed."""
        records = []
        for reply in replies:
            content = reply.content
            records.append(cast(ArrayRecord, content[TEACHER]))
            self._steps += int(cast(float, cast(MetricRecord, content[METRICS])[STEPS]))
            reply.content = RecordDict({name: content[name] for name in content if name != TEACHER})
        robust, before = self.settings.base in ROBUST, self.codec.teacher
        self.codec.teacher = ArrayRecord(
            average_buffers(records, weights, list(before), before, robust=robust)
        )

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """The base's, the teacher and its steps."""
        teacher = {f"{TEACHER}/{name}": a for name, a in to_arrays(self.codec.teacher).items()}
        return super().state_dict() | teacher | {TEACHER_STEPS: np.array(self._steps)}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        prefix = f"{TEACHER}/"
        self.codec.teacher = to_record(
            {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
        )
        self._steps = int(state.get(TEACHER_STEPS, 0))


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
