"""FedPL: pseudo-labels all points of a set with the class of its largest prior."""

from __future__ import annotations

from torch.nn import functional

from client_apps.unlabeled_sets import UnlabeledSetsClient
from fedul_flwr.config.baselines import FedPLSettings
from fedul_flwr.data.set_check import Verdict
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.federated.client_policy import SetAdmission
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.local import Objective, on_logits
from fedul_flwr.learning.pseudo_labels import FixMixObjective, likeliest_classes


class FedPL(MethodStrategy):
    """The base strategy, unchanged; clients label their points."""

    policy_class = SetAdmission


class FedPLClient(UnlabeledSetsClient):
    """Trains on pseudo labels, and on mixtures of confident points with others."""

    min_sets = 1

    @property
    def options(self) -> FedPLSettings:
        """Settings in table ``fedpl``."""
        return self.settings[FedPLSettings]

    def verdict(self) -> Verdict:
        """Also refuse ``fedpl.labels = "drawn"`` without drawn priors."""
        if self.options.labels == "drawn" and self.sets.drawn_priors is None:
            raise UserError(
                "Setting fedpl.labels = 'drawn' is for simulations: nobody drew the class priors "
                "of an owner's sets. Use 'realized', the class with the largest prior."
            )
        return super().verdict()

    def training_data(self) -> TrainingData:
        """Points with their pseudo labels as targets."""
        sets = self.sets
        drawn = self.options.labels == "drawn"
        priors = sets.drawn_priors if drawn else sets.priors
        assert priors is not None, "verdict() refuses a client without"
        return TrainingData(sets.images, sets.points, likeliest_classes(priors)[sets.sets])

    def objective(self, server_round: int) -> Objective:
        """Plain cross-entropy during warm-up: a new model is confident about no point."""
        options = self.options
        if server_round <= options.warm_up_rounds:
            return on_logits(functional.cross_entropy)
        return FixMixObjective(
            threshold=options.threshold,
            weight=options.mix_weight,
            alpha=options.mixup_alpha,
            mix=options.mix,
            pairing=options.pairing,
            relabel=options.relabel,
        )
