"""The searches of rows: of a paper's table, or of a file of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedul_flwr.config.run_config import keys_in_use, resolve
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.criterion import Name, make_criterion
from fedul_flwr.experiments.row_search import RowSearch
from fedul_flwr.experiments.search_space import SearchSettings
from fedul_flwr.experiments.trial import Trial
from fedul_flwr.experiments.trial_plan import Plan, slug

TRIALS = Path("runs/tune")
"""Directory of the trials of tables, below the working directory."""


def plan_searches(
    plans: Sequence[Plan],
    rows: Sequence[str],
    search: SearchSettings,
    criterion: Name,
    directory: Path,
) -> list[RowSearch]:
    """Plan the searches of ``rows``.

    Parameters
    ----------
    plans : columns of a table, or a comparison of runs, with the search's seed alone.

    Raises
    ------
    UserError
        Naming the row that cannot be searched, and why.
    """
    found = []
    for plan in plans:
        trials = [trial for trial in plan.trials if trial.row in rows]
        if plan.start is not None and trials:
            raise UserError(
                f"Column {plan.column!r} starts from the model of another run, which no search "
                "covers: leave it out with --columns."
            )
        place = directory / slug(plan.column)
        found += [
            _plan(trial, plan, search, criterion, place / slug(trial.row)) for trial in trials
        ]
    return found


def _plan(trial: Trial, plan: Plan, search: SearchSettings, name: Name, place: Path) -> RowSearch:
    try:
        own = {key: v for key, v in trial.config.to_flat().items() if key != "output"}
        in_use = keys_in_use(own)
        given = own | {key: v for key, v in search.settings.items() if key in in_use}
        task = RowSearch(
            row=trial.row,
            column=trial.column,
            settings=trial.settings,
            given=given,
            num_clients=plan.num_clients,
            directory=Path.cwd() / place,
            search=search,
            criterion=make_criterion(name, trial.config, resolve(given, Path.cwd())),
            seed=trial.seed,
            content=trial.content,
        )
        task.config(task.base())
    except UserError as error:
        where = f"Row {trial.row!r}" + (f", column {trial.column!r}" if trial.column else "")
        raise UserError(f"{where}: {error}") from None
    return task
