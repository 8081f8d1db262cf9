"""``model-card.md``: what a trained model is, how it was trained, and how well it does.

It is made from the run's own files at the server. It names the owners that the model has learned
from, and has no point, label or key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import LOCATION_SETTINGS, default_flat
from fedul_flwr.config.shared import RUN
from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.run_files.records import owner_rows, read_config
from fedul_flwr.data.run_files.store import BEST_MODEL, ENVIRONMENT, SUMMARY, RunDirectory
from fedul_flwr.results.printed_summary import NONE, measure_cells

MODEL_CARD = "model-card.md"
_PATHS = {"dataset", "server.dataset", "client-data", "columns", "labels.split", "start-from"}
"""Settings that may be relative paths, as may `features` with ``run:``."""
_FOLDERS = re.compile(
    r"(?<![^\s\"'=:,])(?:~|[A-Za-z]:)?[/\\](?:[^\s\"',;]*[/\\])?(?=[^\s\"',;/\\])"
)
"""The folders of an absolute path within a text."""


NOT_CALIBRATED = (
    "Its probabilities are not calibrated: a prediction with probability 0.9 is not right in 90 % "
    'of cases. That needs labeled validation points, and calibration = "temperature".'
)


def write_model_card(directory: RunDirectory) -> None:
    """Write the card of a finished run beside its model."""
    directory.write_text(MODEL_CARD, model_card(directory.path))


def model_card(directory: Path) -> str:
    """The card of a finished run that has trained, as Markdown."""
    settings, data = read_config(directory)
    summary = RunDirectory(directory).read_json(SUMMARY)
    name = f"{summary['method']} on {Path(str(summary['dataset'])).name}"
    lines = [
        f"# Model card: {_plain(name)}",
        "",
        f"The model is `{BEST_MODEL}` beside this file. `fedul-flwr predict` uses it, and "
        "`fedul-flwr export` writes it as ONNX.",
        "",
        *_table(_model(data, summary)),
        "",
        "## How it was trained",
        "",
        *_table(_training(settings, summary)),
        "",
        "Settings that are not the defaults:",
        "",
        *_table(_changed(settings)),
        "",
        "## How well it does",
        "",
        *_measures(summary),
        "",
        "## Limits",
        "",
        *(f"- {line}" for line in _limits(summary)),
        "",
        f"Software: {_software(directory)}.",
    ]
    return "\n".join(lines) + "\n"


def _model(data: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    shape = data["input_shape"]
    kind = "uint8 images, height x width x channels:" if len(shape) > 1 else "float32 vectors:"
    yield "architecture", str(summary["model"])
    yield "input", f"{kind} {' x '.join(map(str, shape))}"
    if data.get("columns"):
        yield "columns", ", ".join(map(str, data["columns"]))
    yield f"{data['num_classes']} classes", ", ".join(map(str, data["class_names"]))
    if summary.get("test_prior"):
        priors = ", ".join(f"{share:.4g}" for share in summary["test_prior"])
        yield "class priors that it is for", f"{priors} ({summary['test_prior_source']})"


def _training(settings: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    method = METHODS.get(str(summary["method"]))
    yield "method", str(summary["method"]) + (f": {method.line}" if method else "")
    if method:
        yield "learned from", method.needs
        yield "paper", method.paper
    yield "federated optimizer", str(summary["base"])
    yield "clients", str(summary["num_clients"])
    yield from owner_rows(summary).items()
    chosen = f"the model is of round {summary['best_round']}, chosen by {summary['selection']}"
    yield "rounds", f"{summary['rounds']}; {chosen}"
    local = f"{settings['local-epochs']} epochs a round, batches of {settings['batch-size']}, "
    yield (
        "at a client",
        f"{local}{settings['optimizer']} with step size {settings['learning-rate']}",
    )
    yield "data set", Path(str(summary["dataset"])).name
    yield "seed", str(summary["seed"])


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


def _changed(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    defaults = default_flat()
    for key, value in without_paths(settings).items():
        if settings[key] != defaults.get(key):
            yield f"`{key}`", str(value)


def _measures(summary: Mapping[str, Any]) -> list[str]:
    error = summary.get("test_error")
    points = summary.get("measures", {}).get("best", {}).get("points")
    if error is None:
        return ["Not measured: the server had no labeled test data."]
    cells = measure_cells({**summary, "error": error})
    cells["error (%)"] += _spread(error, points)
    if summary.get("validation_error") is not None:
        cells["validation error (%)"] = f"{summary['validation_error']:.2f}"
    present = ((name, value) for name, value in cells.items() if value != NONE)
    of = f"On {points} test points" if points else "On the server's test points"
    return [f"{of}, in one run with seed {summary['seed']}:", "", *_table(present)]


def _spread(error: float, points: int | None) -> str:
    """Half of the normal 95 % confidence interval of an error on that many points, in percent."""
    if not points:
        return ""
    share = error / 100
    return f" ± {196 * math.sqrt(share * (1 - share) / points):.2f} by the number of test points"


def _limits(summary: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "The measures are of one run. Another seed gives another model: `fedul-flwr compare` "
        "has means over seeds."
    )
    yield (
        "Its probabilities are for the class priors above. For points with other class shares use "
        "`fedul-flwr predict --priors`."
    )
    if not summary.get("temperature"):
        yield NOT_CALIBRATED
    if "epsilon" in summary:
        yield (
            f"Differential privacy: epsilon {summary['epsilon']:.2f} at delta "
            f"{summary['delta']:g}; it covers {summary['epsilon_covers']}."
        )
    else:
        yield (
            "It was trained without differential privacy: who has it may find out something about "
            "its training points."
        )
    if summary.get("test_error") is None and summary.get("validation_error") is None:
        yield (
            "No labels have checked its probabilities: they are not calibrated. A confidence of "
            "90 % does not mean that nine of ten are right."
        )
    if warnings := summary.get("warnings"):
        yield f"The run had {len(warnings)} warning(s): its `{SUMMARY}` has them."


def _software(directory: Path) -> str:
    environment = read_object(directory / ENVIRONMENT) or {}
    versions = environment.get("versions", {})
    packages = ("fedul-flwr", "flwr", "torch")
    present = [f"{name} {versions[name]}" for name in packages if name in versions]
    return ", ".join([*present, f"Python {environment.get('python', 'unknown')}"])


def _table(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    cells = list(rows)
    if not cells:
        yield "none"
        return
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {_plain(name)} | {_plain(value)} |" for name, value in cells)


def _plain(text: str) -> str:
    """``text`` on one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")
