"""AFL: a ridge in closed form, of clients that each solve one, or of sums over them, which is the
same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedul_flwr import method as kit
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.learning.closed_form import LEAST_SHARE
from fedul_flwr.strategies.closed_form import OF_LABELS

if TYPE_CHECKING:
    from fedul_flwr.learning.closed_form import SoftSums


class AFLSettings(kit.Settings):
    """Ridge in closed form (AFL)."""

    table: ClassVar[str] = "afl"
    gamma: Annotated[float, Field(ge=0)] = 0.0
    """Added to the diagonal of each client's sum of squares. The paper takes it out again, which is
    0; in its code it is 1 until then."""


class AFL(kit.Strategy):
    """One round, of one sum."""

    goes_with = (kit.NOT_ALONE, kit.only_without("max-update-norm"))


def ridge(
    sums: SoftSums, clients: int, prior: kit.Floats, settings: kit.RunConfig
) -> tuple[kit.Floats, kit.Floats]:
    """W = B (Q + γ C I)⁻¹ of C clients, and no bias (He et al. 2025, theorem 1 and eq. 12).

    With γ = 0 it is least squares: where labels do not determine the weights, the smallest of them,
    which is the limit of small γ.
    """
    del prior  # a ridge has none
    gamma, sums = settings[AFLSettings].gamma, sums.about(np.zeros(sums.second.shape[0]))
    values, vectors = np.linalg.eigh(sums.second + gamma * clients * np.eye(len(sums.second)))
    some = values > LEAST_SHARE * values[-1]
    weight = (sums.sums @ vectors[:, some] / values[some]) @ vectors[:, some].T
    return weight, np.zeros(len(weight))


METHOD = replace(
    OF_LABELS,
    name="afl",
    line="A ridge on labels in closed form, from one sum; trains nothing.",
    needs="labels for some points of clients",
    paper="He et al., CVPR 2025, arXiv:2405.16240",
    strategy=AFL,
    settings=(kit.LabelSettings, HeadSettings, AFLSettings),
    head=ridge,
)
