"""A trained model as one file: what its predictions need, and nothing of the place it comes from.

``model.zip`` holds the weights, ``config.json`` with the settings and the description of points,
the run's files of columns if it has some, and its model card, which names the owners that it has
learned from. Paths, the server's name and metrics stay behind. There is no pickle in it, and only
files of these names are read.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import LOCATION_SETTINGS, default_flat
from fedul_flwr.config.shared import RUN
from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.data.columns import COLUMNS_FILE, FEATURES_FILE
from fedul_flwr.data.run_files.parts import Measured, Summary
from fedul_flwr.data.run_files.records import owner_rows
from fedul_flwr.data.run_files.run import BEST_MODEL, CONFIG, Run
from fedul_flwr.data.safe_files import output_file, replace_file
from fedul_flwr.errors import UserError
from fedul_flwr.results.facts import NONE, facts, measure_cells

# Pages from the templates beside this file, and their pictures.


def render(template: str, **values: Any) -> str:
    """A page from a template beside this file; values are text in HTML, and cells in Markdown."""
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """The templates beside this file, each of which is compiled once."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name is not None and ".html." in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = lambda text: " ".join(str(text).split()).replace("|", "\\|")
    return environment


# ``model-card.md``: what a trained model is, how it was trained, and how well it does.

MODEL_CARD = "model-card.md"
_PATHS = {"dataset", "server.dataset", "client-data", "columns", "labels.split", "start-from"}
"""Settings that may be relative paths, as may `features` with ``run:``."""
_FOLDERS = re.compile(
    r"(?<![^\s\"'=:,])(?:~|[A-Za-z]:)?[/\\](?:[^\s\"',;]*[/\\])?(?=[^\s\"',;/\\])"
)
"""The folders of an absolute path within a text."""


def model_card(run: Run) -> str:
    """The card of a finished run that has trained, as Markdown."""
    summary, settings, defaults = run.outcome, without_paths(run.settings), default_flat()
    method = METHODS.get(summary.method)
    idle = method.idle if method else ()
    versions = run.environment.get("versions", {})
    packages = ("fedul-flwr", "flwr", "torch")
    software = [f"{name} {versions[name]}" for name in packages if name in versions]
    software.append(f"Python {run.environment.get('python', 'unknown')}")
    return render(
        "model_card.template.md",
        title=settings.get("study.title")
        or f"{summary.method} on {Path(summary.dataset or '').name}",
        model=BEST_MODEL,
        calibrated=summary.temperature,
        unchecked=summary.test_error is summary.validation_error is None,
        warnings=summary.warnings,
        facts=facts(run),
        about=_about(run, summary),
        training=_training(run, summary),
        changed={
            f"`{key}`": value
            for key, value in settings.items()
            if run.settings[key] != defaults.get(key) and key not in idle
        },
        points=summary.measures.get("best", Measured()).points,
        measures=_measures(summary),
        software=", ".join(software),
    )


def _about(run: Run, summary: Summary) -> dict[str, str]:
    shape, names = run.data.shape, run.data.class_names
    kind = "uint8 images, height x width x channels:" if len(shape) > 1 else "float32 vectors:"
    rows = {
        "architecture": summary.model or "",
        "input": f"{kind} {' x '.join(map(str, shape))}",
        "columns": ", ".join(run.data.columns or ()),
        f"{len(names)} classes": ", ".join(names),
    }
    if summary.test_prior:
        priors = ", ".join(f"{share:.4g}" for share in summary.test_prior)
        rows["class priors that it is for"] = f"{priors} ({summary.test_prior_source})"
    return {name: text for name, text in rows.items() if text}


def _training(run: Run, summary: Summary) -> dict[str, Any]:
    method, settings = METHODS.get(summary.method), run.settings
    chosen = f"the model is of round {summary.best_round}, chosen by {summary.selection}"
    steps = settings.get("local-steps")
    trained = f"{steps} steps" if steps else f"{settings.get('local-epochs')} epochs"
    at_a_client = (
        "sums over points; nothing is trained"
        if method is not None and method.idle
        else f"{trained} a round, batches of {settings.get('batch-size')}, "
        f"{settings.get('optimizer')} with step size {settings.get('learning-rate')}"
    )
    about = {"learned from": method.needs, "paper": method.paper} if method else {}
    return {
        "method": summary.method + (f": {method.line}" if method else ""),
        **about,
        "federated optimizer": summary.base,
        "clients": summary.num_clients,
        **owner_rows(summary.owners, summary.best_round),
        "rounds": f"{summary.rounds}; {chosen}",
        "at a client": at_a_client,
        "data set": Path(summary.dataset or "").name,
        "seed": summary.seed,
    }


def without_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings without those of a run's place and machine; of a path, the last part."""
    return {
        key: _last_part(key, value) if isinstance(value, str) else value
        for key, value in settings.items()
        if key not in LOCATION_SETTINGS
    }


def _last_part(key: str, value: str) -> str:
    is_path = key in _PATHS or value.startswith(RUN)
    return PurePath(value).name if is_path else _FOLDERS.sub("", value)


def _measures(summary: Summary) -> dict[str, str]:
    error = summary.test_error
    if error is None:
        return {}
    cells = measure_cells(Measured.model_validate({**summary.entries, "error": error}))
    if points := summary.measures.get("best", Measured()).points:
        # Half of the normal 95 % confidence interval of an error on that many points.
        half = 196 * math.sqrt(error / 100 * (1 - error / 100) / points)
        cells["error (%)"] += f" ± {half:.2f} by the number of test points"
    if summary.validation_error is not None:
        cells["validation error (%)"] = f"{summary.validation_error:.2f}"
    return {name: value for name, value in cells.items() if value != NONE}


NAME = "model.zip"
"""Name of the file where nobody chooses another."""
_TEXTS = (CONFIG, COLUMNS_FILE, FEATURES_FILE, MODEL_CARD)
LARGEST_TEXT, LARGEST_MODEL = 2**26, 2**32
"""Most bytes of a text in the file, and of the weights."""
_BEGIN = (1980, 1, 1, 0, 0, 0)
"""Time of every file in it, so that equal models are equal files."""


def pack(directory: Path, output: Path | None = None) -> Path:
    """Write the best model of a finished run as one file."""
    run = Run.read(directory)
    weights = run.path / BEST_MODEL
    if run.summary is None:
        raise UserError(
            f"The run in {directory} is not finished: fedul-flwr run --resume {directory} goes on "
            "with it.",
            "run-not-finished",
        )
    if not weights.is_file():
        raise UserError(
            f"{directory} holds no {BEST_MODEL}: its method trains no model.", "model-missing"
        )
    portable = without_paths(run.settings)
    for key in ("features", "model"):
        if portable.get(key) != run.settings.get(key):
            raise UserError(
                f"The model in {directory} cannot be packed: {key} = {run.settings[key]!r} is on "
                "this machine alone.",
                "setting-of-one-machine",
            )
    target = output_file(output, [directory], ".zip") if output else directory / NAME
    prior = run.summary.test_prior
    data = run.data.model_copy(update={"test_prior": None if prior is None else tuple(prior)})
    about = data.model_dump(exclude={"num_clients"})
    texts = {
        CONFIG: json.dumps({"settings": portable, "data": about}, indent=2) + "\n",
        MODEL_CARD: model_card(run),
    }
    for name in (COLUMNS_FILE, FEATURES_FILE):
        if (directory / name).is_file():
            texts[name] = (directory / name).read_text(encoding="utf-8")

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
    """A temporary directory with the content of a file that :func:`pack` wrote."""
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
