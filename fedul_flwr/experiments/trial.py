"""A trial: one run of a row with one seed and its metrics, and trials one after the other."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from fedul_flwr.config.auto_settings import AUTO_KEYS
from fedul_flwr.config.base import AUTO, Scalar
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import (
    LAST_MODEL,
    LOCATION_SETTINGS,
    RESOLVED_SETTINGS,
    RunConfig,
    default_flat,
    resolve,
)
from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.run_files.label_files import LEFT_OUT, LOCAL_LP, NETWORK, XCLP
from fedul_flwr.data.run_files.records import Run, number, read_config, read_run
from fedul_flwr.data.run_files.run_lock import DirectoryLockedError, require_unlocked
from fedul_flwr.data.run_files.store import CONFIG, ERROR, SUMMARY, RunDirectory
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.engine.simulate import plan_rounds
from fedul_flwr.errors import UserError
from fedul_flwr.results.printed_summary import duration, percent
from fedul_flwr.run.summary import RELEASED_DOWN, SHARES
from fedul_flwr.run.user_content import FILE, changed_content

Values = Mapping[str, float]


@dataclass(frozen=True)
class Metric:
    """A metric of a paper's table.

    Attributes
    ----------
    heading : name and unit.
    digits : number of digits after the point.
    of : takes the metric from the result of :func:`metrics_of`, or gives None if the run does not
        have it. A metric without ``of`` is measured by a benchmark.
    """

    heading: str
    digits: int
    of: Callable[[Values], float | None] | None = None


def _first(*keys: str) -> Callable[[Values], float | None]:
    """The first of ``keys`` that the run has."""
    return lambda values: next((values[key] for key in keys if key in values), None)


def _accuracy(values: Values) -> float | None:
    error = values.get("test_error")
    return None if error is None else 100 - error


def _megabytes(values: Values) -> float | None:
    up, down = values.get("bytes_up"), values.get("bytes_down")
    return None if up is None or down is None else (up + down) / 1e6


def _balanced(source: str) -> str:
    return f"balanced_accuracy_{source}"


METRICS: Mapping[str, Metric] = {
    "test-error": Metric("test error (%)", 2, _first("test_error")),
    **{
        f"test-error-{i}": Metric(f"test error, share {i} (%)", 2, _first(f"test_error_share_{i}"))
        for i in range(1, 6)
    },
    "accuracy": Metric("accuracy (%)", 2, _accuracy),
    "s2c": Metric("S2C (%)", 0, _first("nonzero_down_percent", "percent_down")),
    "c2s": Metric("C2S (%)", 0, _first("nonzero_up_percent", "percent_up")),
    "s2c-release": Metric("S2C as released (%)", 0, _first(RELEASED_DOWN)),
    "last-error": Metric("test error of the last round (%)", 2, _first("last_test_error")),
    "seconds": Metric("seconds", 0, _first("seconds")),
    "megabytes": Metric("traffic (MB)", 1, _megabytes),
    "labeled-error": Metric("error on labeled points (%)", 2, _first("labeled_error")),
    "balanced-accuracy": Metric(
        "balanced accuracy (%)", 2, _first(_balanced(LEFT_OUT), _balanced(XCLP))
    ),
    "balanced-accuracy-alone": Metric("within each client (%)", 2, _first(_balanced(LOCAL_LP))),
    "balanced-accuracy-network": Metric("the model itself (%)", 2, _first(_balanced(NETWORK))),
    "epoch-seconds": Metric("seconds an epoch", 2),
    "gflops": Metric("forward FLOPs (G)", 3),
}
"""Metrics by their names in the tables' files. S2C and C2S are FedMatch's traffic from and to the
server: values that were sent because they changed, in percent of a dense model per client;
``s2c-release`` counts as its authors' code, where a client's first exchange costs a later one's
price. ``megabytes`` is all that was sent in both directions. ``test-error-1`` to ``-5`` are the
model's errors on five equal shares of the test points, as FedUL's table 2 has one a client."""


def metrics_of(run: Run) -> dict[str, float]:
    """All values of a finished run that a metric may need.

    ``test_error`` is the error of the round that the run chose, ``last_test_error`` that of the
    last round, and ``lowest_test_error`` the lowest of all rounds (percent). Traffic is in percent
    of a dense model, balanced accuracies of labels in percent.
    """
    summary = run.summary or {}
    _, errors = run.series("test_error")
    _, labeled = run.series("labeled_error")
    metrics = {
        "test_error": summary.get("test_error"),
        "chosen_round": summary.get("best_round"),
        "last_test_error": summary.get("final_test_error"),
        "lowest_test_error": min(errors, default=None),
        "labeled_error": labeled[-1] if labeled else None,
        **{key: summary.get(key) for key in (*SHARES, RELEASED_DOWN, "bytes_up", "bytes_down")},
    }
    for i, error in enumerate(summary.get("test_error_by_share") or [], 1):
        metrics[f"test_error_share_{i}"] = error
    for source, score in ((run.labels or {}).get("sources") or {}).items():
        metrics[_balanced(source)] = score.get("balanced_accuracy")
    return {key: value for key, raw in metrics.items() if (value := number(raw)) is not None}


Status = Literal["finished", "failed", "interrupted", "to do"]
Key = tuple[str, str, int]
"""Row, column and seed."""
Change = tuple[str, Any, Any]
"""Key of a setting, its earlier and its present value."""
CLIENTS = "num-supernodes"
"""Key of the number of clients in :attr:`Trial.settings`."""


@dataclass(frozen=True)
class Trial:
    """One run of a row with one seed.

    Attributes
    ----------
    row, seed : the row of the table, and the seed of the run.
    directory : directory of the run; ``config.output`` is the same.
    config : settings of the run on this computer.
    settings : flat settings and :data:`CLIENTS`, without those that do not change the result. A
        stored result is valid as long as they are the same.
    column : the column of a paper's table; empty in a comparison of runs.
    content : digests of the user's files and modules that the settings name
        (:func:`~fedul_flwr.run.user_content.user_content`).
    """

    row: str
    seed: int
    directory: Path
    config: RunConfig
    settings: Mapping[str, Scalar]
    column: str = ""
    content: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Row, column and seed."""
        return self.row, self.column, self.seed

    @property
    def title(self) -> str:
        """Row and seed for messages."""
        return f"{self.row}, seed {self.seed}"

    @property
    def trains(self) -> bool:
        """Whether the method trains; if not, its clients label their points once."""
        return find_method(self.config.method).trains


@dataclass(frozen=True)
class TrialResult:
    """State of a trial.

    Attributes
    ----------
    trial : the trial.
    status : only a finished trial has a result.
    run : content of the directory of a finished trial.
    reason : why a trial failed, in one line.
    """

    trial: Trial
    status: Status
    run: Run | None = None
    reason: str = ""

    def metric(self, key: str) -> float | None:
        """A number of the run's summary, such as ``test_error``; None if it is not known."""
        return number((self.run.summary or {}).get(key)) if self.run else None


def read_trial(trial: Trial) -> TrialResult:
    """Read a trial's directory, which need not exist.

    A run with fewer rounds than ``trial.config`` asks for is interrupted. A run of a method that
    does not train is either finished or has to start again.
    """
    run = read_run(trial.directory) if (trial.directory / CONFIG).exists() else None
    if run and run.summary and _is_complete(trial, run.summary):
        return TrialResult(trial, "finished", run)
    reason = _read_reason(trial.directory)
    if reason:
        return TrialResult(trial, "failed", reason=reason)
    return TrialResult(trial, "interrupted" if _has_model(trial) else "to do")


def check_unchanged(trials: Iterable[Trial]) -> None:
    """Refuse trials whose directory was written with other settings.

    A directory without a trained round is ignored: its trial starts again.
    """
    for trial in trials:
        if not (_has_model(trial) or (trial.directory / SUMMARY).exists()):
            continue
        content = read_object(trial.directory / FILE) or {}
        content = {key: str(value) for key, value in content.items()}
        for setting in changed_content(content, trial.content):
            raise UserError(
                f"{trial.directory} was run with another content of {setting} = "
                f"{trial.config.to_flat()[setting]!r}, which has changed since: name "
                "another --output for a comparison with the present content, or remove that one.",
                "result-of-other-settings",
            )
        for key, then, now in _changes_on_disk(trial):
            raise UserError(
                f"{trial.directory} was run with {key} = {then!r}, not {now!r}: "
                "name another --output for a comparison with changed settings, or remove that one.",
                "result-of-other-settings",
            )


def one_line(error: Exception) -> str:
    """The message of an error in one line, with the type of an unexpected one."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def write_content(trial: Trial) -> None:
    """Note the digests of the user's files before a trial starts."""
    trial.directory.mkdir(parents=True, exist_ok=True)
    write_atomically(trial.directory / FILE, json.dumps(trial.content, indent=1) + "\n")


def identity(trial: Trial) -> str:
    """Digest of all that the trial's result depends on."""
    return digest({**trial.settings, **trial.content})


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 in hexadecimal of the JSON of ``content`` with sorted keys and no spaces."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def prepare_directory(directory: Path, file: str, identity: str) -> bool:
    """Make ``directory`` with ``identity`` in ``file``, and empty it if ``file`` holds another one.

    Returns
    -------
    Whether earlier files were removed.
    """
    mark = directory / file
    outdated = directory.exists() and not (mark.exists() and mark.read_text() == identity)
    if outdated:
        require_unlocked(directory)
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(mark, identity)
    return outdated


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    """Key and both values of each difference between two flat settings.

    A setting that exists on one side only is newer than the other side, where it had the effect of
    its default. One that no longer exists is a difference.
    """
    defaults = default_flat()
    for key in {**now, **then}:
        if key not in now and key not in defaults:
            yield key, then[key], None
            continue
        before, after = (flat.get(key, defaults.get(key)) for flat in (then, now))
        # The default was `uniform`, and `auto` is the same but for FedUL on owners' own sets.
        if key == "test-prior":
            before, after = ("uniform" if value == AUTO else value for value in (before, after))
        if before != after:
            yield key, before, after


def changes_text(changes: Iterable[Change]) -> str:
    """The first three changes for a message."""
    return "; ".join(f"{key} was {then!r}, is {now!r}" for key, then, now in list(changes)[:3])


def _is_complete(trial: Trial, summary: Mapping[str, Any]) -> bool:
    if not trial.trains:
        return summary.get("status") == "completed"
    if summary.get("budget_exhausted"):
        return True
    return int(summary.get("rounds", 0)) >= trial.config.num_rounds


def _has_model(trial: Trial) -> bool:
    return (trial.directory / LAST_MODEL).exists()


def _read_reason(directory: Path) -> str:
    try:
        text = (directory / ERROR).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return " ".join(text.split())


def _changes_on_disk(trial: Trial) -> Iterator[Change]:
    """Differences between the settings in the directory and the trial's that change a result."""
    saved, _ = read_config(trial.directory)
    for key, then, now in changed_settings(saved, trial.config.to_flat()):
        if key in LOCATION_SETTINGS:
            continue
        # The run writes what it took.
        if now == AUTO and key in (*RESOLVED_SETTINGS, *AUTO_KEYS):
            continue
        if key == "num-rounds" and not trial.trains:
            continue
        if key == "num-rounds" and isinstance(then, int) and then < trial.config.num_rounds:
            continue
        yield key, then, now
    run = read_run(trial.directory)
    clients = (run.summary or {}).get("num_clients")
    if clients is None and run.federation and trial.config.on_client_failure == "stop":
        clients = len(run.federation.clients)
    if clients not in (None, trial.settings[CLIENTS]):
        yield CLIENTS, clients, trial.settings[CLIENTS]


Simulate = Callable[[RunConfig, str], None]
"""Runs a configuration under a title, and raises an error if the run fails."""
Log = Callable[[str], None]
"""Prints a line."""
Save = Callable[[Sequence[TrialResult]], None]
"""Saves the state of all trials."""


def run_trials(
    trials: Sequence[Trial], simulate: Simulate, log: Log, save: Save
) -> list[TrialResult]:
    """Run the trials that are not finished, whatever settings the finished ones were run with.

    After a trial that fails the others still run.

    Parameters
    ----------
    save : called with the state of all trials at the beginning and after each trial.

    Returns
    -------
    The state of all trials in their order.
    """
    results = {trial.key: read_trial(trial) for trial in trials}
    done = {key: result for key, result in results.items() if result.status == "finished"}
    if done:
        log(f"{len(done)} of {len(trials)} trials are finished already.")
    seconds = {key: s for key, result in done.items() if (s := result.metric("seconds_total"))}
    save(list(results.values()))
    todo = [trial for trial in trials if trial.key not in done]
    for position, trial in enumerate(todo):
        title = f"trial {list(results).index(trial.key) + 1} of {len(results)}: {trial.title}"
        began = time.monotonic()
        try:
            require_unlocked(trial.directory)
            (trial.directory / ERROR).unlink(missing_ok=True)  # of an earlier failure
            write_content(trial)
            config = trial.config
            if _has_model(trial):  # it resumes on the device on which it began
                config = resolve({"resume": str(trial.directory)}, Path.cwd())
                if config.num_rounds != trial.config.num_rounds:
                    config = plan_rounds(config, trial.config.num_rounds)
            simulate(config, title + _time_left(todo[position:], seconds))
            result = results[trial.key] = read_trial(trial)
            # The clock includes what is done once for all trials, such as features.
            clock = time.monotonic() - began
            seconds[trial.key] = result.metric("seconds_total") or clock
            measured = "test error" if trial.trains else "error of labels"
            log(f"{trial.title}: {measured} {percent(result.metric('test_error'))}")
        except (KeyboardInterrupt, DirectoryLockedError):
            results[trial.key] = read_trial(trial)
            save(list(results.values()))
            raise
        except Exception as error:  # the other trials can still run
            if not _read_reason(trial.directory):  # the run has not written why
                trial.directory.mkdir(parents=True, exist_ok=True)
                RunDirectory(trial.directory).write_error(one_line(error))
            reason = _read_reason(trial.directory)
            results[trial.key] = TrialResult(trial, "failed", reason=reason)
            log(f"{trial.title} failed: {results[trial.key].reason}")
        save(list(results.values()))
    return list(results.values())


def _time_left(trials: Sequence[Trial], seconds: Mapping[Key, float]) -> str:
    """Expected time of ``trials``: the mean of their row's known times, or of all known times."""
    if not seconds:
        return ""
    of_row: dict[str, list[float]] = {}
    for (row, _, _), value in seconds.items():
        of_row.setdefault(row, []).append(value)
    expected = sum(fmean(of_row.get(trial.row, seconds.values())) for trial in trials)
    return f", about {duration(round(expected))} left"
