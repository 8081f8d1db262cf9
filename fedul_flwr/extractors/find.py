"""Extractors of features by name, and features of a data set, computed once, kept on disk."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedul_flwr.config.base import load_reference, shown, user_code
from fedul_flwr.config.shared import WORDS, is_reference, split_side
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.safe_files import (
    build_once,
    cache_directory,
    cache_key,
    open_array,
    write_blocks,
)
from fedul_flwr.data.seeds import draws_of
from fedul_flwr.data.sources import META, TEST_INPUTS, TRAIN_INPUTS
from fedul_flwr.data.types import Inputs, InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.extractors.pretrained import NetworkFeatures, NetworkSource, OpenRun
from fedul_flwr.extractors.word_vectors import WordVectors
from fedul_flwr.learning.device import choose_device, dtype_of_size

Compute = Callable[[Inputs], NDArray[np.float32]]


@dataclass(frozen=True)
class Extractor:
    """A fixed function from points to vectors."""

    name: str
    identity: Sequence[str]
    compute: Compute

    def num_features(self, shape: InputShape) -> int:
        """Number d of features of points of ``shape``, found on a black image, a zero vector or an
        empty text."""
        kinds: dict[int, type[np.generic]] = {0: np.bytes_, 1: np.float32, 3: np.uint8}
        blank = np.zeros((1, *shape), dtype=kinds[len(shape)])
        return int(self.compute(blank).shape[1])


def find_extractor(
    name: str,
    device: str,
    precision: str,
    open_run: OpenRun | None = None,
    *,
    download: bool = True,
) -> Extractor:
    """Build the extractor ``name``.

    Parameters
    ----------
    name : ``efficientnet-lite0``, ``torchvision:NAME``, ``huggingface:NAME`` or ``run:DIRECTORY``,
        perhaps with ``@SIDE`` behind it; ``wordllama``, of texts; or ``package.module:function`` of
        a function that takes points ``(b, …)`` as they are stored, or texts ``(b,)``, and returns
        ``(b, d)`` numbers.
    """
    if is_reference(name):
        return _custom_extractor(name)
    if name == WORDS:
        vectors = WordVectors()
        return Extractor(name, (name, vectors.digest()), vectors)
    plain, side = split_side(name)
    chosen = choose_device(device)
    source = NetworkSource.named(plain, shown(name), open_run, download=download)
    facts = source.facts()
    side = side or facts.side
    dtype = str(dtype_of_size(precision, facts.num_weights, chosen))
    identity = (plain, facts.digest, str(side), facts.resampling, dtype)
    features = NetworkFeatures(
        lambda: source.loaded.model, side, chosen, precision, facts.resampling
    )
    return Extractor(name, identity, features)


def _custom_extractor(name: str) -> Extractor:
    """A user's own function, whose results are checked."""
    function = load_reference(name, "features")
    what = f"Setting features = {name!r}"
    if not callable(function):
        raise UserError(f"{what} does not refer to a function.", "reference-wrong")
    module = Path(str(getattr(function, "__globals__", {}).get("__file__", "")))
    version = sha256(module.read_bytes()).hexdigest() if module.is_file() else ""

    def compute(points: Inputs) -> NDArray[np.float32]:
        with user_code(what), draws_of(0, "features"):  # the same for all points, everywhere
            taken = np.asarray(points)
            if taken.dtype.kind == "S":
                taken = np.char.decode(taken, "utf-8")
            features = np.asarray(function(taken), dtype=np.float32)
        if features.ndim != 2 or len(features) != len(points) or not features.shape[1]:
            raise UserError(
                f"{what} returned an array of shape {features.shape} for {len(points)} points; "
                f"({len(points)}, number of features) is needed.",
                "own-code-result",
            )
        if not np.isfinite(features).all():
            raise UserError(
                f"{what} returned a value that is not a finite number.", "own-code-result"
            )
        return features

    return Extractor(name, (name, version), compute)


# Features of a data set or of an owner's points: computed once, kept on disk.

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
