"""Backends made of protocols: which parts they have, and that settings name them."""

import numpy as np

from fedul_flwr.propagation.codes import encode, nearest_points, neighbors_by_code
from fedul_flwr.secure.encrypted_distances import DistanceServer, secure_backend
from fedul_flwr.secure.similarity import Arrays
from tests.support.toy_protocol import FOUR, PUBLIC_SEED, Toy, group


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
