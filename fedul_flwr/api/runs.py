"""Simulations and comparisons of methods, started from Python."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedul_flwr.api.arguments import flat_settings, settings_of_call
from fedul_flwr.api.input_data import naming_data
from fedul_flwr.api.result import Result, TrainedModel, shown
from fedul_flwr.config.base import Scalar, without_exit
from fedul_flwr.config.methods import Method
from fedul_flwr.config.user_files import user_path
from fedul_flwr.engine.simulate import Engine
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fedul_flwr.experiments.compare_table import Compared
    from fedul_flwr.run.callbacks import Callback


@without_exit("The run")
def simulate(
    method: str | Method = "fedul",
    data: Any = None,
    *,
    test: Any = None,
    sets: Any = None,
    priors: Any = None,
    clients: Any = None,
    rounds: int | None = None,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    engine: Engine = "processes",
    verbose: bool = False,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Result:
    """Simulate a federation, and return its result.

    Parameters
    ----------
    method : name of a method; or one of your own, as an object or ``package.module:NAME``.
    data : ``(x, y)``; a DataFrame with a column of labels; a data set of torch or of Hugging Face;
        ``{"train": …, "test": …}`` of these; or the path or name of a data set, by default
        ``"digits"``. Data in memory are written once to the cache, where only this user can read
        them.
    test : test data, in the same form; by default a fifth of every class of ``data``.
    sets : in place of sets that are made of ``data``: M unlabeled sets of clients, a list or a
        mapping from names, each of points as ``x`` is. ``data`` and ``test`` are labeled points of
        the server then; it can do without.
    priors : ``(M, K)``, class priors of ``sets``. Columns are classes in the order of the labels,
        or of a DataFrame those that it names; with sets by name its index names the rows.
    clients : number of clients, by default 10; or the client of each point of ``data``, ``(n,)``,
        or of each of ``sets``, ``(M,)``, any values: each has its own points or sets then.
    rounds : communication rounds (setting ``num-rounds``).
    output : new directory of the results, by default one in ``runs``.
    resume : directory of an interrupted run to go on with; only ``rounds`` may change.
    engine : what runs the clients: ``"processes"``, a pool of them; ``"in-process"``, this one
        alone; or ``"ray"``, Flower's simulation with Ray. The numbers are the same.
    verbose : show Flower's log.
    callbacks : objects that look at each round, may add numbers to its line and end the run
        (:class:`fedul_flwr.Callback`).
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
    named = flat_settings({"method": method})
    of_call, count = settings_of_call(settings, data, test, rounds, clients, sets, priors)
    overrides = {**named, **of_call}
    overrides |= {
        key: str(value) for key, value in (("output", output), ("resume", resume)) if value
    }
    return Result(run(overrides, count, engine, verbose, callbacks, named=output is not None))


def run(
    overrides: Mapping[str, Scalar],
    clients: int | None,
    engine: Engine,
    verbose: bool,
    callbacks: Sequence[Callback] = (),
    *,
    named: bool,
) -> Path:
    """Run these settings; the directory of the results.

    Parameters
    ----------
    overrides : flat settings, by the names that the command line uses.
    named : whether the user has named the output; if not, it gets a suffix where it exists.
    """
    from fedul_flwr.config.run_config import LAST_MODEL, resolve
    from fedul_flwr.engine import simulate as engines

    if engine not in get_args(Engine):
        raise UserError(
            f"engine = {engine!r}: must be one of {', '.join(get_args(Engine))}.",
            "argument-not-allowed",
        )
    config = resolve(overrides, Path.cwd())
    if config.resume and "num-rounds" in overrides:
        config = config.model_copy(update={"num_rounds": int(overrides["num-rounds"])})
    count = engines.number_of_clients(config, clients)
    try:
        with naming_data(config.dataset):
            return engines.simulate(
                config,
                engines.Simulation(count, verbose=verbose, engine=engine, callbacks=[*callbacks]),
                named=named or bool(config.resume),
            )
    except KeyboardInterrupt:
        if (Path(config.output) / LAST_MODEL).is_file():
            print(
                f"Stopped; fedul_flwr.simulate(resume={config.output!r}) goes on from here.",
                file=sys.stderr,
            )
        raise


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
    from fedul_flwr.results.report import is_comparison

    source = user_path(path)
    if source.is_file():
        model = TrainedModel(path, trust_modules=trust_modules)
        _ = model.predictor  # what is no model is refused here
        return model
    if is_comparison(source):
        return load_comparison(source, trust_modules=trust_modules)
    return Result(path, trust_modules=trust_modules)


_FILES = ("comparison.csv", "trials.csv")


class Comparison:
    """Runs of several methods on the same splits and seeds.

    Attributes
    ----------
    directory : directory of the tables, as ``fedul-flwr compare`` writes them.
    results : the finished runs of each method, in the order of the seeds.
    """

    def __init__(self, compared: Compared) -> None:
        self._compared = compared
        self.directory = compared.plan.output
        self.results: dict[str, list[Result]] = {row: [] for row in compared.rows}
        for trial, _ in compared.finished:
            self.results[trial.row].append(Result(trial.directory))

    @property
    def table(self) -> pd.DataFrame:
        """A row for each run: mean and standard deviation of its error in percent, and more.

        ``half_width`` is half of the 95 % interval, ``p_value`` that of a paired t-test against the
        best run, and ``marked`` whether the difference from it may be chance.
        """
        import pandas as pd

        return pd.read_csv(self.directory / "comparison.csv", index_col="run")

    @property
    def trials(self) -> pd.DataFrame:
        """A row for each run and seed."""
        import pandas as pd

        return pd.read_csv(self.directory / "trials.csv")

    def plot(self) -> Figure:
        """Errors over rounds, and errors of all seeds."""
        from fedul_flwr.experiments.compare_plot import compare_figure

        return shown(compare_figure(self._compared))

    def __repr__(self) -> str:
        return str(self.table[["mean", "std", "n_seeds"]])

    def _repr_html_(self) -> str:
        html: str = self.table.to_html()
        return html


def load_comparison(directory: Path, *, trust_modules: bool = False) -> Comparison:
    """Open the directory of a comparison; trials that are not finished have no result.

    Parameters
    ----------
    trust_modules : whether modules of somebody's own that the runs' settings name may be run.
    """
    import pandas as pd

    from fedul_flwr.config.run_config import parse_flat
    from fedul_flwr.config.trusted_modules import require_trusted_modules
    from fedul_flwr.data.run_files.run import Run
    from fedul_flwr.experiments.compare_table import Compared
    from fedul_flwr.experiments.trial import CLIENTS, Trial, table_of
    from fedul_flwr.experiments.trial_plan import Plan

    try:
        names = [str(name) for name in pd.read_csv(directory / _FILES[0], dtype=str)["run"]]
        listed = pd.read_csv(directory / _FILES[1], dtype=str)
        listed = listed[listed["status"] == "finished"]
        runs = [
            (str(row["run"]), int(row["seed"]), str(row["directory"]))
            for _, row in listed.iterrows()
        ]
    except (KeyError, ValueError, OSError) as error:
        raise UserError(
            f"{directory} has no readable tables of a comparison ({error}).", "file-damaged"
        ) from None
    root, trials = directory.resolve(), []
    for name, seed, run_folder in runs:
        folder = (root / run_folder).resolve()
        if not folder.is_relative_to(root):
            raise UserError(
                f"{directory / _FILES[1]} names {run_folder!r}, which is not below it.",
                "file-damaged",
            )
        run = Run.read(folder)
        if not trust_modules:
            require_trusted_modules(folder, run.settings, "use trust_modules=True")
        config = parse_flat(run.settings)
        clients = run.outcome.num_clients or 0
        trials.append(Trial(name, seed, folder, config, {CLIENTS: clients}))
    return Comparison(
        Compared(Plan({name: {} for name in names}, {}, root, tuple(trials)), table_of(trials))
    )


@without_exit("The comparison")
def compare(
    methods: Iterable[str | Method | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]],
    data: Any = None,
    *,
    test: Any = None,
    sets: Any = None,
    priors: Any = None,
    seeds: int | Iterable[int] = 3,
    clients: Any = None,
    rounds: int | None = None,
    output: str | Path | None = None,
    measures: Iterable[str] = (),
    engine: Literal["processes", "in-process"] = "processes",
    verbose: bool = False,
    **settings: Any,
) -> Comparison:
    """Compare methods on the same splits and seeds; the same call resumes a stopped one.

    Parameters
    ----------
    methods : methods, as for :func:`fedul_flwr.simulate`; or settings of each run,
        ``{"method": "fedul", "batch_size": 8}``, perhaps with its ``"name"``; or a mapping from
        names to such settings.
    data, test, sets, priors, clients, rounds : as for :func:`fedul_flwr.simulate`.
    seeds : number of seeds, 0 and so on, or the seeds.
    output : directory of the results, by default one in ``runs`` named like the methods.
    measures : columns beside the test error: some of ``balanced-accuracy``, ``auc``, ``ece``,
        ``nll`` and ``brier``.
    engine : a pool of processes, or this process alone.
    verbose : show Flower's log.
    **settings : settings of all runs; those of a table apply to runs that use the table.

    Raises
    ------
    UserError
        If a setting or the data cannot be used.
    """
    from fedul_flwr.engine.simulate import DEFAULT_CLIENTS, Simulation, run_here
    from fedul_flwr.experiments import compare_files, trial_plan
    from fedul_flwr.experiments.compare_table import MEASURES
    from fedul_flwr.experiments.table import pick
    from fedul_flwr.run.tracking import refuse_missing

    if engine not in ("processes", "in-process"):
        raise UserError(
            f"engine = {engine!r}: compare takes 'processes' or 'in-process'.",
            "argument-not-allowed",
        )
    rows = _rows(methods)
    shared, stated = settings_of_call(settings, data, test, rounds, clients, sets, priors)
    count = stated or DEFAULT_CLIENTS
    listed = seeds if isinstance(seeds, Iterable) else range(int(seeds))
    numbers = tuple(map(int, listed))
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise UserError(
            f"seeds = {seeds!r}: must be a number of seeds, or seeds from 0 on.",
            "argument-not-allowed",
        )
    name = "-".join(map(trial_plan.slug, rows))
    folder = user_path(output or Path("runs") / f"compare-{name}")
    with naming_data(str(shared.get("dataset", ""))):
        plan = trial_plan.make_plan(rows, shared, numbers, count, folder)
    if names := ",".join(measures):
        plan = replace(plan, measures=tuple(pick(names, [*MEASURES], "measure")))
    for trial in plan.trials:
        refuse_missing(trial.config.tracking)
    for note in plan.notes:
        print(f"Note: {note}")

    simulation = Simulation(count, verbose=verbose, engine=engine)
    try:
        compared = compare_files.compare(
            plan,
            lambda _, config, title: run_here(config, simulation, title),
            print,
        )
    except KeyboardInterrupt:
        print("Stopped; the same call goes on from here.")
        raise
    return Comparison(compared)


def _rows(
    methods: Iterable[str | Method | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Scalar]]:
    """Own settings of each run by its name."""
    if isinstance(methods, str | Method):
        methods = [methods]
    if isinstance(methods, Mapping):
        return {str(name): flat_settings(of_row) for name, of_row in methods.items()}
    rows: dict[str, dict[str, Scalar]] = {}
    for method in methods:
        of_row = {"method": method} if isinstance(method, str | Method) else dict(method)
        chosen = of_row.get("method", "fedul")
        name = str(of_row.pop("name", chosen.name if isinstance(chosen, Method) else chosen))
        if name in rows:
            raise UserError(
                f"methods has {name!r} twice: give each run a name, {{'name': …}}.", "name-twice"
            )
        rows[name] = flat_settings(of_row)
    if not rows:
        raise UserError("methods is empty; name one or more.", "argument-not-allowed")
    return rows
