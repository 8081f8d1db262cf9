"""What a finished run writes: its summary, the card of its model, its plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.data.run_files.label_files import XCLP
from fedul_flwr.data.run_files.parts import LabelScore, Summary
from fedul_flwr.data.run_files.records import incidents, name_taken, rounds_of_owners
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.results.model_file import MODEL_CARD, model_card
from fedul_flwr.run.callbacks import Callback

if TYPE_CHECKING:  # the command line prints summaries without importing torch
    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.federated.grid import RoundRecord
    from fedul_flwr.run.evaluation import Recorder

SHARES = ("percent_up", "percent_down", "nonzero_up_percent", "nonzero_down_percent")
"""Traffic of a round in percent of a dense model per client: bytes, and values sent because they
changed. A summary has the means over its rounds."""
RELEASED_DOWN = "released_down_percent"
"""The last of these as the FedMatch authors' code counts it."""
START_ERRORS = ("start_test_error", "start_validation_error")
"""Errors before round 1, which its line has."""


def summarize(
    recorder: Recorder,
    seconds: float,
    about: Mapping[str, Any],
    of_stage: Mapping[str, Any],
) -> None:
    """Write the summary of a finished run, with what a stage of somebody's own adds."""
    run, settings, lines = recorder.run, recorder.settings, recorder.run.lines
    best = recorder.best() or lines[-1]
    shares = {key: [line[key] for line in lines if key in line] for key in (*SHARES, RELEASED_DOWN)}
    entries = {
        "status": "completed",
        "method": settings.method,
        "base": settings.base,
        "model": settings.model,
        "dataset": settings.dataset,
        **_secure(settings.find(XCLPSettings)),
        "partition": settings.partition,
        "rounds": len(lines),
        "seed": settings.seed,
        "selection": settings.selection,
        "evaluate": settings.evaluate,
        "best_round": best["round"],
        "test_error": best["test_error"],
        "final_test_error": lines[-1]["test_error"],
        "validation_error": best["validation_error"],
        **{key: value for key, value in lines[0].items() if key in START_ERRORS},
        **about,
        "seconds_total": max(seconds, _total(lines, "seconds")),
        "seconds_per_round": _total(lines, "seconds") / len(lines),
        "seconds_waiting": _total(lines, "seconds_waiting"),
        "bytes_up": _total(lines, "bytes_up"),
        "bytes_down": _total(lines, "bytes_down"),
        **{key: sum(values) / len(values) for key, values in shares.items() if values},
        "failures": _total(lines, "failures"),
        **incidents(lines),
        **rounds_of_owners(lines, best["round"]),
    }
    if taken := sorted(Summary.model_fields.keys() & of_stage.keys()):
        raise name_taken(
            "An entry of a stage's about()", taken[0], Summary.model_fields.__contains__
        )
    run.store(summary=Summary.model_validate({**entries, **of_stage}))


def summarize_labels(
    run: Run,
    settings: RunConfig,
    record: RoundRecord,
    about: Mapping[str, Any],
) -> None:
    """Write the summary of a run that labeled its clients' points."""
    sources = run.labels.sources
    errors = {source: score.error for source, score in sources.items()}
    summary = Summary.model_validate(
        {
            "status": "completed",
            "method": settings.method,
            "model": settings.model,
            "dataset": settings.dataset,
            **_secure(settings.find(XCLPSettings)),
            "partition": settings.partition,
            "answered_clients": record.clients,
            "seed": settings.seed,
            "test_error": errors.get(XCLP),
            "balanced_accuracy": sources.get(XCLP, LabelScore()).balanced_accuracy,
            "scored_points": run.labels.points or None,
            "errors": errors,
            **about,
            "bytes_up": record.up.total(),
            "bytes_down": record.down.total(),
            "failures": record.failures,
            **incidents([{"round": 0, **record.incidents()}]),
        }
    )
    run.store(summary=summary)


class ModelCard(Callback):
    """Writes the card of a finished run beside its model."""

    waits = False

    def __init__(self, run: Run) -> None:
        self._run = run

    def end(self, summary: Mapping[str, Any]) -> None:
        """Write it, if the run has trained a model."""
        del summary
        if self._run.trains:
            self._run.write_text(MODEL_CARD, model_card(self._run))


class Pictures(Callback):
    """Draws the plots of a finished run; their folder says that everything before is there."""

    waits = False

    def __init__(self, run: Run) -> None:
        self._run = run

    def end(self, summary: Mapping[str, Any]) -> None:
        """Draw them."""
        del summary
        self._run.replace_plots(self._draw)

    def _draw(self, folder: Path) -> None:
        from fedul_flwr.results import plots  # matplotlib reads its files at import

        plots.draw_plots(self._run, folder)


def _total(lines: list[dict[str, Any]], key: str) -> Any:
    return sum(line[key] for line in lines)


def _secure(codes: XCLPSettings | None) -> dict[str, str]:
    """How clients compared their points, if the method does that."""
    return {"secure": codes.secure} if codes else {}
