"""LLPFC at every client: FedUL's loss within groups of K sets, drawn anew in every round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit

if TYPE_CHECKING:
    from torch import Tensor


def group_transitions(
    priors: kit.Floats, set_sizes: kit.Ints, groups: kit.Ints
) -> tuple[kit.Floats, kit.Floats]:
    """The row of each set in the transition of its group, and the weight of its points.

    All sets of a group weigh equally (LLPFC-uniform): its rows are FedUL's transition
    (:func:`fedul_flwr.surrogate.log_transition`) of sets of one size, with the mean of their class
    priors as those at test time, and a set's points share its weight.

    Parameters
    ----------
    priors : ``(M, K)``, class priors of all sets.
    set_sizes : ``(M,)``, numbers of points.
    groups : ``(G, K)``, the sets of each group; a set is in one group at most.

    Returns
    -------
    Logarithms ``(M, K)``, ``-inf`` where a prior is zero; and weights ``(M,)``, which sum to 1 in
    each group, 0 for sets in no group.

    Examples
    --------
    >>> priors = np.array([[0.9, 0.1], [0.3, 0.7]])
    >>> rows, weights = group_transitions(priors, np.array([10, 30]), np.array([[0, 1]]))
    >>> np.exp(rows).round(4).tolist(), weights.round(4).tolist()
    ([[0.75, 0.125], [0.25, 0.875]], [0.75, 0.25])
    """
    rows, weights = np.full(priors.shape, -np.inf), np.zeros(len(priors))
    for group in groups:
        shares = priors[group] / np.maximum(priors[group].sum(axis=0), np.finfo(float).tiny)
        rows[group] = np.log(shares, out=np.full(shares.shape, -np.inf), where=shares > 0)
        each = np.divide(
            1.0, set_sizes[group], out=np.zeros(len(group)), where=set_sizes[group] > 0
        )
        weights[group] = each / each.sum()
    return rows, weights


def group_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Minus the log-probability of each point's set in its group, weighted mean.

    Parameters
    ----------
    logits : ``(n, K)``.
    targets : ``(n, K + 1)``, row and weight of each point's set from :func:`group_transitions`.
    """
    log_eta = logits.float().log_softmax(dim=1)
    log_q = (log_eta + targets[:, :-1]).logsumexp(dim=1)
    weights = targets[:, -1]
    return -(weights * log_q).sum() / weights.sum()


class FedLLPFCClient(kit.Client[kit.UnlabeledSetData]):
    """Trains to tell the sets of a group apart, through the group's transition (Zhang et al. 2022).

    A group has as many sets as there are classes. Sets that are left over wait for another round.
    """

    def groups(self, round_number: int) -> kit.Ints:
        """The sets ``(G, K)`` of each group in a round."""
        count, num_classes = self.data.sets.priors.shape
        rng = kit.stream(self.settings.seed, "groups", self.node.partition_id, round_number)
        return rng.permutation(count)[: count - count % num_classes].reshape(-1, num_classes)

    def task(self, round: kit.Round) -> kit.Task:
        """Points of grouped sets, with the row and the weight of their set as target."""
        sets = self.data.sets
        rows, weights = group_transitions(sets.priors, sets.set_sizes, self.groups(round.number))
        used = weights[sets.sets] > 0
        of_sets = np.column_stack([rows, weights]).astype(np.float32)
        targets = of_sets[sets.sets[used]]
        batches = learning.point_batches(sets.inputs, sets.points[used], targets, round.plan)
        return kit.Task(batches, kit.on_logits(group_loss))


METHOD = kit.Method(
    name="fedllp-fc",
    line="FedUL's loss within groups of as many sets as classes, grouped anew in every round.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes",
    paper="Zhang, Wang and Scott, NeurIPS 2022 (LLPFC), each client its own sets",
    client=FedLLPFCClient,
    settings=kit.AdmissionSettings,
)
