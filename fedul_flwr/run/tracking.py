"""Copy a run's records to TensorBoard, MLflow and Weights & Biases (setting ``tracking``).

They get the settings, the numbers of ``metrics.jsonl`` and ``summary.json``, and figures drawn from
these, but nothing about single clients. The run's own files are always complete: if a tool fails,
it gets no more data, and the run continues.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from logging import WARNING
from pathlib import Path
from typing import Any, cast

from flwr.common import log

from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.run_files.records import dotted, number
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.errors import require
from fedul_flwr.run.callbacks import Callback

PICTURES = ("summary.png", "error.png", "loss.png", "pseudo_labels.png", "time_traffic.png")
"""Figures of rounds and of the server's test points; others show the clients' points or labels."""
TENSORBOARD = "tensorboard"
"""Folder of TensorBoard's files in a run's directory."""
MLFLOW_RUN, MLFLOW_DATABASE, MLFLOW_ARTIFACTS = "mlflow.json", "mlflow.db", "mlflow-artifacts"
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_IN_HASTE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Limits for unreachable servers: MLflow's own 7 retries of up to 120 s would delay training."""
_MOST_PARAMS = 100  # MLflow's limit of one request


def tools(tracking: str) -> list[str]:
    """The names in setting ``tracking``."""
    return [] if tracking == "none" else tracking.split(",")


def refuse_missing(tracking: str) -> None:
    """Refuse a tool with a missing package, before a run starts."""
    needed = tools(tracking)
    uri = os.environ.get("MLFLOW_TRACKING_URI") or "sqlite"
    if "mlflow" in needed and uri.startswith(_DATABASES):  # mlflow-skinny lacks these packages
        needed += ["sqlalchemy", "alembic"]
    require("tracking", f"Setting tracking = {tracking!r}", *needed, setting="tracking")


class Tracking(Callback):
    """One tool's copy of one run: opened with the first line, stopped after the first failure."""

    waits = False

    def __init__(self, tool: str, run: Run) -> None:
        self._tool, self._run = tool, run
        self._tracker: Tracker | None = None
        self._failed = False

    def recorded(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Copy the numbers of the last round."""
        step = lines[-1]["round"]
        numbers = {key: value for key, value in _numbers(lines[-1]).items() if key != "round"}
        self._attempt(lambda: self._opened(step).add(step, numbers))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Copy the numbers of the summary, and pictures of a run that has trained."""
        step = summary.get("rounds", 0)
        numbers = {f"summary/{key}": value for key, value in _numbers(summary).items()}
        self._attempt(lambda: self._opened(step + 1).add(step, numbers))
        drawn = [self._run.plots / name for name in PICTURES if self._run.lines]
        self._close([picture for picture in drawn if picture.exists()], succeeded=True)

    def failed(self) -> None:
        """Mark the copy as failed, unless it has ended."""
        self._close([], succeeded=False)

    def _close(self, pictures: Sequence[Path], *, succeeded: bool) -> None:
        if (tracker := self._tracker) is not None:
            self._attempt(lambda: tracker.end(succeeded, pictures))
            self._tracker = None

    def _opened(self, step: int) -> Tracker:
        """The tracker; ``step`` is its first step, larger than 1 if a run resumes."""
        if self._tracker is None:
            self._tracker = _TRACKERS[self._tool](self._run, step)
        return self._tracker

    def _attempt(self, action: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            action()
        except Exception as error:
            # Without the error's text: the address of a server in it may contain a password.
            kind = type(error).__name__
            log(WARNING, "Tracking with %s stops (%s); the run goes on.", self._tool, kind)
            self._failed = True


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers in ``values``, nested ones as ``errors.xclp``; lists are skipped."""
    pairs = ((key, number(value)) for key, value in dotted(values).items())
    return {key: value for key, value in pairs if value is not None}


class TensorBoard:
    """Event files in the run's directory; a resumed run writes a new file."""

    def __init__(self, run: Run, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._writer = SummaryWriter(str(run.path / TENSORBOARD), purge_step=step)
        self._events = cast(Any, self._writer.file_writer)
        shown = dict.fromkeys(("test_error", "validation_error"), 0.0)
        parts: Any = hparams(run.settings, shown)  # type: ignore[no-untyped-call]
        experiment, start, self._success = parts
        for part in (experiment, start):
            self._events.add_summary(part)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record ``numbers`` of one round, or of the whole run up to it."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self, succeeded: bool, pictures: Sequence[Path]) -> None:
        """Add PNG files, and mark the run as ended."""
        import numpy as np
        from PIL import Image

        for path in pictures:
            with Image.open(path) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            self._writer.add_image(path.stem, pixels, dataformats="HWC")
        if succeeded:
            self._events.add_summary(self._success)
        self._writer.close()


class MLflow:
    """A run in the store ``MLFLOW_TRACKING_URI``, or in a database next to the results."""

    def __init__(self, run: Run, step: int) -> None:
        # By default MLflow reports its usage over the network; we turn that off.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        for variable, value in _IN_HASTE.items():
            os.environ.setdefault(variable, value)
        from mlflow import MlflowClient
        from mlflow.entities import Param

        for name in ("mlflow", "alembic"):  # they log every table of a new database
            logging.getLogger(name).setLevel(WARNING)
        self._database = os.environ.get("MLFLOW_TRACKING_URI")
        path = run.path
        self._client = MlflowClient(self._database or f"sqlite:///{path / MLFLOW_DATABASE}")
        if step > 1 and (path / MLFLOW_RUN).exists():
            self._run = (read_object(path / MLFLOW_RUN) or {})["run_id"]
            self._client.update_run(self._run, status="RUNNING")
            return
        name = "/".join(path.parts[-2:])
        self._run = self._client.create_run(self._experiment(path), run_name=name).info.run_id
        run.write_text(MLFLOW_RUN, json.dumps({"run_id": self._run}) + "\n")
        params = [Param(name, str(value)) for name, value in run.settings.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._run, params=params[start : start + _MOST_PARAMS])

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record ``numbers`` of one round, or of the whole run up to it."""
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, succeeded: bool, pictures: Sequence[Path]) -> None:
        """Add PNG files, and mark the run as ended."""
        for path in pictures:
            self._client.log_artifact(self._run, str(path), "plots")
        self._client.set_terminated(self._run, "FINISHED" if succeeded else "FAILED")

    def _experiment(self, path: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedul-flwr")
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return str(experiment.experiment_id)
        location = None if self._database else (path / MLFLOW_ARTIFACTS).as_uri()
        return str(self._client.create_experiment(name, artifact_location=location))


class WeightsAndBiases:
    """An offline run in the run's directory, which ``wandb sync`` uploads; ``WANDB_MODE`` may say
    ``online``. It has the settings and numbers alone, nothing of the machine or the program."""

    def __init__(self, run: Run, step: int) -> None:
        del step
        import wandb

        path = run.path
        quiet = {"silent": True, "console": "off", "save_code": False, "disable_git": True}
        machine = {"x_disable_meta": True, "x_disable_stats": True, "x_save_requirements": False}
        self._run = wandb.init(
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
            dir=str(path),
            project=os.environ.get("WANDB_PROJECT", "fedul-flwr"),
            name="/".join(path.parts[-2:]),
            id=sha256(str(path.resolve()).encode()).hexdigest()[:16],
            resume="allow",
            config=dict(run.settings),
            settings=wandb.Settings(**quiet, **machine),
        )

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record ``numbers`` of one round, or of the whole run up to it."""
        self._run.log(dict(numbers), step=step)

    def end(self, succeeded: bool, pictures: Sequence[Path]) -> None:
        """Add PNG files, and mark the run as ended."""
        import wandb

        if pictures:
            self._run.log({f"plots/{path.stem}": wandb.Image(str(path)) for path in pictures})
        self._run.finish(exit_code=int(not succeeded))


Tracker = TensorBoard | MLflow | WeightsAndBiases
_TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}
"""Tracking tools; all of their methods may raise any exception."""
