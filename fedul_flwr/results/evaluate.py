"""A trained model on an owner's labeled points: one page, made of them on the owner's machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import logit
from scipy.stats import binomtest, bootstrap, mannwhitneyu
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_curve

from fedul_flwr.arrays import Bools, Floats
from fedul_flwr.config.options import Evaluation, takes
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.class_labels import class_of_cell
from fedul_flwr.data.csv_files import open_csv, plain_numbers
from fedul_flwr.data.safe_files import output_file, write_atomically
from fedul_flwr.data.table_files import open_parquet
from fedul_flwr.errors import UserError
from fedul_flwr.results.figure_style import COLORS, GRAY, new_figure, plain, set_title, style
from fedul_flwr.results.model_file import render
from fedul_flwr.results.predict import NAME, class_named, load_model, open_file
from fedul_flwr.results.report import pictures

THRESHOLDS = np.round(np.arange(0.05, 1, 0.05), 2)
FEWEST = 10
"""Points of the class, and of others, from which an area under the curve has an interval."""
MOST_VALUES, MOST_GROUPS = 8, 40
"""Different numbers, and different texts, of a column that are groups of their own."""


@takes(Evaluation)
def evaluate(
    model: str | Path,
    labels: str | Path,
    input_path: str | Path | None = None,
    output: str | Path = "evaluation.html",
    *,
    how: Evaluation = Evaluation(),
) -> list[str]:
    """Write a page about how well a model tells one class from the others; returns its main lines.

    Parameters
    ----------
    model : directory of a run, or a file that ``fedul-flwr pack`` wrote.
    labels : table with the true classes.
    input_path : the points, if they are not in ``labels``.
    output : HTML file to write.

    Raises
    ------
    UserError
        If the files do not fit each other or the model, or a class is missing.
    """
    model, labels, output = user_path(model), user_path(labels), Path(output)
    input_path = None if input_path is None else user_path(input_path)
    if how.threshold is not None and how.sensitivity is not None:
        raise UserError("--threshold and --sensitivity exclude each other.", "options-contradict")
    target = output_file(output, [model, labels, *([input_path] if input_path else [])], ".html")
    predictor = load_model(model, trust_modules=how.trust_modules)
    classes = predictor.class_names
    column = how.label_column or predictor.table.label or "label"
    names, points = open_file(predictor, input_path or labels, how.id_column)
    probabilities = predictor.predict_proba(points)
    key = (how.id_column or NAME) if input_path else how.id_column
    frame, unused = _table(labels, column, how.by, key), 0
    if input_path is not None:
        frame.index = frame[key].astype(str)
        if not frame.index.is_unique:
            raise UserError(f"{labels} names a point twice.", "name-twice")
        unused = len(frame.index.difference(names))
        frame = frame.reindex(names)
    truth = _classes_of(frame[column], classes, labels)
    labeled = truth >= 0
    frame, truth = frame[labeled], truth[labeled]
    present = np.bincount(truth, minlength=len(classes))
    rarest = int(np.where(present > 0, present, len(truth) + 1).argmin())
    chosen = class_named(classes, how.positive) if how.positive else rarest
    scores, is_class = probabilities[labeled, chosen], truth == chosen
    if is_class.all() or not is_class.any():
        raise UserError(
            f"{labels} has no labels of {classes[chosen]!r} or none of another class: both are "
            "needed.",
            "labels-missing",
        )
    at = 0.5 if how.threshold is None else how.threshold
    if how.sensitivity is not None:
        at = threshold_for(scores, is_class, how.sensitivity)
    area, of_class = area_in_words(scores, is_class), share(is_class.sum(), len(scores))
    here = at_threshold(scores, is_class, at)
    left_out = f"{(~labeled).sum()} without a label, and {unused} labels without a point"
    facts = {
        "points": f"{len(scores)}; left out: {left_out}",
        f"of class {classes[chosen]}": of_class,
        "area under the ROC curve": area,
    }
    calibration, fitted = calibrated(scores, is_class)
    page = render(
        "evaluation.html.template.md",
        title=f"{model.name} on {labels.name}",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        positive=classes[chosen],
        chosen_here=how.sensitivity is not None,
        threshold=f"{at:g}",
        facts=[{"": key, " ": value} for key, value in (facts | here).items()],
        thresholds=[{"threshold": t} | at_threshold(scores, is_class, t) for t in THRESHOLDS],
        calibration=[{"": key, " ": value} for key, value in calibration.items()],
        fitted=fitted,
        groups=[row for name in how.by for row in groups(frame[name], scores, is_class, at)],
        figures=pictures({"evaluation": figure(scores, is_class)}),
    )
    write_atomically(target, page)
    return [
        f"Class {classes[chosen]}: {of_class}; AUC {area}",
        f"At threshold {at:g}: " + "; ".join(f"{key} {value}" for key, value in here.items()),
    ]


def _classes_of(column: Any, classes: Sequence[str], labels: Path) -> Any:
    """Numbers of the classes in the cells of a column, below 0 without a label."""
    numbers = {name: k for k, name in enumerate(classes)}
    cells = column.where(column.notna(), "").astype(str)
    true = cells.map({cell: class_of_cell(cell, numbers) for cell in cells.unique()})
    if true.isna().any():
        raise UserError(
            f"Column {column.name!r} of {labels} holds a label that is no class of the model: the "
            f"classes are {', '.join(classes)}.",
            "label-unknown",
        )
    return true.to_numpy(int)


def share(part: int, whole: int) -> str:
    """A share in percent with its 95 % interval (Wilson), and its counts."""
    if not whole:
        return "–"
    low, high = binomtest(int(part), int(whole)).proportion_ci(method="wilson")
    return f"{100 * part / whole:.1f} % ({100 * low:.1f} to {100 * high:.1f}; {part} of {whole})"


def area_in_words(scores: Floats, is_class: Bools) -> str:
    """Area under the ROC curve with its 95 % interval, from resamples of both kinds of points.

    Below :data:`FEWEST` points of one kind there is none. All resamples of points that are told
    apart are, too: the interval is then that of n successes of n pairs without a common point
    (Clopper and Pearson).
    """

    def area(ill: Any, well: Any, axis: int = -1) -> Any:
        ranks = mannwhitneyu(ill, well, axis=axis, method="asymptotic").statistic
        return ranks / (ill.shape[axis] * well.shape[axis])

    both = scores[is_class], scores[~is_class]
    pairs = min(map(len, both))
    if pairs < FEWEST:
        return f"{area(*both):.3f} (no interval)" if pairs else "–"
    if (wins := round(pairs * area(*both), 9)) in (0, pairs):
        low, high = binomtest(int(wins), pairs).proportion_ci()
        return f"{area(*both):.3f} ({low:.3f} to {high:.3f})"
    low, high = bootstrap(
        both,
        area,
        n_resamples=1000,
        batch=max(1, 10**6 // len(scores)),
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    return f"{area(*both):.3f} ({low:.3f} to {high:.3f})"


def threshold_for(scores: Floats, is_class: Bools, sensitivity: float) -> float:
    """The highest threshold of four digits at which at least this share of the class is found."""
    _, shares, thresholds = roc_curve(is_class, scores, drop_intermediate=False)
    at = float(thresholds[np.argmax(shares >= sensitivity - 1e-12)])
    unit = 10.0 ** (np.floor(np.log10(max(at, 1e-30))) - 3)
    return float(f"{np.floor(at / unit + 1e-9) * unit:.4g}")  # a page shows it, to be copied


def at_threshold(scores: Floats, is_class: Bools, at: float) -> dict[str, str]:
    """Shares of the four kinds at a threshold, with their intervals."""
    flagged = scores >= at
    right = int((flagged & is_class).sum()), int((~flagged & ~is_class).sum())
    return {
        "sensitivity": share(right[0], is_class.sum()),
        "specificity": share(right[1], (~is_class).sum()),
        "positive predictive value": share(right[0], flagged.sum()),
        "negative predictive value": share(right[1], (~flagged).sum()),
    }


def calibrated(scores: Floats, is_class: Bools) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Measures of calibration, and intercept and slope of logit(p) that calibrate on this file.

    There are none where a threshold tells all points apart: the slope would be infinite.
    """
    rows = {
        "mean probability": f"{scores.mean():.4f}",
        "share of the class": f"{is_class.mean():.4f}",
        "Brier score": f"{brier_score_loss(is_class, scores):.4f}",
    }
    if scores[is_class].min() > scores[~is_class].max() or np.ptp(scores) == 0:
        return rows, None
    odds = logit(np.clip(scores, 1e-6, 1 - 1e-6))[:, None]
    model = LogisticRegression(C=1e9, max_iter=1000).fit(odds, is_class)
    again = brier_score_loss(is_class, model.predict_proba(odds)[:, 1])
    slope, intercept = f"{model.coef_[0, 0]:.4f}", f"{model.intercept_[0]:.4f}"
    rows |= {"calibration intercept": intercept, "calibration slope": slope}
    rows["Brier score after recalibration"] = f"{again:.4f}"
    return rows, (intercept, slope)


def groups(column: Any, scores: Floats, is_class: Bools, at: float) -> Iterator[dict[str, str]]:
    """A row for each value of a column, or for each quarter of many numbers."""
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.notna().sum() == column.notna().sum() and numbers.nunique() > MOST_VALUES:
        column = pd.qcut(numbers, 4, duplicates="drop").astype(str).where(numbers.notna())
    if column.nunique() > MOST_GROUPS:
        raise UserError(
            f"Column {column.name!r} has {column.nunique()} different texts: --by takes at most "
            f"{MOST_GROUPS} groups.",
            "column-of-identifiers",
        )
    for value in [*sorted(column.dropna().unique()), None]:
        here = (column.isna() if value is None else column == value).to_numpy()
        if here.any():
            shares = at_threshold(scores[here], is_class[here], at)
            yield {
                "group": f"{column.name}: {'no value' if value is None else value}",
                "points": str(here.sum()),
                "of the class": str(is_class[here].sum()),
                "AUC": area_in_words(scores[here], is_class[here]),
                **{key: shares[key] for key in ("sensitivity", "specificity")},
            }


def net_benefit(scores: Floats, is_class: Bools, at: float) -> float:
    """Net benefit of acting from a threshold on, per point (Vickers and Elkin, 2006)."""
    flagged = scores >= at
    return float((flagged & is_class).mean() - (flagged & ~is_class).mean() * at / (1 - at))


@plain()
def figure(scores: Floats, is_class: Bools) -> Figure:
    """ROC curve, calibration and decision curve."""
    drawn = new_figure(11, 3.6)
    set_title(drawn, "ROC curve, calibration, decision curve")
    roc, reliability, decision = map(style, drawn.subplots(1, 3))
    wrong, right, _ = roc_curve(is_class, scores)
    roc.plot(wrong, right, color=COLORS[0])
    roc.set(xlabel="1 − specificity", ylabel="sensitivity")
    true, predicted = calibration_curve(is_class, scores, n_bins=10, strategy="quantile")
    reliability.plot(predicted, true, "o-", color=COLORS[0])
    reliability.set(xlabel="probability", ylabel="share of the class (tenths of the points)")
    for axes in (roc, reliability):
        axes.plot([0, 1], [0, 1], color=GRAY, linewidth=1)
    curves = {"model": scores, "all": np.ones_like(scores), "none": np.zeros_like(scores)}
    for (label, values), color in zip(curves.items(), (COLORS[0], COLORS[1], GRAY), strict=True):
        benefit = [net_benefit(values, is_class, at) for at in THRESHOLDS]
        decision.plot(THRESHOLDS, benefit, label=label, color=color)
    decision.set(xlabel="threshold", ylabel="net benefit", ylim=(-0.05, is_class.mean() + 0.05))
    decision.legend(frameon=False, fontsize=9)
    return drawn


def _table(file: Path, column: str, by: Sequence[str], key: str) -> Any:
    """A table with these columns, numbers in those of ``by`` with a decimal point."""
    is_csv = file.suffix.lower() == ".csv"
    table = open_csv(file, as_written=[column, key]) if is_csv else open_parquet(file)
    wanted = [*dict.fromkeys(filter(None, [column, *by, key]))]
    for name in wanted:
        if name not in table.names:
            raise UserError(
                f"{file} has no column {name!r}; it has {', '.join(table.names)}.",
                "column-missing",
                name=name,
            )
    if is_csv:
        table = plain_numbers(table, by)
    return table.content.select(wanted).to_pandas()
