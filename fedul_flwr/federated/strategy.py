"""The server side of every method: one round around any base strategy.

The base decides how updates are combined. The method's strategy decides who takes part in a round,
hides batch-norm buffers from the base, puts replies in a fixed order, counts traffic and
failures, and has hooks for methods. Flower's ``start`` is used as it is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    FedAvg,
    FedProx,
    Result,
)
from flwr.serverapp.strategy import (
    Strategy as FlowerStrategy,
)
from numpy.typing import NDArray

from fedul_flwr.config.base import (
    AUTO,
    OnlyWith,
    checked_prior,
    nearest,
    only_with,
    only_without,
)
from fedul_flwr.config.method_settings import LabelSourceSettings, ServerTrainingSettings
from fedul_flwr.config.methods import is_ours
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, options_of
from fedul_flwr.config.shared import starts_from_names
from fedul_flwr.data.class_priors import uniform_prior
from fedul_flwr.data.run_files.records import name_taken
from fedul_flwr.data.types import Arrays, Content, Floats, Value, below, count
from fedul_flwr.errors import NoUpdateError, UserError
from fedul_flwr.federated.bases import PLAIN_MEANS, ROBUST, UsesClientList, refuse_too_few
from fedul_flwr.federated.combine import (
    average_buffers,
    client_weights,
    combined,
    dump_base_state,
    load_base_state,
    mean_on_device,
    merge,
    refuse_non_finite,
    strip,
)
from fedul_flwr.federated.grid import RoundLog, RoundRecord, SampledGrid, polled
from fedul_flwr.federated.members import ClientRegistry, ClientReport, Registration
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    METRICS,
    NORMALIZER,
    NUM_POINTS,
    OF_TRAINING,
    SERVER_ROUND,
    WEIGHT,
    array_record,
    metric,
    payload_bytes,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import (
    MODEL,
    Part,
    Parts,
    groups_of,
    in_record,
    reports_of,
)
from fedul_flwr.federated.policies import ClientPolicy, policy_for
from fedul_flwr.federated.replies import UpdateCodec, UpdateValidator
from fedul_flwr.federated.secure_sum import SecureSums
from fedul_flwr.federated.stage import RoundAtServer, ServerStage, Stage, stages_of
from fedul_flwr.federated.stages.held_out import HeldOut
from fedul_flwr.federated.stages.plateau import Plateau

if TYPE_CHECKING:
    from fedul_flwr.federated.server_training import ServerTrainer

BASE, OF_STAGE = "base/", "stage/"
"""Prefixes of the state of the base and of stages among the arrays that a run resumes from."""


class Strategy(FlowerStrategy):
    """A strategy around a base; methods override its hooks.

    Parameters
    ----------
    settings : the run's settings, with ``selection`` resolved.
    base : the strategy that aggregates.
    setup : what clients are told in phase ``setup``.
    nodes : nodes that take part in round 1, with the clients that they say they run, as
        :func:`fedul_flwr.federated.nodes.find_nodes` returns them; others may join later. By
        default they are looked for before round 1.
    buffers : names of arrays that are averaged but kept from the base (batch-norm statistics: an
        adaptive base could turn a variance negative).
    trainer : for methods that train at the server.

    Attributes
    ----------
    round_offset : rounds already done, when a run resumes.
    stages : features of the run beside the method, in their order.
    sums : opens secure sums; ``None`` in a run without any.
    on_summed : called after a sum that is made once a run, so that its outcome can be saved.
    grid : reaches the clients of the round in hand.
    local_models : with ``evaluate = "local"``, what the clients of the round in hand returned, in
        partition order.
    global_arrays : the model that this round started from.
    """

    state: dict[str, Any] = {}
    """What a resumed run needs, by name, and what it is at first: a :class:`Part` of zeros, or the
    run's first model; or a value, where ``None`` is nothing yet. In an object the values now."""
    policy_class: type[ClientPolicy] | None = None
    """Which clients take part; by default those that have the data of the method."""
    can_hold_out = False
    """Whether clients can evaluate on held-out unlabeled data."""
    trains_at_server = False
    """Whether it always trains at the server; see :meth:`learns_at_server`."""
    server_order = "before"
    """When it trains there with ``server.when = "auto"``, as its paper has it."""
    takes_test_prior = False
    """Whether its models are trained for given class priors at test time."""
    goes_with: ClassVar[Sequence[OnlyWith]] = ()
    """What other settings must be for it, beside the rules of its parents."""
    head_every = 0
    """Rounds of training between heads in closed form, where the settings leave it open; 0: none
    but the last round's."""

    def __init__(
        self,
        settings: RunConfig,
        base: FlowerStrategy,
        setup: Content,
        *,
        nodes: Mapping[int, int | None] | None = None,
        buffers: frozenset[str] = frozenset(),
        trainer: ServerTrainer | None = None,
    ) -> None:
        self.base = base
        self.model_buffers = buffers
        self.trainer = trainer
        self.rounds = RoundLog(stop=settings.on_client_failure == "stop")
        self.registry = ClientRegistry(
            settings, setup, self.rounds, self._accept, self._clients_changed
        )
        self.num_classes, self.round_offset = self.registry.num_classes, 0
        self.state = dict(self._first_state())
        self.policy = (self.policy_class or policy_for(settings))(self.registry)
        self.registration = Registration(self.registry, nodes)
        self.codec = self.make_codec()
        self.validator = UpdateValidator(self.registry, self.codec)
        self.sums = SecureSums(self.registry) if settings.has_sums else None
        self.stages = [stage.server(self) for stage in stages_of(settings)]
        self._made: ArrayRecord | None = None
        self._is_wrapped = True  # until it starts itself
        self.on_summed: Callable[[], object] = lambda: None
        self.local_models: list[Arrays] = []
        self.grid: Grid  # not there before `configure_train`
        self.global_arrays: ArrayRecord  # not there before `configure_train`

    # Hooks of methods

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls.state:
            if _is_taken_in_state(name):
                raise name_taken(f"What {cls.__name__}.state has", name, _is_taken_in_state)

    @classmethod
    def learns_at_server(cls, settings: RunConfig) -> bool:
        """Whether it needs a :class:`ServerTrainer`, and so labeled points at the server."""
        return cls.trains_at_server or settings[LabelSourceSettings].labels_at == "server"

    @classmethod
    def trains_alone(cls, settings: RunConfig) -> bool:
        """Whether the server trains, and no client takes part."""
        del settings
        return False

    @classmethod
    def trains_in_turn(cls, settings: RunConfig, turn: str) -> bool:
        """Whether the server trains ``"before"`` or ``"after"`` the clients, or ``"parallel"``."""
        chosen = settings[ServerTrainingSettings].when
        order = cls.server_order if chosen == AUTO else chosen
        return cls.learns_at_server(settings) and order == turn

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse settings that do not go with this method, before anything starts."""
        of_names = settings.test_prior == "em" and starts_from_names(settings.start_from)
        if not (cls.takes_test_prior or of_names):
            require(settings, only_with("test-prior", AUTO, "uniform"))
        for kind in cls.__mro__:
            require(settings, *vars(kind).get("goes_with", ()))
        for stage in stages_of(settings):  # refuses what is none
            stage.validate(settings)

    def make_codec(self) -> UpdateCodec:
        """Create the codec for this method's models."""
        return UpdateCodec()

    @property
    def buffers(self) -> frozenset[str]:
        """Names of the arrays that are averaged apart from the base."""
        return self.model_buffers

    def to_combine(self, arrays: ArrayRecord) -> ArrayRecord:
        """The server's arrays that clients' updates are combined into: by default all."""
        return arrays

    @property
    def test_prior(self) -> Floats | None:
        """``(K,)``, pi, the class priors that the model is trained for; ``None`` if not known.

        A model from the names of classes counts all of them as equally likely.
        """
        return uniform_prior(self.num_classes) if self.settings.test_prior == "em" else None

    def stated_prior(self) -> Floats:
        """``(K,)``, pi as numbers of the settings; uniform without any."""
        prior = self.settings.class_priors()
        return uniform_prior(self.num_classes) if prior is None else checked_prior(prior)

    def before_train(self, round_number: int, arrays: ArrayRecord, grid: Grid) -> list[ClientRef]:
        """Clients that train in a round: the policy's, after extra phases with them if any.

        Parameters
        ----------
        arrays : the model that the round starts from.
        """
        del arrays, grid
        return self.policy.sample(round_number)

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """``arrays`` after a round of training on the server's labels, and the mean loss."""
        assert self.trainer is not None  # as `learns_at_server` says
        return self.trainer.train(arrays, round_number, self.rate_factor)

    @property
    def rate_factor(self) -> float:
        """What the step size of the server's own training is multiplied by."""
        plateau = self.stage(Plateau)
        return 1.0 if plateau is None else plateau.factor

    def after_round(self, reports: Mapping[str, Any]) -> None:
        """Use what clients have reported, combined as declared, by name: arrays of the declared
        shapes, of what is kept a row for each client that sent it."""

    def after_head(self, prior: Floats) -> None:
        """Use the class priors ``(K,)`` that a head in closed form was made for."""

    def before_round(self, round: RoundAtServer) -> None:
        """Begin a round: change the model that it starts from, or make its own without clients."""
        for stage in self.stages:
            stage.begin(round)

    def client_config(self) -> Mapping[str, Any]:
        """What clients get with the model, in every round: values, numbers, or arrays by name."""
        return {}

    def weigh(self, replies: Sequence[Message]) -> Floats:
        """``(n,)``, weights of the clients' mean, by default as ``client-weights`` says."""
        return client_weights(replies, self.settings.client_weights)

    def before_aggregate(self, replies: Sequence[Message], weights: Floats) -> None:
        """Combine the records of replies that the base does not know, and remove them."""

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """The model of the round, from what the base has combined."""
        for stage in self.stages:
            model = stage.end(model)
        return model

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """State that a resumed run needs: :attr:`state`, and that of the base."""
        flat = {BASE + name: array for name, array in dump_base_state(self.base).items()}
        first = self._first_state()
        for name, value in self.state.items():
            if name not in first:
                raise _lost(self, name, f"is not declared in state{nearest(name, first)}")
            if isinstance(value, dict) != isinstance(first[name], dict) and value is not None:
                raise _lost(self, name, "is arrays by name at first or now, but not both")
            if isinstance(value, dict):
                flat |= {f"{name}/{key}": array for key, array in value.items()}
            elif value is not None:
                flat[name] = _as_numbers(self, name, value)
        for stage in self.stages:
            prefix = _prefix(stage)
            state = stage.state.items()
            flat |= {prefix + name: _as_numbers(stage, name, value) for name, value in state}
        return flat

    def resume(self, state: Mapping[str, NDArray[Any]], rounds_done: int) -> None:
        """Go on after ``rounds_done`` rounds with the state from :meth:`state_dict`."""
        self.round_offset = self.record.round = rounds_done
        load_base_state(self.base, below(BASE, state))
        for name, first in self._first_state().items():
            if isinstance(first, dict):
                self.state[name] = below(f"{name}/", state)
            elif name in state:
                plain = isinstance(first, int | float | list)
                self.state[name] = state[name].tolist() if plain else state[name]
        for stage in self.stages:
            stage.state |= below(_prefix(stage), state)

    def _first_state(self) -> dict[str, Any]:
        sizes = self.registry.sizes
        first: dict[str, Any] = {}
        for name, value in type(self).state.items():
            is_part = isinstance(value, Part)
            zeros = ({} if value.is_group else value.zeros(sizes)) if is_part else None
            first[name] = zeros if is_part else copy.deepcopy(value)
        return first

    # For methods

    @property
    def settings(self) -> RunConfig:
        """The run's settings."""
        return self.registry.settings

    @property
    def record(self) -> RoundRecord:
        """The record of the current round."""
        return self.rounds.record

    @property
    def options(self) -> Any:
        """Settings in the method's own table."""
        return options_of(self.settings)

    def values_for_clients(self) -> dict[str, Value]:
        """:meth:`client_config` without arrays by name, and numbers as lists."""
        return {
            name: value.ravel().tolist() if isinstance(value, np.ndarray) else value
            for name, value in self._sent().items()
            if not isinstance(value, dict)
        }

    def _sent(self) -> Mapping[str, Any]:
        config: object = self.client_config()
        if not isinstance(config, Mapping):
            raise UserError(
                f"client_config of method {self.settings.method!r} returns {config!r}; it must "
                "return values by name, as in {'threshold': 0.9}.",
                "own-method-wrong",
            )
        writer = next(kind for kind in type(self).__mro__ if "client_config" in vars(kind))
        if not is_ours(writer) and (taken := sorted({*config} & {*OF_TRAINING})):
            what = f"What {writer.__name__}.client_config returns"
            raise name_taken(what, taken[0], OF_TRAINING.__contains__)
        return config

    def stage(self, kind: type[Stage]) -> Any:
        """The server's side of a stage; ``None`` in a run without it."""
        return next((stage for stage in self.stages if isinstance(stage, kind.server)), None)

    def open(self, grid: Grid) -> None:
        """Let stages do what comes before the first round of this program."""
        for stage in self.stages:
            stage.open(grid)

    def _begin_round(self, server_round: int, arrays: ArrayRecord) -> None:
        """Start a round's record."""
        self.local_models = []
        self.rounds.begin(
            RoundRecord(
                round=server_round + self.round_offset,
                model_bytes=payload_bytes(RecordDict({ARRAYS: arrays})),
                model_values=sum(math.prod(array.shape) for array in arrays.values()),
            )
        )

    # Flower's hooks

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds by Flower's ``start``.

        Parameters
        ----------
        initial_arrays : the first model; by default that of the settings, with weights drawn from
            the setting ``seed``.
        """
        self.registry.begin(self.round_offset + num_rounds, timeout)
        self._is_wrapped = False
        if initial_arrays is None:
            from fedul_flwr.learning.local import dump_arrays

            initial_arrays = to_record(dump_arrays(self.registry.fresh_model()))
        configs = train_config, evaluate_config
        return super().start(
            polled(grid), initial_arrays, num_rounds, timeout, *configs, evaluate_fn
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a round by the base, none if no client trains in it."""
        if "clipping_norm" in config:  # a strategy around this one adds noise for clipped updates
            raise UserError(
                f"The clients of {self.settings.method!r} do not clip their updates: take a "
                "strategy of Flower's that clips at the server.",
                "method-mismatch",
            )
        self.grid = grid
        if server_round == 1:  # of a run that resumes, too
            self.open(grid)
        round = RoundAtServer(server_round + self.round_offset, grid, arrays)
        self._begin_round(server_round, arrays)
        self.before_round(round)
        self._made = round.made
        if self._made is None and self.trains_alone(self.settings):
            self._made = self.after_train(self.to_combine(round.model))
        if self._made is not None:
            return []
        self.registration.update(grid)
        for stage in self.stages:
            stage.ready(round)
        self.global_arrays = self.to_combine(round.model)
        for name, value in type(self).state.items():
            if isinstance(value, Part) and value.is_group and not self.state[name]:
                self.state[name] = to_arrays(round.model)
        chosen = self.before_train(round.number, round.model, grid)
        self.record.sampled = len(chosen)
        refuse_too_few(self.settings, len(chosen))
        present = self.registry.present(chosen)
        if not present:
            raise NoUpdateError(f"Round {round.number}: no client is left to train.")
        start = self.global_arrays
        weights = array_record({k: v for k, v in start.items() if k not in self.buffers})
        messages = list(
            self.base.configure_train(
                round.number,
                weights,
                self._config(config, round.number),
                SampledGrid(grid, [client.node_id for client in present]),
            )
        )
        if not messages:
            raise NoUpdateError(f"Round {round.number}: the base strategy asked no client.")
        config_now = self._sent().items()
        content = messages[0].content
        written = {*content, *content.config_records[CONFIG]} - {name for name, _ in config_now}
        assert written <= {*OF_TRAINING}, f"{written - {*OF_TRAINING}} are not in OF_TRAINING"
        groups = {name: to_record(value) for name, value in config_now if isinstance(value, dict)}
        for message in messages:
            message.content = RecordDict({**message.content, **groups})
        expected = {**messages[0].content.array_records, ARRAYS: start}
        for name, part in self._groups.items():
            expected[name] = start if part.kind == MODEL else weights
        by_node = {client.node_id: client for client in self.registry.clients}
        self.codec.encode(messages, by_node, start, self.record)
        for stage in self.stages:
            messages = stage.ask(messages, expected)
        self.validator.expect(messages, expected)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model of a round, from replies or made without them."""
        if self._made is not None:
            return self._made, None
        arrays, metrics = self.combine(server_round, replies)
        model = self.after_train(arrays)
        if self._is_wrapped:  # by one of Flower's, such as for privacy, which adds in place
            model = ArrayRecord({k: Array(np.array(array.numpy())) for k, array in model.items()})
        return model, metrics

    def combine(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        """Combine valid updates, one at least: weights by the base, buffers by their mean."""
        usable: Sequence[Message] = self.validator.updates(replies)
        for stage in self.stages:
            usable = stage.receive(usable)
        refuse_too_few(self.settings, len(usable))
        weights = self.weigh(usable)
        self.before_aggregate(usable, weights)
        parts, robust = reports_of(self.settings), self.settings.base in ROBUST
        apart = {name: part for name, part in parts.items() if name not in self.codec.decodes}
        reports = combined(usable, apart, weights, self.state, robust=robust)
        if self.settings.evaluate == "local" and self.settings.is_evaluated(self.record.round):
            self.local_models = [self.codec.model(reply) for reply in usable]
        for stage in self.stages:
            stage.combine(usable, weights)
        records = [cast(ArrayRecord, reply.content[ARRAYS]) for reply in usable]
        start = self.global_arrays
        buffers = average_buffers(records, weights, self.buffers, start, robust=robust)
        names = [name for name in start if name not in self.buffers]
        for reply, weight in zip(usable, weights, strict=True):
            strip(reply, float(weight), names)
        arrays, metrics = self._aggregated(server_round + self.round_offset, usable)
        if arrays is None:
            raise UserError(
                f"Round {self.record.round}: the base strategy combined no update.", "no-update"
            )
        reports |= {key: np.asarray(value) for key, value in (metrics or {}).items()}
        sizes = self.registry.sizes
        for key in reports.keys() & in_record(parts, METRICS).keys():
            reports[key] = reports[key].reshape(parts[key].sized(sizes))
            if not reports[key].ndim and key != NORMALIZER:
                self.record.reported[key] = reports[key].tolist()
        self.after_round(reports)
        return merge(arrays, buffers, start), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients for held-out losses if the best round is chosen by these."""
        round_number = server_round + self.round_offset
        last = Path(self.settings.output) / LAST_MODEL
        refuse_non_finite(arrays, self.state_dict(), round_number, last)
        held_out = self.stage(HeldOut)
        messages: list[Message] = []
        if held_out is not None:
            values = self._config(config, round_number)
            messages = held_out.configure(round_number, arrays, values, grid)
        self.validator.expect(messages)
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """What the clients' held-out losses are together."""
        del server_round
        held_out = self.stage(HeldOut)
        return None if held_out is None else held_out.aggregate(replies)

    def summary(self) -> None:
        """Log which method wraps which base, or that no client takes part."""
        if self.trains_alone(self.settings):
            log(INFO, "\t├──> %s: no client takes part", type(self).__name__)
            return
        log(INFO, "\t├──> %s around %s", type(self).__name__, type(self.base).__name__)
        self.base.summary()
        by = "their points" if self.settings.client_weights == "examples" else "equal shares"
        log(INFO, "\t├──> Clients count by %s in the mean", by)
        if self.stage(HeldOut) is None:
            log(INFO, "\t└──> Clients evaluate nothing")

    # Inside

    def _aggregated(
        self, round_number: int, replies: Sequence[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the base makes of replies; a mean of models on a device is taken there."""
        if isinstance(self.base, FedAvg) and type(self.base) in PLAIN_MEANS:
            weights = [metric(reply, WEIGHT) for reply in replies]
            contents = [reply.content for reply in replies]
            records = [cast(ArrayRecord, content[ARRAYS]) for content in contents]
            if (mean := mean_on_device(records, weights)) is not None:
                metrics = self.base.train_metrics_aggr_fn(contents, WEIGHT)
                if type(self.base) in (FedAvg, FedProx):  # the mean is the model
                    return mean, metrics
                metrics[WEIGHT] = sum(weights)
                replies[0].content = RecordDict({ARRAYS: mean, METRICS: metrics})
                replies = replies[:1]
        return self.base.aggregate_train(round_number, replies)

    @property
    def _groups(self) -> Parts:
        """Arrays by name that clients send beside the model."""
        return groups_of(reports_of(self.settings), self.codec.decodes)

    def _accept(self, report: ClientReport, answer: Content) -> None:
        report.num_points = count(answer, NUM_POINTS)
        for stage in self.stages:
            stage.admit(answer)
        self.policy.accept(report, answer)
        if isinstance(self.base, UsesClientList) and not report.reason:
            self.base.check_client(report.id, answer)

    def _clients_changed(self, answers: Mapping[int, Content]) -> None:
        if isinstance(self.base, UsesClientList):  # a base sees only those of a round
            self.base.set_clients(self.registry.clients)
        self.policy.changed(answers)

    def _config(self, config: ConfigRecord, round_number: int) -> ConfigRecord:
        """Values for the clients; Flower's bases write the round again, others may not."""
        values = self.values_for_clients()
        for stage in self.stages:
            values |= stage.config()
        return ConfigRecord({**config, **values, SERVER_ROUND: round_number})


def _is_taken_in_state(name: str) -> bool:
    """Whether a state of this name would be read as that of the base or of a stage."""
    return f"{name}/".startswith((BASE, OF_STAGE))


def _prefix(stage: ServerStage) -> str:
    """Of a stage's state among the arrays that a run resumes from."""
    return f"{OF_STAGE}{type(stage).__module__}/{type(stage).__name__}/"


def _lost(of: object, name: str, why: str) -> UserError:
    return UserError(
        f"self.state[{name!r}] of {type(of).__name__} {why}: a run that resumes would lose it.",
        "own-method-wrong",
    )


def _as_numbers(of: object, name: str, value: Any) -> NDArray[Any]:
    """A value of somebody's state as a file can have it."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        array = np.array("")
    if array.dtype.kind not in "biufc":
        raise _lost(of, name, f"is a {type(value).__name__}, and must be numbers")
    return array


def require(settings: RunConfig, *rules: OnlyWith) -> None:
    """Refuse settings with which the run's method does not go, but none of tables not in use."""
    for rule in rules:
        value = settings.value(rule.key)
        if value is not None and not rule.matches(value):
            raise UserError(
                f"Method {settings.method!r} goes only {rule}{rule.because}.",
                "method-mismatch",
                setting=rule.key,
            )


NO_TURNS = only_with("server.when", AUTO, why="no client trains")
"""Rules of methods that train at the server or the clients alone."""
NOT_ALONE = only_without("base", "local")
"""Rule of methods whose clients learn nothing without each other, or whose server trains."""
