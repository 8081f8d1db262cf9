"""Settings of methods on partly labeled data."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr.config.base import Settings


class LabelSettings(Settings):
    """Which of a simulation's points have labels, for methods on partly labeled data.

    Not used on devices, where a client has its own points and ``labels.csv``.
    """

    table: ClassVar[str] = "labels"
    total: Annotated[int, Field(ge=0)] = 100
    """Labels of all clients together (n_L), split as evenly as possible over those with labels."""
    fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    """If set, every client with labels has them for this fraction of its points; replaces
    `total`."""
    labeled_clients: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the clients that have labels; at least one has."""
    sampling: Literal["balanced", "random"] = "balanced"
    """Labeled points are spread as equally as possible over a client's classes (XCLP paper, IID),
    or drawn in the class proportions of the client's points."""
    classes_per_client: Annotated[int, Field(ge=0)] = 0
    """If set, the labels of each client are of so many classes alone, and its other points stay as
    the partition has them (XCLP paper, Non-IID with 5). Every class comes equally often: among as
    many clients as there are classes, their sets of classes differ by a rotation."""
    new_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of every client's points that are new: no method trains on them, methods only
    predict their labels."""
    without_client: Annotated[int, Field(ge=-1)] = -1
    """Withhold the labels of this client and change no others; -1 withholds none."""
    split: str = ""
    """Path of an earlier run's `split.npz`, or of a split file of the XCLP authors' code
    (`.txt`), to use in place of a new split of points and labels."""
