"""FedSiam: a student and a teacher, the moving average of the student (Long et al. 2020).

XCLP's paper compares with FedSiam but does not describe it; this follows the paper authors' code.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedul_flwr import learning
from fedul_flwr.config.method_settings import LabelSettings, StageSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import ScaffoldSettings
from fedul_flwr.data.types import Floats, Value
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.disclosure import AVERAGED, EVERY_ROUND, PARTLY_LABELED, TRAIN, Sent
from fedul_flwr.federated.grid import RoundRecord
from fedul_flwr.federated.messages import ARRAYS, array_record, metric, to_arrays, to_record
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.reports import STEPS
from fedul_flwr.federated.strategy import ROBUST, Strategy
from fedul_flwr.federated.updates import UpdateCodec, average_buffers
from fedul_flwr.learning.task import Records, Round, Task

if TYPE_CHECKING:
    from torch import nn

CONSISTENCY_WEIGHT = 100.0
"""Weight of the squared difference between the softmax outputs of student and teacher."""
RAMP_UP_ROUNDS = 5
"""First rounds, over which the weight of consistency grows as exp(−5·(1 − t)²)."""
TEACHER = "teacher"
"""Record of the teacher in messages and replies, and its name in the state of a run."""
TEACHER_STEPS = "teacher-steps"
"""Number of steps of all students so far, which determines the teacher's decay."""


class TeacherCodec(UpdateCodec):
    """Sends the teacher with the model.

    Attributes
    ----------
    teacher : the teacher of the current round.
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
        """Also add the teacher to the messages."""
        written = list(messages)
        for message in written:
            message.content[TEACHER] = self.teacher
        super().encode(written, clients, arrays, record)

    def expected(self, message: RecordDict, arrays: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """Arrays of a model and of a teacher."""
        return {**super().expected(message, arrays), TEACHER: self.teacher}


class FedSiam(Strategy):
    """The base strategy on students; teachers are averaged in every round as well.

    The teacher starts as the initial global model. The clients of a round get the mean of the
    teachers returned in the previous round, with the weights of the clients; with a robust base,
    their median. The student is the model that is evaluated.
    """

    can_train_alone = False
    codec: TeacherCodec
    state = {TEACHER: {}, TEACHER_STEPS: 0}

    def make_codec(self) -> TeacherCodec:
        """A codec for the model and its teacher."""
        return TeacherCodec()

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse bases that pass over the data before training: the teacher would count steps."""
        super().validate(settings)
        scaffold = settings[ScaffoldSettings]
        if settings.base == "scaffold" and scaffold.option == "I":
            raise UserError(
                "Setting scaffold.option = 'I': method 'fedsiam' goes with 'II' only.",
                "method-mismatch",
                setting="scaffold.option",
            )

    def before_train(self, round_number: int, arrays: ArrayRecord, grid: Grid) -> list[ClientRef]:
        """The sample; in the first round sets the teacher to the model."""
        self.state[TEACHER] = self.state[TEACHER] or to_arrays(arrays)
        self.codec.teacher = to_record(self.state[TEACHER])
        return super().before_train(round_number, arrays, grid)

    def client_config(self) -> dict[str, Value]:
        """Number of steps that the teacher has followed."""
        return {TEACHER_STEPS: int(self.state[TEACHER_STEPS])}

    def before_aggregate(self, replies: Sequence[Message], weights: Floats) -> None:
        """Average the teachers, and count their steps."""
        records, steps = [], int(self.state[TEACHER_STEPS])
        for reply in replies:
            content = reply.content
            records.append(cast(ArrayRecord, content[TEACHER]))
            steps += int(metric(reply, STEPS))
            reply.content = RecordDict({name: content[name] for name in content if name != TEACHER})
        robust, before = self.settings.base in ROBUST, self.codec.teacher
        mean = average_buffers(records, weights, list(before), before, robust=robust)
        self.state.update({TEACHER: to_arrays(array_record(mean)), TEACHER_STEPS: steps})


DISCLOSURES = (
    *PARTLY_LABELED,
    Sent(
        TRAIN,
        ("*",),
        "the teacher, a moving average of the model in training",
        TEACHER,
        EVERY_ROUND,
        AVERAGED,
        size="model",
    ),
)
"""Sent by a client."""


class FedSiamClient(Client[PartlyLabeledData]):
    """Trains on all its points, labeled or not, in both stages."""

    def task(self, round: Round) -> Task:
        """Loss on labels plus consistency, whose weight grows over the first rounds.

        Batches have two views of labeled points and of as many unlabeled ones, whose class is -1.
        """
        import torch

        data, plan = self.data, round.plan
        positions = np.concatenate([data.labeled, data.unlabeled])
        points, classes = data.examples.points[positions], data.examples.labels[positions]
        teacher = copy.deepcopy(self.model)
        learning.load_arrays(teacher, round.received[TEACHER])
        objective = learning.MeanTeacherObjective(
            torch.from_numpy(classes),
            learning.move_model(teacher, plan.device, plan.precision).train(),
            weight=CONSISTENCY_WEIGHT * learning.ramp_up(round.number, RAMP_UP_ROUNDS),
            steps=int(round.config[TEACHER_STEPS]),
        )

        def records(model: nn.Module) -> Records:
            objective.follow(model)
            return {TEACHER: learning.dump_arrays(objective.teacher)}

        batches = learning.paired_batches(
            data.examples.inputs, points, len(data.labeled), plan, views=2
        )
        return Task(batches, objective, records=records)


METHOD = Method(
    name="fedsiam",
    line="Each client has a teacher, the running mean of its models (mean teacher).",
    needs="labels for some points of clients, and their other points",
    paper="Long et al. 2020, rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=FedSiam,
    client=FedSiamClient,
    disclosures="fedul_flwr.baselines.fedsiam:DISCLOSURES",
    settings=(LabelSettings, StageSettings),
    data="partly-labeled",
    can_sum=False,
)
