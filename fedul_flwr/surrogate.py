"""FedUL's mathematics: surrogate posteriors of unlabeled sets, free of Flower.

A client holds M unlabeled sets. The index of a point's set is its surrogate label, and Theorem 1 of
the FedUL paper turns class posteriors into surrogate posteriors by a fixed transition that depends
on class priors alone. Training minimizes the loss of the surrogate labels *through* the transition,
so that the class model itself is what is learned.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def log_transition(priors: Tensor, set_priors: Tensor, test_prior: Tensor) -> Tensor:
    """Logarithm of the transition matrix D(pi_bar) Pi D(pi)^-1 (Theorem 1).

    Parameters
    ----------
    priors : ``(M, K)``, Pi, class priors of every set; rows sum to 1.
    set_priors : ``(M,)``, pi_bar, share n_m / n of every set.
    test_prior : ``(K,)``, pi, class priors at test time, all positive.

    Returns
    -------
    Tensor ``(M, K)``, ``-inf`` where a prior is zero.

    Examples
    --------
    >>> priors = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    >>> half = torch.tensor([0.5, 0.5])
    >>> log_transition(priors, half, half).exp()
    tensor([[0.7500, 0.2500],
            [0.2500, 0.7500]])
    """
    return set_priors.log()[:, None] + priors.log() - test_prior.log()[None, :]


def log_surrogate_posterior(logits: Tensor, log_weights: Tensor) -> Tensor:
    """Log-probabilities of the M surrogate labels, log Q(softmax(logits)) (Theorem 1).

    Parameters
    ----------
    logits : ``(n, K)``, outputs f(x) of the class model.
    log_weights : ``(M, K)`` from :func:`log_transition`.

    Returns
    -------
    Tensor ``(n, M)``, rows are normalized; finite for any finite logits as long as every row of the
    transition has a positive entry (a set's priors sum to 1, so it has).

    Examples
    --------
    A point of class 0 with probability 0.9 is from the first set with 0.75 · 0.9 + 0.25 · 0.1:

    >>> logits = torch.tensor([[0.9, 0.1]]).log()
    >>> log_weights = torch.tensor([[0.75, 0.25], [0.25, 0.75]]).log()
    >>> log_surrogate_posterior(logits, log_weights).exp()
    tensor([[0.7000, 0.3000]])
    """
    log_eta = functional.log_softmax(logits, dim=1)
    unnormalized = torch.logsumexp(log_eta[:, None, :] + log_weights[None, :, :], dim=2)
    return functional.log_softmax(unnormalized, dim=1)


class SurrogateTransition(nn.Module):
    """The fixed layer Q that is put behind a class model (Theorem 1); it has no parameters.

    Parameters
    ----------
    priors : ``(M, K)``, class priors Pi of a client's sets.
    set_sizes : ``(M,)``, numbers of points n_m of its sets.
    test_prior : ``(K,)``, class priors pi at test time; ``None`` is uniform (which cancels).

    Examples
    --------
    >>> layer = SurrogateTransition(torch.eye(3), torch.ones(3))
    >>> layer(torch.zeros(1, 3)).exp()
    tensor([[0.3333, 0.3333, 0.3333]])
    """

    log_weights: Tensor

    def __init__(self, priors: Tensor, set_sizes: Tensor, test_prior: Tensor | None = None) -> None:
        super().__init__()
        priors = priors.double()
        sizes = set_sizes.double()
        num_classes = priors.shape[1]
        prior = (
            torch.full((num_classes,), 1 / num_classes, dtype=torch.float64)
            if test_prior is None
            else test_prior.double()
        )
        weights = log_transition(priors, sizes / sizes.sum(), prior)
        # Zero for every purpose, but a set without a point, all -inf, would have NaN gradients.
        weights = weights.clamp(min=-1e30)
        self.register_buffer("log_weights", weights, persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        """``(n, K)`` logits to ``(n, M)`` log-probabilities of the surrogate labels."""
        # Half precision loses the tails of the logsumexp: at least float32 here.
        wide = logits if logits.dtype == torch.float64 else logits.float()
        # Losses are built on the CPU: follow the logits to their device.
        return log_surrogate_posterior(wide, self.log_weights.to(wide.device, wide.dtype))


class SurrogateLoss(nn.Module):
    """Loss of surrogate labels under the transition (eq. 9), to be minimized over the class model.

    Parameters
    ----------
    priors, set_sizes, test_prior : as for :class:`SurrogateTransition`.
    kind : ``"nll"``, the negative log-likelihood of eq. 9; or ``"release"``, the loss of the
        authors' code: cross-entropy that takes the *probabilities* Q for logits, without the test
        prior's D(pi)^-1.
    absent_weight : weight of -log of the probability of the classes that any of the sets has. Eq. 9
        says nothing of the others: they divide out of Q. It is the classifier-consistent loss
        of points with candidate labels (Feng et al. 2020, arXiv:2007.08929); 0 in the paper.

    Examples
    --------
    >>> priors = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    >>> loss = SurrogateLoss(priors, set_sizes=torch.tensor([100, 100]))
    >>> logits = torch.tensor([[0.9, 0.1]]).log()
    >>> loss(logits, torch.tensor([0])).neg().exp()
    tensor(0.7000)
    """

    def __init__(
        self,
        priors: Tensor,
        set_sizes: Tensor,
        test_prior: Tensor | None = None,
        kind: str = "nll",
        absent_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.absent_weight = absent_weight
        self.present: Tensor
        present = (priors[set_sizes > 0] > 0).any(dim=0) | (absent_weight == 0)
        self.register_buffer("present", present.nonzero()[:, 0], persistent=False)
        self.has_absent = bool(absent_weight) and not bool(present.all())
        self.transition = SurrogateTransition(
            priors, set_sizes, None if kind == "release" else test_prior
        )

    def forward(self, logits: Tensor, sets: Tensor) -> Tensor:
        """Mean loss of ``(n, K)`` logits for ``(n,)`` surrogate labels ``0..M-1``."""
        log_q = self.transition(logits)
        if self.kind == "release":
            loss = functional.cross_entropy(log_q.exp(), sets)
        else:
            loss = functional.nll_loss(log_q, sets)
        if not self.has_absent:
            return loss
        log_eta = functional.log_softmax(logits.to(log_q.dtype), dim=1)
        of_present = log_eta[:, self.present.to(log_eta.device)].logsumexp(dim=1)
        return loss - self.absent_weight * of_present.mean()
