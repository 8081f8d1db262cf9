"""LLP-PVC at every client: the likelihood of a set's exact class counts."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.fedllp import FedLLPClient, FedLLPSettings
from fedul_flwr.data.set_priors import SetCheck, check_counts
from fedul_flwr.learning.task import Loss


class CountedSetsData(kit.AnySetsData):
    """Unlabeled sets whose exact class counts are known."""

    @cached_property
    def set_check(self) -> SetCheck:
        """The check of all sets, which also refuses counts that are not exact, and parts."""
        sets = self.all_sets
        bag_size = self.settings[FedLLPSettings].bag_size
        of = sets.priors, sets.set_sizes, not self.share_variances.any()
        return check_counts(super().set_check, *of, bag_size)


class WholeSets(kit.Strategy):
    """No point can be held out: the counts are those of all."""

    goes_with = (kit.only_without("selection", "shares"),)


class FedLLPPVCClient(FedLLPClient):
    """Maximizes the probability of the counts of every set (Ma et al. 2026)."""

    data_class = CountedSetsData

    def loss(self) -> Loss:
        """Minus the log-probability of the class counts, of each class by itself."""
        import torch

        sets = self.data.sets
        counts = np.rint(sets.priors * sets.set_sizes[:, None]).astype(np.int64)
        return learning.over_bags(learning.CountLoss(torch.from_numpy(counts)))


METHOD = kit.Method(
    name="fedllp-pvc",
    line="The model makes the exact class counts of each set as probable as it can.",
    needs="unlabeled sets with class shares that are exact counts, at clients",
    paper="Ma et al., ICLR 2026 (LLP-PVC), each client its own sets",
    strategy=WholeSets,
    client=FedLLPPVCClient,
    settings=(kit.AdmissionSettings, FedLLPSettings),
)
