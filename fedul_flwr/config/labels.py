"""Settings of methods on partly labeled data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings


class LabelSettings(Settings):
    """Which of a simulation's points have labels, for methods on partly labeled data.

    Unused on devices, where a client brings its own points and ``labels.csv``.
    """

    total: Annotated[int, Field(ge=0)] = 100
    """Labels in all clients together (n_L), as evenly as possible over those that have some."""
    fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    """If set, labels are this part of the points of every client that has labels, instead of
    `total`."""
    labeled_clients: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the clients that have labels, at least one of them."""
    sampling: Literal["balanced", "random"] = "balanced"
    """Labels of as equally many points of each of a client's classes as it has (as in the XCLP
    paper's IID setting), or of points drawn in the client's own proportions (its Non-IID one)."""
    new_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of every client's points that is new: no method trains on it, predictions are asked
    for it."""
    without_client: Annotated[int, Field(ge=-1)] = -1
    """Withhold the labels of this client and leave all others as they are; -1 withholds none."""
    split: str = ""
    """Path of an earlier run's `split.npz` to use again, instead of dealing points and labels."""
