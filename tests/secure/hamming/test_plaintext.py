"""The backend without secrets: one graph of all codes, dropouts, refusals by name."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from fedul_flwr.arrays import Bytes
from fedul_flwr.propagation.codes import encode, nearest_points, neighbors_by_code
from fedul_flwr.propagation.solve import normalized_graph
from fedul_flwr.secure.hamming.pairwise import CODES, PLAINTEXT, PlaintextServer
from fedul_flwr.secure.similarity import Task
from tests.propagation.conftest import SEED as SHARED
from tests.propagation.conftest import clusters
from tests.support.refusals import refuses

BITS = 256
PARTS = {4: slice(0, 30), 0: slice(0, 0), 1: slice(30, 35), 9: slice(35, 80)}
"""Points of each client, whose order is not that of their numbers; client 0 has none."""

FEATURES = clusters(80)[0]


def answer(server: PlaintextServer, parts: dict[int, slice]) -> dict[int, dict[str, Any]]:
    """What clients say to the server's message, each for itself."""
    answers: dict[int, dict[str, Any]] = {}
    for client, message in server.ask().items():
        if client not in parts:
            continue
        own = FEATURES[parts[client]]
        codes = partial(encode, own, num_bits=BITS)
        task = Task(client, 1, len(own), BITS, 1, True, b"", codes)
        remembered, reply = PLAINTEXT.respond({}, message, task)
        assert remembered == {}
        answers[client] = dict(reply)
    return answers


def test_equals_the_graph_of_all_codes() -> None:
    server = PlaintextServer(list(PARTS), BITS, SHARED)
    answers = answer(server, PARTS)
    server.take(dict(reversed(answers.items())))  # answers come in any order
    assert not server.ask()
    assert list(server.sizes().items()) == [(4, 30), (0, 0), (1, 5), (9, 45)]
    for k in (1, 7):
        graph = normalized_graph(nearest_points(server.compared(), k), 2)
        expected = normalized_graph(neighbors_by_code(encode(FEATURES, SHARED, BITS), k), 2)
        assert (graph != expected).nnz == 0
        assert graph.nnz > 0


@pytest.mark.parametrize("lost", PARTS)
def test_a_client_without_an_answer_was_never_there(lost: int) -> None:
    left = {client: part for client, part in PARTS.items() if client != lost}
    dropped, never = (PlaintextServer(list(parts), BITS, SHARED) for parts in (PARTS, left))
    dropped.take(answer(dropped, left))
    never.take(answer(never, left))
    assert list(dropped.sizes().items()) == list(never.sizes().items())
    assert (nearest_points(dropped.compared(), 5) != nearest_points(never.compared(), 5)).nnz == 0


def test_nobody_is_left() -> None:
    server = PlaintextServer(list(PARTS), BITS, SHARED)
    server.take({})
    assert not server.ask()
    assert server.sizes() == {}
    assert nearest_points(server.compared(), 3).shape == (0, 0)


@pytest.mark.parametrize(
    "codes",
    [None, np.zeros((5, 31), np.uint8), np.zeros((5, 32), np.int8), np.zeros(32, np.uint8)],
    ids=["none", "short", "signed", "flat"],
)
def test_refuses_other_codes_and_says_whose(codes: Bytes | None) -> None:
    server = PlaintextServer(list(PARTS), BITS, SHARED)
    answers = answer(server, PARTS)
    answers[1] = {} if codes is None else {CODES: codes}
    with refuses("message-form", match="Client 1 .*codes"):
        server.take(answers)
