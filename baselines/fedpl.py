"""FedPL: pseudo-labels all points of a set with the class of its largest prior."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.base import OR_ADAPTIVE
from fedul_flwr.config.shared import SIMULATED


class FedPLSettings(kit.Settings):
    """Pseudo labels from class priors (Diao et al. 2021, as in the FedUL paper, eq. 14 to 17)."""

    table: ClassVar[str] = "fedpl"
    threshold: Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE] = 0.4
    """Smallest top probability (tau) with which a point is confident: it is then trained on its
    pseudo label alone. `adaptive` is the mean top probability of a client's points, in every
    round."""
    warm_up_rounds: Annotated[int, Field(ge=0), *OR_ADAPTIVE] = kit.ADAPTIVE
    """First rounds, with plain cross-entropy on all pseudo labels. With `adaptive` a client is in
    warm-up in every round in which fewer than half of its points are confident, by the model that
    it received; so it always trains. With a number (5 in the authors' code) a client without
    confident points trains nothing afterwards."""
    recipe: Annotated[Literal["paper", "release"], SIMULATED] = "paper"
    """Form of the method: the paper's, or that of the authors' code. In the paper's, the label of a
    set is the class with the largest prior that the client knows, every confident point is paired
    with a random other one, and points are mixed. In the other, it is the class with the largest of
    the priors from which the simulation assigned the points (class m mod K for set m with
    `fedul.priors = "dominant"`; the two differ if a client has few points of a class), only as many
    points are paired as the smaller group has, steps without one of the groups are skipped, and the
    model's outputs are mixed."""
    relabel: bool = False
    """After the warm-up, use the current model's prediction in each step as a point's label
    (authors' code); the labels of sets then have no effect."""


MAJORITY = 0.5
"""Share of a client's points that must be confident for its warm-up to end."""


class FedPLClient(kit.Client[kit.AnySetsData]):
    """Trains on pseudo labels, and on mixtures of confident points with others."""

    data_class = kit.AnySetsData
    reports = kit.CONFIDENT

    @property
    def options(self) -> FedPLSettings:
        """Settings in table ``fedpl``."""
        return self.settings[FedPLSettings]

    def register(self) -> dict[str, kit.Value]:
        """The result of the check of its sets."""
        self._refuse_without_draw()
        return super().register()

    def check(self) -> None:
        """Also refuse ``fedpl.recipe = "release"`` without drawn priors."""
        self._refuse_without_draw()
        super().check()

    def task(self, round: kit.Round) -> kit.Task:
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
            if options.warm_up_rounds == kit.ADAPTIVE
            else round.number <= options.warm_up_rounds
        )
        if warm_up:
            plain = kit.on_logits(learning.scaled_cross_entropy(1.0))
            return kit.Task(batches, plain, {kit.CONFIDENT_SHARE: share})
        return kit.Task(batches, objective, objective.confidence.reports)

    def _refuse_without_draw(self) -> None:
        if self.options.recipe == "release" and self.data.sets.drawn_priors is None:
            raise kit.UserError(
                "Setting fedpl.recipe = 'release' is for simulations: nobody drew the class priors "
                "of an owner's sets. Use 'paper', which takes the class with the largest prior.",
                "setting-for-simulations",
                setting="fedpl.recipe",
            )


METHOD = kit.Method(
    name="fedpl",
    line="A set's most frequent class is the pseudo label of its points, with MixUp.",
    needs="unlabeled sets with known class shares at clients",
    paper="Diao et al. 2021, as in Lu et al., ICLR 2022, arXiv:2204.03304",
    client=FedPLClient,
    settings=(kit.AdmissionSettings, FedPLSettings),
)
