"""Features of a data set or of an owner's points: computed once, kept on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedul_flwr.data.cache import build_once, cache_directory, cache_key, open_array, write_blocks
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.sources import META, TEST_INPUTS, TRAIN_INPUTS
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.find import Extractor

BATCH = 64
"""Points at a time."""


def feature_source(source: Path, extractor: Extractor) -> Path:
    """Folder of a decoded data set with the features of its points in place of the points.

    Parameters
    ----------
    source : folder from :func:`fedul_flwr.data.sources.source_directory`.
    """

    def build(directory: Path) -> None:
        for file in source.iterdir():
            if file.name in (TRAIN_INPUTS, TEST_INPUTS):
                _write(directory / file.name, open_array(file), extractor)
            elif file.name != META:
                shutil.copy(file, directory)
        meta = json.loads((source / META).read_text(encoding="utf-8"))
        text = json.dumps(
            {**meta, "features": None, "extractor": extractor.name}, indent=1, ensure_ascii=False
        )
        (directory / META).write_text(text, encoding="utf-8")

    key = cache_key([source.name, *extractor.identity])
    return build_once(source.parent / key, build)


def feature_array(points: Inputs, extractor: Extractor, cache: Path | None = None) -> Inputs:
    """Features float32 ``(n, d)`` of an owner's points, which no other user can open."""
    if not len(points):
        raise UserError("There are no points to compute features of; one or more are needed.")
    content = sha256(np.ascontiguousarray(points).data).hexdigest()
    key = cache_key([content, str(points.dtype), list(points.shape), *extractor.identity])
    root = cache_directory() if cache is None else cache

    def build(directory: Path) -> None:
        _write(directory / "inputs.npy", points, extractor)

    return open_array(build_once(root / "owned" / key, build, private=True) / "inputs.npy")


def _write(file: Path, points: Inputs, extractor: Extractor) -> None:
    with _all_processors():
        blocks = _blocks(points, extractor)
        first = next(blocks)  # says how many features there are
        shape = (len(points), first.shape[1])
        write_blocks(file, shape, first.dtype, chain([first], blocks))


def _blocks(points: Inputs, extractor: Extractor) -> Iterator[NDArray[np.float32]]:
    """Features of all points, a batch at a time, with a progress bar where somebody watches."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    console.print(
        f"Computing features of {len(points)} points by {extractor.name}, once: they are kept."
    )
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        shown = progress.add_task("features", total=len(points))
        for start in range(0, len(points), BATCH):
            block = extractor.compute(points[start : start + BATCH])
            progress.advance(shown, len(block))
            yield block


@contextmanager
def _all_processors() -> Iterator[None]:
    """Context in which torch uses all processors: no client trains meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(usable_cpus())
    try:
        yield
    finally:
        torch.set_num_threads(before)
