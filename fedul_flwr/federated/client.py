"""Base of all clients: it answers messages, its setup, model and a round of local training.

On a device every message starts a new process, and importing torch takes half of its time. This
module, FedUL and XCLP, which has many phases, therefore import torch only where they compute with a
model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from flwr.client import NumPyClient

from fedul_flwr import learning
from fedul_flwr.arrays import Arrays, Ints
from fedul_flwr.config.methods import is_ours
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, options_of
from fedul_flwr.config.shared import ModelOptions
from fedul_flwr.data.run_files.records import name_taken
from fedul_flwr.data.seeds import derived_seed, draws_of, stream
from fedul_flwr.data.types import Content, Inputs, InputShape, Value
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client_data import (
    ClientData,
    ClientState,
    PointShares,
    admitted_settings,
    data_class_of,
    state_directory,
)
from fedul_flwr.federated.messages import (
    ARRAYS,
    DESCRIBE,
    END,
    FORGETFUL,
    NORMALIZER,
    SETTINGS,
    SETUP,
    SETUP_BEFORE,
    WEIGHT,
)
from fedul_flwr.federated.payload import (
    LOSS,
    NOTHING,
    STEPS,
    TRAIN,
    Declared,
    Parts,
    Payload,
    Sizes,
    refuse_taken_names,
)
from fedul_flwr.federated.stage import ClientStage, Train, are_hidden, stages_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedul_flwr.learning.task import Records, Round, Task

D = TypeVar("D", bound=ClientData)
MOMENTUM = "momentum"
"""Name under which a client stores the momentum of its optimizer."""


class Client(NumPyClient, Generic[D]):
    """A client that trains the global model on its own data; built anew for every message.

    A method defines :attr:`data_class` and :meth:`task`, and may extend :meth:`register`,
    :meth:`on_phase` and :meth:`evaluate`.

    Parameters
    ----------
    settings : the run's settings.
    node : the node config.
    state : the client's state between messages.
    """

    def __init__(self, settings: RunConfig, node: NodeConfig, state: ClientState) -> None:
        self.settings = settings
        self.node = node
        self.state = state

    # What a method defines

    data_class: Any = None
    """Class of the client's data; by default that of the kind of data that the method declares."""
    extra_phases: frozenset[str] = frozenset()
    """Phases of the method that a client answers also in a run with secure sums: what they tell
    about its data is no sum, but is encrypted or nothing."""
    reports: ClassVar[Parts] = {}
    """What it sends with its model, beside what every method has."""
    answers: ClassVar[Declared] = {}
    """What it answers to other messages, by message, beside what every method has."""
    alone: frozenset[str] = frozenset()
    """Records of a training message that are for this client alone, see :class:`Asked`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        parent: Any = next(one for one in cls.__mro__ if is_ours(one))
        if parent is not cls:
            sent, before = ({TRAIN: one.reports, **one.answers} for one in (cls, parent))
            refuse_taken_names(cls.__name__, sent, before)

    def task(self, round: Round) -> Task:
        """What the client trains on in a round; its model has the weights of the round's start.

        Raises
        ------
        UserError
            If the method trains nothing at clients.
        """
        del round
        raise UserError(
            f"Method {self.settings.method!r} trains nothing at its clients.", "method-mismatch"
        )

    def register(self) -> dict[str, Value]:
        """Values that the client sends to the server before round 1."""
        return self.data.register()

    def on_phase(self, name: str, content: Content) -> Content:
        """Answer phase ``name``: ``describe``, ``setup`` (with registration), ``columns``,
        ``personal``, ``end`` or one of a secure sum."""
        partition: dict[str, Value] = {
            "partition-id": self.node.partition_id,
            "num-partitions": self.node.num_partitions,
            "own-data": bool(self.node.data),
        }
        if name == DESCRIBE:
            return Content(values=partition)
        if name == SETUP:
            earlier = self.state.values(SETUP)
            self._set_up(dict(content.values))
            try:
                return Content(values=self._registration(partition))
            except BaseException:  # later messages find no setup that was refused
                self.state.set_values(SETUP, earlier)
                raise
        for stage in self.stages:
            if name in stage.phases:
                return stage.answer(name, content)
        if name != END:
            raise UserError(
                f"The server asked for phase {name!r}, which this run does not have.",
                "server-asks-too-much",
            )
        return Content()

    def _registration(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """``values``, and what it tells of its data."""
        answer = dict(values)
        for part in (self.register(), *(stage.register() for stage in self.stages)):
            if taken := sorted(answer.keys() & part.keys()):
                raise name_taken("A value of register()", taken[0], answer.__contains__)
            answer |= part
        return answer

    @cached_property
    def stages(self) -> list[ClientStage]:
        """Its sides of the run's stages, in their order."""
        return [stage.client(self) for stage in stages_of(self.settings)]

    def point_shares(self) -> PointShares:
        """What it can say of its points' classes, for a head in closed form."""
        return self.data.point_shares()

    @property
    def sizes(self) -> Sizes:
        """Sizes in which its parts are declared."""
        return Sizes(classes=self.num_classes, features=self._num_features)

    def _num_features(self) -> int:
        from fedul_flwr.models.parts import feature_layer

        return int(feature_layer(self.model).in_features)

    def check(self) -> None:
        """Check whether the client can take part.

        Raises
        ------
        OwnDataError
            If its data can be read, but are not what the method needs, or its personal model could
            not be written.
        """
        self.data.check()
        for stage in self.stages:
            stage.check()

    # Shared by all methods

    @cached_property
    def data(self) -> D:
        """The client's data."""
        kind: Any = self.data_class or data_class_of(self.settings)
        data: D = kind(self.settings, self.node, self.setup)
        return data

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return self.data.num_classes

    @property
    def options(self) -> Any:
        """Settings in the method's own table."""
        return options_of(self.settings)

    def weak(self, inputs: Tensor) -> Tensor:
        """The views ``(n, …)`` of points on which pseudo labels are judged (``views.weak``)."""
        return learning.weak_view(self.settings)(inputs)

    def strong(self, inputs: Tensor) -> Tensor:
        """Strong views ``(n, …)`` of points, as table ``ssl`` says."""
        return learning.strong_view(self.settings)(inputs)

    @property
    def setup(self) -> dict[str, Any]:
        """The setup from phase ``setup``: :func:`fedul_flwr.federated.nodes.setup_content`."""
        stored = self.state.values(SETUP)
        if not stored:
            raise UserError(
                "It has no setup of this run, or has lost it: the server has to send it first.",
                "not-sent-yet",
            )
        return stored

    @property
    def model(self) -> nn.Module:
        """The class model; one per process or lane, every message overwrites its weights."""
        from fedul_flwr.learning.lanes import current

        data, settings = self.data, self.settings
        kind = (
            *(settings.model, data.model_shape, data.num_classes),
            *(settings.model_options, settings.client_threads),
        )
        lane = current()
        return _model(*kind) if lane is None else lane.model(kind, lambda: _build(*kind))

    def buffer_names(self) -> list[str]:
        """Names of the model's batch-norm statistics among :meth:`array_names`."""
        return [name for name, _ in self.model.named_buffers()]

    def array_names(self) -> list[str]:
        """Names of the arrays that come as the model: its weights and buffers."""
        return list(self.model.state_dict())

    def train(
        self, arrays: Arrays, config: Mapping[str, Any], received: Records | None = None
    ) -> Payload:
        """One round of local training from the global weights, or its own if the server asks.

        Parameters
        ----------
        arrays : the global model by name; emptied, as the model has a copy.
        config : values that the server sent.
        received : arrays that it sent beside the model, by name of their record.
        """
        from fedul_flwr.learning.device import seed_draws
        from fedul_flwr.learning.lanes import current
        from fedul_flwr.learning.local import tensors_of

        learning.retain_freed_memory()
        round, model = self.round(config, received), self.model
        begun = arrays
        for stage in self.stages:
            begun = stage.start(begun, round.number)
        learning.load_arrays(model, begun)
        arrays.clear()
        purpose = self.settings.seed, "task", round.number, self.node.partition_id
        with draws_of(*purpose):
            seed_draws(round.plan.device, derived_seed(*purpose))  # a GPU's, too
            task = self.task(round.in_tensors())
            if task.batches.num_points == 0:  # the unchanged model, with weight 0
                arrays = learning.dump_arrays(model)
                return {ARRAYS: arrays, **NOTHING}
            payload = self._trained(model, task, round)
        learning.release_freed_memory()
        on_device = current() is not None and not are_hidden(self.settings)
        trained = tensors_of(model) if on_device else learning.dump_arrays(model)
        return {ARRAYS: trained, WEIGHT: task.batches.num_points, **payload}

    def _trained(self, model: nn.Module, task: Task, round: Round) -> Payload:
        """What it sends beside ``model``, which is trained in place."""
        train: Train = self._train_plainly
        for stage in self.stages:
            train = stage.training(train)
        number = self.node.partition_id
        result = train(
            model, task, round, stream(self.settings.seed, "local", round.number, number)
        )
        return {
            LOSS: result.loss,
            STEPS: result.steps,
            NORMALIZER: learning.local_normalizer(result.steps, round.plan),
            **task.read_reports(),
        }

    def _train_plainly(
        self, model: nn.Module, task: Task, round: Round, rng: np.random.Generator
    ) -> learning.LocalResult:
        if not task.stores_momentum:
            return learning.train_local(model, task, round.plan, rng)
        velocity = dict(self.state.load(MOMENTUM, round.number))
        result = learning.train_local(model, task, round.plan, rng, velocity=velocity)
        self.state.save(MOMENTUM, round.number, velocity)
        return result

    def round(self, config: Mapping[str, Any], received: Records | None = None) -> Round:
        """The round that a training message asks for."""
        from fedul_flwr.learning.plan import local_plan, training_stage
        from fedul_flwr.learning.task import Round

        number = int(config["server-round"])
        stage = training_stage(self.settings, number)
        factor = math.prod(one.rate_factor(number, config) for one in self.stages)
        plan = local_plan(self.settings, float(config.get("proximal-mu", 0.0)), stage, factor)
        plan = replace(plan, heads_only=number <= self.settings.frozen_rounds)
        return Round(number, config, self.plan_of(plan), received or {})

    def plan_of(self, plan: learning.LocalPlan) -> learning.LocalPlan:
        """The plan of a round's training, in which a method may change the form of steps."""
        return plan

    def posteriors(
        self, inputs: Inputs, points: Ints, round: Round, views: np.random.Generator | None = None
    ) -> Tensor:
        """``(n, K)``, float64, the received model's posteriors of rows ``points`` of ``inputs``.

        Parameters
        ----------
        views : draws a weak view of each point; None takes points as they are.
        """
        import torch

        if not len(points):  # as of a stream that has run dry
            return torch.empty(0, self.num_classes, dtype=torch.float64)
        logits = learning.predict_logits(self.model, inputs, points, round.plan, views)
        return logits.double().softmax(dim=1)

    def _set_up(self, setup: dict[str, Value]) -> None:
        """Store the setup, and whether the state from an earlier setup is lost."""
        earlier = self.state.values(SETUP)
        if setup.pop(SETUP_BEFORE, False) and (not earlier or earlier.get(FORGETFUL)):
            setup[FORGETFUL] = True
        # The server has resolved settings that depend on the data, such as `standardize`.
        if setup.get(SETTINGS):
            self.settings = admitted_settings(self.node, str(setup[SETTINGS]))
            vars(self).pop("stages", None)  # they follow from the settings
        elif self.node.data:
            raise UserError("The server's setup has no settings.", "message-form")
        self.state.set_values(SETUP, setup)
        # A simulation that resumes may have state there.
        self.state = self.state.within(state_directory(setup, self.node))


def names_of(client: Client[Any], received: Collection[str]) -> list[str]:
    """Names of a client's arrays, if the arrays that the server has sent have these names."""
    names = client.array_names()
    if odd := sorted({*names} ^ {*received}):
        raise UserError(
            f"The server's model and this client's differ in {odd[0]!r}.", "model-mismatch"
        )
    return names


def weight_type(settings: RunConfig) -> type[np.generic]:
    """Type of the weights that travel in a run."""
    return np.float64 if settings.precision == "float64" else np.float32


def require_model(client: Client[Any], arrays: Arrays) -> None:
    """Refuse arrays that are not of the names, shapes and types of a client's model; of one that
    travels in parts, of the types."""
    state = client.model.state_dict()
    if arrays.keys() != state.keys():
        names_of(client, arrays)
    for name, mine in state.items():
        if name not in arrays:
            continue
        kind = weight_type(client.settings) if mine.is_floating_point() else np.int64
        if arrays[name].shape != tuple(mine.shape) or arrays[name].dtype != kind:
            raise UserError(
                f"The server's model and this client's differ in {name!r}.", "model-mismatch"
            )


def _build(
    name: str, input_shape: InputShape, num_classes: int, options: ModelOptions, threads: int
) -> nn.Module:
    from fedul_flwr.learning.device import set_threads
    from fedul_flwr.models import build_model

    set_threads(threads)
    return build_model(name, input_shape, num_classes, options=options)


_model = lru_cache(maxsize=2)(_build)
