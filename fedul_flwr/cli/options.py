"""Options that several commands share."""

from __future__ import annotations

import contextlib
import inspect
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import click
import typer
from pydantic.fields import FieldInfo
from typer.core import TyperArgument

from fedul_flwr.config.options import Command, Options, in_one_line
from fedul_flwr.config.user_files import user_path
from fedul_flwr.errors import UserError

# Help of commands and completion in a shell.


def complete_method(incomplete: str) -> Iterator[tuple[str, str]]:
    """Names of methods with their descriptions."""
    from fedul_flwr.config.methods import METHODS

    return ((n, method.line) for n, method in METHODS.items() if n.startswith(incomplete))


def complete_setting(incomplete: str) -> Iterator[str]:
    """Names of settings and of their tables."""
    from fedul_flwr.config.run_config import all_sections, default_flat

    return (name for name in (*all_sections(), *default_flat()) if name.startswith(incomplete))


def complete_assignment(incomplete: str) -> Iterator[str]:
    """The last ``key=value`` of settings: its key, or its value if it has choices."""
    before, space, last = incomplete.rpartition(" ")
    key, sign, value = last.partition("=")
    if not sign:
        from fedul_flwr.config.run_config import default_flat

        completions = [f"{option}=" for option in default_flat() if option.startswith(key)]
    else:
        completions = [f"{key}={option}" for option in choices(key) if option.startswith(value)]
    return (before + space + text for text in completions)


def choices(key: str) -> tuple[str, ...]:
    """Values that a setting takes, or of `method`, `dataset` and `model` those that have a name."""
    from fedul_flwr.config.document import every_setting
    from fedul_flwr.config.methods import METHODS
    from fedul_flwr.config.shared import MODEL_NAMES
    from fedul_flwr.data.sources import NAMED_DATASETS

    named = {
        "method": tuple(METHODS),
        "dataset": tuple(entry.name for entry in NAMED_DATASETS),
        "model": MODEL_NAMES,
    }
    if key in named:
        return named[key]
    for note in every_setting():
        if note.key == key and note.default in ("true", "false"):
            return ("true", "false")
        if note.key == key and note.has_choices:
            return note.allowed
    return ()


_WIDEST = 100
"""Columns of text, however wide the terminal is."""


def columns() -> int:
    """Width for text in this terminal."""
    return min(shutil.get_terminal_size().columns, _WIDEST)


def with_examples(*examples: str) -> dict[str, Any]:
    """Arguments of ``app.command`` for a command whose help ends with ``examples``."""
    return {"epilog": "\n\n".join(["Examples:", *examples])}


def restore_texts(command: click.Command) -> None:
    """Give the arguments of a command, and of those below it, their texts back.

    typer 0.20, the newest that Flower allows, sets them before click 8.5 clears them.
    """
    for inner in getattr(command, "commands", {}).values():
        restore_texts(inner)
    for argument in command.params:
        if isinstance(argument, TyperArgument) and not argument.help:
            assert command.callback is not None
            hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
            argument.help = hints[argument.name].__metadata__[0].help


def with_way_out(error: click.UsageError) -> click.UsageError:
    """An error that says how a setting, or the number of clients, is given to the command."""
    command = error.ctx.command if error.ctx is not None else None
    if "run_config" not in [part.name for part in (command.params if command else ())]:
        return error
    from fedul_flwr.config.methods import METHODS
    from fedul_flwr.config.run_config import default_flat

    match = re.search(r"(?:--|\()([a-z][\w.-]*)(?:=([^\s)]+))?", error.message)
    name, value = (match[1].replace("_", "-"), match[2] or "…") if match else ("", "")
    if name in METHODS:
        name, value = "method", name
    elif f"num-{name}" in default_flat():
        name = f"num-{name}"
    if name == "clients":
        hint = "The number of clients is --num-supernodes."
    elif name in default_flat():
        hint = f"Settings follow -c: -c '{name}={value}'."
    else:
        return error
    return click.UsageError(f"{error.message.rstrip('.')}. {hint}", error.ctx)


# Options of actions as those of commands.


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with an option for each field of the options of actions that it takes."""
    hints = get_type_hints(command, include_extras=True)
    shown, of_models, models = [], [], {}
    for name, parameter in inspect.signature(command).parameters.items():
        if isinstance(hints[name], type) and issubclass(hints[name], Options):
            models[name] = hints[name]
            of_models += [_option(*field) for field in hints[name].model_fields.items()]
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            shown.append(parameter.replace(kind=kind, annotation=hints[name]))

    @wraps(command)
    def run(**values: Any) -> None:
        for name, kind in models.items():
            values[name] = kind(**{field: values.pop(field) for field in kind.model_fields})
        command(**values)

    vars(run)["__signature__"] = inspect.Signature([*shown, *of_models])
    run.__annotations__ = {one.name: one.annotation for one in (*shown, *of_models)}
    return run


def flag_of(name: str, field: FieldInfo) -> str:
    """Name of a field of options on the command line."""
    return (*_command(field).flags, "--" + name.replace("_", "-"))[0]


def _command(field: FieldInfo) -> Command:
    return next((rule for rule in field.metadata if isinstance(rule, Command)), Command())


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    """A field of options as a parameter that typer makes an option of."""
    how = _command(field)
    bounds = {
        end: getattr(rule, key)
        for rule in field.metadata
        for end, key in (("min", "ge"), ("max", "le"))
        if hasattr(rule, key)
    }
    option = typer.Option(flag_of(name, field), help=in_one_line(field), **bounds, **how.more)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[how.kind or field.annotation, option],
    )


RunConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--run-config",
        "-c",
        metavar="'KEY=VALUE …'|FILE",
        help="Settings; may be repeated, the later one wins. fedul-flwr settings lists them.",
        autocompletion=complete_assignment,
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Use the small size for two cores, not the paper's size.")
]
Rows = Annotated[str | None, typer.Option(help="Only these rows, separated by commas.")]
Columns = Annotated[str | None, typer.Option(help="Only these columns, separated by commas.")]
Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        metavar="NAME=PATH",
        help="Local copy of a data set, as ylecun/mnist=data/mnist; may be repeated.",
    ),
]
Results = Annotated[Path, typer.Option(file_okay=False, help="Folder of the stored results.")]
Experiments = Annotated[
    Path,
    typer.Option(
        file_okay=False,
        help="Folder of the tables' files.",
        show_default="those that come with fedul-flwr",
    ),
]
RESULTS = Path("results")
_PACKAGE = Path(__file__).resolve().parents[1]
_IN_WHEEL = _PACKAGE / "paper_tables"
EXPERIMENTS = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent / "experiments"
"""The papers' tables: in a wheel inside the package, in a checkout beside it."""


def local_copies(options: list[str] | None) -> dict[str, Path]:
    """Paths of local copies of data sets by name, from options ``ylecun/mnist=data/mnist``."""
    copies = {}
    for value in options or []:
        name, sign, path = value.partition("=")
        if not (name and sign and path):
            raise UserError(
                f"--dataset {value!r} must be NAME=PATH, as in ylecun/mnist=data/mnist.",
                "option-not-allowed",
                option="--dataset",
            )
        user_path(path)  # refuses what no folder can be called
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise UserError(
                f"--dataset {value!r}: {folder} is not a folder.",
                "folder-missing",
                option="--dataset",
            )
        copies[name] = folder
    return copies


def refuse_options(options: Mapping[str, object], where: str) -> None:
    """Refuse options that were given and have no effect."""
    for option, value in options.items():
        if value:
            raise UserError(
                f"{option} has no effect {where}.", "option-without-effect", option=option
            )


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """After Ctrl-C, print that the same command resumes."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("The same command resumes from here.", err=True)
        raise
