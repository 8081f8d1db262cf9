"""The server side of every method: one round around any base strategy.

The base decides how updates are combined. The method's strategy decides who takes part in a round,
hides batch-norm buffers from the base, puts replies in a fixed order, counts traffic and
failures, and has hooks for methods. Flower's ``start`` is used as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
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

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.config.base import (
    AUTO,
    OnlyWith,
    checked_prior,
    only_with,
    only_without,
    setting_error,
)
from fedul_flwr.config.methods import find_method, is_ours
from fedul_flwr.config.run_config import LAST_MODEL, RunConfig, options_of
from fedul_flwr.config.shared import starts_from_names
from fedul_flwr.data.class_priors import uniform_prior
from fedul_flwr.data.run_files.records import name_taken
from fedul_flwr.data.types import Content, Value, count
from fedul_flwr.errors import NothingToLearnError, NoUpdateError, UserError
from fedul_flwr.federated.bases import PLAIN_MEANS, ROBUST, UsesClientList, refuse_too_few
from fedul_flwr.federated.combine import (
    average_buffers,
    client_weights,
    combined,
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
from fedul_flwr.federated.replies import UpdateValidator, add_arrays, decoded, sent_bytes
from fedul_flwr.federated.resume import first_state, is_taken_in_state, state_of
from fedul_flwr.federated.stage import RoundAtServer, open_all, stages_of

if TYPE_CHECKING:
    from fedul_flwr.federated.server_training import ServerTrainer


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
    on_summed : called after a sum that is made once a run, so that its outcome can be saved.
    round : the round in hand.
    local_models : with ``evaluate = "local"``, what its clients returned, in partition order.
    buffers : names of those arrays among what clients return.
    stays : whether the model stays as it is where no client had anything to learn from.
    """

    state: dict[str, Any] = {}
    """What a resumed run needs, by name, and what it is at first: a :class:`Part` of zeros, or the
    run's first model; or a value, where ``None`` is nothing yet. In an object the values now."""
    policy_class: type[ClientPolicy] | None = None
    """Which clients take part; by default those that have the data of the method."""
    can_hold_out = False
    """Whether clients can evaluate on held-out unlabeled data."""
    trains_at_server = False
    """Whether it always trains at the server; others do where labels are there."""
    server_order = "before"
    """When it trains there with ``server.when = "auto"``, as its paper has it."""
    takes_test_prior = False
    """Whether its models are trained for given class priors at test time."""
    stays = False
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
        self.buffers = self.model_buffers = buffers
        self.trainer = trainer
        self.rounds = RoundLog(stop=settings.on_client_failure == "stop")
        self.registry = ClientRegistry(
            settings, setup, self.rounds, self._accept, self._clients_changed
        )
        self.num_classes, self.round_offset = self.registry.num_classes, 0
        self.state = first_state(self)
        self.policy = (self.policy_class or policy_for(settings))(self.registry)
        self.registration = Registration(self.registry, nodes)
        self.stages = [stage.server(self) for stage in stages_of(settings)]
        for stage in self.stages:
            base = stage.around(base)
        self.base = base
        self.validator = UpdateValidator(self.registry, self.stages)
        self._is_wrapped = True  # until it starts itself
        self.on_summed: Callable[[], object] = lambda: None
        self.local_models: list[Arrays] = []
        self.round: RoundAtServer  # not there before `configure_train`

    # Hooks of methods

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls.state:
            if is_taken_in_state(name):
                raise name_taken(f"What {cls.__name__}.state has", name, is_taken_in_state)

    @property
    def test_prior(self) -> Floats | None:
        """``(K,)``, pi, the class priors that the model is trained for; ``None`` if not known.

        A model from the names of classes counts all of them as equally likely.
        """
        if self.settings.test_prior == "sets":
            of_stages = (stage.test_prior for stage in self.stages)
            return next((prior for prior in of_stages if prior is not None), None)
        stated = self.settings.class_priors() if self.takes_test_prior else None
        if stated is not None:
            return checked_prior(stated)
        has_prior = self.takes_test_prior or self.settings.test_prior == "em"
        return uniform_prior(self.num_classes) if has_prior else None

    def choose_clients(self, round: RoundAtServer) -> Sequence[ClientRef]:
        """Clients that train in a round: the policy's, after extra phases with them if any.

        It may change what they start from, ``round.model``.
        """
        return self.policy.sample(round.number)

    def learn_labels(self, arrays: ArrayRecord, round_number: int) -> tuple[ArrayRecord, float]:
        """``arrays`` after a round of training on the server's labels, and the mean loss."""
        assert self.trainer is not None  # as `trains_at_server` says
        return self.trainer.train(arrays, round_number)

    def after_round(self, reports: Mapping[str, Any]) -> None:
        """Use what clients have reported, combined as declared, by name: arrays of the declared
        shapes, of what is kept a row for each client that sent it."""

    def client_config(self) -> Mapping[str, Any]:
        """What clients get with the model, in every round: values, numbers, or arrays by name."""
        return {}

    def weigh(self, replies: Sequence[Message]) -> Floats:
        """``(n,)``, weights of the clients' mean, by default as ``client-weights`` says.

        Parameters
        ----------
        replies : valid updates, n of them, of :attr:`RoundAtServer.updated`.
        """
        return client_weights(replies, self.settings.client_weights)

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """The model of the round, from what the base has combined."""
        for stage in self.stages:
            model = stage.end(model)
        return model

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
        rounds, planned = self.round_offset + num_rounds, self.settings.num_rounds
        if not find_method(self.settings.method).updates and rounds != planned:
            why = f"with these settings method {self.settings.method!r} has {planned}"
            raise setting_error("num-rounds", rounds, why, "setting-without-effect")
        self.registry.begin(rounds, timeout)
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
        if server_round == 1:  # of a run that resumes, too
            open_all(self.stages, grid)
        round = RoundAtServer(server_round + self.round_offset, grid, arrays)
        self.round = round
        self._begin_round(server_round, arrays)
        for stage in self.stages:
            stage.begin(round)
        if round.made is None and find_method(self.settings.method).server_alone(self.settings):
            round.made = self.after_train(round.model)
        if round.made is not None:
            return []
        self.registration.update(grid)
        for stage in self.stages:
            stage.ready(round)
        for name, value in type(self).state.items():
            if isinstance(value, Part) and value.is_group and not self.state[name]:
                self.state[name] = to_arrays(round.model)
        round.clients = self.choose_clients(round)
        self.record.sampled = len(round.clients)
        refuse_too_few(self.settings, len(round.clients))
        present = self.registry.present(round.clients)
        if not present:
            raise NoUpdateError(f"Round {round.number}: no client is left to train.")
        start = round.model
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
        add_arrays(messages, start)
        for stage in self.stages:
            messages = stage.ask(messages, expected)
        alone = {client.node_id: records for client, records in round.alone.items()}
        for message in messages:
            records = alone.get(message.metadata.dst_node_id, {})
            of_client = {name: to_record(arrays) for name, arrays in records.items()}
            message.content = RecordDict({**message.content, **of_client})
        self.record.down.update(sent_bytes(messages))
        self.validator.expect(messages, expected)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model of a round, from replies or made without them."""
        if self.round.made is not None:
            return self.round.made, None
        try:
            arrays, metrics = self._combined(server_round, replies)
        except NothingToLearnError:
            if not self.stays:
                raise
            arrays, metrics = self.round.model, None
            if self.settings.evaluate == "local":  # clients have the model that they got
                self.local_models = [to_arrays(arrays)]
            self.after_round({})
        model = self.after_train(arrays)
        if self._is_wrapped:  # by one of Flower's, such as for privacy, which adds in place
            model = ArrayRecord({k: Array(np.array(array.numpy())) for k, array in model.items()})
        return model, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients to evaluate the round's model, where a stage does."""
        round_number = server_round + self.round_offset
        last = Path(self.settings.output) / LAST_MODEL
        refuse_non_finite(arrays, state_of(self), round_number, last)
        made, values = RoundAtServer(round_number, grid, arrays), self._config(config, round_number)
        asked = (stage.ask_losses(made, values) for stage in self.stages)
        messages = [*chain.from_iterable(asked)]
        self.validator.expect(messages)
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """What the clients' losses are together."""
        del server_round
        received = list(replies)
        read = (stage.read_losses(received) for stage in self.stages)
        return next(filter(None, read), None)

    def summary(self) -> None:
        """Log which method wraps which base, or that no client takes part."""
        if find_method(self.settings.method).server_alone(self.settings):
            log(INFO, "\t├──> %s: no client takes part", type(self).__name__)
            return
        log(INFO, "\t├──> %s around %s", type(self).__name__, type(self.base).__name__)
        self.base.summary()
        by = "their points" if self.settings.client_weights == "examples" else "equal shares"
        log(INFO, "\t├──> Clients count by %s in the mean", by)
        if not self.settings.holds_out:
            log(INFO, "\t└──> Clients evaluate nothing")

    # Inside

    def _combined(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        """Combine valid updates, one at least: weights by the base, buffers by their mean."""
        usable: Sequence[Message] = self.validator.updates(replies)
        for stage in self.stages:
            usable = stage.receive(usable)
        refuse_too_few(self.settings, len(usable))
        by_node = {client.node_id: client for client in self.registry.clients}
        round = self.round
        round.updated = [by_node[reply.metadata.src_node_id] for reply in usable]
        weights = self.weigh(usable)
        parts, robust = reports_of(self.settings), self.settings.base in ROBUST
        apart = {name: part for name, part in parts.items() if name not in decoded(self.stages)}
        reports = combined(usable, apart, weights, self.state, robust=robust)
        if self.settings.evaluate == "local" and self.settings.is_evaluated(self.record.round):
            models = [to_arrays(cast(ArrayRecord, reply.content[ARRAYS])) for reply in usable]
            self.local_models = [*map(round.whole, models)] if round.whole else models
        for stage in self.stages:
            stage.combine(usable, weights)
        records = [cast(ArrayRecord, reply.content[ARRAYS]) for reply in usable]
        start = round.model
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
        return groups_of(reports_of(self.settings), decoded(self.stages))

    def _accept(self, report: ClientReport, answer: Content) -> None:
        report.num_points = count(answer, NUM_POINTS)
        for stage in self.stages:
            stage.admit(answer)
        self.policy.accept(report, answer)
        if isinstance(self.base, UsesClientList) and not report.reason:
            self.base.check_client(report.id, answer)

    def _clients_changed(self, answers: Mapping[int, Content]) -> None:
        for stage in self.stages:
            stage.registered(answers)
        if isinstance(self.base, UsesClientList):  # a base sees only those of a round
            self.base.set_clients(self.registry.clients)
        self.policy.changed(answers)

    def _config(self, config: ConfigRecord, round_number: int) -> ConfigRecord:
        """What clients get beside arrays by name, numbers as lists; Flower's bases write the round
        again, others may not."""
        values: dict[str, Value] = {
            name: value.ravel().tolist() if isinstance(value, np.ndarray) else value
            for name, value in self._sent().items()
            if not isinstance(value, dict)
        }
        for stage in self.stages:
            values |= stage.config()
        return ConfigRecord({**config, **values, SERVER_ROUND: round_number})


def validate(settings: RunConfig) -> None:
    """Refuse settings that do not go with their method, before anything starts."""
    method = find_method(settings.method)
    kind: type[Strategy] = method.strategy_class
    of_names = settings.test_prior == "em" and starts_from_names(settings.start_from)
    if not (kind.takes_test_prior or of_names):
        require(settings, only_with("test-prior", AUTO, "uniform"))
    for parent in kind.__mro__:
        require(settings, *vars(parent).get("goes_with", ()))
    for stage in stages_of(settings):  # refuses what is none
        stage.validate(settings)
    method.check(settings)


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
