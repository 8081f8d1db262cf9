"""Tables as text: on the terminal, in Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedul_flwr.data.csv_files import write_cell
from fedul_flwr.results.facts import print_wide

Lines = Iterable[Iterable[str]]


def print_table(
    title: str, head: Sequence[str], lines: Lines, numbers: int, notes: Iterable[str] = ()
) -> None:
    """Print a table and notes below it; the last ``numbers`` columns are aligned to the right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for position, heading in enumerate(head):
        right = position >= len(head) - numbers
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    print_wide(table, *notes)


def markdown_table(head: Sequence[str], lines: Lines, numbers: int = 0) -> list[str]:
    """Lines of a Markdown table; the last ``numbers`` columns are aligned to the right."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return [f"| {' | '.join(line)} |" for line in (head, rule, *lines)]


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


def csv_text(lines: Iterable[Mapping[str, object]]) -> str:
    """One or more lines by column as CSV; None is an empty field."""
    import pandas as pd

    rows = [{k: write_cell(v) if isinstance(v, str) else v for k, v in x.items()} for x in lines]
    return pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n")
