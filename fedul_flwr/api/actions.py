"""Comparisons and searches by their options; commands and Python functions are made of these."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.options import Comparing, Tuning
from fedul_flwr.config.user_files import attribute
from fedul_flwr.engine.shell import flower_logs
from fedul_flwr.engine.simulate import check_machines, run_here
from fedul_flwr.experiments import compare_files
from fedul_flwr.experiments.compare_table import MEASURES, Compared
from fedul_flwr.experiments.search import RowSearch, plan_search, run_searches
from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.studies import require_optuna, tuned_runs
from fedul_flwr.experiments.table import pick
from fedul_flwr.experiments.trial import Log, Trial
from fedul_flwr.experiments.trial_plan import in_effect, make_plan, seeds_of, slug
from fedul_flwr.run.tracking import refuse_missing

Rows = Mapping[str, Mapping[str, Scalar]]
"""Flat settings of each run by its name."""


def compare(
    rows: Rows, shared: Mapping[str, Scalar], how: Comparing, log: Log, name: str = ""
) -> Compared:
    """Compare runs on the same splits and seeds, or go on with it.

    Parameters
    ----------
    shared : settings of all runs.
    log : prints a line.
    name : of the directory of the results in ``runs`` if ``how`` names none.
    """
    measures = how.measures if isinstance(how.measures, str) else ",".join(how.measures)
    columns = pick(measures, [*MEASURES], "measure") if measures else []
    name = name or "-".join(map(slug, rows))
    folder = how.output or Path("runs") / f"compare-{name}{'-tuned' if how.tuned else ''}"
    seeds = seeds_of(how.seeds)
    plan = make_plan(rows, shared, seeds, how.number, folder)
    if how.tuned is not None:
        chosen = tuned_runs(plan, how.tuned)
        plan = make_plan(chosen, in_effect(chosen, shared), seeds, how.number, folder)
    plan = replace(plan, measures=tuple(columns))
    for trial in plan.trials:
        refuse_missing(trial.config.tracking)
    check_machines(how)
    for note in plan.notes:
        print(f"Note: {note}", file=sys.stderr)
    return compare_files.compare(plan, lambda _, config, title: run_here(config, how, title), log)


def tune(
    rows: Rows, shared: Mapping[str, Scalar], how: Tuning, log: Log, name: str = ""
) -> tuple[list[RowSearch], int]:
    """Search settings of runs without test errors; the searches, and how many trials failed.

    Parameters
    ----------
    shared, log, name : as for :func:`compare`.
    """
    folder = how.output or Path("runs") / f"tune-{name or '-'.join(map(slug, rows))}"
    shared = {"device": how.device, **shared}
    plan = make_plan(rows, shared, (how.seed,), how.number, folder)
    return search(plan.trials, Search(), how, folder, folder / "search.jsonl", log)


def search(
    planned: Sequence[Trial],
    default: Search,
    how: Tuning,
    folder: Path,
    file: Path,
    log: Log,
    size: str = "",
) -> tuple[list[RowSearch], int]:
    """Search settings of rows; the searches, and how many trials failed.

    Parameters
    ----------
    default : what is tried if ``how`` names no file.
    folder, file, size : as in :class:`~fedul_flwr.experiments.search.RowSearch`.
    """
    require_optuna()
    tried = default if how.search is None else attribute(how.search, "SEARCH", Search)
    if how.trials is not None:
        tried = replace(tried, trials=how.trials)
    tasks = [plan_search(one, tried, how.criterion, folder, file, size) for one in planned]
    with flower_logs(logging.ERROR):
        return tasks, run_searches(tasks, how.jobs, log)
