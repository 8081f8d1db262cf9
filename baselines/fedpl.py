"""FedPL: the class with the largest prior in a set is the pseudo label of its points."""

from __future__ import annotations

from torch.nn import functional

from client_apps.local import TrainingData
from client_apps.unlabeled_sets import UnlabeledSetsClient
from fedul_flwr.config.baselines import FedPLSettings
from fedul_flwr.data.set_check import Verdict
from fedul_flwr.errors import UserError
from fedul_flwr.learning.local import Objective, on_logits
from fedul_flwr.learning.pseudo_labels import FixMixObjective, likeliest_classes
from strategies.unlabeled_sets import UnlabeledSets


class FedPL(UnlabeledSets):
    """The base strategy alone; clients label their points."""


class FedPLClient(UnlabeledSetsClient):
    """Trains on pseudo labels, and on mixtures of points it is sure of and others."""

    min_sets = 1

    @property
    def options(self) -> FedPLSettings:
        """FedPL's own settings."""
        return self.settings.section("fedpl", FedPLSettings)

    def verdict(self) -> Verdict:
        """As others; without drawn priors there is no label by them."""
        if self.options.labels == "drawn" and self.sets.drawn_priors is None:
            raise UserError(
                "Setting fedpl.labels = 'drawn' is for simulations: nobody drew the class priors "
                "of an owner's sets. Use 'realized', the class with the largest prior."
            )
        return super().verdict()

    def training_data(self) -> TrainingData:
        """Points with their pseudo labels for targets."""
        sets = self.sets
        drawn = self.options.labels == "drawn"
        priors = sets.drawn_priors if drawn else sets.priors
        assert priors is not None, "verdict() refuses a client without"
        return TrainingData(sets.images, sets.points, likeliest_classes(priors)[sets.sets])

    def objective(self, server_round: int) -> Objective:
        """Cross-entropy at first: a fresh model is sure of no point, and so would stay."""
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
