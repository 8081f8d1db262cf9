"""What a data owner's tables hold, for its own eyes: columns that are used, and missing cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedul_flwr.data.arrow import ArrowTable, usual_label
from fedul_flwr.data.formats import is_hidden
from fedul_flwr.data.local_data import LABELS_FILE
from fedul_flwr.data.local_files import own_data
from fedul_flwr.data.priors_file import COUNTS_FILE, PRIORS_FILE
from fedul_flwr.data.table_files import open_table
from fedul_flwr.data.tables import TableOptions

_TABLES = (".csv", ".parquet")


def survey_tables(folder: Path, options: TableOptions) -> Iterator[str]:
    """Lines about the tables in an owner's folder.

    Parameters
    ----------
    options : rules for tables, with the columns of the run.

    Raises
    ------
    OwnDataError
        If a table cannot be read.
    """
    used: dict[str, None] = {}
    left_out: dict[str, None] = {}
    missing: Counter[str] = Counter()
    rows = 0
    for path in _tables(folder):
        with own_data():
            table = open_table(path, options)
            features = _features(table, options)
            for batch in table.batches(features):
                for name, column in zip(features, batch.columns, strict=True):
                    missing[name] += column.to_pandas().isna().sum()
        rows += table.num_rows
        used |= dict.fromkeys(features)
        left_out |= dict.fromkeys(name for name in table.names if name not in features)
    if used:
        yield f"columns used: {', '.join(used)}"
    if left_out:
        yield f"columns left out: {', '.join(left_out)}"
    if missing.total():
        cells = ", ".join(f"{name} {count}" for name, count in missing.items() if count)
        yield f"missing cells filled (missing = {options.missing!r}), of {rows} rows: {cells}"


def _features(table: ArrowTable, options: TableOptions) -> list[str]:
    """The columns that become features, or the column of texts."""
    if options.text:
        return [options.text]
    if options.columns is not None and set(options.columns.names) <= set(table.names):
        return list(options.columns.names)
    label = usual_label(table.names, options.label)
    return [name for name in table.names if name != label]


def _tables(folder: Path) -> list[Path]:
    naming = (PRIORS_FILE, COUNTS_FILE, LABELS_FILE)
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _TABLES and path.name not in naming and not is_hidden(path.name)
    ]
