"""Helpers of a client: the clients nearest by embedding, consistency with them (FedMatch, 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.arrays import Arrays, Floats
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import InputShape, network_shape
from fedul_flwr.learning.device import move_model
from fedul_flwr.learning.lanes import fixed_shapes
from fedul_flwr.learning.local import load_arrays
from fedul_flwr.learning.matching import ConfidentShare
from fedul_flwr.learning.network import Network, frozen_statistics, has_batch_norm
from fedul_flwr.learning.plan import LocalPlan, local_plan
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.views import View, unchanged
from fedul_flwr.models import build_model


def noise_point(input_shape: InputShape, rng: np.random.Generator) -> Tensor:
    """One input of standard normal noise, ``(1, c, h, w)`` or ``(1, d)``."""
    return torch.from_numpy(rng.standard_normal((1, *network_shape(input_shape)))).float()


def embed(model: nn.Module, noise: Tensor, plan: LocalPlan) -> Floats:
    """``(K,)``: class probabilities of the input ``noise`` by ``model``."""
    model.eval()
    network = Network(model, plan.device, plan.precision)
    with torch.inference_mode():
        logits = network(network.to_device(noise))
    return np.asarray(logits[0].double().softmax(dim=0).cpu().numpy())


EMBEDDED, EMBEDDINGS = "embedded-clients", "embeddings"
"""Names of clients and their embeddings in a resumed run's state."""


def nearest_clients(embeddings: Mapping[int, Floats], client: int, count: int) -> list[int]:
    """Other clients by distance of their embeddings, nearest first, at most ``count``.

    Parameters
    ----------
    embeddings : ``(K,)`` of every client seen so far.
    client : the client whose neighbors are wanted; an unseen one has none.
    count : at least 1.
    """
    if client not in embeddings or len(embeddings) < 2:
        return []
    clients = sorted(embeddings)
    tree = KDTree(np.stack([embeddings[other] for other in clients]))
    # Ask for one more: the client is its own nearest neighbor (or ties with others).
    _, indices = tree.query(embeddings[client], k=min(count + 1, len(clients)))
    return [clients[index] for index in indices if clients[index] != client][:count]


class HelperChoice:
    """Embeds clients' models by their outputs for one image of noise, and finds similar ones.

    Parameters
    ----------
    settings : the run's; the image comes from its seed.
    input_shape : shape of one point.
    num_classes : K.
    """

    def __init__(self, settings: RunConfig, input_shape: InputShape, num_classes: int) -> None:
        self._plan = local_plan(settings)
        self._model = build_model(
            settings.model, input_shape, num_classes, options=settings.model_options
        )
        self._noise = noise_point(input_shape, stream(settings.seed, "noise"))
        self._embeddings: dict[int, Floats] = {}

    def embed(self, client: int, arrays: Arrays) -> None:
        """Compute and store the embedding of ``client``'s model.

        Raises
        ------
        ValueError
            If its outputs are not finite.
        """
        load_arrays(move_model(self._model, self._plan.device, self._plan.precision), arrays)
        embedding = embed(self._model, self._noise, self._plan)
        if not np.isfinite(embedding).all():
            raise ValueError("its model's outputs are not finite")
        self._embeddings[client] = embedding

    def forget(self, client: int) -> None:
        """Delete the embedding of ``client``, which helps nobody until it is embedded again."""
        self._embeddings.pop(client, None)

    def helpers_of(self, client: int, count: int, among: Mapping[int, int]) -> list[int]:
        """The nearest other clients of those in ``among``, at most ``count``."""
        embeddings = {other: at for other, at in self._embeddings.items() if other in among}
        return nearest_clients(embeddings, client, count)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """State of a resumed run: ``(n,)`` clients and their ``(n, K)`` embeddings."""
        if not self._embeddings:
            return {}
        clients = sorted(self._embeddings)
        return {
            EMBEDDED: np.array(clients, dtype=np.int64),
            EMBEDDINGS: np.stack([self._embeddings[client] for client in clients]),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state from :meth:`state_dict`."""
        if EMBEDDED in state:
            clients = (int(client) for client in state[EMBEDDED])
            self._embeddings = dict(zip(clients, state[EMBEDDINGS], strict=True))


Ties = Literal["own", "lowest"]
"""Class chosen in a tie of votes: the client's own class if it is in the tie, or the lowest one."""


def agreed_labels(
    local: Tensor, helpers: Sequence[Tensor], num_classes: int, ties: Ties = "own"
) -> Tensor:
    """The class with most votes by a client's model and its helpers (eq. 3).

    Parameters
    ----------
    local : int64 ``(n,)``, the top class of every point by the client's model.
    helpers : one int64 ``(n,)`` per helper.
    num_classes : K.
    ties : class chosen in a tie, which the text leaves open. With ``"own"`` it is also the lowest
        one if the client's is not in the tie.

    Returns
    -------
    int64 ``(n,)``.
    """
    classes = torch.arange(num_classes, device=local.device)
    votes = (1.5 if ties == "own" else 1.0) * (local[:, None] == classes).long()
    for vote in helpers:
        votes = votes + (vote[:, None] == classes).long()
    return votes.argmax(dim=1)


def helper_divergence(log_p: Tensor, helpers: Sequence[Tensor]) -> Tensor:
    """(1/H) Σ_j KL[p_hj ‖ p], mean over points (eq. 1).

    Parameters
    ----------
    log_p : ``(n, K)``, log-probabilities of the client's model.
    helpers : one ``(n, K)`` of log-probabilities per helper, at least one.
    """
    divergences = [
        functional.kl_div(log_p, target, reduction="batchmean", log_target=True)
        for target in helpers
    ]
    return torch.stack(divergences).mean()


@dataclass(eq=False)
class InterClientConsistency:
    """λ_ICCS · Φ, mean over the points for which the client's model is confident (eq. 2).

    Φ = CE(ŷ, p(π(u))) + (1/H) Σ_j KL[p_hj(u) ‖ p(u)], π = RandAugment. Without helpers the second
    term is absent and ŷ is the model's own class.

    Attributes
    ----------
    helpers : the helpers' models, which are frozen.
    weight : λ_ICCS.
    threshold : τ, smallest top probability of a confident point; becomes a tensor.
    strong_view : π, which makes strong views ``(n, c, h, w)`` of images.
    ties : class ŷ in a tie of votes.
    weak_view : makes the views that the models judge; by default the unchanged images.
    confidence : counts the points so far, and the confident ones.
    """

    helpers: Sequence[nn.Module]
    weight: float
    threshold: float | Tensor
    strong_view: View = randaugment
    ties: Ties = "own"
    weak_view: View = unchanged
    confidence: ConfidentShare = field(default_factory=ConfidentShare, init=False)

    def __post_init__(self) -> None:
        self.threshold = torch.as_tensor(self.threshold, dtype=torch.float64)
        for helper in self.helpers:
            helper.eval().requires_grad_(False)

    def __call__(self, network: Network, inputs: Tensor) -> Tensor | None:
        """Loss of ``(n, c, h, w)`` inputs; ``None`` without confident points.

        With weight 0 it is always ``None``, and the model is not called, so that its running
        statistics do not change.
        """
        if self.weight == 0:
            return None
        weak = self.weak_view(inputs)
        # Without helpers p(u) is only a target.
        with torch.set_grad_enabled(bool(self.helpers)):
            log_p = functional.log_softmax(network(weak), dim=1)
        confident = log_p.detach().amax(dim=1).exp() >= self.threshold
        self.confidence.add(confident)
        if fixed_shapes(inputs) and not has_batch_norm(network.model):
            return self._masked(network, inputs, weak, log_p, confident)
        sure = confident.nonzero()[:, 0]
        if len(sure) == 0:
            return None
        points, log_p = weak[sure], log_p[sure]
        labels, others = self._agreed(network, points, log_p)
        views = self.strong_view(inputs[sure])
        with frozen_statistics(network.model):  # they must describe unchanged points
            loss = functional.cross_entropy(network(views), labels)
        if others:
            loss = loss + helper_divergence(log_p, others)
        return self.weight * loss

    def _agreed(
        self, network: Network, points: Tensor, log_p: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Classes ŷ of points, and log-probabilities of the helpers."""
        with torch.no_grad():
            others = [
                functional.log_softmax(network.twin(helper)(points), dim=1)
                for helper in self.helpers
            ]
        votes = [other.argmax(dim=1) for other in others]
        labels = agreed_labels(log_p.detach().argmax(dim=1), votes, log_p.shape[1], self.ties)
        return labels, others

    def _masked(
        self, network: Network, inputs: Tensor, weak: Tensor, log_p: Tensor, confident: Tensor
    ) -> Tensor:
        """The same of all points, of which those that are not confident count nothing."""
        labels, others = self._agreed(network, weak, log_p)
        losses = functional.cross_entropy(
            network(self.strong_view(inputs)), labels, reduction="none"
        )
        for target in others:
            apart = functional.kl_div(log_p, target, reduction="none", log_target=True)
            losses = losses + apart.sum(dim=1) / len(others)
        return self.weight * (losses * confident).sum() / confident.sum().clamp(min=1)
