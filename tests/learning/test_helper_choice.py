"""Helpers: nearest clients against brute force, ties and strangers; what a server remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.helpers import HelperChoice, nearest_clients
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model

Settings = Callable[..., RunConfig]
SHAPE = (6, 6, 1)


def at(**places: float) -> dict[int, NDArray[np.float64]]:
    """Embeddings on a line: ``at(c3=0.5)`` puts client 3 at (0.5, 0.5)."""
    return {int(name[1:]): np.array([x, 1 - x]) for name, x in places.items()}


@pytest.mark.parametrize("seed", range(5))
def test_nearest_against_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = rng.choice(1000, 60, replace=False).tolist()
    embeddings = {client: rng.dirichlet(np.ones(10)) for client in clients}
    for client in clients:
        others = [other for other in clients if other != client]
        others.sort(key=lambda o: float(np.linalg.norm(embeddings[o] - embeddings[client])))
        for count in (1, 2, 7):
            assert nearest_clients(embeddings, client, count) == others[:count]


def test_identical_embeddings_are_helpers_like_others() -> None:
    """A client is never its own helper, however many lie where it lies."""
    same = dict.fromkeys(range(30), np.array([0.5, 0.5]))
    for client in same:
        found = nearest_clients(same, client, 2)
        assert len(found) == len({*found, client}) - 1 == 2
    # One other at the same place comes before all that are further away.
    assert nearest_clients(at(c5=0.5, c1=0.5, c2=0.6, c3=0.9), 5, 2) == [1, 2]


# The server's


@pytest.fixture
def choice(settings: Settings) -> Callable[..., HelperChoice]:
    def build(**options: Any) -> HelperChoice:
        return HelperChoice(settings(model="mlp", **options), SHAPE, 4)

    return build


def model(seed: int, scale: float = 1.0) -> dict[str, Any]:
    arrays = dump_arrays(build_model("mlp", SHAPE, 4, seed=seed))
    return {name: np.asarray(array * scale) for name, array in arrays.items()}


Choice = Callable[..., HelperChoice]


def test_models_that_are_alike_help_each_other(choice: Choice) -> None:
    built = choice()
    near = {name: array + 1e-3 for name, array in model(0).items()}
    for client, arrays in enumerate([model(0), model(1, 3.0), near, model(2, 3.0)]):
        built.embed(client, arrays)
    everyone = dict.fromkeys(range(4), 1)
    assert built.helpers_of(0, 1, everyone) == [2]
    assert built.helpers_of(2, 1, everyone) == [0]
    # Of those in question alone: what is not known to be held cannot be sent.
    assert built.helpers_of(0, 2, {0: 1, 1: 1, 3: 1}) in ([1, 3], [3, 1])
    assert built.helpers_of(0, 2, {1: 1, 2: 1}) == []
    assert built.helpers_of(9, 2, everyone) == []


def test_who_is_forgotten_helps_nobody_until_it_is_embedded_again(choice: Choice) -> None:
    built = choice()
    for client in range(3):
        built.embed(client, model(client))
    everyone = dict.fromkeys(range(3), 1)
    built.forget(2)
    built.forget(9)  # who was never embedded
    assert built.helpers_of(0, 2, everyone) == [1]
    assert built.helpers_of(2, 2, everyone) == []
    built.embed(2, model(2))
    assert sorted(built.helpers_of(0, 2, everyone)) == [1, 2]


def test_a_resumed_server_chooses_the_same(choice: Choice) -> None:
    built = choice()
    for client in range(6):
        built.embed(client, model(client, 2.0))
    resumed = choice()
    resumed.load_state_dict({"other/array": np.zeros(1), **built.state_dict()})
    everyone = dict.fromkeys(range(6), 1)
    for client in range(6):
        expected = built.helpers_of(client, 3, everyone)
        assert len(expected) == 3
        assert resumed.helpers_of(client, 3, everyone) == expected
    assert choice().state_dict() == {}
    resumed = choice()
    resumed.load_state_dict({})
    assert resumed.helpers_of(0, 3, everyone) == []


def test_a_model_without_probabilities_is_refused(choice: Choice) -> None:
    built = choice()
    built.embed(1, model(0))
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match="finite"),
    ):
        built.embed(1, model(0, 1e30))
    np.testing.assert_array_equal(built.state_dict()["embedded-clients"], [1])
    assert np.isfinite(built.state_dict()["embeddings"]).all()
