"""Features of a run beside its method: a stage has all of one, at the server and at a client.

A run is a list of stages that follows from its settings; the strategy and the client call each in
turn, and name none of them. Setting ``stage`` adds one of somebody's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedul_flwr.config.base import load_reference, setting_error
from fedul_flwr.config.methods import is_ours, refuse_misspelled
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Arrays, Content, Floats, Value
from fedul_flwr.errors import UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.payload import Declared, Payload, Summed, refuse_taken_names

Train = Callable[[Any, Any, Any, Any], Any]
"""``(model, task, round, rng) -> LocalResult``: trains a model in place."""


@dataclass
class RoundAtServer:
    """A round in the making.

    Attributes
    ----------
    number : of the round, from 1, counted over resumed runs.
    grid : reaches the clients.
    model : from which the clients start.
    made : the round's model, where no client trains in it.
    """

    number: int
    grid: Grid
    model: ArrayRecord
    made: ArrayRecord | None = None


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

    def open(self, grid: Grid) -> None:
        """Do what comes before the first round of this program."""

    def admit(self, answer: Content) -> None:
        """Refuse a client's registration, by a :class:`fedul_flwr.errors.BadMessageError`."""

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

    def receive(self, replies: Sequence[Message]) -> Sequence[Message]:
        """Valid replies, before they are weighed."""
        return replies

    def combine(self, replies: Sequence[Message], weights: Floats) -> None:
        """Change models in replies before the base combines them."""

    def end(self, model: ArrayRecord) -> ArrayRecord:
        """The model of a round, from what was combined."""
        return model

    follows: ClassVar[bool] = False
    """Whether it looks at evaluated rounds."""

    def follow(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Look at all lines of ``metrics.jsonl`` before the next round begins."""

    def line(self) -> Mapping[str, Any]:
        """Entries for the round's line of ``metrics.jsonl``."""
        return {}

    def about(self) -> Mapping[str, Any]:
        """Entries for the run's summary; refuses the run if it has not done its part."""
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

    def part(self, of: Summed, content: Content) -> Sequence[int] | Floats | None:
        """Its numbers for a secure sum: whole ones, or those for a head; ``None`` has none.

        Parameters
        ----------
        content : what the server has sent to compute them with.
        """
        del of, content
        return None

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
    def sends(cls, settings: RunConfig) -> Declared:
        """What clients send for it, by message: by default :attr:`sent`."""
        del settings
        return cls.sent

    @classmethod
    def unprotected(cls, settings: RunConfig) -> Iterable[str]:
        """What it shows of an owner's data, in sentences for owners."""
        del settings
        return ()


_HERE = "fedul_flwr.federated.stages"
STAGES = (
    f"{_HERE}.columns:ColumnScaling",
    f"{_HERE}.heads:Heads",
    f"{_HERE}.server_training:ServerTraining",
    f"{_HERE}.plateau:Plateau",
    f"{_HERE}.own_model:OwnModel",
    f"{_HERE}.variates:Variates",
    f"{_HERE}.clip:Clip",
    f"{_HERE}.dp:DifferentialPrivacy",
    f"{_HERE}.secure_sum:SecureSum",
    f"{_HERE}.held_out:HeldOut",
    f"{_HERE}.personal:Personal",
)
"""Built-in stages, in the order in which a round passes through them."""


def stages_of(settings: RunConfig) -> tuple[type[Stage], ...]:
    """The stages of a run, in their order."""
    names = (*STAGES, settings.stage) if settings.stage else STAGES
    return tuple(stage for stage in map(_loaded, names) if stage.is_on(settings))


@cache
def _loaded(name: str) -> type[Stage]:
    stage = load_reference(name, "stage")
    if not (isinstance(stage, type) and issubclass(stage, Stage)):
        why = "it is no subclass of fedul_flwr.method.Stage"
        raise setting_error("stage", name, why, "own-method-wrong")
    for side in (stage, stage.server, stage.client):
        refuse_misspelled(side)  # type: ignore[arg-type]
    return stage
