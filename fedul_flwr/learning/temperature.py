"""Temperature scaling: one number that makes a model's probabilities match its accuracy.

Guo, Pleiss, Sun & Weinberger, *On Calibration of Modern Neural Networks*, ICML 2017: probabilities
are softmax(z / T) of the logits z. T changes no label.
"""

from __future__ import annotations

import math

import numpy as np

from fedul_flwr.data.types import Floats, Ints

LIMIT = 100.0
"""T lies between 1 / LIMIT and LIMIT."""


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
