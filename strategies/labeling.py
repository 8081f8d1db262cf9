"""The server side of methods without training: clients label their own points."""

from __future__ import annotations

from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Arrays
from strategies.partly_labeled import PartlyLabeled


class LabelingStrategy(PartlyLabeled):
    """Base of strategies for methods with ``trains=False``."""

    returns_models = False

    @classmethod
    def needs_model(cls, settings: RunConfig) -> bool:
        """Whether :meth:`label` needs the weights of a model."""
        raise NotImplementedError

    def label(self, grid: Grid, weights: Arrays) -> None:
        """Run the phases after which clients write their labels.

        Parameters
        ----------
        weights : the model's arrays by name; empty unless :meth:`needs_model`.
        """
        raise NotImplementedError
