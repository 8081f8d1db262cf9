"""FedUL's client (Algorithm 1, procedures A and B): trains on surrogate labels."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.common.typing import NDArrays
from flwr.common.typing import Scalar as FlowerScalar

from client_apps.unlabeled_sets import UnlabeledSetsClient
from fedul_flwr.config.fedul import FedULSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Value
from fedul_flwr.data.seeds import stream
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.federated.disclosure import EVALUATE, PREPARE, Sent
from fedul_flwr.federated.messages import CLASS_MASSES, METRICS, TEST_PRIOR
from fedul_flwr.learning.class_priors import class_masses

if TYPE_CHECKING:
    from fedul_flwr.learning.local import Loss


class FedULClient(UnlabeledSetsClient):
    """Trains the class model through the transition of its own sets.

    The index of a point's set is its target. Priors and points stay at the client.
    """

    @property
    def options(self) -> FedULSettings:
        """Settings in table ``fedul``."""
        return self.settings[FedULSettings]

    def introduce(self) -> dict[str, Value]:
        """The result of the check of its sets, and class masses with ``test-prior = "sets"``."""
        values = super().introduce()
        if self.settings.test_prior == "sets" and not values["reason"]:
            values[CLASS_MASSES] = class_masses(self.sets.priors, self.sets.set_sizes).tolist()
        return values

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Inherited entries, class masses for pi, and held-out losses."""
        sent = super().sends(settings)
        if settings.test_prior == "sets":
            sent.append(Sent(PREPARE, (CLASS_MASSES,), "points of each class, by its priors"))
        if settings.selection == "heldout":
            names = ("num-examples", "loss")
            what = "loss on points it held out, and their number"
            sent.append(Sent(EVALUATE, names, what, METRICS, "every round that is evaluated"))
        return sent

    @cached_property
    def test_prior(self) -> list[float] | None:
        """Pi, K class priors at test time; ``None`` is uniform. See :meth:`take_prior`."""
        return self.settings.class_priors()

    @cached_property
    def held_out(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Bool ``(n_c,)``: entries held out to select the best round, the same in every round."""
        sets = self.sets
        mask = np.zeros(len(sets.points), dtype=bool)
        if self.settings.selection == "heldout":
            # Hold out points, not entries of sets: sets may share points, and a point must be held
            # out of all of them. All points have the same chance, so that the expected class
            # proportions of every set, and so the transition, do not change.
            rng = stream(self.settings.seed, "held-out", self.node.partition_id)
            distinct = rng.permutation(np.unique(sets.points))
            count = int(self.options.heldout_fraction * len(distinct))
            mask = np.isin(sets.points, distinct[:count])
            for m in range(len(sets.priors)):  # every set keeps at least one point for training
                entries = np.flatnonzero(sets.sets == m)
                if len(entries) and mask[entries].all():
                    mask &= sets.points != sets.points[entries[0]]
        return mask

    def training_data(self) -> TrainingData:
        """Points with the index of their set as target (eq. 6)."""
        sets = self.sets
        keep = ~self.held_out
        return TrainingData(sets.images, sets.points[keep], sets.sets[keep])

    def take_prior(self, config: dict[str, Any]) -> None:
        """Store pi from a round's config for :meth:`loss`, if the server sends it."""
        if self.settings.test_prior == "sets":
            self.test_prior = list(config[TEST_PRIOR])

    def fit(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[NDArrays, int, dict[str, FlowerScalar]]:
        """One round of local training with the round's pi."""
        self.take_prior(config)
        return super().fit(parameters, config)

    def loss(self) -> Loss:
        """Loss of surrogate labels under this client's transition (eq. 9)."""
        import torch

        from fedul_flwr.surrogate import SurrogateLoss

        prior = self.test_prior
        sizes = np.bincount(self.sets.sets[~self.held_out], minlength=len(self.sets.priors))
        return SurrogateLoss(
            torch.from_numpy(self.sets.priors),
            torch.from_numpy(sizes),
            None if prior is None else torch.tensor(prior, dtype=torch.float64),
            kind=self.options.surrogate_loss,
        )

    def evaluate(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[float, int, dict[str, FlowerScalar]]:
        """Surrogate loss of the global model on held-out unlabeled points."""
        import torch

        from fedul_flwr.learning.local import load_arrays, predict_logits

        self.take_prior(config)
        load_arrays(self.model, dict(zip(self.array_names(), parameters, strict=True)))
        sets, mask = self.sets, self.held_out
        if not mask.any():  # sets are too small: zero examples means zero weight in the mean
            return 0.0, 0, {}
        logits = predict_logits(self.model, sets.images, sets.points[mask], self.plan(config))
        loss = self.loss()(logits, torch.from_numpy(sets.sets[mask]))
        return float(loss), int(mask.sum()), {}
