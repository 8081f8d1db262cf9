"""FedPL: pseudo-labels all points of a set with the class of its largest prior."""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.config.method_settings import FedPLSettings
from fedul_flwr.data.types import CONFIDENT_SHARE, Value
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import AnySetsData
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.task import Round, Task, on_logits

MAJORITY = 0.5
"""Share of a client's points that must be confident for its warm-up to end."""


class FedPLClient(Client[AnySetsData]):
    """Trains on pseudo labels, and on mixtures of confident points with others."""

    data_class = AnySetsData
    reports = CONFIDENT

    @property
    def options(self) -> FedPLSettings:
        """Settings in table ``fedpl``."""
        return self.settings[FedPLSettings]

    def register(self) -> dict[str, Value]:
        """The result of the check of its sets."""
        self._refuse_without_draw()
        return super().register()

    def check(self) -> None:
        """Also refuse ``fedpl.recipe = "release"`` without drawn priors."""
        self._refuse_without_draw()
        super().check()

    def task(self, round: Round) -> Task:
        """Points with their pseudo labels as targets.

        In warm-up the loss is plain cross-entropy on all of them: a new model is confident about
        no point, and without confident points the method's own loss is 0.
        """
        sets, options = self.data.sets, self.options
        is_release = options.recipe == "release"
        priors = sets.drawn_priors if is_release else sets.priors
        assert priors is not None, "register() refuses a client without"
        labels = priors.argmax(axis=1)[sets.sets]
        batches = learning.point_batches(sets.inputs, sets.points, labels, round.plan)
        top = learning.top_probabilities(self.model, sets.inputs, sets.points, round.plan)
        threshold = learning.threshold_for(options.threshold, top)
        share = float((top >= threshold).double().mean())
        objective = learning.FixMixObjective(
            threshold=threshold,
            mix="outputs" if is_release else "inputs",
            pairing="shorter" if is_release else "all",
            relabel=options.relabel,
        )
        warm_up = (
            share < MAJORITY
            if options.warm_up_rounds == ADAPTIVE
            else round.number <= options.warm_up_rounds
        )
        if warm_up:
            plain = on_logits(learning.scaled_cross_entropy(1.0))
            return Task(batches, plain, {CONFIDENT_SHARE: share})
        return Task(batches, objective, objective.confidence.reports)

    def _refuse_without_draw(self) -> None:
        if self.options.recipe == "release" and self.data.sets.drawn_priors is None:
            raise UserError(
                "Setting fedpl.recipe = 'release' is for simulations: nobody drew the class priors "
                "of an owner's sets. Use 'paper', which takes the class with the largest prior.",
                "setting-for-simulations",
                setting="fedpl.recipe",
            )
