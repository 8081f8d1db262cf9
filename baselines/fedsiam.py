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
from fedul_flwr import method as kit

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


class TeacherCodec(kit.UpdateCodec):
    """Sends the teacher with the model.

    Attributes
    ----------
    teacher : the teacher of the current round.
    """

    bounded = (kit.ARRAYS, TEACHER)
    teacher = ArrayRecord()

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, kit.ClientRef],
        arrays: ArrayRecord,
        record: kit.RoundRecord,
    ) -> None:
        """Also add the teacher to the messages."""
        written = list(messages)
        for message in written:
            message.content[TEACHER] = self.teacher
        super().encode(written, clients, arrays, record)

    def expected(self, message: RecordDict, arrays: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """Arrays of a model and of a teacher."""
        return {**super().expected(message, arrays), TEACHER: self.teacher}


class FedSiam(kit.Strategy):
    """The base strategy on students; teachers are averaged in every round as well.

    The teacher starts as the initial global model. The clients of a round get the mean of the
    teachers returned in the previous round, with the weights of the clients; with a robust base,
    their median. The student is the model that is evaluated.
    """

    goes_with = (
        kit.NOT_ALONE,
        kit.only_without("scaffold.option", "I", why="the teacher would count its pass as steps"),
    )
    codec: TeacherCodec
    state = {TEACHER: {}, TEACHER_STEPS: 0}

    def make_codec(self) -> TeacherCodec:
        """A codec for the model and its teacher."""
        return TeacherCodec()

    def before_train(
        self, round_number: int, arrays: ArrayRecord, grid: Grid
    ) -> list[kit.ClientRef]:
        """The sample; in the first round sets the teacher to the model."""
        self.state[TEACHER] = self.state[TEACHER] or kit.to_arrays(arrays)
        self.codec.teacher = kit.to_record(self.state[TEACHER])
        return super().before_train(round_number, arrays, grid)

    def client_config(self) -> dict[str, kit.Value]:
        """Number of steps that the teacher has followed."""
        return {TEACHER_STEPS: int(self.state[TEACHER_STEPS])}

    def before_aggregate(self, replies: Sequence[Message], weights: kit.Floats) -> None:
        """Average the teachers, and count their steps."""
        records, steps = [], int(self.state[TEACHER_STEPS])
        for reply in replies:
            content = reply.content
            records.append(cast(ArrayRecord, content[TEACHER]))
            steps += int(kit.metric(reply, kit.STEPS))
            reply.content = RecordDict({name: content[name] for name in content if name != TEACHER})
        robust, before = self.settings.base in kit.ROBUST, self.codec.teacher
        mean = kit.average_buffers(records, weights, list(before), before, robust=robust)
        self.state.update({TEACHER: kit.to_arrays(kit.array_record(mean)), TEACHER_STEPS: steps})


DISCLOSURES = (
    *kit.PARTLY_LABELED,
    kit.Sent(
        kit.TRAIN,
        ("*",),
        "the teacher, a moving average of the model in training",
        TEACHER,
        kit.EVERY_ROUND,
        kit.AVERAGED,
        size="model",
    ),
)
"""Sent by a client."""


class FedSiamClient(kit.Client[kit.PartlyLabeledData]):
    """Trains on all its points, labeled or not, in both stages."""

    def task(self, round: kit.Round) -> kit.Task:
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

        def records(model: nn.Module) -> kit.Records:
            objective.follow(model)
            return {TEACHER: learning.dump_arrays(objective.teacher)}

        batches = learning.paired_batches(
            data.examples.inputs, points, len(data.labeled), plan, views=2
        )
        return kit.Task(batches, objective, records=records)


METHOD = kit.Method(
    name="fedsiam",
    line="Each client has a teacher, the running mean of its models (mean teacher).",
    needs="labels for some points of clients, and their other points",
    paper="Long et al. 2020, rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=FedSiam,
    client=FedSiamClient,
    disclosures="fedul_flwr.baselines.fedsiam:DISCLOSURES",
    settings=(kit.LabelSettings, kit.StageSettings),
    data="partly-labeled",
    can_sum=False,
)
