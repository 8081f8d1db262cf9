"""A trained model, and a run's directory, as objects: predictions, metrics and figures."""

from __future__ import annotations

import shutil
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedul_flwr.config.base import PriorsLike, Scalar
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

    from fedul_flwr.results.predict import Predictor


class Shown:
    """A line of facts in a terminal, and a small table of them in a notebook."""

    def _facts(self) -> dict[str, str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(f'{k} {v}' for k, v in self._facts().items())}>"

    def _repr_html_(self) -> str:
        import pandas as pd

        with pd.option_context("display.max_colwidth", None):
            return pd.Series(self._facts()).to_frame().to_html(header=False, border=0)


class TrainedModel:
    """A trained model, in a file that ``fedul-flwr pack`` wrote or in a run's directory.

    Parameters
    ----------
    path : the file, or the directory.
    trust_modules : whether a module of somebody's own that the run's settings name may be imported,
        and so run, even if no run of this user on this machine has named it.
    """

    def __init__(self, path: str | Path, *, trust_modules: bool = False) -> None:
        self.path = user_path(path)
        """The file, or the run's directory."""
        self._trusts = trust_modules

    @cached_property
    def predictor(self) -> Predictor:
        """The model with all that its predictions need."""
        from fedul_flwr.results.predict import load_model

        return load_model(self.path, trust_modules=self._trusts)

    @property
    def class_names(self) -> tuple[str, ...]:
        """K names; label ``k`` is ``class_names[k]``."""
        return self.predictor.class_names

    @property
    def model(self) -> nn.Module:
        """The model, of a run the best one, in evaluation mode.

        It maps float images ``(n, c, h, w)`` in [-1, 1], or standardized vectors ``(n, d)``, to
        logits ``(n, K)``; :meth:`predict` takes points as they are.
        """
        return self.predictor.model

    def predict(self, x: Any, *, priors: PriorsLike | None = None) -> NDArray[np.int64]:
        """Labels ``(n,)`` of points; arguments as for :meth:`predict_proba`."""
        labels: NDArray[np.int64] = self.predict_proba(x, priors=priors).argmax(axis=1)
        return labels

    def predict_proba(self, x: Any, *, priors: PriorsLike | None = None) -> NDArray[np.float64]:
        """Class probabilities ``(n, K)`` of points.

        Parameters
        ----------
        x : images, uint8 or floats in [0, 1], ``(n, h, w)``, ``(n, h, w, c)`` or ``(n, c, h, w)``;
            vectors ``(n, d)``; or a DataFrame with the columns of the training data.
        priors : ``(K,)``, class priors of these points if they are others than in training; a
            mapping or a Series has them by the names of classes.

        Raises
        ------
        UserError
            If the run has no model yet, or the points do not fit it.
        """
        from fedul_flwr.api.input_data import stored_points

        predictor = self.predictor
        points = stored_points(x, predictor.input_shape, predictor.table)
        return predictor.predict_proba(points, priors=priors)

    def predict_sets(self, x: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Classes ``(n, K)`` of which a point has one with probability ``coverage``, in (0, 1).

        Needs a run that knows its error without labels (docs/known-error.md).

        Parameters
        ----------
        x : as for :meth:`predict_proba`.
        """
        if not 0 < coverage < 1:
            raise UserError(
                f"Argument coverage = {coverage!r} must be between 0 and 1.", "argument-not-allowed"
            )
        return self.predictor.sets_of(self.predict_proba(x), coverage)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.path}>"


class Result(Shown, TrainedModel):
    """A run, finished or not, as it lies in its directory, with its best model.

    Parameters
    ----------
    directory : output directory of the run.
    trust_modules : as for :class:`TrainedModel`.

    Raises
    ------
    UserError
        If it is not the directory of a run.
    """

    def __init__(self, directory: str | Path, *, trust_modules: bool = False) -> None:
        super().__init__(directory, trust_modules=trust_modules)
        self.directory = self.path
        """Directory of the run."""
        _ = self.run

    @property
    def run(self) -> Run:
        """What is in the directory now."""
        return Run.read(self.directory)

    @property
    def finished(self) -> bool:
        """Whether the run has ended; ``simulate(resume=directory)`` goes on with it if not."""
        return self.run.finished

    @property
    def settings(self) -> dict[str, Scalar]:
        """All settings by the names that the command line uses, ``{"fedul.num-sets": 10, …}``."""
        return self.run.settings

    @property
    def summary(self) -> dict[str, Any]:
        """The outcome: ``test_error`` in percent, ``best_round`` …; empty if unfinished."""
        summary = self.run.summary
        return summary.entries if summary else {}

    @property
    def metrics(self) -> pd.DataFrame:
        """A row for each round that was evaluated, by its number; errors in percent."""
        return self.run.rounds

    @property
    def class_names(self) -> tuple[str, ...]:
        """K names; label ``k`` is ``class_names[k]``."""
        return self.run.data.class_names

    def plot(self, name: str = "") -> Figure:
        """One of the run's figures.

        Parameters
        ----------
        name : ``error``, ``loss``, ``priors``, ``time_traffic``, ``confusion``, ``reliability``,
            ``summary`` and others that the run has; by default the first.

        Raises
        ------
        UserError
            If the run has no such figure.
        """
        from fedul_flwr.results.plots import run_figures

        figures = run_figures(self.run)
        if not figures or (name and name not in figures):
            available = f"its figures are {', '.join(figures)}" if figures else "it has none yet"
            raise UserError(
                f"The run in {self.directory} has no figure {name!r}: {available}.", "unknown-name"
            )
        return shown(figures[name or next(iter(figures))]())

    def save(self, path: str | Path) -> Path:
        """Copy the run's directory to a new one, from which :func:`fedul_flwr.load` reads it.

        Raises
        ------
        UserError
            If ``path`` exists.
        """
        target = user_path(path)
        if target.exists():
            raise UserError(
                f"{target} exists: name a new directory to save the run to.", "file-exists"
            )
        shutil.copytree(self.directory, target)
        return target

    def _facts(self) -> dict[str, str]:
        run = self.run
        facts = {
            "method": str(run.settings.get("method")),
            "data": Path(str(run.settings.get("dataset"))).name,
            **({"rounds": str(run.last_round)} if run.trains else {}),
        }
        if run.summary and run.summary.test_error is not None:
            what = "test error" if run.trains else "error of labels"
            facts[what] = f"{run.summary.test_error:.2f} %"
        if not run.finished:
            facts["unfinished"] = f"fedul_flwr.simulate(resume={str(self.directory)!r}) goes on"
        return {**facts, "directory": str(self.directory)}


def shown(figure: Figure) -> Figure:
    """``figure``, which notebooks show as a picture, also if pyplot is not in use."""
    from fedul_flwr.results.figure_style import draw

    figure._repr_png_ = partial(draw, figure, "png")  # type: ignore[attr-defined]
    return figure
