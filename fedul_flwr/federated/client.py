"""Base of all clients: settings, model and a round of local training.

On a device every message starts a new process, and importing torch takes half of its time. This
module, FedUL and XCLP, which has many phases, therefore import torch only where they compute with a
model.
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

from fedul_flwr.config.node_config import POINT_FORMATS, NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content, Value
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import PartlyLabeledPoints
from fedul_flwr.errors import UserError
from fedul_flwr.federated.accountable import AccountableClient
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.messages import (
    FEDERATION,
    FORGETFUL,
    OWN_MODEL,
    PREPARED_BEFORE,
    RATE_FACTOR,
)
from fedul_flwr.learning.variates import (
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


class MethodClient(AccountableClient):
    """A client that trains the global model on its own data.

    Subclasses define :meth:`training_data` and :meth:`loss`, and may override :meth:`introduce`.
    Methods whose loss is not a function of logits and targets override :meth:`objective`, those
    with other batches :meth:`batches`.

    Parameters
    ----------
    settings : the run's settings.
    node : the node config.
    state : the client's state between messages.

    Attributes
    ----------
    server_round : current round in :meth:`fit`, counted over resumed runs; 0 outside of it.
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
        """The mean loss of a batch, as a function of logits and targets."""
        raise NotImplementedError

    def objective(self, server_round: int) -> Objective:
        """The function that a step minimizes in a round: by default :meth:`loss` of the logits."""
        from fedul_flwr.learning.local import on_logits

        del server_round
        return on_logits(self.loss())

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Batches of an epoch: by default ``plan.batch_size`` points of ``data``."""
        from fedul_flwr.learning.batches import point_batches

        return point_batches(data.images, data.points, data.targets, plan)

    def stage(self, server_round: int) -> tuple[int, int]:
        """Number of the round within its training stage, from 1, and the stage's length in rounds.

        The step size's schedule depends on it: it restarts in each stage of a method.
        """
        return server_round, self.settings.num_rounds

    def introduce(self) -> dict[str, Value]:
        """Values that the client sends to the server before round 1."""
        return {}

    # Shared by all methods

    @property
    def federation(self) -> dict[str, Any]:
        """The setup from phase ``prepare``: :func:`fedul_flwr.federated.nodes.setup_content`.

        Raises
        ------
        UserError
            If the client has not got it yet, or its device has lost its state since.
        """
        told = self.state.values(FEDERATION)
        if not told:
            raise UserError(
                f"Client {self.node.partition_id} was not prepared for this run, or has forgotten "
                "it: a client has to be told what it takes part in."
            )
        return told

    def require_prepared(self) -> None:
        """Raise an error without a setup, see :attr:`federation`."""
        assert self.federation

    @property
    def model(self) -> nn.Module:
        """The class model; one per process, every message overwrites its weights."""
        settings, num_classes = self.settings, len(self.federation["class-names"])
        return _model(settings.model, self.image_shape, num_classes, settings.client_threads)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The model's ``(height, width, channels)``."""
        told = self.federation
        return told["height"], told["width"], told["channels"]

    @property
    def own_folder(self) -> Path | None:
        """Folder of the client's own data; ``None`` in a simulated split."""
        if self.node.data:
            return Path(self.node.data)
        if "client-data" not in self.federation:
            return None
        from fedul_flwr.data.local_data import client_folders

        folders = client_folders(self.federation["client-data"], self.node.num_partitions)
        return folders[self.node.partition_id]

    def load_own_points(self, folder: Path) -> PartlyLabeledPoints:
        """The points in :attr:`own_folder` with the owner's labels."""
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
        """Answer phases ``hello`` (partition) and ``prepare`` (store the setup, introduce)."""
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
        """Store the setup, and whether the state from an earlier setup is lost."""
        known = self.state.values(FEDERATION)
        if told.pop(PREPARED_BEFORE, False) and (not known or known.get(FORGETFUL)):
            told[FORGETFUL] = True
        self.state.set_values(FEDERATION, told)
        if "memory" in told:  # a simulation that resumes may have state there
            own = Path(str(told["memory"])) / str(self.node.partition_id)
            self.state = self.state.within(own)

    def _kept_variates(self) -> dict[str, Value]:
        """With SCAFFOLD: the rounds whose variates this client has."""
        if self.settings.base != "scaffold":
            return {}
        return {KEPT_ROUNDS: kept_rounds(self.state.recall(CONTROL, sys.maxsize))}

    def plan(self, config: dict[str, FlowerScalar]) -> LocalPlan:
        """The round's plan, from the settings and the values sent by the server."""
        from fedul_flwr.learning.local_plan import local_plan

        return local_plan(
            self.settings,
            float(config.get("proximal-mu", 0.0)),
            self.stage(int(config.get("server-round", 1))),
            float(config.get(RATE_FACTOR, 1.0)),
        )

    def count_validation(self, config: dict[str, FlowerScalar]) -> None:
        """Set the factor of the step size in ``config`` if this client runs `plateau` itself."""
        if self.settings.learning_rate_patience_scope == "client":
            from fedul_flwr.federated.own_patience import own_rate_factor

            start = self.server_round - self.stage(self.server_round)[0] + 1
            config[RATE_FACTOR] = own_rate_factor(
                self.settings, self.state, config, self.server_round, start
            )

    def fit(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """One round of local training from the global weights, or its own if the server asks."""
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
        parameters.clear()  # the model has a copy: free the memory of this one

    def _weights(self) -> NDArrays:
        from fedul_flwr.learning.local import dump_arrays

        arrays = dump_arrays(self.model)
        return [arrays[name] for name in self.array_names()]

    def _unchanged(self) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """The unchanged model with weight 0: there were no points to train on."""
        return self._weights(), 0, {"loss": 0.0, "steps": 0, "normalizer": 0.0}


@lru_cache(maxsize=2)
def _model(
    name: str, image_shape: tuple[int, int, int], num_classes: int, threads: int
) -> nn.Module:
    from fedul_flwr.learning.machine import set_threads
    from fedul_flwr.models import build_model

    set_threads(threads)
    return build_model(name, image_shape, num_classes)
