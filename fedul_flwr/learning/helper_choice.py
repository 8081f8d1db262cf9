"""Chooses helpers: other clients with similar models (FedMatch, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Arrays, Floats, InputShape
from fedul_flwr.learning.device import place
from fedul_flwr.learning.embedding import embed, noise_point
from fedul_flwr.learning.local import load_arrays
from fedul_flwr.learning.local_plan import local_plan
from fedul_flwr.models import build_model

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
    _, found = tree.query(embeddings[client], k=min(count + 1, len(clients)))
    return [clients[index] for index in found if clients[index] != client][:count]


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
        load_arrays(place(self._model, self._plan.device, self._plan.precision), arrays)
        embedding = embed(self._model, self._noise, self._plan)
        if not np.isfinite(embedding).all():
            raise ValueError("its model's outputs are not finite")
        self._embeddings[client] = embedding

    def forget(self, client: int) -> None:
        """Delete the embedding of ``client``, which helps nobody until it is embedded again."""
        self._embeddings.pop(client, None)

    def helpers_of(self, client: int, count: int, among: Mapping[int, int]) -> list[int]:
        """The nearest other clients of those in ``among``, at most ``count``."""
        known = {other: self._embeddings[other] for other in self._embeddings if other in among}
        return nearest_clients(known, client, count)

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
