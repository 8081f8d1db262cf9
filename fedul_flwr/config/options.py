"""Options of actions. Commands and Python functions take defaults, bounds, help and errors of an
option from here, so that both have the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

MOST_CLIENTS = 1_000_000
Engine = Literal["processes", "ray", "in-process"]
"""What runs a simulation's clients: a pool of processes, Flower's Ray backend, or this process
alone. All three give the same numbers, bit for bit."""


class Command:
    """Annotation of an option: what is different on the command line.

    Parameters
    ----------
    flags : names, if others than the option's, which begins with ``--``.
    kind : type of the value, if it is another one than in Python.
    more : further arguments of ``typer.Option``.
    """

    def __init__(self, *flags: str, kind: Any = None, **more: Any) -> None:
        self.flags, self.kind, self.more = flags, kind, more


_FILE, _FOLDER = {"exists": True, "dir_okay": False}, {"file_okay": False}


class Options(BaseModel):
    """Options of an action; what is not allowed is a :class:`~fedul_flwr.errors.UserError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    noun: ClassVar[str] = "argument"

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            from fedul_flwr.config.base import refusal

            raise refusal(error, "", type(self), "argument-not-allowed") from None


class Clients(Options):
    """How many clients there are."""

    clients: Annotated[int | None, Field(ge=1, le=MOST_CLIENTS), Command("--num-supernodes")] = None
    """Number of simulated clients, 10 by default; a resumed run has as many as before."""

    @property
    def number(self) -> int:
        """Number of clients, also by default."""
        return self.clients or 10


class Running(Options):
    """What runs the clients."""

    engine: Engine = "processes"
    """What runs the clients: a pool of processes, Flower's Ray backend (as flwr run), or this
    process alone. The numbers are the same."""
    verbose: bool = False
    """Show Flower's log."""


class OnDevice(Options):
    """Where models are trained."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that trains the models."""


class Reproducing(Running, OnDevice):
    """How the trials of a paper's table run."""


class Simulation(Running, Clients):
    """How a federation is simulated."""

    output: Annotated[Path | None, Command(**_FOLDER)] = None
    """New directory of the results, by default one in runs."""
    client_cpus: Annotated[int, Field(ge=1)] = 1
    """CPUs that a client uses."""
    client_gpus: Annotated[float, Field(ge=0)] = 0.0
    """GPUs that a client uses; a fraction shares a GPU."""
    ray_address: Annotated[str, Command(metavar="HOST:PORT|auto")] = ""
    """Ray cluster that runs the clients; needs --engine ray, and folders for data and output that
    all its machines reach."""


class Resumable(Simulation):
    """How a federation is simulated, or how a run goes on."""

    resume: Annotated[Path | None, Command(**_FOLDER)] = None
    """Interrupted run to go on with; only its number of rounds may change."""


class Labeling(Simulation):
    """How clients label their points."""

    model: Annotated[Path | None, Command(exists=True, **_FOLDER)] = None
    """Directory of a run: compare features of its model; by default points as they are."""


class Comparing(Simulation):
    """How methods are compared."""

    seeds: Annotated[Any, Command(kind=str)] = "0,1,2"
    """Seeds of every run, separated by commas; in Python also their number, or a list of them."""
    measures: Annotated[Any, Command(kind=str)] = ""
    """Columns beside the test error: some of balanced-accuracy, auc, ece, nll, brier."""
    tuned: Annotated[Path | None, Command(dir_okay=False)] = None
    """Use the settings that fedul-flwr tune chose: its search.jsonl."""


class Tuning(OnDevice, Clients):
    """How settings are searched."""

    output: Annotated[Path | None, Command(**_FOLDER)] = None
    """Directory of trials and search.jsonl, by default one in runs; not with a table."""
    trials: Annotated[int | None, Field(ge=1)] = None
    """Number of trials of every row in place of the search file's."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the search and of all its trials."""
    criterion: Literal["validation", "balanced", "heldout", "shares"] = "validation"
    """Measure: validation error, the same with all classes weighing equally, or without any label
    held-out loss, or the error known from class shares."""
    search: Annotated[Path | None, Command(dir_okay=False)] = None
    """Python file with SEARCH, in place of the table's search."""
    jobs: Annotated[int, Field(ge=1)] = 1
    """Number of rows that are searched at the same time."""


class Trusting(Options):
    """Whose code may run."""

    trust_modules: bool = False
    """Run the modules that somebody else's run names."""


class _Points(Trusting):
    """Points to predict, and the class that is told from others."""

    id_column: Annotated[str, Command(metavar="NAME")] = ""
    """Column of the table that names its rows: it is copied to the CSV, and is never a feature."""
    positive: Annotated[str, Command(metavar="CLASS")] = ""
    """The class that --threshold is about."""
    threshold: Annotated[float | None, Field(ge=0, le=1)] = None
    """Probability of the class from which a point is of it."""


class Prediction(_Points):
    """How points are predicted, and how the file of it names and labels them."""

    batch_size: Annotated[int, Field(ge=1)] = 256
    """Images or rows at a time."""
    priors: Annotated[str | None, Command(metavar="P1,P2,…|estimate")] = None
    """Class priors of these points: re-weigh for K numbers, or for an estimate."""
    personal: Annotated[Path | None, Command(metavar="FILE", **_FILE)] = None
    """A client's personal model of that run, for its own points."""
    coverage: Annotated[float | None, Field(gt=0, lt=1)] = None
    """Adds a column `set`: classes of which a point has one with this probability, whichever its
    class is; needs a run that knows its error without labels."""


def _names(value: Any) -> Any:
    return [*filter(None, map(str.strip, value.split(",")))] if isinstance(value, str) else value


class Evaluation(_Points):
    """What of a file is evaluated, and at which threshold."""

    label_column: str = ""
    """By default the model's, or label."""
    by: Annotated[Sequence[str], BeforeValidator(_names), Command(kind=str, metavar="A,B,…")] = ()
    """Columns to evaluate apart by; many numbers are cut into quarters."""
    sensitivity: Annotated[float | None, Field(gt=0, le=1)] = None
    """Instead of a threshold: the share of the class that must be found."""


P = ParamSpec("P")
R = TypeVar("R")


def takes(kind: type[Options]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: keywords of the function that are options of ``kind`` become its argument ``how``.

    A keyword that is no option, argument or setting is refused with the nearest of them.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = dict(signature.parameters)
        del parameters["how"]
        settings = [p for p in (parameters.pop("settings", None),) if p is not None]
        fields = {name: f for name, f in kind.model_fields.items() if name not in parameters}

        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> R:
            _refuse_unknown(keywords, [*parameters, "how", *fields], takes_settings=bool(settings))
            options = {name: keywords.pop(name) for name in fields if name in keywords}
            return function(*arguments, **{"how": kind(**options), **keywords})

        keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        shown = [
            keyword(name, default=field.default, annotation=field.annotation)
            for name, field in fields.items()
        ]
        meanings = [f"{name} : {in_one_line(field)}" for name, field in fields.items()]
        vars(call)["__signature__"] = signature.replace(
            parameters=[*parameters.values(), *shown, *settings]
        )
        call.__doc__ = "\n".join(
            [inspect.cleandoc(function.__doc__ or ""), "", "Options", "-------", *meanings]
        )
        return cast(Callable[P, R], call)

    return decorate


def in_one_line(field: FieldInfo) -> str:
    """What an option means."""
    return " ".join((field.description or "").split())


def _refuse_unknown(
    keywords: Iterable[str], arguments: Sequence[str], *, takes_settings: bool
) -> None:
    from fedul_flwr.config.base import nearest, unknown_key
    from fedul_flwr.config.run_config import default_flat

    settings = {key.partition(".")[0].replace("-", "_") for key in default_flat()}
    settings = settings if takes_settings else set()
    for name in keywords:
        if name in arguments or name.partition(".")[0].replace("-", "_") in settings:
            continue
        close = nearest(name, [*arguments, *settings])
        meant = close and close in (nearest(name, [one]) for one in arguments)
        if meant or not takes_settings:  # a table of a method's own is checked with its settings
            raise unknown_key(name, arguments, "argument", "its help")
