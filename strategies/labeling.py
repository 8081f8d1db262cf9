"""The server side of methods that train nothing: clients label their own points."""

from __future__ import annotations

from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Arrays
from strategies.partly_labeled import PartlyLabeled


class LabelingStrategy(PartlyLabeled):
    """What a run of a method with ``trains=False`` asks of its strategy."""

    returns_models = False

    @classmethod
    def needs_model(cls, settings: RunConfig) -> bool:
        """Whether :meth:`label` wants the weights of a model."""
        raise NotImplementedError

    def label(self, grid: Grid, weights: Arrays) -> None:
        """Lead the phases at whose end clients write their labels.

        Parameters
        ----------
        weights : of the model, by name; empty unless :meth:`needs_model`.
        """
        raise NotImplementedError
