"""What a server knows its clients to hold: bit for bit, by round, and where a run resumes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedul_flwr.federated.codec import ROUNDS, ClientModelCache, PartsCodec
from fedul_flwr.federated.messages import ARRAYS, to_record
from fedul_flwr.learning.disjoint import compose, flatten

Parts = dict[str, dict[str, Any]]


def parts(value: float, dtype: str = "f4") -> Parts:
    return {
        "sigma": {"0.weight": np.full((2, 3), value, dtype)},
        "psi": {"0.weight": np.full((2, 3), -value, dtype), "1.mean": np.array(value, dtype)},
    }


def assert_same(one: Parts, other: Parts) -> None:
    assert one.keys() == other.keys()
    for name, array in flatten(one).items():
        assert array.dtype == flatten(other)[name].dtype
        np.testing.assert_array_equal(array, flatten(other)[name])


def test_a_server_that_was_cut_off_inside_a_round_goes_on_from_the_one_before(
    tmp_path: Path,
) -> None:
    first = ClientModelCache(tmp_path / "held")
    first.save(3, 1, parts(0.1))
    first.save(4, 2, parts(0.2))
    state = first.state_dict()
    assert state[ROUNDS].tolist() == [[3, 1], [4, 2]]
    first.save(3, 3, parts(0.3))  # of the round that is cut off
    first.save(5, 3, parts(0.5))
    first.forget(4)

    resumed = ClientModelCache(tmp_path / "held")
    resumed.load_state_dict({"other": np.zeros(1), **state})
    assert resumed.rounds == {3: 1, 4: 2}
    assert_same(resumed.of(3), parts(0.1))
    assert_same(resumed.of(4), parts(0.2))
    assert resumed.of(5) == {}
    resumed.save(3, 3, parts(0.4))  # the same round again
    assert_same(resumed.of(3), parts(0.4))
    fresh = ClientModelCache(tmp_path / "held")
    fresh.load_state_dict({})
    assert fresh.of(3) == {}


def test_a_clients_model_has_its_own_parts_and_the_servers_where_it_returns_none(
    tmp_path: Path,
) -> None:
    codec = PartsCodec(
        ClientModelCache(tmp_path),
        0.0,
        cutoff=0.0,
        returned=lambda parts: ["psi"],
        helpers_of=lambda client: [],
        on_update=lambda client, parts: None,
        compose=compose,
    )
    codec.parts = {"sigma": {"w": np.array([1.0])}, "psi": {"w": np.array([2.0])}}
    reply: Any = SimpleNamespace(content={ARRAYS: to_record({"psi/w": np.array([5.0])})})
    assert codec.model(reply)["w"].tolist() == [6.0]  # not 3, of the server's parts alone
