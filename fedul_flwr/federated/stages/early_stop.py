"""The end of a run whose last rounds were no better than an earlier one (``stop-after``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedul_flwr.config.base import setting_error
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.records import best_line
from fedul_flwr.federated.stage import ServerStage, Stage

if TYPE_CHECKING:
    from torch import nn


class AtServer(ServerStage):
    """Counts the evaluated rounds since the best one."""

    follows = True
    _ends = False

    def follow(self, lines: Sequence[Mapping[str, Any]]) -> str | None:
        """End the run after `stop-after` rounds without a better one."""
        settings, best = self.settings, best_line(lines, self.settings.selection)
        if best is None:
            return None
        number = int(lines[-1]["round"])
        waited = number - int(best["round"]) >= settings.stop_after
        self._ends = waited and number >= settings.stop_least and settings.is_evaluated(number)
        why = f"stop-after = {settings.stop_after} rounds without a better one"
        return why if self._ends else None

    def about(self) -> Mapping[str, Any]:
        """Whether it has ended the run."""
        return {"stopped_early": True} if self._ends else {}


class EarlyStop(Stage):
    """With setting `stop-after`."""

    server = AtServer

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """If the setting names a number of rounds."""
        return settings.stop_after > 0

    @classmethod
    def fits(cls, settings: RunConfig, model: nn.Module) -> None:
        """Refuse a run that has nothing to compare rounds by."""
        del model
        if settings.selection != "last":
            return
        why = "needs labeled data at the server and validation-fraction above 0"
        if find_method(settings.method).strategy_class.can_hold_out:
            why = "needs selection = 'heldout', or labeled data at the server"
        raise setting_error("stop-after", settings.stop_after, why, "setting-needs-labels")
