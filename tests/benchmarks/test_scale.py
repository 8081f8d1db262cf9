"""The table of what rounds of many clients take."""

import pytest

from benchmarks import scale
from fedul_flwr.secure.encrypted_distances import BACKENDS

ONES: dict[str, dict[str, float]] = {
    "membership": dict.fromkeys(("once", "round", "reply", "described", "prepare_down"), 1.0),
    "aggregation": dict.fromkeys(
        ("fedavg", "fedmedian", "krum", "check", "encode", "decode"), 0.001
    ),
    "propagation": {"pair": 1e-8, "column": 1e-6},
}


def costs(method: str, quantity: str, clients: int) -> float:
    formula, _ = scale.methods(ONES, model=2_000_000)[method][quantity]
    return formula(clients)


def test_quantities_by_hand() -> None:
    # 1 s a reply, and 2 MB of 0.001 s to check and as much to combine.
    assert costs("a model each way", "processor", 10) == pytest.approx(10 * 1.004)
    assert costs("the same on krum", "processor", 10) == pytest.approx(100 * 2 * 0.001)
    # 10 clients have 1,000 points, 100 of them labeled.
    assert costs("xclp, plaintext", "processor", 10) == pytest.approx(1e6 / 2 * 1e-8 + 1e5 * 1e-6)
    # uint16 of 1,000 x 1,000; in groups of 20 always 2,000 x 2,000.
    assert costs("compared in secret, rlwe", "distances at the server", 10) == 2e6
    assert costs("the same in groups of 20, rlwe", "distances at the server", 100) == 8e6


@pytest.mark.parametrize("name", ["rlwe", "ot", "paillier"])
def test_backends_are_extrapolated_exactly(name: str) -> None:
    found = scale.secret(name)["bytes from clients"][0](37)
    assert found == pytest.approx(BACKENDS[name].cost([scale.POINTS] * 37, scale.SMALLER).traffic)
