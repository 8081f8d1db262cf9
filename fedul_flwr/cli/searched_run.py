"""``fedul-flwr run --tune``: a search of the run's settings before it starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedul_flwr.cli.options import EXPERIMENTS, resumable
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.config.base import Scalar
    from fedul_flwr.config.run_config import RunConfig


def searched(
    config: RunConfig, overrides: Mapping[str, Scalar], num_clients: int, trials: int
) -> dict[str, Scalar]:
    """Settings that a search by validation labels chooses, as ``fedul-flwr tune`` makes it.

    The search splits the data with the next seed, so that the run is none that it saw. The same
    call goes on with a search that was stopped.

    Parameters
    ----------
    config : settings of the run.
    overrides : those of them that the user has set.
    trials : number of trials; the first has the run's own settings.

    Raises
    ------
    UserError
        If Optuna is missing, a setting is refused, or no trial was complete.
    """
    from fedul_flwr.engine.flower_logs import flower_logs
    from fedul_flwr.experiments.search import plan_searches, require_optuna
    from fedul_flwr.experiments.search_file import read_searches, run_searches
    from fedul_flwr.experiments.search_space import FILE, read_search
    from fedul_flwr.experiments.trial_plan import make_plan

    require_optuna()
    row = config.method
    output = overrides.get("output")
    place = Path(f"{config.output}-search") if output else Path("runs") / f"search-{row}"
    shared = {key: overrides[key] for key in overrides if key not in ("output", "seed")}
    plan = make_plan({row: {}}, shared, (config.seed + 1,), num_clients, place)
    search = read_search([EXPERIMENTS / FILE], trials)
    tasks = plan_searches([plan], [row], search, "validation", place)
    file, command = place / "search.json", f"fedul-flwr run --tune {trials}"
    with resumable(), flower_logs(logging.ERROR):
        run_searches(tasks, file, row, 1, typer.echo, lambda _: command)
    chosen = read_searches(file)[row, ""]["chosen"]
    if chosen is None:
        raise UserError(f"--tune {trials}: no trial was complete; {file} says why.")
    found: dict[str, Scalar] = dict(chosen["settings"])
    values = ", ".join(f"{key} {value}" for key, value in found.items())
    typer.echo(f"Chosen by the search: {values or 'the settings as they were'} ({file}).")
    return found
