"""Data sets of the Hugging Face hub as tables of Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from fedul_flwr.config.base import nearest
from fedul_flwr.config.data_settings import BUILT_IN
from fedul_flwr.data.arrow import ArrowTable
from fedul_flwr.data.decode import BLOCK
from fedul_flwr.errors import UserError


def hub_tables(name: str) -> dict[str, ArrowTable]:
    """Return the splits of a data set on the Hugging Face hub, downloading them if necessary.

    Parameters
    ----------
    name : ``name`` or ``name:config``.

    Raises
    ------
    UserError
        If the hub cannot be reached or has no such data set.
    """
    import datasets

    repository, _, config = name.partition(":")
    log = logging.getLogger("huggingface_hub")
    level, bars = log.level, datasets.are_progress_bars_disabled()
    log.setLevel(logging.CRITICAL)  # hides a warning for every retry
    datasets.disable_progress_bars()
    try:
        splits = datasets.load_dataset(repository, config or None)
    except Exception as error:  # many types: network, hub, scripts, formats
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"{name!r} is neither a folder here nor a data set that could be loaded from the "
            f"Hugging Face hub ({reason}){nearest(name, (*BUILT_IN, 'none')) or '.'}"
        ) from error
    finally:
        log.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
    return {str(split): _hub_table(f"{name} ({split})", data) for split, data in splits.items()}


def _hub_table(where: str, data: Any) -> ArrowTable:
    import datasets

    undecoded = data
    for column, feature in data.features.items():
        if isinstance(feature, datasets.Image):
            undecoded = undecoded.cast_column(column, datasets.Image(decode=False))

    def batches(columns: list[str]) -> Iterator[Any]:
        yield from undecoded.select_columns(columns).with_format("arrow").iter(BLOCK)

    return ArrowTable(
        where, len(data), data.features.arrow_schema, data.features.to_dict(), batches, True
    )
