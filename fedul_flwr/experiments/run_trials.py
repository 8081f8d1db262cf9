"""Run the trials that are not finished, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.run_lock import HeldError, refuse_held
from fedul_flwr.experiments.trial import (
    Key,
    Trial,
    TrialResult,
    read_trial,
    remove_reason,
    starting_config,
    write_content,
    write_reason,
)
from fedul_flwr.results.printed_summary import duration, percent

Simulate = Callable[[RunConfig, str], None]
"""Runs a configuration under a title, and raises an error if the run fails."""
Say = Callable[[str], None]
"""Prints a line."""
Save = Callable[[Sequence[TrialResult]], None]
"""Saves the state of all trials."""


def run_trials(
    trials: Sequence[Trial], simulate: Simulate, say: Say, save: Save
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
        say(f"{len(done)} of {len(trials)} trials are finished already.")
    seconds = {key: s for key, result in done.items() if (s := result.metric("seconds_total"))}
    save(list(results.values()))
    todo = [trial for trial in trials if trial.key not in done]
    for position, trial in enumerate(todo):
        title = f"trial {list(results).index(trial.key) + 1} of {len(results)}: {trial.title}"
        began = time.monotonic()
        try:
            refuse_held(trial.directory)
            remove_reason(trial)
            write_content(trial)
            simulate(starting_config(trial), title + _time_left(todo[position:], seconds))
            result = results[trial.key] = read_trial(trial)
            # The clock includes what is done once for all trials, such as features.
            clock = time.monotonic() - began
            seconds[trial.key] = result.metric("seconds_total") or clock
            measured = "test error" if trial.trains else "error of labels"
            say(f"{trial.title}: {measured} {percent(result.metric('test_error'))}")
        except (KeyboardInterrupt, HeldError):
            results[trial.key] = read_trial(trial)
            save(list(results.values()))
            raise
        except Exception as error:  # the other trials can still run
            results[trial.key] = TrialResult(trial, "failed", reason=write_reason(trial, error))
            say(f"{trial.title} failed: {results[trial.key].reason}")
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
