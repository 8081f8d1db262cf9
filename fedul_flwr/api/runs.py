"""Simulations and comparisons of methods, started from Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.api.arguments import flat_settings, settings_of_call
from fedul_flwr.api.in_memory import refuse_in_memory
from fedul_flwr.api.input_data import naming_data
from fedul_flwr.api.result import Result, TrainedModel, shown
from fedul_flwr.config.base import Scalar, without_exit
from fedul_flwr.config.methods import Method
from fedul_flwr.config.options import Comparing, Resumable, Tuning, takes
from fedul_flwr.config.user_files import user_path
from fedul_flwr.engine import simulate as engines
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fedul_flwr.experiments.compare_table import Compared
    from fedul_flwr.experiments.search import RowSearch
    from fedul_flwr.run.callbacks import Callback

Methods = Iterable[str | Method | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]


@without_exit("The run")
@takes(Resumable)
def simulate(
    method: str | Method = "fedul",
    data: Any = None,
    *,
    test: Any = None,
    sets: Any = None,
    priors: Any = None,
    clients: Any = None,
    rounds: int | None = None,
    callbacks: Sequence[Callback] = (),
    how: Resumable = Resumable(),
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
    callbacks : objects that look at each round, may add numbers to its line and end the run
        (:class:`fedul_flwr.Callback`).
    how : or as keywords of their own its options, such as ``output="runs/first"``, ``resume=…`` and
        ``engine="in-process"``.
    **settings : any setting, with underscores for dashes: ``local_epochs=1``,
        ``fedul={"num_sets": 5}``.

    Raises
    ------
    UserError
        If an argument, a setting or the data cannot be used, or the run fails.

    Examples
    --------
    >>> result = simulate("fedul", clients=2, rounds=1, output=directory)  # doctest: +SKIP
    """
    named = flat_settings({"method": method})
    of_call, count = settings_of_call(settings, data, test, rounds, clients, sets, priors)
    how = how.model_copy(update={"clients": count})
    refuse_in_memory({**named, **of_call}, how.engine)
    with naming_data(str(of_call.get("dataset", "digits"))):
        return Result(
            engines.simulate(
                {**named, **of_call}, how, callbacks, "fedul_flwr.simulate(resume={!r})"
            )
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
@takes(Comparing)
def compare(
    methods: Methods,
    data: Any = None,
    *,
    test: Any = None,
    sets: Any = None,
    priors: Any = None,
    clients: Any = None,
    rounds: int | None = None,
    how: Comparing = Comparing(),
    **settings: Any,
) -> Comparison:
    """Compare methods on the same splits and seeds; the same call resumes a stopped one.

    Parameters
    ----------
    methods : methods, as for :func:`fedul_flwr.simulate`; or settings of each run,
        ``{"method": "fedul", "batch_size": 8}``, perhaps with its ``"name"``; or a mapping from
        names to such settings.
    data, test, sets, priors, clients, rounds : as for :func:`fedul_flwr.simulate`.
    how : or as keywords of their own its options, such as ``seeds=5`` and ``measures=["auc"]``.
    **settings : settings of all runs; those of a table apply to runs that use the table.

    Raises
    ------
    UserError
        If an argument, a setting or the data cannot be used.
    """
    from fedul_flwr.api.actions import compare as compare_runs

    of_data = data, test, rounds, clients, sets, priors
    rows, shared, count = _of_call(methods, settings, of_data, how.engine)
    how = how.model_copy(update={"clients": count})
    try:
        with naming_data(str(shared.get("dataset", "digits"))):
            return Comparison(compare_runs(rows, shared, how, print))
    except KeyboardInterrupt:
        print("Stopped; the same call goes on from here.")
        raise


class Tuned:
    """Settings that a search chose for each run, without test errors.

    Attributes
    ----------
    file : Optuna's journal of all trials, for ``compare(tuned=…)``.
    settings : flat settings of each run that the best of its trials has and the run has not, by the
        run's name; of a run without a complete trial there are none.
    trials : a table of each run's trials: settings, measure, rounds, seconds.
    """

    def __init__(self, searches: Sequence[RowSearch]) -> None:
        from fedul_flwr.experiments.studies import chosen_settings, read_studies, trials_table

        self.file = searches[0].file
        studies = read_studies(self.file)
        of_runs = {one.trial.row: studies[one.name] for one in searches}
        chosen = {name: chosen_settings(study) for name, study in of_runs.items()}
        self.settings = {name: dict(one) for name, one in chosen.items() if one is not None}
        self.trials: dict[str, pd.DataFrame] = {
            name: trials_table(study) for name, study in of_runs.items()
        }

    def __repr__(self) -> str:
        return f"<Tuned: {self.settings}>"


@without_exit("The search")
@takes(Tuning)
def tune(
    methods: Methods,
    data: Any = None,
    *,
    test: Any = None,
    sets: Any = None,
    priors: Any = None,
    clients: Any = None,
    rounds: int | None = None,
    how: Tuning = Tuning(),
    **settings: Any,
) -> Tuned:
    """Search settings of each run, the same search for all; the same call resumes a stopped one.

    Parameters
    ----------
    methods, data, test, sets, priors, clients, rounds : as for :func:`fedul_flwr.compare`.
    how : or as keywords of their own its options, such as ``trials=8``.
    **settings : settings of all runs.

    Raises
    ------
    UserError
        If an argument, a setting or the data cannot be used, or Optuna is missing.

    Examples
    --------
    Errors of the chosen settings, with seeds that no trial has seen:

    >>> found = tune(["fedul", "fixmatch"], data, trials=8)  # doctest: +SKIP
    >>> compare(["fedul", "fixmatch"], data, tuned=found.file, seeds=[1, 2])  # doctest: +SKIP
    """
    from fedul_flwr.api.actions import tune as tune_runs

    of_data = data, test, rounds, clients, sets, priors
    rows, shared, count = _of_call(methods, settings, of_data, "processes")
    how = how.model_copy(update={"clients": count})
    with naming_data(str(shared.get("dataset", "digits"))):
        searches, _ = tune_runs(rows, shared, how, print)
    return Tuned(searches)


def _of_call(
    methods: Methods, settings: Mapping[str, Any], of_data: tuple[Any, ...], engine: str
) -> tuple[dict[str, dict[str, Scalar]], dict[str, Scalar], int | None]:
    """Own settings of each run, those of all, and the number of clients; arguments of data are
    those of :func:`settings_of_call`."""
    rows = _rows(methods)
    shared, count = settings_of_call(settings, *of_data)
    for of_row in (shared, *rows.values()):
        refuse_in_memory(of_row, engine)
    return rows, shared, count


def _rows(methods: Methods) -> dict[str, dict[str, Scalar]]:
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
