"""Consistency losses: of weak and strong views, of a mean teacher, of adversarial changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.data.types import CONFIDENT_SHARE
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.strong import strong_augment
from fedul_flwr.learning.task import Batch, Loss, Report


def unit(directions: Tensor) -> Tensor:
    """``(n, …)`` with every point's L2 norm 1; a point that is all zero stays so."""
    flat = directions.flatten(1)
    tiny = torch.finfo(flat.dtype).tiny
    # Divide by the largest entry first: squares of tiny gradients would underflow.
    flat = flat / flat.abs().amax(dim=1, keepdim=True).clamp(min=tiny)
    norms: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return flat.div(norms.clamp(min=tiny)).reshape(directions.shape)


def divergence(log_p: Tensor, logits: Tensor) -> Tensor:
    """Mean over points of KL(p ‖ softmax(logits)), both ``(n, K)``."""
    log_q = functional.log_softmax(logits, dim=1)
    return functional.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def adversarial_offset(
    network: Network, inputs: Tensor, log_p: Tensor, *, radius: float, xi: float
) -> Tensor:
    """Offsets r_adv ``(n, c, h, w)`` that move the predictions most, to second order.

    One power iteration from a random direction d: the gradient of KL(p ‖ f(x + r)) at r = xi·d is
    xi·H·d up to third order, for its gradient at 0 vanishes (Miyato et al. 2018, eq. 11 to 13).
    The gradient is taken with respect to r only; gradients of the weights do not change.

    Parameters
    ----------
    network : in at least float32. With xi = 1e-6, as in the code of the FedUL paper, f(x + xi·d)
        differs from f(x) by rounding only; so it would in bfloat16 with any small xi.
    inputs : ``(n, c, h, w)``.
    log_p : ``(n, K)``, log-probabilities at ``inputs``, without a graph.
    radius : L2 norm of every point's offset, in the units of inputs (black −1, white 1).
    xi : length of the finite-difference step, in the same units.
    """
    start = unit(torch.randn_like(inputs))
    step = (xi * start).requires_grad_()
    value = divergence(log_p, network(inputs + step))
    (gradient,) = torch.autograd.grad(value, step)
    direction = unit(gradient)
    # If the predictions do not change at all, keep the random direction.
    moved = gradient.flatten(1).any(dim=1).view(-1, *[1] * (inputs.dim() - 1))
    return radius * torch.where(moved, direction, start)


def virtual_adversarial_loss(
    network: Network, inputs: Tensor, logits: Tensor, *, radius: float, xi: float
) -> Tensor:
    """Mean of KL(f(x) ‖ f(x + r_adv)) over ``inputs``, whose ``logits`` are f(x).

    f(x) is a constant target. Batch norm's running statistics do not change: they describe points,
    not perturbed ones. Parameters as in :func:`adversarial_offset`.
    """
    log_p = functional.log_softmax(logits.detach(), dim=1)
    with frozen_statistics(network.model):
        offset = adversarial_offset(network, inputs, log_p, radius=radius, xi=xi)
        return divergence(log_p, network(inputs + offset))


@dataclass(eq=False)
class MeanTeacherObjective:
    """Cross-entropy of labeled points, and consistency between two views of all points.

    The student sees the first view, the teacher the second. The teacher is the student's moving
    average: after the student's step t its weights are d·teacher + (1 − d)·student with
    d = min(1 − 1/(t + 1), ``decay``), so a plain mean at first. Its batch-norm statistics come from
    its own inputs. The cross-entropy is summed over the labeled points and divided by all points
    of the batch; the consistency loss is the mean over points and classes of the squared difference
    of both softmax outputs. Both are as in the code of XCLP's authors.

    With a second head (:class:`~fedul_flwr.models.parts.TwoHeads`) the first one is trained on
    labels, the second one on the teacher's first head, and a penalty keeps both heads close.

    Attributes
    ----------
    classes : ``(n,)``, class of every training point, -1 for an unlabeled one.
    teacher : in training mode, on the student's device; changed in place.
    weight : weight of the consistency loss.
    decay : largest decay of the teacher, in [0, 1).
    logit_cost : weight of the mean squared difference between the logits of both heads.
    steps : number of steps t so far.
    """

    classes: Tensor
    teacher: nn.Module
    weight: float
    decay: float = 0.97
    logit_cost: float = 0.01
    steps: int = 0
    _begun: bool = field(default=False, init=False)

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        """Mean loss of a batch.

        Its inputs are ``(2 b, c, h, w)``, both views of the points, and its targets ``(b,)`` the
        positions of these in ``classes``.
        """
        if self._begun:
            self.follow(network.model)
        self._begun = True
        seen, other = batch.inputs.chunk(2)
        logits, agreeing = network.both(seen)
        with torch.no_grad():
            target = functional.softmax(network.twin(self.teacher)(other), dim=1)
        classes = self.classes[batch.targets.cpu()].to(logits.device)
        loss = functional.cross_entropy(logits, classes, ignore_index=-1, reduction="sum")
        loss = loss / len(classes)
        apart = functional.mse_loss(functional.softmax(agreeing, dim=1), target)
        loss = loss + self.weight * apart
        if agreeing is not logits:
            loss = loss + self.logit_cost * functional.mse_loss(logits, agreeing)
        return loss

    @torch.no_grad()
    def follow(self, student: nn.Module) -> None:
        """Update the teacher after a step of the student; the caller does so after the last one."""
        self.steps += 1
        decay = min(1 - 1 / (self.steps + 1), self.decay)
        for weight, now in zip(self.teacher.parameters(), student.parameters(), strict=True):
            weight.lerp_(now, 1 - decay)


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


def fixmatch_loss(
    log_target: Tensor, log_q: Tensor, threshold: float | Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the target's top class (Sohn et al. 2020, eq. 4), or of given classes.

    Parameters
    ----------
    log_target : ``(n, K)``, log-probabilities of the weak view, without a graph.
    log_q : ``(n, K)``, log-probabilities of the strong view.
    threshold : points whose class has a probability below it in ``log_target`` have loss 0.
    labels : int64 ``(n,)``, classes in place of the top ones.

    Returns
    -------
    The mean over all n points, and the fraction of masked points.

    Examples
    --------
    The first point has the loss log 2, and the second is masked; the mean is over both:

    >>> log_target = torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log()
    >>> loss, masked = fixmatch_loss(log_target, torch.tensor([[0.5, 0.5]] * 2).log(), 0.8)
    >>> round(loss.item(), 4), masked.item()
    (0.3466, 0.5)
    """
    labels = log_target.argmax(dim=1) if labels is None else labels.to(log_target.device)
    top = log_target.gather(1, labels[:, None])[:, 0]
    return _masked_mean(functional.nll_loss(log_q, labels, reduction="none"), top, threshold)


def uda_loss(
    log_target: Tensor, log_q: Tensor, threshold: float | Tensor, temperature: float = 1.0
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


def _masked_mean(
    values: Tensor, log_top: Tensor, threshold: float | Tensor
) -> tuple[Tensor, Tensor]:
    mask = (log_top.exp() >= threshold).to(values.dtype)
    return (values * mask).mean(), 1 - mask.mean()


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

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        """Loss of a batch.

        Targets are the points' sets ``(n,)``, or ``(n, 2)`` their sets and the classes to train
        strong views on.
        """
        inputs, targets = batch.inputs, batch.targets
        sets, labels = targets.unbind(1) if targets.dim() == 2 else (targets, None)
        weak = network(inputs)
        surrogate = self.surrogate(weak, sets)
        # Running statistics must describe unchanged points, as in testing.
        with frozen_statistics(network.model):
            strong = network((self.strong_view or strong_augment)(inputs))
        # Both views use the set's posterior: otherwise targets biased toward the set's classes
        # would teach the class model the client's priors instead of pi.
        rows = self.log_weights.to(weak.device, weak.dtype)[sets]
        log_target = log_set_posterior(weak.detach(), rows)
        log_q = log_set_posterior(strong, rows)
        value, masked = fixmatch_loss(log_target, log_q, self.threshold, labels)
        self._seen.append(torch.stack([surrogate.detach(), value.detach(), masked]))
        return surrogate + self.weight * value

    @property
    def reports(self) -> dict[str, Report]:
        """Means over batches as reports of the round."""
        return {
            "loss": lambda: self._means()[0],
            "consistency-loss": lambda: self._means()[1],
            CONFIDENT_SHARE: lambda: 1 - self._means()[2],
        }

    def _means(self) -> list[float]:
        means: list[float] = torch.stack(self._seen).mean(dim=0).tolist()
        return means
