"""Features of a data set or of an owner's points: computed once, kept on disk."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedul_flwr.data.cache import build_once, cache_directory, cache_key
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.safe_files import open_array, write_blocks
from fedul_flwr.data.sources import META, TEST_INPUTS, TRAIN_INPUTS
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.find import Extractor

BATCH = 64
"""Points at a time."""
_BATCHES = ".batches"
LINE_SECONDS = 30.0
"""Seconds between two lines about progress where nobody sees a bar."""


def feature_source(source: Path, extractor: Extractor) -> Path:
    """Folder of a decoded data set with the features of its points in place of the points."""

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
    return _finish(build_once(source.parent / key, build))


def feature_array(points: Inputs, extractor: Extractor, cache: Path | None = None) -> Inputs:
    """Features float32 ``(n, d)`` of an owner's points, which no other user can open."""
    if not len(points):
        raise UserError(
            "There are no points to compute features of; one or more are needed.", "points-missing"
        )
    content = sha256(np.ascontiguousarray(points).data).hexdigest()
    key = cache_key([content, str(points.dtype), list(points.shape), *extractor.identity])
    root = cache_directory() if cache is None else cache

    def build(directory: Path) -> None:
        _write(directory / "inputs.npy", points, extractor)

    folder = _finish(build_once(root / "owned" / key, build, private=True))
    return open_array(folder / "inputs.npy")


def _write(file: Path, points: Inputs, extractor: Extractor) -> None:
    """Write the features of all points, and go on after the batches of an interrupted attempt.

    These lie beside the folder of ``file``, which is new for every attempt, until :func:`_finish`.
    """
    part_file = file.parent.with_suffix(_BATCHES)
    part_file.mkdir(mode=0o700, exist_ok=True)
    part = part_file / file.name
    before = torch.get_num_threads()
    torch.set_num_threads(usable_cpus())  # all processors: no client trains meanwhile
    try:
        done = _complete_rows(part, len(points))
        for block in _blocks(points, done, extractor):
            if not done:
                write_blocks(part, (len(points), block.shape[1]), block.dtype, iter([block]))
            else:
                with part.open("ab") as stream:
                    stream.write(np.ascontiguousarray(block).data)
            done += len(block)
    finally:
        torch.set_num_threads(before)
    try:  # it stays until the whole folder is complete
        file.hardlink_to(part)
    except OSError:
        shutil.copy(part, file)


def _finish(directory: Path) -> Path:
    """``directory``, which is complete, without the batches that it was made of."""
    shutil.rmtree(directory.with_suffix(_BATCHES), ignore_errors=True)
    return directory


def _complete_rows(part: Path, points: int) -> int:
    """Number of rows of complete batches in ``part``; what follows them is cut off."""
    try:
        with part.open("r+b") as stream:
            np.lib.format.read_magic(stream)
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            begin = stream.tell()
            width = shape[1] * dtype.itemsize
            rows = (part.stat().st_size - begin) // width
            rows = points if rows >= points else rows // BATCH * BATCH
            if shape[0] != points or not rows:
                raise ValueError
            stream.truncate(begin + rows * width)
            return int(rows)
    except (OSError, ValueError, IndexError):  # none, or not ours
        part.unlink(missing_ok=True)
        return 0


def _blocks(points: Inputs, done: int, extractor: Extractor) -> Iterator[NDArray[np.float32]]:
    """Features of the points from ``done`` on, a batch at a time, with a progress bar where
    somebody watches and a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    after = f", {done} of them already" if done else ""
    console.print(
        f"Computing features of {len(points)} points{after} by {extractor.name}, once: "
        "they are kept."
    )
    began = last_log = time.monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        shown = progress.add_task("features", total=len(points), completed=done)
        for start in range(done, len(points), BATCH):
            block = extractor.compute(points[start : start + BATCH])
            yield block
            progress.advance(shown, len(block))
            now, ready = time.monotonic(), start + len(block)
            if not console.is_terminal and now - last_log >= LINE_SECONDS and ready < len(points):
                left = (now - began) / (ready - done) * (len(points) - ready)
                console.print(
                    f"features: {ready} of {len(points)} points, about {left / 60:.1f} min left"
                )
                last_log = now
