"""Simulations started from Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from fedul_flwr.api.given_data import naming_data, number_of_clients
from fedul_flwr.api.keywords import settings_of_call
from fedul_flwr.api.result import Result, TrainedModel
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.user_files import user_path
from fedul_flwr.engine.simulate import Engine
from fedul_flwr.errors import UserError


def simulate(
    method: str = "fedul",
    data: Any = None,
    *,
    test: Any = None,
    clients: Any = None,
    rounds: int | None = None,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    engine: Engine = "processes",
    verbose: bool = False,
    **settings: Any,
) -> Result:
    """Simulate a federation, and return its result.

    Parameters
    ----------
    method : name of a method, or ``package.module:NAME`` of your own.
    data : ``(x, y)``; a DataFrame with a column of labels; a data set of torch or of Hugging Face;
        ``{"train": …, "test": …}`` of these; or the path or name of a data set, by default
        ``"digits"``. Data in memory are written once to the cache, where only this user can read
        them.
    test : test data, in the same form; by default a fifth of every class of ``data``.
    clients : number of clients, by default 10; or the client of each point of ``data``, ``(n,)``,
        any values: each has its own points then, as with ``partition="natural"``.
    rounds : communication rounds (setting ``num-rounds``).
    output : new directory of the results, by default one in ``runs``.
    resume : directory of an interrupted run to go on with; only ``rounds`` may change.
    engine : what runs the clients: ``"processes"``, a pool of them; ``"in-process"``, this one
        alone; or ``"ray"``, Flower's simulation with Ray. The numbers are the same.
    verbose : show Flower's log.
    **settings : any setting, with underscores for dashes: ``local_epochs=1``,
        ``fedul={"num_sets": 5}``.

    Raises
    ------
    UserError
        If a setting or the data cannot be used, or the run fails.

    Examples
    --------
    >>> result = simulate("fedul", clients=2, rounds=1, output=directory)  # doctest: +SKIP
    """
    overrides = {"method": method, **settings_of_call(settings, data, test, rounds, clients)}
    overrides |= {
        key: str(value) for key, value in (("output", output), ("resume", resume)) if value
    }
    count = number_of_clients(clients)
    return Result(run(overrides, count, engine, verbose, named=output is not None))


def run(
    overrides: Mapping[str, Scalar],
    clients: int | None,
    engine: Engine,
    verbose: bool,
    *,
    named: bool,
) -> Path:
    """Run these settings; the directory of the results.

    Parameters
    ----------
    overrides : flat settings, by the names that the command line uses.
    named : whether the user has named the output; if not, it gets a suffix where it exists.
    """
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.engine import simulate as engines

    if engine not in get_args(Engine):
        raise UserError(f"engine = {engine!r}: must be one of {', '.join(get_args(Engine))}.")
    config = resolve(overrides, Path.cwd())
    if config.resume and "num-rounds" in overrides:
        config = config.model_copy(update={"num_rounds": int(overrides["num-rounds"])})
    count = engines.number_of_clients(config, clients)
    try:
        with naming_data(config.dataset):
            return engines.simulate(
                config,
                count,
                verbose=verbose,
                named=named or bool(config.resume),
                engine=engine,
            )
    except KeyboardInterrupt:
        _say_how_to_go_on(Path(config.output))
        raise


def _say_how_to_go_on(directory: Path) -> None:
    from fedul_flwr.config.run_config import LAST_MODEL

    if (directory / LAST_MODEL).is_file():
        print(
            f"Stopped; fedul_flwr.simulate(resume={str(directory)!r}) goes on from here.",
            file=sys.stderr,
        )


def load(path: str | Path, *, trust_modules: bool = False) -> Any:
    """Open the directory of a run, finished or not, that of a comparison, or a packed model.

    Parameters
    ----------
    path : output directory of a run or a comparison, from Python or the command line, or a file of
        ``fedul-flwr pack``.
    trust_modules : whether modules of somebody's own that the run's settings name may be run.

    Returns
    -------
    Result, Comparison or TrainedModel
        The run, the comparison, or of a file the model alone.

    Raises
    ------
    UserError
        If it is none of these.
    """
    from fedul_flwr.api.comparisons import load_comparison
    from fedul_flwr.results.report import is_comparison

    place = user_path(path)
    if place.is_file():
        model = TrainedModel(path, trust_modules=trust_modules)
        _ = model.predictor  # what is no model is refused here
        return model
    if is_comparison(place):
        return load_comparison(place, trust_modules=trust_modules)
    return Result(path, trust_modules=trust_modules)
