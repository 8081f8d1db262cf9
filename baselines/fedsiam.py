"""FedSiam: a student and a teacher, the moving average of the student (Long et al. 2020).

XCLP's paper compares with FedSiam but does not describe it; this follows the paper authors' code.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.federated.payload import AVERAGED, MODEL

CONSISTENCY_WEIGHT = 100.0
"""Weight of the squared difference between the softmax outputs of student and teacher."""
RAMP_UP_ROUNDS = 5
"""First rounds, over which the weight of consistency grows as exp(−5·(1 − t)²)."""
TEACHER = "teacher"
"""Record of the teacher in messages and replies, and its name in the state of a run."""
TEACHER_STEPS = "teacher-steps"
"""Number of steps of all students so far, which determines the teacher's decay."""


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
    state = {TEACHER: kit.Part(MODEL), TEACHER_STEPS: 0}

    def client_config(self) -> dict[str, Any]:
        """The teacher, and the number of steps that it has followed."""
        return {TEACHER: self.state[TEACHER], TEACHER_STEPS: int(self.state[TEACHER_STEPS])}

    def after_round(self, reports: Mapping[str, Any]) -> None:
        """Keep the mean of the teachers, and count their steps."""
        self.state[TEACHER] = reports[TEACHER]
        self.state[TEACHER_STEPS] = int(self.state[TEACHER_STEPS] + reports[TEACHER_STEPS])


class FedSiamClient(kit.SemiSupervisedClient):
    """Trains on all its points, labeled or not, in both stages."""

    reports = {
        TEACHER: kit.Part(
            MODEL,
            says="the teacher, a moving average of the model in training",
            reader=AVERAGED,
        ),
        TEACHER_STEPS: kit.Part.count(combine="sum"),
    }

    def task(self, round: kit.Round) -> kit.Task:
        """Loss on labels plus consistency, whose weight grows over the first rounds.

        Batches have two views of labeled points and of as many unlabeled ones, whose class is -1.
        """
        import torch

        data, plan = self.data, round.plan
        positions = np.concatenate([data.labeled, data.unlabeled])
        points, classes = data.examples.points[positions], data.examples.labels[positions]
        teacher, steps = copy.deepcopy(self.model), int(round.config[TEACHER_STEPS])
        learning.load_arrays(teacher, round.received[TEACHER])
        objective = learning.MeanTeacherObjective(
            torch.from_numpy(classes),
            learning.move_model(teacher, plan.device, plan.precision).train(),
            weight=CONSISTENCY_WEIGHT * learning.ramp_up(round.number, RAMP_UP_ROUNDS),
            steps=steps,
        )

        def followed() -> kit.Arrays:
            objective.follow(self.model)
            return learning.dump_arrays(objective.teacher)

        batches = learning.paired_batches(
            data.examples.inputs, points, len(data.labeled), plan, views=2
        )
        reports = {TEACHER: followed, TEACHER_STEPS: lambda: objective.steps - steps}
        return kit.Task(batches, objective, reports)


METHOD = kit.Method(
    name="fedsiam",
    line="Each client has a teacher, the running mean of its models (mean teacher).",
    needs="labels for some points of clients, and their other points",
    paper="Long et al. 2020, rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=FedSiam,
    client=FedSiamClient,
    settings=(kit.LabelSettings, kit.StageSettings),
    data="partly-labeled",
)
