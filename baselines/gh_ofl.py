"""GH-OFL's discriminant: class means and a pooled covariance of labels, from one sum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedul_flwr import method as kit
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.learning.closed_form import ABSENT
from fedul_flwr.strategies.closed_form import OF_LABELS

if TYPE_CHECKING:
    from fedul_flwr.learning.closed_form import SoftSums

LEAST_VARIANCE = 1e-6
"""Added to variances."""


class GHOFLSettings(kit.Settings):
    """Gaussian heads (GH-OFL)."""

    table: ClassVar[str] = "gh-ofl"
    shrinkage: Annotated[float, Field(ge=0, le=1)] = 0.05
    """How far eigenvalues of the classes' covariance are pulled to their mean."""


def discriminant(
    sums: SoftSums, clients: int, prior: kit.Floats, settings: kit.RunConfig
) -> tuple[kit.Floats, kit.Floats]:
    """Weight and bias of GH-LDA (Turazza et al. 2026, and its authors' code).

    Means are those of the labels, and the covariance about them has n − K degrees of freedom. A
    class that no label has is never predicted.
    """
    del clients
    counts, part = sums.masses, settings[GHOFLSettings].shrinkage
    from_origin = sums.sums / np.maximum(1, counts)[:, None]
    means, freedom = sums.origin + from_origin, max(1.0, sums.num_points - len(counts))
    covariance = (sums.second - (from_origin.T * counts) @ from_origin) / freedom
    size = len(covariance)
    spherical = max(0.0, float(np.trace(covariance))) / size * np.eye(size)
    shrunk = (1 - part) * covariance + part * spherical + LEAST_VARIANCE * np.eye(size)
    weight = np.asarray(np.linalg.solve(shrunk, means.T).T, np.float64)
    with np.errstate(divide="ignore"):
        bias = np.log(prior) - np.einsum("kd,kd->k", weight, means) / 2
    return weight, np.where((counts > 0) & (prior > 0), bias, ABSENT)


METHOD = replace(
    OF_LABELS,
    name="gh-ofl",
    line="A linear discriminant of labels in closed form, from one sum; trains nothing.",
    needs="labels for some points of clients",
    paper="Turazza et al., ICLR 2026, arXiv:2602.01186",
    settings=(kit.LabelSettings, HeadSettings, GHOFLSettings),
    head=discriminant,
)
