"""Tables of text: on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from fedul_flwr.results.facts import print_wide


def print_table(title: str, table: pd.DataFrame, numbers: int, notes: Iterable[str] = ()) -> None:
    """Print a table and notes below it; the last ``numbers`` columns are aligned to the right."""
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    for position, heading in enumerate(map(str, table), start=1):
        right = position > len(table.columns) - numbers
        shown.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for line in table.itertuples(index=False):
        shown.add_row(*line)
    print_wide(shown, *notes)


def markdown_table(table: pd.DataFrame, numbers: int = 0) -> list[str]:
    """Lines of a Markdown table; the last ``numbers`` columns are aligned to the right."""
    rule = ["---"] * (len(table.columns) - numbers) + ["---:"] * numbers
    lines = [map(str, table), rule, *table.itertuples(index=False)]
    return [f"| {' | '.join(line)} |" for line in lines]


def markdown_text(text: str) -> str:
    """``text`` with the special characters of Markdown escaped.

    Examples
    --------
    >>> print(markdown_text("num_sets"))
    num\\_sets
    """
    for sign in "\\|*_`<":
        text = text.replace(sign, f"\\{sign}")
    return text
