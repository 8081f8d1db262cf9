"""What leaves a client: a payload of parts, each of which is declared once.

From a :class:`Part` follow the check at the server, the refusal at the client of what is not
declared, what owners read of it, whether and how a secure sum adds it up, how the server combines
it, and the state of a run that resumes.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import nearest
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig, once
from fedul_flwr.data.run_files.records import is_of_lines, name_taken
from fedul_flwr.data.types import CONFIDENT_SHARE, LARGEST_COUNT, Content
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.messages import (
    APPROVAL,
    ARRAYS,
    BECAUSE,
    CONFIG,
    DESCRIBE,
    DIAGNOSTICS,
    DIGEST,
    END,
    FILTERS,
    HEAD,
    MASKED,
    METRICS,
    NORMALIZER,
    OTHER,
    PACKED,
    PERSONAL,
    SHARES,
    SUM_PHASES,
    WEIGHT,
    item_sizes,
    to_record,
)
from fedul_flwr.federated.messages import COLUMNS as COLUMNS_PHASE
from fedul_flwr.secure.words import IN_STEPS, Encoding

TRAIN, EVALUATE = "train", "evaluate"
"""Messages that every method may have, besides phases."""
LOSS, STEPS = "loss", "steps"

Condition = Callable[[RunConfig], bool]

LARGEST = 1e280
"""Largest number. Weighted sums of them over clients stay finite; diverging losses are below it."""

MODEL, WEIGHTS, ANY, TEXT = "model", "weights", "any", "text"
"""Shapes: arrays of the names and shapes of the whole model, or of its trainable weights; what a
protocol checks itself; a text."""
CLASSES, FEATURES, COLUMNS = "classes", "features", "columns"
"""Sizes: number of classes K, of inputs of the model's last layer, of columns of a table."""
GROUPS = (MODEL, WEIGHTS)

ONCE = "once, before round 1"
EVERY_ROUND = "every round that it trains in"
SERVER = "the server"
AVERAGED = "the server; all clients get the mean"
SUMMED_READER = "the server, as a sum over all clients"
UNDER_MASKS = "under masks, random numbers that cancel in the sum"
HOW_TRAINING_WENT = "numbers about how its training went"
LOSS_IN_WORDS = "the loss (how far off the model is)"

Combine = Literal["mean", "sum", "keep"]


class Sizes(Mapping[str, int]):
    """Sizes by name; a function is called when its size is asked for."""

    def __init__(self, **sizes: int | Callable[[], int]) -> None:
        self._sizes = sizes

    def __getitem__(self, name: str) -> int:
        size = self._sizes[name]
        if not isinstance(size, int):
            size = self._sizes[name] = size()
        return size

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def of_answer(self, values: Mapping[str, Any]) -> Sizes:
        """These sizes, and the counts among the values of an answer."""
        counts = {key: value for key, value in values.items() if type(value) is int and value >= 0}
        return Sizes(**{**counts, **self._sizes})


@dataclass(frozen=True)
class Part:
    """One thing that a client sends.

    Attributes
    ----------
    shape : sizes of its dimensions, each a number or a name: ``"classes"``, ``"features"``, or that
        of a count in the same answer. One number without any. ``"model"`` and ``"weights"`` are
        arrays by name, ``"text"`` a text, ``"any"`` messages whose form their protocol checks.
    combine : what the server makes of all clients' parts of an update: the mean with the weights of
        the updates, the sum, or nothing: it keeps each client's.
    at_least, at_most : range of each number.
    total : what the numbers add up to; ``None`` for anything.
    says : what it is, for owners of data.
    optional : whether there are rounds without it.
    when : whether it is sent in a run with given settings.
    other : what it is in the other runs; ``None`` is not sent there.
    often : when it is sent, in words; by default what its message says.
    reader : who can read it, in words.
    undisturbed : whether it is sent in runs in which no client does what it should not.

    Raises
    ------
    UserError
        If there is no such shape or way to combine.
    """

    shape: int | str | tuple[int | str, ...] = ()
    combine: Combine = "mean"
    at_least: float = -LARGEST
    at_most: float = LARGEST
    total: float | None = None
    says: str = HOW_TRAINING_WENT
    optional: bool = False
    when: Condition = lambda _: True
    other: Part | None = None
    often: str = ""
    reader: str = SERVER
    undisturbed: bool = True

    def __post_init__(self) -> None:
        if self.combine not in get_args(Combine):
            raise _unknown("combine", self.combine, get_args(Combine))
        if not isinstance(self.shape, tuple):
            object.__setattr__(self, "shape", (self.shape,))

    @classmethod
    def count(cls, **options: Any) -> Part:
        """A number of things; options are the other attributes."""
        return cls(at_least=0, at_most=LARGEST_COUNT, **options)

    def in_run(self, settings: RunConfig) -> Part | None:
        """What it is in a run with given settings; ``None`` if it is not sent."""
        if self.when(settings):
            return self
        return self.other and self.other.in_run(settings)

    @property
    def kind(self) -> str:
        """``"numbers"``, or one of the shapes that are none."""
        first = str(self.dimensions[0]) if len(self.dimensions) == 1 else ""
        return first if first in (*GROUPS, ANY, TEXT) else "numbers"

    @property
    def is_group(self) -> bool:
        """Whether it is arrays by name."""
        return self.kind in GROUPS

    @property
    def dimensions(self) -> tuple[int | str, ...]:
        """The shape as a tuple."""
        assert isinstance(self.shape, tuple)
        return self.shape

    def sized(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape of its numbers.

        Raises
        ------
        UserError
            If a size has an unknown name.
        """
        shape = []
        for size in self.dimensions:
            if isinstance(size, str) and size not in sizes:
                raise _unknown("shape", size, [*sizes, *GROUPS])
            shape.append(sizes[size] if isinstance(size, str) else size)
        return tuple(shape)

    def zeros(self, sizes: Sizes) -> Floats:
        """Numbers that are all 0."""
        return np.zeros(self.sized(sizes))

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Refuse what is not as declared: numbers, in rows one after the other, or a text."""
        if self.kind == TEXT:
            if not isinstance(value, str):
                raise BadMessageError(f"its {name} is no text", "message-form")
        elif self.kind == "numbers":
            self._check_numbers(name, value, self.sized(sizes))

    def _check_numbers(self, name: str, value: Any, shape: tuple[int, ...]) -> None:
        try:
            numbers = np.asarray(value)
        except ValueError:  # rows of several lengths
            numbers = np.array("")
        if numbers.dtype.kind not in "biuf" or numbers.shape not in (
            shape,
            (math.prod(shape),) * bool(shape),
        ):
            wanted = f"{math.prod(shape)} numbers" if shape else "one number"
            raise BadMessageError(f"its {name} is not {wanted}", "message-form")
        is_within = (self.at_least <= numbers) & (numbers <= self.at_most) & np.isfinite(numbers)
        if not is_within.all() or (
            self.total is not None and not math.isclose(numbers.sum(), self.total, abs_tol=1e-6)
        ):
            total = "" if self.total is None else f", {self.total:g} together"
            raise BadMessageError(
                f"its {name} is not within {self.at_least:g} to {self.at_most:g}{total}",
                "message-out-of-range",
            )


def _unknown(what: str, value: object, allowed: Iterable[str]) -> UserError:
    names = [*allowed]
    close = difflib.get_close_matches(str(value).lower(), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UserError(
        f"Part({what}={value!r}): {what} must be one of {', '.join(names)}.{hint}",
        "own-method-wrong",
    )


Parts = Mapping[str, Part]
"""Declared parts by name; in answers ``*`` in a name stands for any characters."""
Declared = Mapping[str, Parts]
"""The parts of each message: :data:`TRAIN`, :data:`EVALUATE` and phases."""


def in_run(parts: Parts, settings: RunConfig) -> dict[str, Part]:
    """Those of ``parts`` that are sent in a run with given settings."""
    sent = {name: part.in_run(settings) for name, part in parts.items()}
    return {name: part for name, part in sent.items() if part is not None}


def only_when(condition: Condition, parts: Parts) -> Parts:
    """``parts``, each sent only where ``condition`` also holds."""

    def restricted(part: Part) -> Part:
        return replace(part, when=lambda settings: condition(settings) and part.when(settings))

    return {name: restricted(part) for name, part in parts.items()}


def all_of(says: str, *names: str, **options: Any) -> Parts:
    """Parts of one meaning, whose form their protocol checks; options are other attributes."""
    return dict.fromkeys(names, Part(ANY, says=says, **options))


UPDATE = "update"
"""Name of the sum of a round's updates, whose parts come as replies to its training messages."""


@dataclass(frozen=True)
class Sum(Part):
    """A client's numbers in a sum over clients, of which the server reads nothing else.

    Attributes
    ----------
    encoding : how they are written under masks.
    once : whether it is made once a run, and of no model.
    beside : names of arrays that the server sends beside the model; others are refused.
    """

    encoding: Encoding = IN_STEPS
    once: bool = False
    beside: frozenset[str] = frozenset()

    @classmethod
    def of(cls, says: str, often: str, **options: Any) -> Sum:
        """A sum of what ``says`` names for owners; options are other attributes."""
        says = f"{says}, {UNDER_MASKS}"
        return cls(ANY, says=says, often=often, reader=SUMMED_READER, **options)


STARTED, ENDED, PROCESS = "started", "ended", "process"
_ACCOUNT = Part(combine="keep", says="when it began and ended to train, and its process's number")
_TRAINED = f"on how many points it trained, in how many steps, and {LOSS_IN_WORDS}"
OF_ALL: Parts = {
    WEIGHT: Part.count(says=_TRAINED),
    LOSS: Part(says=_TRAINED, optional=True),
    **dict.fromkeys((STEPS, NORMALIZER), Part.count(says=_TRAINED, optional=True)),
    **dict.fromkeys((STARTED, ENDED), _ACCOUNT),
    PROCESS: replace(_ACCOUNT, optional=True),
}
"""Numbers of every update."""
NOTHING: Mapping[str, Any] = {WEIGHT: 0, LOSS: 0.0, STEPS: 0, NORMALIZER: 0.0}
"""Numbers of an update of a client that has none."""
CONFIDENT: Parts = {
    CONFIDENT_SHARE: Part(
        at_least=0,
        at_most=1,
        optional=True,
        says="the share of its unlabeled points that it is confident about",
    )
}
"""Sent by a client that trains on its predictions."""
EVALUATED: Parts = {WEIGHT: OF_ALL[WEIGHT], LOSS: Part()}
"""Sent by a client that evaluates a model on points that it held out."""


def part_of(parts: Parts, record: str, name: str) -> Part | None:
    """The declaration of an array or value of a message; ``None`` if there is none."""
    group = parts.get(record)
    if group is not None and group.is_group:
        return group
    exact = parts.get(name)
    if exact is not None:
        return None if exact.is_group else exact
    return next((part for key, part in parts.items() if fnmatchcase(name, key)), None)


def refuse_undeclared(who: str, phase: str, content: RecordDict, parts: Parts) -> None:
    """Refuse to send what is not declared; ``who`` names the class that has to declare it."""
    for record, name, _ in item_sizes(content):
        if part_of(parts, record, name) is None:
            where = "reports" if phase == TRAIN else "answers"
            raise UserError(
                f"{who} would send {name!r} in message {phase!r}, and nothing was sent: it is not "
                f"declared in {who}.{where}{nearest(name, parts)}",
                "own-method-wrong",
            )


def check_answer(answer: Content, parts: Parts, sizes: Sizes) -> None:
    """Compare an answer to a phase with its declarations; all of them may be missing."""
    sized = sizes.of_answer(answer.values)
    for name, value in {**answer.values, **answer.arrays}.items():
        part = part_of(parts, "", name)
        if part is None:
            raise BadMessageError(
                f"its answer has {name!r}, which was not asked for", "message-unasked"
            )
        part.check(name, value, sized)


@once
def reports_of(settings: RunConfig) -> Parts:
    """All that the clients of a run report with an update, beside the model."""
    declared = {**OF_ALL, **find_method(settings.method).client_class.reports}
    return in_run(declared, settings)


def in_record(parts: Parts, record: str) -> Parts:
    """The numbers of an update that travel in a record: bases average all :data:`METRICS`, so that
    what is kept by client is apart, in :data:`DIAGNOSTICS`."""
    is_kept = record == DIAGNOSTICS
    return {
        name: part
        for name, part in parts.items()
        if part.kind == "numbers" and (part.combine == "keep") == is_kept
    }


def groups_of(parts: Parts, less: Collection[str] = ()) -> Parts:
    """The arrays by name of an update, beside the model and those ``less``."""
    apart = {ARRAYS, *less}
    return {name: part for name, part in parts.items() if part.is_group and name not in apart}


_RECORDS = (ARRAYS, CONFIG, METRICS, DIAGNOSTICS, MASKED, SHARES, PACKED, "control")
"""Records of messages, which a group of arrays cannot be one of."""
_TRAFFIC = (MODEL, OTHER, "phases", "evaluation")
"""Parts of a round's traffic; a group of arrays is another one, by its name."""
_PHASES = (DESCRIBE, COLUMNS_PHASE, END, PERSONAL, FILTERS, HEAD, *SUM_PHASES, EVALUATE)
"""Messages with an answer that is the framework's alone."""
_WHO = ("partition-id", "num-partitions", "own-data", APPROVAL, DIGEST, BECAUSE)


def is_taken(name: str) -> bool:
    """Whether the framework uses a name among what clients report."""
    return name in (*OF_ALL, *_RECORDS, *_TRAFFIC) or is_of_lines(name)


def refuse_taken_names(who: str, sent: Declared, before: Declared) -> None:
    """Refuse declarations of somebody's own with names that the framework uses.

    Parameters
    ----------
    who : names the class that declares them.
    before : what the framework's class that it is built on declares.

    Raises
    ------
    UserError
        With a name that is free.
    """
    keys: dict[str, str] = {}
    for phase, parts in sent.items():
        if phase in _PHASES and phase not in before:
            raise name_taken(f"A message of {who}.answers", phase, _PHASES.__contains__)
        of_before = before.get(phase, {})
        for name in (name for name, part in parts.items() if of_before.get(name) != part):
            what, is_used = f"What {who} sends", is_taken if phase == TRAIN else _WHO.__contains__
            if is_used(name):
                raise name_taken(what, name, is_used)
            if phase == TRAIN and keys.setdefault(name.replace("-", "_"), name) != name:
                raise UserError(
                    f"{who} sends {name!r} and {keys[name.replace('-', '_')]!r}, which have one "
                    "key in metrics.jsonl: rename one of them.",
                    "own-method-wrong",
                )


Payload = dict[str, Any]
"""Values of parts by name: a number, numbers, or for a group arrays by name."""


def update_content(payload: Payload, parts: Parts) -> RecordDict:
    """An update as Flower's records: arrays by name in a record each, numbers in two."""
    records = RecordDict({ARRAYS: ArrayRecord()})
    of = {METRICS: MetricRecord(), DIAGNOSTICS: MetricRecord()}
    apart = in_record(parts, DIAGNOSTICS)
    for name, value in payload.items():
        if isinstance(value, dict):
            records[name] = to_record(value)
        else:
            plain = value.ravel().tolist() if isinstance(value, np.ndarray) else value
            of[DIAGNOSTICS if name in apart else METRICS][name] = plain
    return RecordDict({**records, **of})


def in_words(parts: Parts) -> Iterator[tuple[tuple[str, ...], Part]]:
    """Declarations that say the same to owners, each with all its names."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name, part in parts.items():
        alike.setdefault((part.says, part.reader, part.often), []).append(name)
    for names in alike.values():
        yield tuple(names), parts[names[0]]
