"""LLPFC at every client: FedUL's loss within groups of K sets, drawn anew in every round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_SHARE = 1e-8
"""Least share of a set in its group, so that its logarithm is finite (authors' code)."""
_HEAVY = 1e4
"""Weight of the equation by which shares sum to 1."""


def group_transitions(
    priors: kit.Floats, set_sizes: kit.Ints, groups: kit.Ints
) -> tuple[kit.Floats, kit.Floats]:
    """The row of each set in the transition of its group, and the weight of its points.

    A group's shares of sets are those on the simplex whose mixture of the sets' class priors is
    nearest to the class priors of all points (LLPFC-approx). Within a group its rows are FedUL's
    transition (:func:`fedul_flwr.surrogate.log_transition`) with these shares, and with their
    mixture as the class priors at test time. Points weigh as if there were as many of each set as
    its share says.

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
    All points have class priors (0.3, 0.7), as 1/4 of the first set and 3/4 of the second have:

    >>> priors = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> rows, weights = group_transitions(priors, np.array([10, 30]), np.array([[0, 1]]))
    >>> np.exp(rows).round(4).tolist(), weights.round(4).tolist()
    ([[0.75, 0.0357], [0.25, 0.9643]], [0.5, 0.5])
    """
    from scipy.optimize import nnls  # slow to load

    of_all = set_sizes @ priors / set_sizes.sum()
    rows, weights = np.full(priors.shape, -np.inf), np.zeros(len(priors))
    for group in groups:
        of_sets, sizes = priors[group], set_sizes[group]
        equations = np.vstack([of_sets.T, np.full(len(group), _HEAVY)])
        shares, _ = nnls(equations, np.append(of_all, _HEAVY))
        shares = np.maximum(shares / shares.sum(), SMALLEST_SHARE)
        mixture = shares @ of_sets
        present = mixture > 0
        with np.errstate(divide="ignore"):
            joint = np.log(of_sets[:, present]) + np.log(shares)[:, None]
        rows[np.ix_(group, present)] = joint - np.log(mixture[present])
        scaled = np.divide(shares, sizes, out=np.zeros(len(group)), where=sizes > 0)
        weights[group] = scaled / scaled.sum()
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
    settings=(kit.AdmissionSettings, kit.DPSettings),
)
