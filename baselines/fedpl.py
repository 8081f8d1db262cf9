"""FedPL: pseudo-labels all points of a set with the class of its largest prior."""

from __future__ import annotations

from torch.nn import functional

from fedul_flwr.config.baselines import FedPLSettings
from fedul_flwr.data.content import Value
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_data import AnySetsData
from fedul_flwr.federated.client_policy import SetAdmission
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.local import Objective, on_logits
from fedul_flwr.learning.pseudo_labels import FixMixObjective, likeliest_classes
from fedul_flwr.learning.task import LocalTask, Round


class FedPL(MethodStrategy):
    """The base strategy, unchanged; clients label their points."""

    policy_class = SetAdmission


class FedPLClient(MethodClient[AnySetsData]):
    """Trains on pseudo labels, and on mixtures of confident points with others."""

    data_class = AnySetsData

    @property
    def options(self) -> FedPLSettings:
        """Settings in table ``fedpl``."""
        return self.settings[FedPLSettings]

    def register(self) -> dict[str, Value]:
        """The result of the check of its sets."""
        self._refuse_without_draw()
        return super().register()

    def check(self) -> None:
        """Also refuse ``fedpl.labels = "drawn"`` without drawn priors."""
        self._refuse_without_draw()
        super().check()

    def task(self, round: Round) -> LocalTask:
        """Points with their pseudo labels as targets."""
        sets = self.data.sets
        drawn = self.options.labels == "drawn"
        priors = sets.drawn_priors if drawn else sets.priors
        assert priors is not None, "register() refuses a client without"
        labels = likeliest_classes(priors)[sets.sets]
        batches = point_batches(sets.inputs, sets.points, labels, round.plan)
        return LocalTask(len(sets.points), batches, self._objective(round.number))

    def _objective(self, number: int) -> Objective:
        """Plain cross-entropy during warm-up: a new model is confident about no point."""
        options = self.options
        if number <= options.warm_up_rounds:
            return on_logits(functional.cross_entropy)
        return FixMixObjective(
            threshold=options.threshold,
            weight=options.mix_weight,
            alpha=options.mixup_alpha,
            mix=options.mix,
            pairing=options.pairing,
            relabel=options.relabel,
        )

    def _refuse_without_draw(self) -> None:
        if self.options.labels == "drawn" and self.data.sets.drawn_priors is None:
            raise UserError(
                "Setting fedpl.labels = 'drawn' is for simulations: nobody drew the class priors "
                "of an owner's sets. Use 'realized', the class with the largest prior."
            )
