"""Base of settings: keys, strict types, errors as plain sentences, and objects that they name."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.fields import FieldInfo

from fedul_flwr.errors import UserError

Scalar = bool | int | float | str
"""Types of values in Flower's run config."""


AUTO: Any = "auto"
"""Value of a setting that follows from the data; a run replaces it before anything reads it."""


ADAPTIVE: Any = "adaptive"
"""Value of a setting that each client computes from its points in every round."""


class Word(NamedTuple):
    """Annotation of a number's setting that may also be this word."""

    word: str


def _number_or(word: str) -> tuple[WrapValidator, PlainSerializer, Word]:
    def check_number(value: object, check: ValidatorFunctionWrapHandler) -> object:
        return value if value == word else check(value)

    return WrapValidator(check_number), PlainSerializer(lambda value: value), Word(word)


def word_of(field: FieldInfo) -> str:
    """The word that a number's setting may be, or an empty text."""
    return next((rule.word for rule in field.metadata if isinstance(rule, Word)), "")


OR_AUTO = _number_or(AUTO)
"""Annotations of a number that may be :data:`AUTO`; its type is that of a run that has begun."""
OR_ADAPTIVE = _number_or(ADAPTIVE)
"""Annotations of a number that may be :data:`ADAPTIVE`."""


def column_name(text: str) -> str:
    """The name of a column in every kind of file: no spaces around it, letters composed (NFC)."""
    return unicodedata.normalize("NFC", text.strip())


ColumnName = Annotated[str, AfterValidator(column_name)]


WITHOUT_EFFECT = "setting-without-effect"


class OnlyWith(NamedTuple):
    """Annotation of a setting that goes only with some values of another one.

    Attributes
    ----------
    key : the other setting; or ``points`` and ``inputs`` for the kind of the points as they are
        stored and as the model takes them, ``images``, ``vectors`` or ``texts``.
    values : its values with which the setting goes; without values: it is set.
    without : whether these are the values with which the setting does not go.
    of : values of the annotated setting that the rule is about; without any all but its default.
    idle : values of the annotated setting that need nothing, beside its default.
    or_strong_views : whether a method with strong views will do, too.
    code : of the error. A setting without effect is to be left out.
    why : the reason, if it is another one.
    """

    key: str
    values: tuple[Scalar, ...] = ()
    without: bool = False
    of: tuple[Scalar, ...] = ()
    idle: tuple[Scalar, ...] = ()
    or_strong_views: bool = False
    code: str = WITHOUT_EFFECT
    why: str = ""

    def matches(self, value: Scalar | None) -> bool:
        """Whether the setting has an effect where the other one has this value; ``None`` is that of
        a table that is not in use, or of a kind of points that is not known yet."""
        if value is None:
            return self.without or self.key in KINDS
        return (value in self.values if self.values else bool(value)) != self.without

    def __str__(self) -> str:
        return " ".join(filter(None, self.words))

    def error(self, key: str, value: Scalar, kind: str | None = None) -> UserError:
        """The error about the annotated setting; ``kind`` is that of the points, if it counts."""
        is_idle = self.code == WITHOUT_EFFECT
        goes = "has an effect only" if is_idle else "goes only"
        data = f", and the data are {kind}" if kind else ""
        end = self.because or ": leave it out" * is_idle
        return UserError(
            f"Setting {key} = {shown(value)} {goes} {self}{data}{end}.",
            self.code,
            setting=key,
        )

    @property
    def because(self) -> str:
        """The reason as the end of a sentence; empty without one."""
        return f": {self.why}" if self.why else ""

    @property
    def words(self) -> tuple[str, str, str]:
        """``with`` or ``without``, what it is with, as users write it, and what else will do."""
        allowed = any_of([shown(value) for value in self.values])
        more = "or a method with strong views" if self.or_strong_views else ""
        if self.key in KINDS:
            return "with", allowed.replace("'", ""), more
        if not self.values:
            return "without" if self.without else "with", self.key, more
        return "with", f"{self.key} {'other than' if self.without else '='} {allowed}", more


def any_of(words: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join(", ".join(words).rsplit(", ", 1))


KINDS = ("points", "inputs")
"""Kinds of points, in place of a setting's key in :class:`OnlyWith`."""


def only_with(key: str, *values: Scalar, **more: Any) -> OnlyWith:
    """Annotation of a setting that goes only with ``values`` of ``key`` (or if that is set).

    With ``of`` it is about these values of the annotated setting alone, and the two contradict.
    """
    code = "settings-contradict" if more.get("of") else WITHOUT_EFFECT
    return OnlyWith(key, values, **{"code": code, **more})


def only_without(key: str, *values: Scalar, **more: Any) -> OnlyWith:
    """Annotation of a setting that does not go with ``values`` of ``key`` (or if that is set)."""
    return only_with(key, *values, without=True, **more)


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Settings(BaseModel):
    """Frozen settings with kebab-case keys (``num_rounds`` is ``num-rounds`` in a run config).

    Types are strict: a number in quotes, or ``true`` for a number, is refused. An integer is
    accepted for a float.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=_kebab,
        populate_by_name=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )
    table: ClassVar[str] = ""
    """Table of the run config with these settings; empty for settings in no table."""
    strong_views: ClassVar[bool] = False
    """Whether a method with these settings makes strong views of points."""
    noun: ClassVar[str] = "setting"
    page: ClassVar[str] = "docs/settings.md"
    """Noun for a key in errors, and the page that documents all keys."""

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        """All keys, as they are written in a run config."""
        return tuple(_kebab(name) for name in cls.model_fields)

    @classmethod
    @cache
    def defaults(cls) -> Mapping[str, Scalar]:
        """The default of every key; all of them are computed once in a process."""
        return MappingProxyType({_kebab(n): f.default for n, f in cls.model_fields.items()})

    @classmethod
    @cache
    def rules(cls) -> Mapping[str, tuple[OnlyWith, ...]]:
        """What settings need to have an effect, by name; of those that need anything."""
        by_field = {
            name: tuple(rule for rule in field.metadata if isinstance(rule, OnlyWith))
            for name, field in cls.model_fields.items()
        }
        return {name: rules for name, rules in by_field.items() if rules}

    @classmethod
    def parse(cls, values: Mapping[str, Any], prefix: str = "") -> Self:
        """Check ``values`` and build the settings.

        Raises
        ------
        UserError
            With the key (after ``prefix``), the value and the allowed values.
        """
        for key in values:
            if key not in cls.names():
                names = [prefix + name for name in cls.names()]
                raise unknown_key(prefix + key, names, cls.noun, cls.page)
        for key, value in values.items():
            if isinstance(value, int) and abs(value) >= 2**63:  # Flower's messages have 64 bits
                raise UserError(
                    f"{cls.noun.capitalize()} {prefix}{key} = {shown(value)}: must fit in 64 bits.",
                    "setting-out-of-range",
                    setting=prefix + key,
                )
        try:
            return cls.model_validate(dict(values))
        except ValidationError as err:
            raise refusal(err, prefix, cls) from None

    def to_flat(self, prefix: str = "") -> dict[str, Scalar]:
        """Every key with its value."""
        return {prefix + key: value for key, value in self.model_dump(by_alias=True).items()}


def unknown_key(
    key: str, names: Iterable[str], noun: str = Settings.noun, page: str = Settings.page
) -> UserError:
    """An error for an unknown key that suggests the most similar known one."""
    return UserError(
        f"Unknown {noun} {key!r}{nearest(key, names) or f'; {page} lists all.'}",
        "unknown-name",
        name=key,
    )


_CODES = {
    "int_type": "setting-wrong-type",
    "float_type": "setting-wrong-type",
    "string_type": "setting-wrong-type",
    "bool_type": "setting-wrong-type",
    "literal_error": "setting-not-a-choice",
    "value_error": "setting-not-allowed",
}
_TYPES = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "path_type": "must be a path",
    "finite_number": "must be a finite number",
}


def refusal(error: ValidationError, prefix: str, kind: Any, code: str = "") -> UserError:
    """What a model of settings, or of options, refuses first, in one sentence.

    Parameters
    ----------
    prefix : of the key.
    code : of the error, in place of one for its kind.
    """
    noun = kind.noun
    first = error.errors()[0]
    key = prefix + ".".join(str(part) for part in first["loc"])
    context = first.get("ctx", {})
    match first["type"]:
        case "greater_than_equal":
            rule = f"must be at least {context['ge']}"
        case "greater_than":
            rule = f"must be greater than {context['gt']}"
        case "less_than_equal":
            rule = f"must be at most {context['le']}"
        case "less_than":
            rule = f"must be less than {context['lt']}"
        case "literal_error":
            rule = f"must be one of {context['expected']}"
            allowed = re.findall(r"'([^']*)'", str(context["expected"]))
            rule += nearest(str(first["input"]), allowed)
        case "value_error":
            rule = str(context["error"])
        case other:
            rule = _TYPES.get(other, first["msg"])
            field = kind.model_fields.get(".".join(map(str, first["loc"])).replace("-", "_"))
            if other in ("int_type", "float_type") and field and word_of(field):
                rule += f" or {word_of(field)!r}"
    if not rule.endswith("?"):
        rule += "."
    if not first["loc"]:  # a rule over several keys; its message names them
        return UserError(f"{noun.capitalize()} {rule}", "settings-contradict")
    return UserError(
        f"{noun.capitalize()} {key} = {shown(first['input'])}: {rule}",
        code or _CODES.get(first["type"], "setting-out-of-range"),
        setting=key,
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """The most similar known name as the end of a message; empty if none is similar."""
    close = difflib.get_close_matches(name[:100], list(names), n=1)
    if close and len(name) == len(close[0]) < 4 and sorted(name) != sorted(close[0]):
        return ""  # another letter of three makes another word: gpu, cpu
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: object) -> str:
    """A value for a message as users write it, cut at 100 characters."""
    text = repr(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def setting_error(key: str, value: object, why: str, code: str) -> UserError:
    """The error that a setting cannot have this value, and why."""
    end = "" if why.endswith("?") else "."
    return UserError(f"Setting {key} = {shown(value)}: {why}{end}", code, setting=key)


USER_PATH = "FEDUL_PATH"
"""Environment variable: directory with the user's own modules (default: the current one)."""


_searched: ContextVar[tuple[Path, ...] | None] = ContextVar("searched", default=None)


def module_folder() -> Path:
    """Folder with the user's own modules: ``$FEDUL_PATH``, or the current one."""
    return Path(os.environ.get(USER_PATH) or Path.cwd())


@contextmanager
def modules_from(folder: Path | None) -> Iterator[None]:
    """Context in which names come from somebody's folder, not from the user.

    Beside installed modules ``folder`` is searched, or ``$FEDUL_PATH`` alone: a file of the working
    folder that has the same name by chance must not run.
    """
    named = folder or (Path(path) if (path := os.environ.get(USER_PATH)) else None)
    token = _searched.set((named,) if named else ())
    try:
        yield
    finally:
        _searched.reset(token)


def load_reference(reference: str, setting: str) -> Any:
    """Import the object ``package.module:name``; errors name ``setting``."""
    module, _, attribute = reference.partition(":")
    wrong = partial(setting_error, setting, reference, code="reference-wrong")
    searched = _searched.get()
    if module.startswith("fedul_flwr."):
        searched = ()  # ours: nobody's folder is needed
    for folder in map(str, (module_folder(),) if searched is None else searched):
        if folder not in sys.path:
            sys.path.append(folder)  # last, so that it cannot shadow an installed module
    if not all(part.isidentifier() for part in module.split(".")):
        raise wrong("must be 'package.module:name'")
    with user_code(f"Setting {setting} = {reference!r}"):
        try:
            imported = importlib.import_module(module)
        except ImportError as err:
            raise wrong(f"cannot import it ({err})") from err
    if _is_ours(imported):
        raise wrong(f"its name is 'fedul_flwr.{reference}', everywhere")
    try:
        return getattr(imported, attribute)
    except AttributeError:
        raise wrong(f"module {module!r} has no {attribute!r}") from None


def _is_ours(module: ModuleType) -> bool:
    """Whether a module of this package was found beside it, as in a checkout: a second copy."""
    file = getattr(module, "__file__", None)
    if module.__name__.startswith("fedul_flwr.") or not file:
        return False
    with suppress(ModuleNotFoundError):
        ours = importlib.util.find_spec(f"fedul_flwr.{module.__name__}")
        return bool(ours and ours.origin and Path(ours.origin).samefile(file))
    return False


_INSTALLED = (
    f"{Path(__file__).parents[1]}{os.sep}",
    *(
        f"{folder}{os.sep}"
        for kind in ("stdlib", "platstdlib", "purelib", "platlib")
        for folder in {sysconfig.get_path(kind), os.path.realpath(sysconfig.get_path(kind))}
    ),
)
"""Beginnings of the paths of installed modules, and of ours."""
_MOST_WHY = 160
"""Most characters of an error's text in a sentence about it."""


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Context for a user's own code: its errors, and its attempts to exit, become sentences.

    Parameters
    ----------
    what : begins the sentence.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        if _is_exit_of_flower(error):
            raise
        raise UserError(f"{what} raises {error_in_words(error)}.", "own-code-failed") from error


@contextmanager
def without_exit(what: str) -> Iterator[None]:
    """Context in which code cannot end the program: its attempt to exit becomes a sentence.

    Parameters
    ----------
    what : begins the sentence.
    """
    try:
        yield
    except SystemExit as error:
        if _is_exit_of_flower(error):
            raise
        raise UserError(
            f"{what} cannot go on, and must not exit: {error_in_words(error)}.", "own-code-failed"
        ) from error


def _is_exit_of_flower(error: BaseException) -> bool:
    """Whether Flower ends this process, as after ``flwr stop``: its handler of signals exits, also
    where it interrupts a user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        isinstance(error, SystemExit)
        and bool(frames)
        and "flwr" in Path(frames[-1].filename).parent.parts
        and not _is_own(frames[-1].filename)
    )


def user_code_error(error: BaseException, what: str) -> UserError | None:
    """A sentence in place of an error that a user's own code has raised; None for another one."""
    frames = traceback.extract_tb(error.__traceback__)
    if not any(_is_own(frame.filename) for frame in frames):
        return None
    return UserError(
        f"{what} stopped in your own code: {error_in_words(error)}.", "own-code-failed"
    )


def error_in_words(error: BaseException) -> str:
    """Type and text of an error on one line, and the line of a user's own code that raised it."""
    why = " ".join(str(error).split())[:_MOST_WHY].rstrip(".")
    return f"{type(error).__name__}{f': {why}' if why else ''}{_origin(error)}"


def user_code_trace(error: BaseException) -> str:
    """The traceback of an error from a user's own code on; the whole one without such code."""
    trace = error.__traceback__
    while trace is not None and not _is_own(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))


def _origin(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f" (line {error.lineno} of {error.filename})" if error.filename else ""
    frames = traceback.extract_tb(error.__traceback__)
    named = [frame for frame in frames if not frame.filename.startswith("<")]
    ours = [frame for frame in named if _is_own(frame.filename)] or named
    return f" (line {ours[-1].lineno} of {ours[-1].filename})" if ours else ""


def _is_own(file: str) -> bool:
    """Whether a source file is a user's own: of no installed package, nor of this one."""
    return not file.startswith(("<", *_INSTALLED))


# Class priors as users write them: K numbers that sum to 1.

PriorsLike = ArrayLike | Mapping[str, float]
"""Class priors in the order of the classes, or by their names."""
SUM_TOLERANCE = 1e-4
"""How far the sum of class priors may be from 1."""


def checked_prior(values: ArrayLike) -> NDArray[np.float64]:
    """Class priors ``(K,)`` divided by their sum.

    Raises
    ------
    ValueError
        If an entry is not between 0 and 1 (both excluded), or the sum differs from 1 by more than
        1e-4; the message is the violated rule.
    """
    prior = np.asarray(values, dtype=np.float64)
    if prior.ndim != 1 or not ((prior > 0) & (prior < 1)).all():
        raise ValueError("needs every class prior between 0 and 1, both excluded")
    if abs(prior.sum() - 1) > SUM_TOLERANCE:
        raise ValueError("must be class priors that sum to 1")
    return np.asarray(prior / prior.sum(), dtype=np.float64)


def is_named(labels: Iterable[object]) -> bool:
    """Whether rows or columns of a table have other names than pandas' default, 0 to n - 1."""
    names = list(labels)
    return names != [*range(len(names))]


def in_order(values: Any, names: Iterable[object]) -> Any:
    """Values of which each has a name, in the order of ``names``; others as they are.

    A mapping has names, and so has a Series or a DataFrame (for its rows), unless its index is
    that of pandas by default.

    Raises
    ------
    ValueError
        If they have other names.
    """
    is_mapping = isinstance(values, Mapping)
    index = list(values) if is_mapping else getattr(values, "index", None)
    if index is None or callable(index):  # a list has a method of this name
        return values
    if not is_mapping and not is_named(index):
        return values
    there, wanted = [*map(str, index)], [*map(str, names)]
    if sorted(there) != sorted(wanted):
        raise ValueError(
            f"the priors are of {', '.join(there)}, and must be of {', '.join(wanted)}"
        )
    rows = np.asarray([*values.values()] if is_mapping else values)
    return rows[[there.index(name) for name in wanted]]


def parse_prior(text: str, words: Sequence[str] = ()) -> list[float]:
    """Parse class priors, K numbers separated by commas; they are not normalized.

    Parameters
    ----------
    words : words that are allowed instead of numbers, for the message.

    Raises
    ------
    ValueError
        With the violated rule of :func:`checked_prior`, or if these are not numbers.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        either = f"{', '.join(map(repr, words))} or " if words else ""
        hint = nearest(text, words)
        raise ValueError(f"must be {either}numbers separated by commas{hint}") from None
    checked_prior(numbers)
    return numbers
