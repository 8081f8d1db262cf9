"""Base of all clients: it answers messages, its setup, model and a round of local training.

On a device every message starts a new process, and importing torch takes half of its time. This
module, FedUL and XCLP, which has many phases, therefore import torch only where they compute with a
model.
"""

from __future__ import annotations

import copy
import json
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
from flwr.common import Scalar as FlowerScalar

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
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.config.shared import ModelOptions
from fedul_flwr.data.exact_sums import exact_sums
from fedul_flwr.data.local_data import refuse_unwritable
from fedul_flwr.data.run_files.label_files import PSEUDO_LABELS
from fedul_flwr.data.run_files.store import PERSONAL_MODEL
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
    count,
)
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client_data import (
    ClientData,
    ClientState,
    PartlyLabeledData,
    PointShares,
    data_class_of,
    settings_from,
)
from fedul_flwr.federated.columns import plain_moments, raw_rows, received_scaling
from fedul_flwr.federated.disclosure import answer_with_log
from fedul_flwr.federated.ledger import Asked, ask, require_approval
from fedul_flwr.federated.messages import (
    ARRAYS,
    COLUMNS,
    CONFIG,
    DESCRIBE,
    DIAGNOSTICS,
    END,
    FORGETFUL,
    HEAD,
    METRICS,
    OWN_MODEL,
    PERSONAL,
    RATE_FACTOR,
    SETTINGS,
    SETUP,
    SETUP_BEFORE,
    SHARES,
    SUM_PHASES,
    SUMS,
    VALIDATED_ROUND,
    VALIDATION_LOSS,
    TensorArray,
    from_records,
    packing_mod,
    to_arrays,
    to_record,
    to_records,
)
from fedul_flwr.federated.secure_sum import (
    HEADS,
    MaskedUpdates,
    Summed,
    Update,
    common_records,
    in_steps,
)
from fedul_flwr.federated.updates import OF_ALL, Reports, clip_update
from fedul_flwr.learning.variates import (
    CONTROL,
    USED_ROUND,
    VARIATE_ROUNDS,
    confirmed,
    proposal,
    variate_rounds,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedul_flwr.learning.task import Records, Round, Task

D = TypeVar("D", bound=ClientData)
Label = Callable[[], "learning.PseudoLabels"]

MOMENTUM, LOSS_HISTORY = "momentum", "validation-losses"
"""Names under which a client stores the momentum of its optimizer, and the losses that it has
counted with their rounds."""

PHASES_OF_ALL = (
    *(DESCRIBE, SETUP, COLUMNS),
    *(PERSONAL, END),
)
"""Phases that a client of every method answers, besides those of secure sums."""


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

        self.diagnostics: dict[str, int | float] = {}
        """What a training message's reply tells the server beside metrics, which are averaged."""

    # What a method defines

    data_class: Any = None
    """Class of the client's data; by default that of the kind of data that the method declares."""
    extra_phases: frozenset[str] = frozenset()
    """Phases of the method that a client answers also in a run with secure sums: what they tell
    about its data is no sum, but is encrypted or nothing."""
    reports: ClassVar[Reports] = {}
    """Numbers that it sends with its model, beside those of every method."""
    alone: frozenset[str] = frozenset()
    """Records of a training message that are for this client alone, see :class:`Asked`."""

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
            if self.settings.base == "scaffold":
                partition[VARIATE_ROUNDS] = variate_rounds(self.state.load(CONTROL, sys.maxsize))
            moments = plain_moments(self.settings, self.data)
            return Content(values={**partition, **self.register(), **moments})
        if name == COLUMNS:
            scaling = received_scaling(content, self.setup)
            self.state.set_values(SETUP, {**self.setup, **scaling})
        elif name == PERSONAL:
            from fedul_flwr.federated.personal import make_personal

            make_personal(self, content)
        elif name == HEAD:
            if self.settings.sums_heads:
                raise self._of_all("its sums")
            return Content(arrays={SUMS: self.head_sums(content)})
        elif name in SUM_PHASES:
            return self.sums.on_phase(name, content)
        elif name != END:
            raise UserError(
                f"Method {self.settings.method!r} has no phase {name!r}.", "method-mismatch"
            )
        return Content()

    def point_shares(self) -> PointShares:
        """What it can say of its points' classes, for a head in closed form."""
        return self.data.point_shares()

    def head_sums(self, content: Content) -> Floats:
        """Sums over its points for a head in closed form, flat.

        Parameters
        ----------
        content : the model, class priors, and which of :data:`HEADS` is asked for.
        """
        from fedul_flwr.federated.heads import client_sums

        return client_sums(self, content)

    def sum_part(self, of: Summed, content: Content) -> Sequence[int] | Floats:
        """The client's numbers for a secure sum: whole ones, of any size those for a head.

        Parameters
        ----------
        content : what the server has sent to compute them with.
        """
        if of in HEADS:
            return self.head_sums(content)
        if of is Summed.COLUMNS and self.settings.standardize_sum == "masked":
            return exact_sums(*raw_rows(self.data))
        if of is Summed.HELDOUT and self.settings.sums_heldout_losses:
            model = [content.arrays[name] for name in self.names_of(content.arrays)]
            self.check_model(content.arrays, count(content, "server-round") + 1)
            config = cast(dict[str, FlowerScalar], dict(content.values))
            loss, num_points, _ = self.evaluate(model, config)
            return in_steps([float(num_points > 0), loss])
        raise UserError(
            f"The server asked for a sum of {of} that this run does not have.",
            "server-asks-too-much",
        )

    def require_no_sum(self, what: str) -> None:
        """Refuse to tell ``what`` of this client alone in a run with secure sums."""
        if self.settings.sums_updates or self.node.require_secure_sum:
            raise self._of_all(what)

    def _of_all(self, what: str) -> UserError:
        return UserError(
            f"The server asked for {what} of this client alone, where it may read sums only.",
            "server-asks-too-much",
        )

    def require_phase(self, name: str) -> None:
        """Refuse phase ``name`` if it would tell, in a run with secure sums, what is in no sum;
        errors as of :meth:`require_no_sum`."""
        if name not in {*PHASES_OF_ALL, *SUM_PHASES, *self.extra_phases}:
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
        if self.settings.personal != "off":
            yield f"its personal model will be in {self.own_file(PERSONAL_MODEL)}"

    def check(self) -> None:
        """Check whether the client can take part.

        Raises
        ------
        OwnDataError
            If its data can be read, but are not what the method needs, or its personal model could
            not be written.
        """
        self.data.check()
        if self.settings.personal != "off":
            refuse_unwritable(self.own_file(PERSONAL_MODEL).parent, "Its personal model")

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
        method = find_method(self.settings.method)
        if method.name not in method.tables:
            raise UserError(
                f"Method {method.name!r} has no settings in a table of its name.",
                "own-method-wrong",
            )
        return self.settings[method.tables[method.name]]

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
    def sums(self) -> MaskedUpdates:
        """Its part in secure sums."""
        return MaskedUpdates(self.settings, self.node, self.state, self.sum_part)

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
    ) -> Update:
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
        goes_on = bool(config.get(OWN_MODEL))
        stored = self.state.load(OWN_MODEL, round.number) if goes_on else {}
        learning.load_arrays(model, stored or arrays)
        arrays.clear()
        task = self.task(round.in_tensors())
        if task.batches.num_points == 0:  # the unchanged model, with weight 0
            metrics = {"loss": 0.0, "steps": 0, "normalizer": 0.0}
            return Update(learning.dump_arrays(model), 0, metrics)
        for name in sorted(task.reports.keys() - {*OF_ALL, *self.reports}):
            raise UserError(
                f"The task of method {self.settings.method!r} reports {name!r}, which is not "
                f"declared: add it to {type(self).__name__}.reports.",
                "own-method-wrong",
            )
        metrics, records = self._trained(model, task, round)
        if goes_on:
            self.state.save(OWN_MODEL, round.number, learning.dump_arrays(model))
        learning.release_freed_memory()
        on_device = current() is not None and not self.settings.sums_updates
        trained = tensors_of(model) if on_device else learning.dump_arrays(model)
        return Update(trained, task.batches.num_points, metrics, records)

    def _trained(
        self, model: nn.Module, task: Task, round: Round
    ) -> tuple[dict[str, Any], Records]:
        """Metrics and records of ``model``, which is trained in place."""
        number, plan = round.number, round.plan
        rng = stream(self.settings.seed, "local", number, self.node.partition_id)
        records: Records = {}
        if CONTROL in round.received:
            used = int(round.config[USED_ROUND])
            variate = confirmed(self.state.load(CONTROL, number), used)
            result, renewed, change = learning.train_with_variates(
                model,
                task,
                plan,
                rng,
                variates=(round.received[CONTROL], variate),
                option=str(round.config["scaffold-option"]),
            )
            self.state.save(CONTROL, number, proposal(variate, used, renewed, number))
            records = {CONTROL: change}
        elif task.stores_momentum:
            velocity = dict(self.state.load(MOMENTUM, number))
            result = learning.train_local(model, task, plan, rng, velocity=velocity)
            self.state.save(MOMENTUM, number, velocity)
        else:
            result = learning.train_local(model, task, plan, rng)
        metrics = {
            "loss": result.loss,
            "steps": result.steps,
            "normalizer": learning.local_normalizer(result.steps, plan),
        }
        return {**metrics, **task.read_reports()}, {**records, **task.records(model)}

    def round(self, config: Mapping[str, Any], received: Records | None = None) -> Round:
        """The round that a training message asks for."""
        from fedul_flwr.learning.plan import local_plan, training_stage
        from fedul_flwr.learning.task import Round

        number = int(config["server-round"])
        stage = training_stage(self.settings, number)
        factor = float(config.get(RATE_FACTOR, 1.0))
        if self.settings.learning_rate_schedule == "client-plateau":
            factor = self._plateau(config, number, number - stage[0] + 1)
        plan = local_plan(self.settings, float(config.get("proximal-mu", 0.0)), stage, factor)
        plan = replace(plan, heads_only=number <= self.settings.frozen_rounds)
        return Round(number, config, self.plan_of(plan), received or {})

    def plan_of(self, plan: learning.LocalPlan) -> learning.LocalPlan:
        """The plan of a round's training, in which a method may change the form of steps."""
        return plan

    def _plateau(self, config: Mapping[str, Any], server_round: int, stage_start: int) -> float:
        """Factor of its step size, from the losses of this stage that it has received so far.

        Counts the loss in this round's message, except in a client's first round: in the authors'
        code a client in its k-th round has seen k − 1 losses. A loss that comes again
        (`evaluate-every` above 1) does not count again; the next new one stands for the client's
        rounds since.
        """
        history = self.state.load(LOSS_HISTORY, server_round)
        rounds = history.get("rounds", np.zeros(0, np.int64))
        losses = history.get("losses", np.zeros(0))
        turns = history.get("turns", np.zeros(0, np.int64))
        turn = history.get("count", np.zeros(1, np.int64)) + 1
        validated = config.get(VALIDATED_ROUND)
        if history and validated is not None and validated not in rounds:
            rounds = np.append(rounds, np.int64(validated))
            losses = np.append(losses, config[VALIDATION_LOSS])
            turns = np.append(turns, turn)
        arrays = {"rounds": rounds, "losses": losses, "turns": turns, "count": turn}
        self.state.save(LOSS_HISTORY, server_round, arrays)
        stage = rounds >= stage_start
        counted = dict(zip(turns[stage].tolist(), losses[stage].tolist(), strict=True))
        return learning.plateau(counted, self.settings.learning_rate_patience)

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
        if client.settings.sums_updates:
            asked = Asked({ARRAYS: dict(arrays), **received}, config, client.alone)
            client.sums.accept(Summed.UPDATE, asked)
            start = common_records(received, dict(arrays), ARRAYS)
            update = client.train(arrays, config, received)
            update = client.sums.mask(update, start, shares, asked, client.buffer_names())
        else:
            client.require_no_sum("an update")
            privacy = client.settings[DPSettings]
            begun = to_record(arrays) if privacy.clipping == "client" else None
            update = client.train(arrays, config, received)
            if begun is not None:
                clipped = to_record(update.arrays)
                clip_update(clipped, begun, privacy.norm)
                update = replace(update, arrays=to_arrays(clipped))
        metrics = {"num-examples": update.num_examples, **_numbers(update.metrics)}
        reply = RecordDict(
            {
                ARRAYS: to_record(update.arrays),
                METRICS: MetricRecord(metrics),
                **{name: to_record(arrays) for name, arrays in update.records.items()},
                # A record of its own: base strategies average all metrics.
                DIAGNOSTICS: MetricRecord(
                    {
                        **{"started": started, "ended": time.time(), "process": os.getpid()},
                        **client.diagnostics,
                    }
                ),
            }
        )
        return Message(reply, reply_to=message)

    @app.evaluate()
    @_hide_private_errors
    def evaluate(message: Message, context: Context) -> Message:
        client = build(context)
        client.require_no_sum("a loss")
        _require_approval(client)
        arrays, config = _unpack(message, client)
        client.check_model(arrays, int(config["server-round"]) + 1)
        loss, num_examples, _ = client.evaluate(list(arrays.values()), config)
        record = MetricRecord({"num-examples": num_examples, "loss": loss})
        return Message(RecordDict({METRICS: record}), reply_to=message)

    @app.query("phase")
    @_hide_private_errors
    def phase(message: Message, context: Context) -> Message:
        content = from_records(message.content)
        name = str(content.values.pop("phase"))
        client = build(context)
        client.require_phase(name)
        if name == SETUP and (answer := _ask_owner(client, content)):
            return Message(to_records(answer), reply_to=message)
        if name not in (DESCRIBE, SETUP, END):
            _require_approval(client)
        return Message(to_records(client.on_phase(name, content)), reply_to=message)

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


def _numbers(metrics: Mapping[str, Any]) -> dict[str, int | float | list[int] | list[float]]:
    return {key: value for key, value in metrics.items() if not isinstance(value, (str, bytes))}


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
