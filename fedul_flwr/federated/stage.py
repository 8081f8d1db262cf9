"""Features of a run beside its method: a stage has all of one, at the server and at a client.

A run is a list of stages that follows from its settings; the strategy and the client call each in
turn, and name none of them. Setting ``stage`` adds one of somebody's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.config.base import setting_error
from fedul_flwr.config.methods import find_method, is_ours, load_subclass, refuse_misspelled
from fedul_flwr.config.run_config import RunConfig, once
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.types import Content, Value
from fedul_flwr.errors import UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import Declared, Payload, Sum, refuse_taken_names

if TYPE_CHECKING:
    from torch import nn


class RunEndsError(Exception):
    """Ends a run before its next round; the text says why."""


Train = Callable[[Any, Any, Any, Any], Any]
"""``(model, task, round, rng) -> LocalResult``: trains a model in place."""


@dataclass
class RoundAtServer:
    """A round in the making.

    Attributes
    ----------
    number : of the round, from 1, counted over resumed runs.
    grid : reaches the clients.
    model : from which the clients start, and what their updates are combined into.
    made : the round's model, where no client trains in it.
    clients : who trains in it.
    alone : arrays by name that one client alone gets, by their record, by client.
    whole : makes the model of what clients return, where that is something else.
    updated : clients whose updates are combined, in the order of what is kept of each.
    """

    number: int
    grid: Grid
    model: ArrayRecord
    made: ArrayRecord | None = None
    clients: Sequence[ClientRef] = ()
    alone: Mapping[ClientRef, Mapping[str, Arrays]] = field(default_factory=dict)
    whole: Callable[[Arrays], Arrays] | None = None
    updated: Sequence[ClientRef] = ()


@dataclass(frozen=True)
class Finished:
    """A run after its last round.

    Attributes
    ----------
    grid : reaches the clients.
    directory : the run's results.
    model, round : name of the file with the chosen model there, and its round.
    error : percent of test points that a client's model gets wrong, weighed by the client's class
        shares, of its number and all arrays of the model; ``None`` where that is not known.
    """

    grid: Grid
    directory: Run
    model: str
    round: int
    error: Callable[[int, Arrays], float | None]


class ServerStage:
    """A feature at the server of a run.

    Parameters
    ----------
    strategy : the run's, a :class:`fedul_flwr.federated.strategy.Strategy`.
    """

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self.state: dict[str, Any] = {}
        """Arrays and numbers, by name, that a resumed run needs: what it is at first, and has."""

    @property
    def settings(self) -> RunConfig:
        """The run's settings."""
        settings: RunConfig = self.strategy.settings
        return settings

    def around(self, base: FlowerStrategy) -> FlowerStrategy:
        """What combines updates in place of the run's ``base``."""
        return base

    def open(self, grid: Grid) -> None:
        """Do what comes before the first round of this program."""

    def admit(self, answer: Content) -> None:
        """Refuse a client's registration, by a :class:`fedul_flwr.errors.BadMessageError`."""

    def registered(self, answers: Mapping[int, Content]) -> None:
        """Use the registrations of all clients, by number; called when one was added."""

    @property
    def test_prior(self) -> Floats | None:
        """``(K,)``, class priors at test time that it has found out (``test-prior = "sets"``)."""
        return None

    def begin(self, round: RoundAtServer) -> None:
        """Begin a round: change its model, or make it without clients."""

    def ready(self, round: RoundAtServer) -> None:
        """Change the model of a round before it is sent to clients, who are known now."""

    def config(self) -> Mapping[str, Value]:
        """Values for clients in a round."""
        return {}

    def ask(self, messages: Sequence[Message], expected: dict[str, ArrayRecord]) -> list[Message]:
        """The messages of a round; ``expected``, the form of arrays in replies, may be changed."""
        del expected
        return list(messages)

    decodes: ClassVar[frozenset[str]] = frozenset()
    """Declared arrays of an update that :meth:`decode` turns into the model."""

    def decode(self, client: ClientRef, reply: Message) -> bool:
        """Replace the arrays of a client's reply by those that are combined, in place.

        Its numbers and the sizes of all arrays were checked before.

        Returns
        -------
        Whether :meth:`keep` keeps something of it, also if it has nothing to combine.

        Raises
        ------
        ValueError, BadMessageError
            If the reply is invalid; the client counts as failed.
        """
        del client, reply
        return False

    def keep(self, client: ClientRef, reply: Message) -> None:
        """Keep what later rounds need of a decoded reply, which has passed all checks; errors as
        those of :meth:`decode`."""

    def receive(self, replies: Sequence[Message]) -> Sequence[Message]:
        """Valid replies, before they are weighed."""
        return replies

    def combine(self, replies: Sequence[Message], weights: Floats) -> None:
        """Change models in replies before the base combines them."""

    def end(self, model: ArrayRecord) -> ArrayRecord:
        """The model of a round, from what was combined."""
        return model

    def ask_losses(self, round: RoundAtServer, config: ConfigRecord) -> list[Message]:
        """Messages that ask clients to evaluate ``round.model``, which a round has made."""
        del round, config
        return []

    def read_losses(self, replies: Iterable[Message]) -> MetricRecord | None:
        """What the answers to these are together."""
        del replies
        return None

    follows: ClassVar[bool] = False
    """Whether it looks at evaluated rounds."""

    def follow(self, lines: Sequence[Mapping[str, Any]]) -> str | None:
        """Look at all lines of ``metrics.jsonl`` before the next round begins.

        Returns why the run ends before it, if it does.
        """

    def line(self) -> Mapping[str, Any]:
        """Entries for the round's line of ``metrics.jsonl``."""
        return {}

    def about(self) -> Mapping[str, Any]:
        """Entries for the run's summary; refuses the run if it has not done its part."""
        return {}

    def finish(self, run: Finished) -> Mapping[str, Any]:
        """Do what comes after the last round; further entries for the summary."""
        del run
        return {}


class ClientStage:
    """A feature at a client, for one message.

    Parameters
    ----------
    client : a :class:`fedul_flwr.federated.client.Client`.
    """

    phases: ClassVar[frozenset[str]] = frozenset()
    """Phases that :meth:`answer` answers."""
    in_sums: ClassVar[bool] = True
    """Whether these tell nothing beside sums, and are answered in runs with secure sums."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.settings: RunConfig = client.settings

    def register(self) -> Mapping[str, Value]:
        """Values that it sends before round 1."""
        return {}

    def answer(self, name: str, content: Content) -> Content:
        """Answer one of :attr:`phases`."""
        raise NotImplementedError(name)

    def describe(self) -> Iterator[str]:
        """Lines for the data's owner before a run."""
        yield from ()

    def check(self) -> None:
        """Refuse a run in which it could not do its part, for the data's owner."""

    def part(self, of: str, content: Content) -> Sequence[int] | Floats | None:
        """Its numbers for sum ``of``, as :meth:`Stage.sums` declares it; ``None`` has none.

        Parameters
        ----------
        content : what the server has sent to compute them with.
        """
        del of, content
        return None

    def in_sum(
        self, changes: Mapping[tuple[str, str], Floats], clients: int
    ) -> Mapping[tuple[str, str], Floats]:
        """What its update adds to a sum over ``clients``: changes by record and name, weighted."""
        del clients
        return changes

    def before(self, asked: Asked, shares: Mapping[str, Any]) -> None:
        """Look at what the server has sent to train with."""

    def start(self, arrays: Arrays, number: int) -> Arrays:
        """The weights that a round of training begins with."""
        del number
        return arrays

    def training(self, train: Train) -> Train:
        """How a model is trained on a task, in place of ``train``."""
        return train

    def rate_factor(self, number: int, config: Mapping[str, Any]) -> float:
        """Factor of the step size in a round."""
        del number, config
        return 1.0

    def after(self, payload: Payload) -> Payload:
        """What leaves in place of ``payload``."""
        return payload


def of_all(what: str) -> UserError:
    """The refusal to tell the server ``what`` of a client alone."""
    return UserError(
        f"The server asked for {what} of this client alone, where it may read sums only.",
        "server-asks-too-much",
    )


class Stage:
    """One feature: when a run has it, what its clients send, and its two sides."""

    server: ClassVar[type[ServerStage]] = ServerStage
    client: ClassVar[type[ClientStage]] = ClientStage
    sent: ClassVar[Declared] = {}
    """What clients send in any run that has it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        parent: Any = next(one for one in cls.__mro__ if is_ours(one))
        refuse_taken_names(cls.__name__, cls.sent, parent.sent)

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """Whether a run with given settings has it."""
        del settings
        return True

    @classmethod
    def validate(cls, settings: RunConfig) -> None:
        """Refuse a run that has it and cannot be right."""
        del settings

    @classmethod
    def fits(cls, settings: RunConfig, model: nn.Module) -> None:
        """Refuse a run whose settings, with all decided that was left open, or model are wrong."""
        del settings, model

    @classmethod
    def sends(cls, settings: RunConfig) -> Declared:
        """What clients send for it, by message: by default :attr:`sent`."""
        del settings
        return cls.sent

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Sums over clients that it asks for (message ``sum-part``), in the order of a round."""
        del settings
        return {}

    @classmethod
    def largest_change(cls, settings: RunConfig) -> float:
        """Largest change of a weight in an update with it; 0 if it sets no limit."""
        del settings
        return 0.0

    @classmethod
    def largest_move(cls, settings: RunConfig, size: int) -> float:
        """Largest L2 norm by which a round moves a model of ``size`` values; 0 as above."""
        del settings, size
        return 0.0

    noises: ClassVar[bool] = False
    """Whether updates are clipped and noised with it."""
    hides: ClassVar[bool] = False
    """Whether the server reads updates in sums alone with it, and no client sends what is in none
    without saying so."""

    @classmethod
    def as_sent(cls, sent: Declared, settings: RunConfig) -> Declared:
        """What clients send in place of what all have declared, by message."""
        del settings
        return sent

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterable[str]:
        """What it shows of an owner's data, in sentences for owners."""
        del settings
        return ()


_HERE = "fedul_flwr.federated.stages"
STAGES = (
    f"{_HERE}.columns:ColumnScaling",
    f"{_HERE}.agreement:Agreement",
    f"{_HERE}.class_priors:ClassPriors",
    f"{_HERE}.filters:Filters",
    f"{_HERE}.owners_differ:OwnersDiffer",
    f"{_HERE}.heads:Heads",
    f"{_HERE}.server_training:ServerTraining",
    f"{_HERE}.plateau:Plateau",
    f"{_HERE}.early_stop:EarlyStop",
    f"{_HERE}.own_model:OwnModel",
    f"{_HERE}.variates:Variates",
    f"{_HERE}.clip:Clip",
    f"{_HERE}.dp:DifferentialPrivacy",
    f"{_HERE}.secure_sum:SecureSum",
    f"{_HERE}.secure_sum:SummedUpdates",
    f"{_HERE}.held_out:HeldOut",
    f"{_HERE}.known_error:KnowsError",
    f"{_HERE}.personal:Personal",
)
"""Built-in stages, in the order in which a round passes through them."""


def all_stages(settings: RunConfig) -> tuple[type[Stage], ...]:
    """Stages that a run may have: built-in ones, its method's, and somebody's own."""
    of_method = find_method(settings.method).stages
    return (*map(_loaded, (*STAGES, *of_method, *filter(None, [settings.stage]))),)


@once
def stages_of(settings: RunConfig) -> tuple[type[Stage], ...]:
    """The stages of a run, in their order."""
    return tuple(stage for stage in all_stages(settings) if stage.is_on(settings))


@once
def are_hidden(settings: RunConfig) -> bool:
    """Whether the server reads updates in sums alone."""
    return any(stage.hides and stage.is_on(settings) for stage in all_stages(settings))


def open_all(stages: Iterable[ServerStage], grid: Grid) -> None:
    """Let stages do what comes before the first round of this program."""
    for stage in stages:
        stage.open(grid)


def clients_at_end(strategy: Any, grid: Grid) -> Sequence[ClientRef]:
    """All clients after the last round, also in a program that goes on only there."""
    if not strategy.registry.clients:
        strategy.registration.register_all(grid)
        open_all(strategy.stages, grid)
    clients: Sequence[ClientRef] = strategy.registry.clients
    return clients


@once
def sums_of(settings: RunConfig) -> dict[str, Sum]:
    """The sums of a run by name, in the order in which they are made: what is summed once first."""
    sums = {name: of for stage in stages_of(settings) for name, of in stage.sums(settings).items()}
    return dict(sorted(sums.items(), key=lambda item: not item[1].once))


def kind_of(name: str, settings: RunConfig) -> str:
    """Of which kind a sum is: all that one stage declares tell of the same data."""
    return next(stage.__name__ for stage in stages_of(settings) if name in stage.sums(settings))


def number_of(name: str, round_number: int, sums: Mapping[str, Sum]) -> int:
    """Number of a sum in its run: later ones have larger numbers, and once a run is once."""
    first = sum(of.once for of in sums.values())
    position = [*sums].index(name)
    if position < first:
        return 1 + position
    return 1 + position + (round_number - 1) * (len(sums) - first)


@cache
def _loaded(name: str | type) -> type[Stage]:
    stage: type[Stage] | None = load_subclass("stage", name, Stage)
    if stage is None:
        why = "it is no subclass of fedul_flwr.method.Stage"
        raise setting_error("stage", str(name), why, "own-method-wrong")
    for side in (stage.server, stage.client):
        refuse_misspelled(side)  # type: ignore[arg-type]
    return stage
