"""FedLLP and FedLLP-VAT: trains the mean prediction of a set to equal its class priors."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.learning.task import Loss

if TYPE_CHECKING:
    from torch import Tensor


class FedLLPVATSettings(kit.Settings):
    """Virtual adversarial training in addition to label proportions (Tsai & Lin 2020)."""

    table: ClassVar[str] = "fedllp-vat"
    alpha: Annotated[float, Field(ge=0)] = 5e-4
    """Weight of the consistency loss (FedUL paper: MNIST 5e-4, others 0.05)."""
    radius: Annotated[float, Field(gt=0)] = 1e-2
    """L2 norm of a point's perturbation, for images in [-1, 1] (FedUL paper: MNIST 1e-2,
    others 6.0)."""
    recipe: Literal["paper", "release"] = "paper"
    """Form of the method: the paper's, or that of the authors' code. There the ramp takes 20 epochs
    and begins anew in each, so that the weight stays at 0.7 to 1.1 % of alpha, and `radius` is in
    units of the pixels' standard deviation in MNIST (gray) or CIFAR-10 (color): 0.6 or 0.4 times
    as large."""


class FedLLPSettings(kit.Settings):
    """Label proportions (Dulac-Arnold et al. 2019, as in the FedUL paper, eq. 18)."""

    table: ClassVar[str] = "fedllp"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability of dropout in training after every layer but the last, or between the stages of
    a ResNet (authors' code: 0.2)."""
    bag_size: Annotated[int, Field(ge=0)] = 0
    """If set, a step has as many bags of this size as `batch-size` allows, at least one. A bag is a
    whole set or, of a larger set, a random part. A part has the class shares of its set in
    expectation only, and is trained as if it had them exactly; `fedllp-pvc` refuses parts. With 0
    every set is a step of its own, and `batch-size` has no effect."""


RAMP_UP_ROUNDS = 10
"""Rounds over which the weight grows to alpha, as exp(−5·(1 − t)²)."""
XI = 1e-3
"""Step of the finite difference that finds the perturbation."""
RELEASED_EPOCHS = 20
"""Epochs of the ramp in the authors' code, where it is never longer than one."""
_DEVIATIONS = {1: 0.3081, 3: 0.2009}
"""Standard deviation of the pixels in [0, 1] by which the authors' code divides: that of MNIST, and
the mean over the channels of CIFAR-10."""


def released_unit(inputs: Tensor) -> float:
    """Length of the authors' unit in ours, for a batch: their images have a deviation of 1.

    Our images are in [-1, 1], so that a deviation has twice its value in [0, 1]. Vectors have a
    deviation of about 1 already.

    Examples
    --------
    >>> import torch
    >>> gray, vectors = torch.zeros(1, 1, 28, 28), torch.zeros(1, 64)
    >>> released_unit(gray), released_unit(vectors)
    (0.6162, 1.0)
    """
    return 2 * _DEVIATIONS.get(inputs.shape[1], 0.5) if inputs.dim() == 4 else 1.0


class FedLLPClient(kit.Client[kit.AnySetsData]):
    """Trains on label proportions (FedUL paper, eq. 18), one step per set or batch of bags."""

    data_class = kit.AnySetsData

    def loss(self) -> Loss:
        """Cross-entropy between a set's class priors and its mean prediction, mean over bags."""
        import torch

        return learning.over_bags(learning.ProportionLoss(torch.from_numpy(self.data.sets.priors)))

    def batches(self, round: kit.Round) -> kit.Batches:
        """Every set as one batch, or with `fedllp.bag-size` batches of sets and parts of sets."""
        sets, bag_size = self.data.sets, self.settings[FedLLPSettings].bag_size
        if not bag_size:
            return learning.set_batches(sets.inputs, sets.points, sets.sets, round.plan)
        return learning.bag_batches(sets.inputs, sets.points, sets.sets, round.plan, bag_size)

    def num_steps(self, round: kit.Round) -> int:
        """Number of batches in an epoch."""
        sizes, bag_size = self.data.sets.set_sizes, self.settings[FedLLPSettings].bag_size
        if not bag_size:
            return len(sizes)
        bags, batch_size = int((-(-sizes // bag_size)).sum()), round.plan.batch_size
        return learning.num_batches(bags, max(1, batch_size // bag_size) if batch_size else 0)

    def task(self, round: kit.Round) -> kit.Task:
        """The proportion loss of each batch."""
        loss = learning.with_dropout(
            kit.on_logits(self.loss()), self.settings[FedLLPSettings].dropout
        )
        return kit.Task(self.batches(round), loss)


class FedLLPVATClient(FedLLPClient):
    """Adds virtual adversarial training (FedUL paper, eq. 19 and 20; Tsai & Lin 2020)."""

    def task(self, round: kit.Round) -> kit.Task:
        """Proportion loss plus alpha times the largest change of predictions near each point."""
        task, options = super().task(round), self.settings[FedLLPVATSettings]
        if options.alpha == 0:
            return task
        loss, steps, epoch = self.loss(), count(), self.num_steps(round)
        is_release = options.recipe == "release"

        def weight() -> float:
            if not is_release:
                return options.alpha * learning.ramp_up(round.number, RAMP_UP_ROUNDS)
            return options.alpha * learning.ramp_up(next(steps) % epoch, RELEASED_EPOCHS * epoch)

        def with_vat(network: learning.Network, batch: kit.Batch) -> Tensor:
            inputs = batch.inputs
            # The adversarial step is a small difference of predictions: not in bfloat16.
            wide = network.wide()
            logits = wide(inputs)
            radius = options.radius * (released_unit(inputs) if is_release else 1.0)
            adversarial = learning.virtual_adversarial_loss(
                wide, inputs, logits, radius=radius, xi=XI
            )
            return loss(logits, batch.targets) + weight() * adversarial

        dropout = self.settings[FedLLPSettings].dropout
        return replace(task, loss=learning.with_dropout(with_vat, dropout))


FEDLLP = kit.Method(
    name="fedllp",
    line="The mean prediction of a set is trained to be its class shares.",
    needs="unlabeled sets with known class shares at clients",
    paper="Dulac-Arnold et al. 2019, as in Lu et al., ICLR 2022, arXiv:2204.03304",
    client=FedLLPClient,
    settings=(kit.AdmissionSettings, FedLLPSettings),
)


FEDLLP_VAT = kit.Method(
    name="fedllp-vat",
    line="FedLLP, and predictions that the worst small change of a point does not move.",
    needs="unlabeled sets with known class shares at clients",
    paper="Tsai and Lin 2020, as in Lu et al., ICLR 2022, arXiv:2204.03304",
    client=FedLLPVATClient,
    settings=(kit.AdmissionSettings, FedLLPSettings, FedLLPVATSettings),
)
