"""Consistency loss between weak and strong views, on the class posterior that FedUL recovers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.learning.local import Loss
from fedul_flwr.learning.matching import CONFIDENT_SHARE
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.strong import strong_augment


def log_set_posterior(logits: Tensor, log_weights: Tensor) -> Tensor:
    """Log-probabilities of the classes of points whose sets are known: p(k | x, m) ∝ eta_k·w_mk.

    By Bayes' rule, with eta = softmax(f(x)) the class posterior under the test prior pi and
    w_mk = Pi_mk / pi_k, because the class priors within set m are Pi_m.

    Parameters
    ----------
    logits : ``(n, K)``.
    log_weights : ``(n, K)``, log w of each point's set, up to a constant per point: rows of
        ``SurrogateTransition.log_weights``.
    """
    return functional.log_softmax(logits + log_weights, dim=1)


def fixmatch_loss(log_target: Tensor, log_q: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the target's top class (Sohn et al. 2020, eq. 4).

    Parameters
    ----------
    log_target : ``(n, K)``, log-probabilities of the weak view, without a graph.
    log_q : ``(n, K)``, log-probabilities of the strong view.
    threshold : points whose top probability in ``log_target`` is below it have loss 0.

    Returns
    -------
    The mean over all n points, and the fraction of masked points.
    """
    top, labels = log_target.max(dim=1)
    return _masked_mean(functional.nll_loss(log_q, labels, reduction="none"), top, threshold)


def uda_loss(
    log_target: Tensor, log_q: Tensor, threshold: float, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """KL from the target sharpened by ``temperature`` (Xie et al. 2020, section 3.2).

    Parameters
    ----------
    log_target, log_q, threshold : as in :func:`fixmatch_loss`; the mask uses the target before
        sharpening.
    temperature : positive; 1 does not change the target.

    Returns
    -------
    As :func:`fixmatch_loss`.
    """
    sharp = functional.log_softmax(log_target / temperature, dim=1)
    # For an impossible class both logarithms are about -1e30, and cancel.
    values = (sharp.exp() * (sharp - log_q)).sum(dim=1)
    return _masked_mean(values, log_target.amax(dim=1), threshold)


def _masked_mean(values: Tensor, log_top: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    kept = (log_top.exp() >= threshold).to(values.dtype)
    return (values * kept).mean(), 1 - kept.mean()


@dataclass
class ConsistencyObjective:
    """FedUL's loss of the weak view plus ``weight`` times the consistency loss of the strong view.

    The weak view is the unchanged batch. Its prediction is the target, without a gradient.

    Attributes
    ----------
    surrogate : loss of logits and indices of sets (FedUL paper, eq. 9).
    weight : at least 0.
    threshold : smallest top probability of a target.
    log_weights : ``(M, K)`` of the client's transition, for the posterior given a point's set.
    strong_view : makes strong views of inputs; ``None`` is :func:`strong_augment`.
    """

    surrogate: Loss
    weight: float
    threshold: float
    log_weights: Tensor
    strong_view: Callable[[Tensor], Tensor] | None = None
    _seen: list[Tensor] = field(default_factory=list, init=False)

    def __call__(self, network: Network, inputs: Tensor, sets: Tensor) -> Tensor:
        """Loss of ``(n, c, h, w)`` inputs from sets ``(n,)``."""
        weak = network(inputs)
        surrogate = self.surrogate(weak, sets)
        # Running statistics must describe unchanged points, as in testing.
        with frozen_statistics(network.model):
            strong = network((self.strong_view or strong_augment)(inputs))
        log_target, log_q = self._posteriors(weak.detach(), strong, sets)
        value, masked = fixmatch_loss(log_target, log_q, self.threshold)
        self._seen.append(torch.stack([surrogate.detach(), value.detach(), masked]))
        return surrogate + self.weight * value

    def means(self) -> tuple[float, float, float]:
        """Surrogate loss, consistency loss and fraction of masked points, means over batches."""
        surrogate, value, masked = torch.stack(self._seen).mean(dim=0).tolist()
        return surrogate, value, masked

    def metrics(self) -> dict[str, float]:
        """Means over batches as metrics of the round."""
        surrogate, value, masked = self.means()
        return {"loss": surrogate, "consistency-loss": value, CONFIDENT_SHARE: 1 - masked}

    def _posteriors(self, weak: Tensor, strong: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        # Both views use the set's posterior: otherwise targets biased toward the set's classes
        # would teach the class model the client's priors instead of pi.
        rows = self.log_weights.to(weak.device, weak.dtype)[sets]
        return log_set_posterior(weak, rows), log_set_posterior(strong, rows)
