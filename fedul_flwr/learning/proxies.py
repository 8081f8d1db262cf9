"""ProxyFL's loss and its step at the server: rows of the last layer stand for classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.arrays import Floats
from fedul_flwr.learning.matching import PartlyLabeledObjective
from fedul_flwr.learning.network import Network
from fedul_flwr.models.parts import Projected, feature_layer

LEAST_SIMILARITY = 1e-6
"""Cosine below which two points do not repel each other (authors' code)."""
LARGEST_MARGIN, ROWS_OF_STEP = 100.0, 4
"""Of the server's steps (authors' script)."""


def proxy_contrast(
    features: Tensor, rows: Tensor, posteriors: Tensor, sure: Tensor, shares: Tensor
) -> Tensor:
    """``(n,)``, the loss −log(e^s / (e^s + Σ e^c)) of each of n points.

    A sure point's class is the likeliest one, and s its cosine with that class's row. Others have
    as candidates all classes that are likelier than their share of all points, and s is the sum of
    the cosines, weighted by the candidates' probabilities. c are the cosines, if positive, with the
    points that share no class with this one.

    Parameters
    ----------
    features, rows : ``(n, d)`` and ``(K, d)``, projected features and rows of the last layer.
    posteriors, sure : ``(n, K)``, of the received model; bool ``(n,)``.
    shares : ``(K,)``, class shares of all points.
    """
    points, proxies = functional.normalize(features, dim=1), functional.normalize(rows, dim=1)
    classes = torch.arange(len(rows), device=rows.device)
    likeliest = posteriors.argmax(dim=1, keepdim=True) == classes
    candidates = posteriors > shares.to(posteriors)
    of_points = torch.where(sure[:, None], likeliest, candidates).to(posteriors)
    weights = torch.where(sure[:, None], likeliest.to(posteriors), posteriors * candidates)
    near = (weights * (points @ proxies.T)).sum(dim=1)
    cosines = points @ points.T
    repel = (of_points @ of_points.T < 0.5) & (cosines >= LEAST_SIMILARITY)
    far = cosines.masked_fill(~repel, float("-inf"))
    return torch.cat([near[:, None], far], dim=1).logsumexp(dim=1) - near


@dataclass(frozen=True, kw_only=True)
class ProxyObjective(PartlyLabeledObjective):
    """CE of labeled points; CE of sure points' strong views, and the contrast of unlabeled ones.

    A point is sure where the top probability of the received model reaches the threshold, or, of an
    unlabeled one, that of the network. Its label is the received model's class.

    Attributes
    ----------
    received : the model at the start of the round, in evaluation mode.
    shares : ``(K,)``, class shares of all points.
    counts : ``(K,)``, to which the labels of the batches are added, and those of sure points.
    """

    received: nn.Module
    shares: Tensor
    counts: Tensor

    def _losses(
        self, network: Network, labeled: Tensor, labels: Tensor, unlabeled: Tensor
    ) -> tuple[Tensor, Tensor]:
        weak, strong = self.weak_view(unlabeled), self.strong_view(unlabeled)
        features, logits = network.features_and_logits(torch.cat([labeled, weak, strong]))
        classes, count = torch.arange(len(self.counts), device=labels.device), len(labeled)
        supervised = functional.cross_entropy(logits[:count], labels)
        self.counts.add_((labels[:, None] == classes).sum(dim=0))
        if not len(unlabeled):
            return supervised, logits.new_zeros(())
        posteriors = network.twin(self.received).predict(torch.cat([labeled, weak]))
        top, targets = posteriors.max(dim=1)
        of_weak, of_strong = logits[count:].chunk(2)
        local = of_weak.detach().softmax(dim=1).amax(dim=1)
        used = (top[count:] >= self.threshold) | (local >= self.threshold)
        self.confidence.add(used)
        self.counts.add_(((targets[count:, None] == classes) & used[:, None]).sum(dim=0))
        consistency = functional.cross_entropy(of_strong, targets[count:], reduction="none") * used
        rows = feature_layer(network.model).weight.to(features)
        if isinstance(network.model, Projected):
            features, rows = network.model.of_features(features), network.model.of_rows(rows)
        posteriors = torch.cat([posteriors, posteriors[count:]])
        sure = torch.cat([top[:count] >= self.threshold, used, used])
        contrast = proxy_contrast(features, rows, posteriors, sure, self.shares)
        return supervised, consistency.mean() + contrast[count:].mean()


def trained_rows(
    mean: Floats, of_clients: Floats, learning_rate: float, epochs: int, rng: np.random.Generator
) -> Floats:
    """``(K, d)``, rows of the last layer, from ``mean`` by SGD towards the clients' ``(n, K, d)``.

    The loss of a client's row w of class k is the cross-entropy of −‖w − row‖ over all rows, with a
    margin added to the distance of row k: the largest distance of a row of the mean to the one
    next to it, at most 100. ``epochs`` are passes over all clients' rows, four in a step.
    """
    rows, classes = mean.copy(), len(mean)
    gaps = cdist(rows, rows)
    np.fill_diagonal(gaps, np.inf)
    margin = min(float(gaps.min(axis=1).max()), LARGEST_MARGIN)
    targets = of_clients.reshape(-1, rows.shape[1])
    is_class = np.tile(np.eye(classes), (len(of_clients), 1))
    for _ in range(epochs):
        order = rng.permutation(len(targets))
        for start in range(0, len(order), ROWS_OF_STEP):
            batch = order[start : start + ROWS_OF_STEP]
            difference = rows - targets[batch, None]
            distance = np.sqrt((difference**2).sum(axis=2))
            logits = -(distance + margin * is_class[batch])
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            slope = (is_class[batch] - p / p.sum(axis=1, keepdims=True)) / len(batch)
            # Of a row on its target the direction is 0, as in torch's cdist.
            scale = np.divide(slope, distance, out=np.zeros_like(slope), where=distance > 0)
            rows -= learning_rate * np.einsum("bk,bkd->kd", scale, difference)
    return rows
