"""Parties whose propagation is secure: few points, every kind of them, and every protocol."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.types import Propagated
from fedul_flwr.secure.encrypted_distances import BACKENDS, secure_backend
from tests.propagation.conftest import clusters
from tests.support.toy_protocol import Toy
from tests.support.xclp_parties import Parties, split

PartiesT = TypeVar("PartiesT", bound=Parties)

BITS = 64
SIZES = [18, 9, 14, 11]
OWNERS = np.repeat(np.arange(4), SIZES)
FEATURES, CLASSES = clusters(52)
FEATURES[[0, 4, 30]] = 0  # of clients 0 and 2; the first one has a label
LABELS: NDArray[np.int64] = np.where(
    (np.arange(52) % 4 == 0) & (OWNERS != 1) & (np.arange(52) != 4), CLASSES.astype(np.int64), -1
)
assert {*LABELS[OWNERS != 1].tolist()} == {-1, 0, 1, 2, 3, 4}
assert (LABELS[OWNERS == 1] == -1).all()

TOY = "toy"
PROTOCOLS = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "paillier" else [])
    for name in (TOY, "rlwe", "paillier", "ot")
]


def borrowed(monkeypatch: pytest.MonkeyPatch) -> str:
    name = "rlwe"
    monkeypatch.setitem(BACKENDS, name, secure_backend(Toy()))  # type: ignore[arg-type]
    return name


def parties(secure: str, kind: type[PartiesT] = Parties, **more: Any) -> PartiesT:  # type: ignore[assignment]
    """Four clients, three with labels; the seed of their codes is the run's, and any number of
    clients with labels is enough, unless something else is asked for."""
    options = {"xclp.num-bits": BITS, "xclp.k": 5, "xclp.secure": secure}
    if secure != "plaintext":
        options |= {"xclp.codes-seed": "run", "xclp.min-labeled-clients": 1}
    options |= more.pop("options", {})
    return kind(**split(FEATURES, LABELS, SIZES), options=options, **more)


def assert_same(found: Mapping[int, Propagated], expected: Mapping[int, Propagated]) -> None:
    """Bit for bit."""
    assert list(found) == list(expected)
    for client, one in found.items():
        np.testing.assert_array_equal(one.labels, expected[client].labels)
        assert one.confidence.tobytes() == expected[client].confidence.tobytes()
    assert any((one.labels >= 0).any() for one in found.values())
