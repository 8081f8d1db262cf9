"""``model-card.md``: what a trained model is, how it was trained, and how well it does.

It is made from the run's own files at the server. It names the owners that the model has learned
from, and has no point, label or key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import LOCATION_SETTINGS, default_flat
from fedul_flwr.config.shared import RUN
from fedul_flwr.data.run_files.records import Run, owner_rows, read_run
from fedul_flwr.data.run_files.store import BEST_MODEL, SUMMARY, RunDirectory
from fedul_flwr.results.facts import NONE, damaged, facts, measure_cells
from fedul_flwr.results.pages import render

MODEL_CARD = "model-card.md"
_PATHS = {"dataset", "server.dataset", "client-data", "columns", "labels.split", "start-from"}
"""Settings that may be relative paths, as may `features` with ``run:``."""
_FOLDERS = re.compile(
    r"(?<![^\s\"'=:,])(?:~|[A-Za-z]:)?[/\\](?:[^\s\"',;]*[/\\])?(?=[^\s\"',;/\\])"
)
"""The folders of an absolute path within a text."""


def write_model_card(directory: RunDirectory) -> None:
    """Write the card of a finished run beside its model."""
    directory.write_text(MODEL_CARD, model_card(directory.path))


def model_card(directory: Path) -> str:
    """The card of a finished run that has trained, as Markdown."""
    run = read_run(directory)
    summary, settings, defaults = run.summary or {}, without_paths(run.settings), default_flat()
    environment = run.environment or {}
    versions = environment.get("versions", {})
    packages = ("fedul-flwr", "flwr", "torch")
    software = [f"{name} {versions[name]}" for name in packages if name in versions]
    software.append(f"Python {environment.get('python', 'unknown')}")
    with damaged(directory / SUMMARY):
        return render(
            "model_card.template.md",
            title=f"{summary['method']} on {Path(str(summary['dataset'])).name}",
            model=BEST_MODEL,
            calibrated=summary.get("temperature"),
            unchecked=summary.get("test_error") is summary.get("validation_error") is None,
            warnings=summary.get("warnings", ()),
            facts=facts(run),
            about=_about(run.data, summary),
            training=_training(run, summary),
            changed={
                f"`{key}`": value
                for key, value in settings.items()
                if run.settings[key] != defaults.get(key)
            },
            points=summary.get("measures", {}).get("best", {}).get("points"),
            measures=_measures(summary),
            software=", ".join(software),
        )


def _about(data: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, str]:
    shape = data["input_shape"]
    kind = "uint8 images, height x width x channels:" if len(shape) > 1 else "float32 vectors:"
    rows = {
        "architecture": summary["model"],
        "input": f"{kind} {' x '.join(map(str, shape))}",
        "columns": ", ".join(map(str, data.get("columns") or ())),
        f"{data['num_classes']} classes": ", ".join(map(str, data["class_names"])),
    }
    if summary.get("test_prior"):
        priors = ", ".join(f"{share:.4g}" for share in summary["test_prior"])
        rows["class priors that it is for"] = f"{priors} ({summary['test_prior_source']})"
    return {name: text for name, text in rows.items() if text}


def _training(run: Run, summary: Mapping[str, Any]) -> dict[str, Any]:
    method, settings = METHODS.get(str(summary["method"])), run.settings
    chosen = f"the model is of round {summary['best_round']}, chosen by {summary['selection']}"
    about = {"learned from": method.needs, "paper": method.paper} if method else {}
    return {
        "method": summary["method"] + (f": {method.line}" if method else ""),
        **about,
        "federated optimizer": summary["base"],
        "clients": summary["num_clients"],
        **owner_rows(summary),
        "rounds": f"{summary['rounds']}; {chosen}",
        "at a client": f"{settings['local-epochs']} epochs a round, batches of "
        f"{settings['batch-size']}, {settings['optimizer']} with step size "
        f"{settings['learning-rate']}",
        "data set": Path(str(summary["dataset"])).name,
        "seed": summary["seed"],
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


def _measures(summary: Mapping[str, Any]) -> dict[str, str]:
    error = summary.get("test_error")
    if error is None:
        return {}
    cells = measure_cells({**summary, "error": error})
    if points := summary.get("measures", {}).get("best", {}).get("points"):
        # Half of the normal 95 % confidence interval of an error on that many points.
        half = 196 * math.sqrt(error / 100 * (1 - error / 100) / points)
        cells["error (%)"] += f" ± {half:.2f} by the number of test points"
    if summary.get("validation_error") is not None:
        cells["validation error (%)"] = f"{summary['validation_error']:.2f}"
    return {name: value for name, value in cells.items() if value != NONE}
