"""The commands ``methods``, ``settings`` and ``datasets``: what there is to choose from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from fedul_flwr.cli.options import choices, columns, complete_method, complete_setting

if TYPE_CHECKING:
    from fedul_flwr.config.document import SettingNote
    from fedul_flwr.config.methods import Method


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Only this method, with the tables of its settings.",
            autocompletion=complete_method,
        ),
    ] = None,
) -> None:
    """List the methods: how each learns, what data it needs, and its paper."""
    from fedul_flwr.config.methods import METHODS, find_method

    if name is not None:
        method = find_method(name)
        _say(name)
        _print_more(*_about(method))
        tables = ", ".join(method.tables)
        _print_more(f"Tables of settings beside the shared ones: {tables}.")
        return
    for key, method in METHODS.items():
        _say(key)
        _print_more(*_about(method))
    _say("")
    _say("Choose one: fedul-flwr run -c method=NAME. docs/choose.md leads from data to method.")


def settings(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|TABLE",
            help="A setting, such as num-rounds or fedul.num-sets, or a table, such as fedul.",
            autocompletion=complete_setting,
        ),
    ] = None,
) -> None:
    """Show settings: default, allowed values and meaning; without NAME the names of all."""
    from fedul_flwr.config.base import unknown_key
    from fedul_flwr.config.document import describe, every_setting, introduction
    from fedul_flwr.config.methods import METHODS
    from fedul_flwr.config.run_config import all_sections
    from fedul_flwr.config.shared import SharedSettings

    tables = all_sections()
    if name is None:
        _say("Shared by all methods")
        _print_more(", ".join(SharedSettings.names()))
        for table, kind in tables.items():
            _say(table)
            _print_more(introduction(kind), ", ".join(kind.names()))
        _say("")
        _say("fedul-flwr settings NAME or TABLE says more. Set them with -c 'NAME=VALUE …'.")
        return
    if name in tables:
        _say(introduction(tables[name]))
        for note in describe(tables[name]):
            _print_setting(note)
        if name in METHODS:
            others = [table for table in METHODS[name].tables if table != name]
            if others:
                _say("")
                _say(f"Method {name} also has the tables {', '.join(others)}.")
        return
    every = every_setting()
    # The name within its table is enough: num-sets is fedul.num-sets.
    matching = [note for note in every if name == note.key]
    matching = matching or [note for note in every if note.key.endswith(f".{name}")]
    if not matching:
        raise unknown_key(name, [*(note.key for note in every), *tables])
    for note in matching:
        _print_setting(note)
        table = note.key.rpartition(".")[0]
        owners = [method.name for method in METHODS.values() if table in method.tables]
        if owners:
            _print_more(f"Methods: {', '.join(owners)}")


def datasets() -> None:
    """List data sets that work by name: shape, classes, points, and what must be there."""
    from fedul_flwr.data.sources import NAMED_DATASETS

    for entry in NAMED_DATASETS:
        _say(entry.name)
        points = f"{entry.train:,} training and {entry.test:,} test points"
        _print_more(f"{entry.shape}; {entry.classes} classes; {points}", f"Needs {entry.needs}.")
        if entry.hint:
            _print_more(f"Goes with: -c '{entry.hint}'")
    _say("")
    _say(
        "Other data: the name of any data set on the Hugging Face hub with a train and a test "
        "split, or a folder (docs/running.md#data). docs/own-data.md is for owners' own data."
    )


def _about(method: Method) -> Iterator[str]:
    """What a method says of itself; one of somebody's own may say less."""
    if method.line:
        yield method.line
    if method.needs:
        yield f"Needs: {method.needs}."
    if method.paper:
        yield f"Paper: {method.paper}."


def _print_setting(note: SettingNote) -> None:
    allowed = ", ".join(choices(note.key)) or note.allowed[0]
    _say(note.key)
    _print_more(f"Default: {note.default}", f"Allowed: {allowed}", note.meaning)


def _say(text: str, indent: str = "") -> None:
    lines = textwrap.wrap(text, columns() - len(indent), break_on_hyphens=False)
    typer.echo(textwrap.indent("\n".join(lines), indent))


def _print_more(*texts: str) -> None:
    for text in texts:
        _say(text, "  ")
