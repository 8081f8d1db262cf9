"""Probabilities and prediction sets that are right as often as they say, with and without labels.

From labels: the temperature of least cross-entropy (Guo et al. 2017), for which this needs points
that were not trained on. Without labels: an error that is known from class shares
(:mod:`fedul_flwr.learning.known_error`) says how often a model is right, and the temperature is
that with which it says so itself. The same equation says how often the logit of a point's class is
at most a margin below the largest: from it follows a margin for each class with which a set of
classes has a point's class with a given probability (conformal prediction by class; Vovk 2012).
"""

from __future__ import annotations

import math

import numpy as np

from fedul_flwr.arrays import Bools, Floats, Ints
from fedul_flwr.learning.closed_form import LEAST_SHARE

LIMIT = 100.0
"""T lies between 1 / LIMIT and LIMIT."""
TEMPERATURES: Floats = 2.0 ** np.arange(-3, 7, 0.5)
"""By which clients divide logits to say how sure the model is with each."""
MARGINS: Floats = 2.0 ** np.arange(-4, 9, 0.5)
"""How far below the largest logit that of a point's class may be, for which clients count points.
With the margin 0, which no client counts, a set is the predicted class alone."""


def fit_temperature(logits: Floats, labels: Ints) -> float:
    """The temperature T of least cross-entropy on labeled points that were not trained on.

    One further point's worth of labels, spread over all points and classes, counts too (Platt 1999
    has the like): without it T would be 0 where the model has all labels right.

    Parameters
    ----------
    logits : ``(n, K)``, n > 0, finite.
    labels : ``(n,)``.

    Examples
    --------
    The model is right for three of four points. With one further point's
    worth of labels that is 3.5 of 5, and softmax([2, 0] / T) is 0.7 for T = 2 / log(7 / 3):

    >>> logits = np.array([[2.0, 0.0]] * 4)
    >>> round(fit_temperature(logits, np.array([0, 0, 0, 1])), 2)
    2.36
    """
    from scipy.optimize import minimize_scalar  # slow to load, and needed at a run's end only
    from scipy.special import log_softmax

    wide = np.asarray(logits, dtype=np.float64)
    rows = np.arange(len(labels))

    def loss(log_temperature: float) -> float:
        logs = log_softmax(wide * math.exp(-log_temperature), axis=1)
        return float(-(logs[rows, labels].sum() + logs.mean()))

    # The loss is convex in 1 / T, so it has one minimum in log T.
    span = (-math.log(LIMIT), math.log(LIMIT))
    minimum = minimize_scalar(loss, bounds=span, method="bounded", options={"xatol": 1e-6})
    return float(math.exp(minimum.x))


def sure_by_temperature(logits: Floats) -> Floats:
    """``(T,)``, the largest probability with logits ``(n, K)`` divided by each of
    :data:`TEMPERATURES`, summed over points."""
    below = np.asarray(logits, np.float64) - logits.max(axis=1, keepdims=True)
    return np.array([(1 / np.exp(below / by).sum(axis=1)).sum() for by in TEMPERATURES])


def matching_temperature(
    sure: Floats, points: float, accuracy: float, deviation: float = 0.0
) -> float:
    """The temperature with which a model is as sure on average as it is right.

    It is 1 where the model's own confidence is not more than chance away from its accuracy.

    Parameters
    ----------
    sure : ``(T,)``, sums over points as of :func:`sure_by_temperature`.
    points : their number.
    accuracy : share of points that the model gets right, known from elsewhere.
    deviation : its standard error.

    Examples
    --------
    A point whose logits differ by 2 log 3 has a largest probability of 0.9 at T = 1, 0.75 at T = 2:

    >>> sure = sure_by_temperature(np.array([[2 * np.log(3), 0.0]]))
    >>> round(matching_temperature(sure, 1, 0.75), 6)
    2.0
    >>> matching_temperature(sure, 1, 0.75, deviation=0.1)
    1.0
    """
    plain = float(sure[np.searchsorted(TEMPERATURES, 1.0)] / points)
    if abs(plain - accuracy) < 1.96 * deviation:
        return 1.0
    falling = np.minimum.accumulate(sure / points)  # the hotter, the less sure
    return float(np.exp(np.interp(-accuracy, -falling, np.log(TEMPERATURES))))


def near_the_top(shares: Floats, logits: Floats) -> Floats:
    """``(G, K, K)``, for each of :data:`MARGINS` Σ over points of class shares ``(n, K)`` times
    whether the logit ``(n, K)`` of a class is at most the margin below the largest."""
    below = logits.max(axis=1, keepdims=True) - logits
    return np.stack([shares.T @ (below <= margin) for margin in MARGINS])


def coverage_by_margin(gram: Floats, said: Floats, near: Floats) -> Floats:
    """How often a set of classes near the top has the class of a point, ``(K, 1 + G)``.

    The first column is of the predicted class alone. Least squares as for the confusion matrix
    C = A⁻¹ B, of each margin its diagonal; made to grow with the margin (isotonic regression), as
    it does but for chance. Of a class about which sets say as much as n = 1 / (A⁻¹)_kk labels the
    coverage is times n / (n + 1), as for conformal prediction by n labels (Vovk et al. 2005): a
    class of few points is in all sets. One of no point, which is never predicted, is in none.

    Parameters
    ----------
    gram, said, near : sums as of :class:`~fedul_flwr.learning.known_error.ShareSums`.
    """
    from sklearn.isotonic import IsotonicRegression

    masses = gram.sum(axis=1)
    present = np.flatnonzero(masses > LEAST_SHARE * masses.sum())
    inverse = np.linalg.inv(gram[np.ix_(present, present)])
    result = np.ones((len(gram), 1 + len(near)))
    grows = IsotonicRegression(y_min=0, y_max=1)
    every = np.concatenate([said[None], near])[:, present][:, :, present]
    labels = 1 / np.diag(inverse)
    curves = np.einsum("ij,gji->ig", inverse, every) * (labels / (labels + 1))[:, None]
    for row, curve in zip(present, curves, strict=True):
        result[row] = grows.fit_transform(np.arange(len(curve)), curve)
    return result


def margins_for(coverage: Floats, wanted: float) -> Floats:
    """``(K,)``, the smallest margin of each class with which its sets have a point's class with
    probability ``wanted``, linear between those counted; infinite if none has.

    Parameters
    ----------
    coverage : as :func:`coverage_by_margin` gives.

    Examples
    --------
    Of class 0 a set with the predicted class alone is enough. Class 1 needs half of the first step:

    >>> coverage = np.ones((2, 1 + len(MARGINS)))
    >>> coverage[1, :2] = [0.7, 0.9]
    >>> (margins_for(coverage, 0.8) / MARGINS[0]).round(6).tolist()
    [0.0, 0.5]
    """
    steps = np.concatenate([[0.0], MARGINS])
    result = np.empty(len(coverage))
    for k, curve in enumerate(coverage):
        after = int(np.searchsorted(curve, wanted))
        if after == 0:
            result[k] = 0.0
        elif after == len(curve):
            result[k] = math.inf
        else:
            low, high = curve[after - 1 : after + 1]
            part = (wanted - low) / (high - low)
            result[k] = steps[after - 1] + part * (steps[after] - steps[after - 1])
    return result


def prediction_sets(scores: Floats, margins: Floats) -> Bools:
    """Bool ``(n, K)``, the classes in each point's set.

    Parameters
    ----------
    scores : ``(n, K)``, logits, not divided by a temperature, or these less a number by point.
    margins : ``(K,)``, as :func:`margins_for` gives.
    """
    return np.asarray(scores.max(axis=1, keepdims=True) - scores <= margins)
