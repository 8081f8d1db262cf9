"""Base of all clients: it answers messages, its setup, model and a round of local training.

On a device every message starts a new process, and importing torch takes half of its time. This
module, FedUL and XCLP, which has many phases, therefore import torch only where they compute with a
model.
"""

from __future__ import annotations

import copy
import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedul_flwr import learning
from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.config.method_settings import (
    ConsistencySettings,
    PseudoLabelSettings,
    StageSettings,
    WeakViewSettings,
)
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, options_of
from fedul_flwr.config.shared import ModelOptions
from fedul_flwr.data.run_files.label_files import PSEUDO_LABELS
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import (
    CONFIDENT_SHARE,
    Arrays,
    Content,
    Floats,
    Inputs,
    InputShape,
    Ints,
    Value,
)
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.client_data import (
    ClientData,
    ClientState,
    PartlyLabeledData,
    PointShares,
    data_class_of,
    settings_from,
)
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.ledger import ask, require_approval
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DESCRIBE,
    END,
    FORGETFUL,
    METRICS,
    NORMALIZER,
    SETTINGS,
    SETUP,
    SETUP_BEFORE,
    SHARES,
    WEIGHT,
    TensorArray,
    from_records,
    packing_mod,
    to_arrays,
    to_records,
)
from fedul_flwr.federated.owner_log import answer_with_log
from fedul_flwr.federated.payload import (
    ENDED,
    EVALUATE,
    LOSS,
    PROCESS,
    STARTED,
    STEPS,
    TRAIN,
    Declared,
    Parts,
    Payload,
    Sizes,
    Summed,
    refuse_undeclared,
    reports_of,
    update_content,
)
from fedul_flwr.federated.stage import ClientStage, Train, stages_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedul_flwr.learning.task import Records, Round, Task

D = TypeVar("D", bound=ClientData)
Label = Callable[[], "learning.PseudoLabels"]

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

    @classmethod
    def takes_part(cls, settings: RunConfig) -> bool:
        """Whether clients do more in a run than say who they are."""
        del settings
        return True

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
            self._set_up(dict(content.values))
            values = {**partition, **self.register()}
            for stage in self.stages:
                values |= stage.register()
            return Content(values=values)
        for stage in self.stages:
            if name in stage.phases:
                return stage.answer(name, content)
        if name != END:
            raise UserError(
                f"The server asked for phase {name!r}, which this run does not have.",
                "server-asks-too-much",
            )
        return Content()

    @cached_property
    def stages(self) -> list[ClientStage]:
        """Its sides of the run's stages, in their order."""
        return [stage.client(self) for stage in stages_of(self.settings)]

    def point_shares(self) -> PointShares:
        """What it can say of its points' classes, for a head in closed form."""
        return self.data.point_shares()

    def sum_part(self, of: Summed, content: Content) -> Sequence[int] | Floats:
        """The client's numbers for a secure sum: whole ones, of any size those for a head.

        Parameters
        ----------
        content : what the server has sent to compute them with.
        """
        for stage in self.stages:
            part = stage.part(of, content)
            if part is not None:
                return part
        raise UserError(
            f"The server asked for a sum of {of} that this run does not have.",
            "server-asks-too-much",
        )

    def leaving(self, phase: str, reply: RecordDict) -> RecordDict:
        """``reply``, if the run declares all that is in it; else nothing leaves."""
        parts = declared(self.settings).get(phase, {})
        refuse_undeclared(type(self).__name__, phase, reply, parts)
        return reply

    @property
    def sizes(self) -> Sizes:
        """Sizes in which its parts are declared."""
        return Sizes(classes=self.num_classes, features=self._num_features)

    def _num_features(self) -> int:
        from fedul_flwr.models.parts import feature_layer

        return int(feature_layer(self.model).in_features)

    def require_no_sum(self, what: str) -> None:
        """Refuse to tell ``what`` of this client alone in a run with secure sums."""
        if self.settings.sums_updates or self.node.require_secure_sum:
            raise self.of_all(what)

    def of_all(self, what: str) -> UserError:
        """The refusal to tell ``what`` of this client alone."""
        return UserError(
            f"The server asked for {what} of this client alone, where it may read sums only.",
            "server-asks-too-much",
        )

    def require_phase(self, name: str) -> None:
        """Refuse phase ``name`` if it would tell, in a run with secure sums, what is in no sum;
        errors as of :meth:`require_no_sum`."""
        of_stages = (stage.phases for stage in self.stages if stage.in_sums)
        if name not in {DESCRIBE, SETUP, END, *self.extra_phases}.union(*of_stages):
            self.require_no_sum(f"phase {name!r}")

    def check_model(self, arrays: Arrays, round_number: int) -> None:
        """Refuse a model from which round ``round_number`` cannot begin, if the owner checks it;
        see :func:`fedul_flwr.federated.model_check.refuse_foreign_model`."""
        if self.node.check_models:
            from fedul_flwr.federated.model_check import refuse_foreign_model

            shape = self.data.model_shape, self.data.num_classes
            refuse_foreign_model(self.settings, self.node, self.state, shape, arrays, round_number)

    def describe(self) -> Iterator[str]:
        """Lines about the data for their owner; they may contain paths, names and labels."""
        yield from self.data.describe()
        for stage in self.stages:
            yield from stage.describe()

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

    def own_file(self, name: str) -> Path:
        """Where a file of the client's own goes: next to an owner's data, or to the results."""
        if self.state.directory is not None:
            self.state.directory.mkdir(parents=True, exist_ok=True)
            return self.state.directory / name
        folder = Path(self.node.data).expanduser().resolve()
        return folder.with_name(f"{folder.name}-{name}")

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

    def names_of(self, received: Collection[str]) -> list[str]:
        """:meth:`array_names`, if the arrays that the server has sent have these names."""
        names = self.array_names()
        if odd := sorted({*names} ^ {*received}):
            raise UserError(
                f"The server's model and this client's differ in {odd[0]!r}.", "model-mismatch"
            )
        return names

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
        from fedul_flwr.learning.lanes import current
        from fedul_flwr.learning.local import tensors_of

        learning.retain_freed_memory()
        round, model = self.round(config, received), self.model
        begun = arrays
        for stage in self.stages:
            begun = stage.start(begun, round.number)
        learning.load_arrays(model, begun)
        arrays.clear()
        task = self.task(round.in_tensors())
        if task.batches.num_points == 0:  # the unchanged model, with weight 0
            arrays = learning.dump_arrays(model)
            return {ARRAYS: arrays, WEIGHT: 0, LOSS: 0.0, STEPS: 0, NORMALIZER: 0.0}
        payload = self._trained(model, task, round)
        learning.release_freed_memory()
        on_device = current() is not None and not self.settings.sums_updates
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

    # Of methods on partly labeled points

    def labeling_views(self, number: int) -> np.random.Generator | None:
        """Draws the views in which it judges its points in a round; None: points as they are.

        A method without setting ``views.weak`` always judges views.
        """
        weak = self.settings.find(WeakViewSettings)
        staged = self.settings.find(PseudoLabelSettings)
        is_release = staged is not None and staged.recipe == "release"
        if weak is not None and not (is_release or weak.weak):
            return None
        return stream(self.settings.seed, "labeling-views", number, self.node.partition_id)

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

    def staged_points(
        self: Client[PartlyLabeledData], round: Round, label: Label
    ) -> learning.WeightedPoints:
        """The points to train on in a round; a simulation's client writes their pseudo labels.

        Parameters
        ----------
        label : labels its unlabeled training points in a round of the second stage.
        """
        data, stages = self.data, self.settings[StageSettings]
        first_stage = round.number <= stages.labels_only_rounds
        labels = learning.PseudoLabels.none(len(data.unlabeled)) if first_stage else label()
        examples, unlabeled = data.examples, data.examples.points[data.unlabeled]
        written = {"points": unlabeled, "labels": labels.labels, "confidence": labels.confidence}
        self.state.publish(PSEUDO_LABELS, round.number, written)
        return learning.weighted_points(
            examples.inputs,
            examples.points[data.labeled],
            examples.labels[data.labeled],
            unlabeled,
            labels,
            stages,
        )

    def staged_task(self: Client[PartlyLabeledData], round: Round, label: Label) -> Task:
        """The task of a method with pseudo labels: its points are :meth:`staged_points`."""
        points, stages = self.staged_points(round, label), self.settings[StageSettings]
        task = learning.weighted_task(points, stages, round.plan)
        if round.number <= stages.labels_only_rounds:
            return task
        used = len(points.points) - points.num_labeled
        share = used / max(len(self.data.unlabeled), 1)
        return replace(task, reports={CONFIDENT_SHARE: share})

    def smallest_top(self: Client[PartlyLabeledData], threshold: float, round: Round) -> float:
        """The smallest top probability of a point that is trained on, of the model received."""
        if threshold != ADAPTIVE:
            return threshold
        data = self.data
        points = data.examples.points[data.arrived(data.unlabeled, round.number)]
        views = self.labeling_views(round.number)
        inputs = data.examples.inputs
        top = learning.top_probabilities(self.model, inputs, points, round.plan, views)
        return learning.threshold_for(threshold, top)

    def weights_and_views(self) -> dict[str, Any]:
        """Weights and views of labeled and unlabeled points in one loss, as its classes take
        them."""
        weights = self.settings[ConsistencySettings]
        return {
            "supervised_weight": weights.supervised_weight,
            "unsupervised_weight": weights.unsupervised_weight,
            "strong_view": learning.strong_view(self.settings),
            "weak_view": learning.weak_view(self.settings),
        }

    def received_model(self, round: Round) -> nn.Module:
        """A copy of the model that it received, in evaluation mode, where it trains."""
        model, plan = copy.deepcopy(self.model), round.plan
        return learning.move_model(model, plan.device, plan.precision).eval()

    def streamed_task(self: Client[PartlyLabeledData], round: Round, objective: Any) -> Task:
        """One loss of labeled and unlabeled points, on labeled and unlabeled batches.

        Parameters
        ----------
        objective : one of the losses of :mod:`fedul_flwr.learning` that tell how sure they are.
        """
        from fedul_flwr.learning.task import Task

        batches = self.data.labeled_and_unlabeled(round)
        return Task(batches, objective, objective.confidence.reports)

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


def state_directory(setup: Mapping[str, Any], node: NodeConfig) -> Path | None:
    """Directory that keeps a simulated client's state; a node with own data keeps it in memory.

    Parameters
    ----------
    setup : the setup from phase ``setup``. It comes from the server, which must not name a path on
        an owner's machine.
    """
    if node.data or "memory" not in setup:
        return None
    return Path(str(setup["memory"])) / str(node.partition_id)


def admitted_settings(node: NodeConfig, text: str) -> RunConfig:
    """Settings of a run from their JSON text, if the limits of the data's owner admit the run."""
    if node.data:
        node.check_modules(json.loads(text))
    settings = settings_from(text)
    if node.data:
        node.check_run(settings)
    return settings


def _build(
    name: str, input_shape: InputShape, num_classes: int, options: ModelOptions, threads: int
) -> nn.Module:
    from fedul_flwr.learning.device import set_threads
    from fedul_flwr.models import build_model

    set_threads(threads)
    return build_model(name, input_shape, num_classes, options=options)


_model = lru_cache(maxsize=2)(_build)


ClientBuilder = Callable[[Context], Client[Any]]


Answer = Callable[[Message, Context], Message]
SIMULATION_KEYS = frozenset(("partition-id", "num-partitions"))
"""The only keys that Flower's simulation puts into a node config."""


def make_client_app(build: ClientBuilder, mods: Sequence[Mod] = ()) -> ClientApp:
    """Flower's ClientApp; ``build`` creates a client for every message.

    On a data owner's device the server gets the text of an error only if it is a
    :class:`UserError` that is not about the owner's data. Others go to the device's log only.

    Parameters
    ----------
    mods : Flower's mods around every message, which see it before it is packed.
    """
    app = ClientApp(mods=[packing_mod, *mods])

    @app.train()
    @_hide_private_errors
    def train(message: Message, context: Context) -> Message:
        client = build(context)
        _require_approval(client)
        arrays, config = _unpack(message, client)
        others = message.content.array_records.items()
        received = {name: to_arrays(record) for name, record in others if name != ARRAYS}
        message.content = RecordDict()  # frees a second copy of the model
        shares = received.pop(SHARES, {})
        client.check_model(arrays, int(config["server-round"]))
        started = time.time()  # after the slow import of torch
        if not client.settings.sums_updates:
            client.require_no_sum("an update")
        asked = Asked({ARRAYS: dict(arrays), **received}, config, client.alone)
        for stage in client.stages:
            stage.before(asked, shares)
        del asked  # stages that need it have it
        payload = client.train(arrays, config, received)
        for stage in client.stages:
            payload = stage.after(payload)
        payload |= {STARTED: started, ENDED: time.time(), PROCESS: os.getpid()}
        reply = update_content(payload, reports_of(client.settings))
        return Message(client.leaving(TRAIN, reply), reply_to=message)

    @app.evaluate()
    @_hide_private_errors
    def evaluate(message: Message, context: Context) -> Message:
        client = build(context)
        client.require_no_sum("a loss")
        _require_approval(client)
        arrays, config = _unpack(message, client)
        client.check_model(arrays, int(config["server-round"]) + 1)
        loss, num_examples, _ = client.evaluate(list(arrays.values()), config)
        record = MetricRecord({WEIGHT: num_examples, LOSS: loss})
        reply = RecordDict({METRICS: record})
        return Message(client.leaving(EVALUATE, reply), reply_to=message)

    @app.query("phase")
    @_hide_private_errors
    def phase(message: Message, context: Context) -> Message:
        content = from_records(message.content)
        name = str(content.values.pop("phase"))
        client = build(context)
        client.require_phase(name)
        waiting = _ask_owner(client, content) if name == SETUP else None
        if name not in (DESCRIBE, SETUP, END):
            _require_approval(client)
        answer = waiting or client.on_phase(name, content)
        return Message(client.leaving(name, to_records(answer)), reply_to=message)

    return app


def _ask_owner(client: Client[Any], content: Content) -> Content | None:
    """The answer to a setup while the owner has not approved the run; None where it may begin."""
    if not client.node.approves_each_run:
        return None
    settings = admitted_settings(client.node, str(content.values.get(SETTINGS)))
    unapproved = ask(settings, client.node)
    who = client.on_phase(DESCRIBE, Content())
    return replace(who, values={**who.values, **unapproved}) if unapproved else None


def _require_approval(client: Client[Any]) -> None:
    if client.node.approves_each_run:
        require_approval(client.settings, client.node)


def _hide_private_errors(answer: Answer) -> Answer:
    """``answer`` with errors that reveal nothing about the owner's data or machine."""

    @wraps(answer)
    def guarded(message: Message, context: Context) -> Message:
        try:
            return answer(message, context)
        except Exception as error:
            harmless = isinstance(error, UserError) and not isinstance(error, OwnDataError)
            if harmless or context.node_config.keys() <= SIMULATION_KEYS:
                raise
            number = context.node_config.get("partition-id", 0)
            sender = f"Client {number}" if isinstance(number, int) else "A client"
            print(f"{sender}: {error}", file=sys.stderr, flush=True)
            is_private = isinstance(error, OwnDataError)
            problem = "cannot use its data or node config" if is_private else "failed"
            # Flower sends only this text, and logs the whole chain of errors on the device. The
            # server says which client it comes from.
            raise UserError(
                f"The client {problem}; its own log says why.", "client-failed"
            ) from error

    return guarded


def _unpack(message: Message, client: Client[Any]) -> tuple[Arrays, dict[str, Any]]:
    """The model's arrays in the client's order, and the values of a message."""
    assert client.setup  # refuses a client that was not set up
    record = cast(ArrayRecord, message.content[ARRAYS])
    config = dict(cast(ConfigRecord, message.content[CONFIG]))
    arrays = {name: record[name] for name in client.names_of(record)}
    on_device = {name: a.tensor for name, a in arrays.items() if isinstance(a, TensorArray)}
    return {n: on_device[n] if n in on_device else a.numpy() for n, a in arrays.items()}, config


def build_client(context: Context) -> Client[Any]:
    """Build the client that answers one message."""
    node, setup, settings = _load_setup(context)
    client: Any = find_method(settings.method).client_class
    state = ClientState(context.state, state_directory(setup, node), context.run_id)
    built: Client[Any] = client(settings, node, state)
    return built


def owner_log_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod that adds a line to the owner's log, if its node config names one."""
    path = context.node_config.get("log")
    if not isinstance(path, str) or not path:
        return call_next(message, context)
    return answer_with_log(Path(path), message, context, call_next)


def _load_setup(context: Context) -> tuple[NodeConfig, dict[str, Any], RunConfig]:
    """The node config, the setup from phase ``setup`` and the run's settings.

    The owner's limits are checked at every message, before a module of the run is imported.
    """
    node = _node_config(tuple(context.node_config.items()))
    setup = ClientState(context.state).values(SETUP)
    # Prefer the settings that the server sent: they have absolute paths and those of `resume`.
    if SETTINGS in setup:
        return node, setup, admitted_settings(node, str(setup[SETTINGS]))
    if node.data:
        node.check_modules(context.run_config)
    return node, setup, settings_from(json.dumps(dict(context.run_config), sort_keys=True))


@lru_cache(maxsize=4096)
def _node_config(items: tuple[tuple[str, Any], ...]) -> NodeConfig:
    return NodeConfig.parse(dict(items))
