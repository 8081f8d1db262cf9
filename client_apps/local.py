"""What the clients of all methods share: settings, model and the round of local training.

On a device every message is a new process, and half of what it takes is to import torch. Here, in
FedUL and in XCLP, whose phases are many, it is therefore imported where a model is computed with.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flwr.common.typing import NDArrays
from flwr.common.typing import Scalar as FlowerScalar
from numpy.typing import NDArray

from client_apps.accountable import AccountableClient
from fedul_flwr.config.node_config import POINT_FORMATS, NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import PartlyLabeledPoints
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.messages import (
    FEDERATION,
    FORGETFUL,
    OWN_MODEL,
    PREPARED_BEFORE,
    RATE_FACTOR,
    Content,
    Value,
)
from fedul_flwr.federated.variates import (
    CONTROL,
    KEPT_ROUNDS,
    USED_ROUND,
    confirmed,
    kept_rounds,
    proposal,
)

if TYPE_CHECKING:
    from torch import nn

    from fedul_flwr.learning.batches import Batches
    from fedul_flwr.learning.local import Loss, Objective
    from fedul_flwr.learning.plan import LocalPlan


class TrainingData(NamedTuple):
    """Rows ``points`` (``(n,)``) of ``images`` (uint8 ``(N, h, w, c)``) and a target for each."""

    images: NDArray[np.uint8]
    points: NDArray[np.int64]
    targets: NDArray[np.int64]


class LocalTrainingClient(AccountableClient):
    """A client that trains the global model on its own data; a method says on what and how.

    Subclasses give :meth:`training_data` and :meth:`loss`, and may :meth:`introduce` themselves.
    Methods whose loss is not one of logits and targets override :meth:`objective`, those with
    batches of their own :meth:`batches`.

    Parameters
    ----------
    settings : the run's settings.
    node : where this client runs.
    state : its memory between messages.

    Attributes
    ----------
    server_round : the round that :meth:`fit` is in, counted over resumed runs; 0 outside.
    """

    server_round = 0

    def __init__(self, settings: RunConfig, node: NodeConfig, state: ClientState) -> None:
        self.settings = settings
        self.node = node
        self.state = state

    # What a method defines

    def training_data(self) -> TrainingData:
        """The points of this client and their targets."""
        raise NotImplementedError

    def loss(self) -> Loss:
        """The mean loss of a batch of logits and targets."""
        raise NotImplementedError

    def objective(self, server_round: int) -> Objective:
        """What a step of round ``server_round`` minimises: by default :meth:`loss` of logits."""
        from fedul_flwr.learning.local import on_logits

        del server_round
        return on_logits(self.loss())

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Batches of an epoch: by default ``plan.batch_size`` points of ``data``."""
        from fedul_flwr.learning.batches import point_batches

        return point_batches(data.images, data.points, data.targets, plan)

    def stage(self, server_round: int) -> tuple[int, int]:
        """Which round of a stage of training this is, from 1, and how many rounds the stage has.

        The step size's schedule goes by it: a method with several stages begins it anew in each.
        """
        return server_round, self.settings.num_rounds

    def introduce(self) -> dict[str, Value]:
        """What the server hears of this client before round 1."""
        return {}

    # What they share

    @property
    def federation(self) -> dict[str, Any]:
        """What the server told in phase ``prepare``: ``fedul_flwr.federated.phases.introduction``.

        Raises
        ------
        UserError
            If it was told nothing yet, or its device has lost its memory since.
        """
        told = self.state.values(FEDERATION)
        if not told:
            raise UserError(
                f"Client {self.node.partition_id} was not prepared for this run, or has forgotten "
                "it: a client has to be told what it takes part in."
            )
        return told

    def require_prepared(self) -> None:
        """See :attr:`federation`."""
        assert self.federation

    @property
    def model(self) -> nn.Module:
        """The class model; one per process, its weights are overwritten by every message."""
        settings, num_classes = self.settings, len(self.federation["class-names"])
        return _model(settings.model, self.image_shape, num_classes, settings.client_threads)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The model's ``(height, width, channels)``."""
        told = self.federation
        return told["height"], told["width"], told["channels"]

    @property
    def own_folder(self) -> Path | None:
        """Where the client's own data lie; ``None`` where it has a share of a simulation's."""
        if self.node.data:
            return Path(self.node.data)
        if "client-data" not in self.federation:
            return None
        from fedul_flwr.data.local_data import client_folders

        folders = client_folders(self.federation["client-data"], self.node.num_partitions)
        return folders[self.node.partition_id]

    def load_own_points(self, folder: Path) -> PartlyLabeledPoints:
        """The points in :attr:`own_folder` with the labels that the owner has."""
        from fedul_flwr.data.local_labels import load_partly_labeled

        self.node.expect_format(self.settings.method, POINT_FORMATS)
        return load_partly_labeled(
            folder,
            list(self.federation["class-names"]),
            self.image_shape,
            form=self.node.format,
            known_labels=self.node.known_labels,
        )

    def array_names(self) -> list[str]:
        """Names of the model's weights and buffers."""
        return list(self.model.state_dict())

    def step(self, name: str, content: Content) -> Content:
        """Phase ``hello``: which partition; ``prepare``: take what the server says, introduce."""
        whoami: dict[str, Value] = {
            "partition-id": self.node.partition_id,
            "num-partitions": self.node.num_partitions,
            "own-data": bool(self.node.data),
        }
        match name:
            case "hello":
                return Content(values=whoami)
            case "prepare":
                self._prepare(dict(content.values))
                return Content(values={**whoami, **self._kept_variates(), **self.introduce()})
            case _:
                return super().step(name, content)

    def _prepare(self, told: dict[str, Value]) -> None:
        """Keep what the server tells, and whether an earlier telling was forgotten."""
        known = self.state.values(FEDERATION)
        if told.pop(PREPARED_BEFORE, False) and (not known or known.get(FORGETFUL)):
            told[FORGETFUL] = True
        self.state.set_values(FEDERATION, told)
        if "memory" in told:  # in a simulation that resumes, it may have kept something there
            own = Path(str(told["memory"])) / str(self.node.partition_id)
            self.state = self.state.within(own)

    def _kept_variates(self) -> dict[str, Value]:
        """With SCAFFOLD, the rounds whose variates this client has."""
        if self.settings.base != "scaffold":
            return {}
        return {KEPT_ROUNDS: kept_rounds(self.state.recall(CONTROL, sys.maxsize))}

    def plan(self, config: dict[str, FlowerScalar]) -> LocalPlan:
        """The round's plan: the settings, and what the server sends."""
        from fedul_flwr.learning.local_plan import local_plan

        return local_plan(
            self.settings,
            float(config.get("proximal-mu", 0.0)),
            self.stage(int(config.get("server-round", 1))),
            float(config.get(RATE_FACTOR, 1.0)),
        )

    def count_validation(self, config: dict[str, FlowerScalar]) -> None:
        """Put the factor of the step size into ``config`` that this client has counted itself."""
        if self.settings.learning_rate_patience_scope == "client":
            from client_apps.own_patience import own_rate_factor

            start = self.server_round - self.stage(self.server_round)[0] + 1
            config[RATE_FACTOR] = own_rate_factor(
                self.settings, self.state, config, self.server_round, start
            )

    def fit(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """One round of local training from the global weights, or its own where it is told so."""
        from fedul_flwr.learning.corrections import local_normalizer
        from fedul_flwr.learning.local import dump_arrays, train_local
        from fedul_flwr.learning.machine import keep_freed_memory, release_freed_memory
        from fedul_flwr.learning.scaffold import train_with_variates

        keep_freed_memory()
        self.server_round = server_round = int(config["server-round"])
        self.count_validation(config)
        model = self.model
        self._load_start(parameters, config)
        data, plan = self.training_data(), self.plan(config)
        if len(data.points) == 0:
            return self._unchanged()
        rng = stream(self.settings.seed, "local", server_round, self.node.partition_id)
        objective, batches = self.objective(server_round), self.batches(data, plan)
        if CONTROL in self.received:
            used_round = int(config[USED_ROUND])
            own = confirmed(self.state.recall(CONTROL, server_round), used_round)
            result, renewed, change = train_with_variates(
                model,
                batches,
                objective,
                plan,
                rng,
                server=self.received[CONTROL],
                own=own,
                option=str(config["scaffold-option"]),
            )
            kept = proposal(own, used_round, renewed, server_round)
            self.state.keep(CONTROL, server_round, kept)
            self.returned = {CONTROL: change}
        else:
            result = train_local(model, batches, objective, plan, rng)
        if config.get(OWN_MODEL):
            self.state.keep(OWN_MODEL, server_round, dump_arrays(model))
        release_freed_memory()
        return (
            self._weights(),
            len(data.points),
            {
                "loss": result.loss,
                "steps": result.steps,
                "normalizer": local_normalizer(result.steps, plan),
            },
        )

    def _load_start(self, parameters: NDArrays, config: dict[str, FlowerScalar]) -> None:
        from fedul_flwr.learning.local import load_arrays

        arrays = dict(zip(self.array_names(), parameters, strict=True))
        if config.get(OWN_MODEL):
            arrays = self.state.recall(OWN_MODEL, self.server_round) or arrays
        load_arrays(self.model, arrays)
        parameters.clear()  # the model holds them now; a second copy is a model's size of memory

    def _weights(self) -> NDArrays:
        from fedul_flwr.learning.local import dump_arrays

        arrays = dump_arrays(self.model)
        return [arrays[name] for name in self.array_names()]

    def _unchanged(self) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """The model as it started, of no weight: there was nothing to learn from."""
        return self._weights(), 0, {"loss": 0.0, "steps": 0, "normalizer": 0.0}


@lru_cache(maxsize=2)
def _model(
    name: str, image_shape: tuple[int, int, int], num_classes: int, threads: int
) -> nn.Module:
    from fedul_flwr.learning.machine import set_threads
    from fedul_flwr.models import build_model

    set_threads(threads)
    return build_model(name, image_shape, num_classes)
