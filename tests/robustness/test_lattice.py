"""What breaking ring-LWE takes: published figures of other parameters, and ours in privacy.md."""

from math import log2, pi, sqrt
from pathlib import Path

import pytest

from fedul_flwr.secure.hamming import rlwe as ring
from robustness.lattice import (
    LWE,
    OURS,
    TERNARY,
    core_svp,
    core_svp_quantum,
    dual,
    gates,
    primal,
    standard,
    standard_quantum,
)

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
KYBER512 = LWE(512, log2(3329), sqrt(3 / 2), sqrt(3 / 2))


def test_kyber512_has_its_published_strength() -> None:
    # Its specification, version 3.02, table 4: core-SVP 118, quantum 107, block size 406.
    found = primal(KYBER512)
    assert found.beta == 406
    assert (int(core_svp(found)), int(core_svp_quantum(found))) == (118, 107)
    # The lattice-estimator with the cost model MATZOV: 2^143.8 gates.
    assert gates(found) == pytest.approx(143.8, abs=0.1)


@pytest.mark.parametrize(
    ("n", "log_q", "published", "log_q_quantum"), [(1024, 27, 131.6, 25), (8192, 218, 128.5, 202)]
)
def test_of_the_standards_tables(n: int, log_q: int, published: float, log_q_quantum: int) -> None:
    # Rows of 128 bits with ternary secrets: column uSVP of table 1, and log q of table 2.
    noise = 8 / sqrt(2 * pi)
    assert standard(primal(LWE(n, log_q, TERNARY, noise))) == pytest.approx(published, abs=0.3)
    assert standard_quantum(primal(LWE(n, log_q_quantum, TERNARY, noise))) > 128


def test_of_ours_as_the_page_says_and_as_the_lattice_estimator_finds() -> None:
    # github.com/malb/lattice-estimator at 27a581b: LWE.primal_usvp has beta 394 and 2^115.0,
    # 2^104.4 (quantum) and 2^144.1 (MATZOV); LWE.dual has 2^115.6, 2^104.9 and 2^145.6.
    assert (OURS.n, OURS.log_q) == (ring.N, 32 * ring.DIGITS) == (4096, 96)
    found = primal(OURS)
    assert found.beta == 394
    assert [cost(found) for cost in (core_svp, core_svp_quantum, gates)] == pytest.approx(
        [115.0, 104.4, 144.1], abs=0.1
    )
    assert [cost(dual(OURS, cost)) for cost in (core_svp, core_svp_quantum)] == pytest.approx(
        [115.6, 104.9], abs=1
    )
    assert gates(dual(OURS, gates)) == pytest.approx(145.6, abs=2)
    page = PAGE.read_text()
    for cost in (core_svp, core_svp_quantum, gates, standard, standard_quantum):
        row = f"| {cost(found):.1f} | {cost(dual(OURS, cost)):.1f} |"
        assert row in page


def test_noise_and_secrets_are_as_the_estimate_takes_them() -> None:
    noise, secret = ring.binomial((500, 500), bytes), ring.ternary((500, 500), bytes)
    assert noise.std() == pytest.approx(OURS.noise, rel=0.01)
    assert secret.std() == pytest.approx(OURS.secret, rel=0.01)
