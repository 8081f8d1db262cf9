"""Step sizes that follow the validation loss (``learning-rate-schedule``: the two plateaus)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedul_flwr import learning
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.shared import PLATEAUS
from fedul_flwr.data.types import Value
from fedul_flwr.federated.messages import RATE_FACTOR, VALIDATED_ROUND, VALIDATION_LOSS
from fedul_flwr.federated.stage import ClientStage, ServerStage, Stage
from fedul_flwr.federated.stages.server_training import learns_at_server

LOSS_HISTORY = "validation-losses"
"""Name under which a client stores the losses that it has counted with their rounds."""


class AtClient(ClientStage):
    """Takes the server's factor, or with ``client-plateau`` one of its own."""

    def rate_factor(self, number: int, config: Mapping[str, Any]) -> float:
        """Factor of its step size."""
        if self.settings.learning_rate_schedule == "client-plateau":
            return self._of_losses(config, number)
        return float(config.get(RATE_FACTOR, 1.0))

    def _of_losses(self, config: Mapping[str, Any], number: int) -> float:
        """Factor from the losses of this stage of training that it has received so far.

        Counts the loss in this round's message, except in a client's first round: in the authors'
        code a client in its k-th round has seen k − 1 losses. A loss that comes again
        (`evaluate-every` above 1) does not count again; the next new one stands for the client's
        rounds since.
        """
        from fedul_flwr.learning.plan import training_stage

        state = self.client.state
        history = state.load(LOSS_HISTORY, number)
        rounds = history.get("rounds", np.zeros(0, np.int64))
        losses = history.get("losses", np.zeros(0))
        turns = history.get("turns", np.zeros(0, np.int64))
        turn = history.get("count", np.zeros(1, np.int64)) + 1
        validated = config.get(VALIDATED_ROUND)
        if history and validated is not None and validated not in rounds:
            rounds = np.append(rounds, np.int64(validated))
            losses = np.append(losses, config[VALIDATION_LOSS])
            turns = np.append(turns, turn)
        arrays = {"rounds": rounds, "losses": losses, "turns": turns, "count": turn}
        state.save(LOSS_HISTORY, number, arrays)
        stage = rounds >= number - training_stage(self.settings, number)[0] + 1
        counted = dict(zip(turns[stage].tolist(), losses[stage].tolist(), strict=True))
        return learning.plateau(counted, self.settings.learning_rate_patience)


class AtServer(ServerStage):
    """Follows the validation losses of the run's lines.

    Attributes
    ----------
    factor : of the next round's step sizes.
    """

    factor, follows = 1.0, True
    _validated: tuple[int, float] | None = None

    def follow(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Set the factor of the next round from all lines of ``metrics.jsonl`` so far."""
        start = self.strategy.policy.stage_start(self.strategy.record.round + 1)
        # Leave out the extra evaluation of the last round: a run that resumes here must not differ.
        every = self.settings.evaluate_every
        losses = {
            line["round"]: line["validation_loss"]
            for line in lines
            if line["round"] >= start and line["round"] % every == 0
        }
        self.factor = learning.plateau(losses, self.settings.learning_rate_patience)
        if self.strategy.trainer is not None:
            self.strategy.trainer.rate_factor = self.factor
        self._validated = max(losses.items()) if losses else None

    def line(self) -> Mapping[str, Any]:
        """The factor, if the server multiplies step sizes by it."""
        by_clients = self.settings.learning_rate_schedule == "client-plateau"
        if by_clients and not learns_at_server(self.settings):
            return {}
        return {"rate_factor": self.factor}

    def config(self) -> Mapping[str, Value]:
        """The factor, or the last loss for clients that follow losses themselves."""
        if self.settings.learning_rate_schedule == "plateau":
            return {} if self.factor == 1.0 else {RATE_FACTOR: self.factor}
        if self._validated is None:
            return {}
        return {VALIDATED_ROUND: self._validated[0], VALIDATION_LOSS: self._validated[1]}


class Plateau(Stage):
    """Step sizes shrink where the validation loss has not."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With one of the two schedules."""
        return settings.learning_rate_schedule in PLATEAUS
