"""A trained model as one file: what its predictions need, and nothing of the place it comes from.

``model.zip`` holds the weights, ``config.json`` with the settings and the description of points,
the run's files of columns if it has some, and its model card, which names the owners that it has
learned from. Paths, the server's name and metrics stay behind. There is no pickle in it, and only
files of these names are read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.data.columns import COLUMNS_FILE, FEATURES_FILE
from fedul_flwr.data.run_files.records import read_config, read_summary
from fedul_flwr.data.run_files.store import BEST_MODEL, CONFIG
from fedul_flwr.data.safe_files import output_file, replace_file
from fedul_flwr.errors import UserError
from fedul_flwr.results.model_card import MODEL_CARD, model_card, without_paths

NAME = "model.zip"
"""Name of the file where nobody chooses another."""
_TEXTS = (CONFIG, COLUMNS_FILE, FEATURES_FILE, MODEL_CARD)
LARGEST_TEXT, LARGEST_MODEL = 2**26, 2**32
"""Most bytes of a text in the file, and of the weights."""
_DATA = ("input_shape", "columns", "num_classes", "class_names")
_BEGIN = (1980, 1, 1, 0, 0, 0)
"""Time of every file in it, so that equal models are equal files."""


def pack(run: Path, output: Path | None = None) -> Path:
    """Write the best model of a finished run as one file.

    Parameters
    ----------
    run : output directory of the run.
    output : file to write; by default ``model.zip`` in ``run``.
    """
    settings, data = read_config(run)
    summary = read_summary(run)
    weights = run / BEST_MODEL
    if summary is None:
        raise UserError(
            f"The run in {run} is not finished: fedul-flwr run --resume {run} goes on with it.",
            "run-not-finished",
        )
    if not weights.is_file():
        raise UserError(
            f"{run} holds no {BEST_MODEL}: its method trains no model.", "model-missing"
        )
    portable = without_paths(settings)
    for key in ("features", "model"):
        if portable.get(key) != settings.get(key):
            raise UserError(
                f"The model in {run} cannot be packed: {key} = {settings[key]!r} is on this "
                "machine alone.",
                "setting-of-one-machine",
            )
    target = output_file(output, [run], ".zip") if output else run / NAME
    about = {key: data.get(key) for key in _DATA} | {"test_prior": summary.get("test_prior")}
    texts = {
        CONFIG: json.dumps({"settings": portable, "data": about}, indent=2) + "\n",
        MODEL_CARD: model_card(run),
    }
    for name in (COLUMNS_FILE, FEATURES_FILE):
        if (run / name).is_file():
            texts[name] = (run / name).read_text(encoding="utf-8")

    def write(part: Path) -> None:
        with zipfile.ZipFile(part, "w") as archive:
            for name, text in texts.items():
                archive.writestr(_entry(name), text, zipfile.ZIP_DEFLATED)
            # Weights hardly shrink.
            with (
                weights.open("rb") as source,
                archive.open(_entry(BEST_MODEL), "w", force_zip64=True) as copy,
            ):
                shutil.copyfileobj(source, copy)

    replace_file(target, write)
    return output or target


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _BEGIN)
    entry.external_attr = 0o600 << 16
    return entry


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """A temporary directory with the content of a file that :func:`pack` wrote.

    Errors within name ``file`` in place of the directory.
    """
    with tempfile.TemporaryDirectory(prefix="fedul-model-") as name:
        path = Path(name)
        try:
            with zipfile.ZipFile(regular_file(file)) as archive:
                for entry in _entries(archive, file):
                    with archive.open(entry) as source, (path / entry.filename).open("wb") as copy:
                        shutil.copyfileobj(source, copy)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            OSError,
        ) as error:
            raise UserError(
                f"{file} cannot be read as a model that fedul-flwr pack wrote: {reason(error)}.",
                "model-file-wrong",
            ) from error
        try:
            yield path
        except UserError as error:
            error.args = (str(error).replace(name, str(file)),)
            raise


def _entries(archive: zipfile.ZipFile, file: Path) -> list[zipfile.ZipInfo]:
    """The entries, which have names that are allowed, once each, and sizes within bounds.

    A zip archive's reader yields no more bytes than an entry announces.
    """
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    allowed = (*_TEXTS, BEST_MODEL)
    for entry in entries:
        if entry.filename not in allowed or names.count(entry.filename) > 1:
            raise UserError(
                f"{file} is no model that fedul-flwr pack wrote: it holds "
                f"{entry.filename[:100]!r}{' twice' if entry.filename in allowed else ''}; allowed "
                f"are {', '.join(allowed)}.",
                "model-file-wrong",
            )
        if entry.flag_bits & 1:
            raise UserError(f"{file} is encrypted: decrypt it first.", "model-file-wrong")
        largest = LARGEST_MODEL if entry.filename == BEST_MODEL else LARGEST_TEXT
        if entry.file_size > largest:
            raise UserError(
                f"{entry.filename} in {file} has {entry.file_size:,} bytes; at most {largest:,} "
                "are read.",
                "file-too-large",
            )
    for name in (CONFIG, BEST_MODEL):
        if name not in names:
            raise UserError(
                f"{file} is no model that fedul-flwr pack wrote: it holds no {name}.",
                "model-file-wrong",
            )
    return entries
