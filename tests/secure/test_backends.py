"""Backends made of protocols: which parts they have, and that settings name them."""

from __future__ import annotations

import numpy as np
import pytest

from fedul_flwr.propagation.codes import encode
from fedul_flwr.propagation.neighbors import nearest_points, neighbors_by_code
from fedul_flwr.secure.backends import BACKENDS, PROTOCOLS, secure_backend
from fedul_flwr.secure.distance_server import DistanceServer
from fedul_flwr.secure.encrypted_distances import SENDS, mask_keys
from fedul_flwr.secure.similarity import Arrays
from tests.support.toy_protocol import FOUR, PUBLIC_SEED, Toy, group


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_backend_has_the_name_and_the_cost_of_its_protocol(name: str) -> None:
    protocol = PROTOCOLS[name]
    backend = secure_backend(protocol)
    assert backend.name == BACKENDS[name].name == protocol.name == name
    assert backend.cost([5, 6, 7], 64) == protocol.cost([5, 6, 7], 64)
    assert backend.sends == SENDS
    assert backend.mask_keys is mask_keys
    assert backend.fewest == 3  # with two, each one gets the other's part of a sum


def test_both_halves_play_the_protocol() -> None:
    backend, played = secure_backend(Toy()), group(FOUR, seed=PUBLIC_SEED)
    server = backend.server([*FOUR], 64, PUBLIC_SEED)
    assert isinstance(server, DistanceServer)
    memories: dict[int, Arrays] = {client: {} for client in FOUR}
    while messages := server.ask():
        answers = {}
        for client, message in messages.items():
            memories[client], answers[client] = backend.respond(
                memories[client], message, played.task(client)
            )
        server.take(answers)
    codes = encode(np.concatenate([*played.features.values()]), PUBLIC_SEED, 64)
    for k in (1, 4):
        expected = neighbors_by_code(codes, k)
        assert (nearest_points(server.compared(), k) != expected).nnz == 0
        assert expected.nnz > 0
