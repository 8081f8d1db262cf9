import random

import numpy as np
import pytest

from fedul_flwr.secure.hamming.rlwe import (
    DIGITS,
    N,
    carry,
    coefficients,
    public_polynomials,
    spectrum,
    ternary,
    weighted_sums,
)
from tests.support.hamming.pairs import SESSION

Q = 2**96


def integers(words: np.ndarray) -> np.ndarray:
    """Python's integers from digits on the first axis."""
    return sum(words[digit].astype(object) << 32 * digit for digit in range(DIGITS))


def product_coefficient(a: np.ndarray, b: np.ndarray, index: int) -> int:
    """Coefficient of a b modulo X^N + 1, of integers, by the definition."""
    return sum(
        int(a[i]) * int(b[(index - i) % N]) * (1 if i <= index else -1)
        for i in range(N)
        if b[(index - i) % N]
    )


class TestProducts:
    def test_of_dense_polynomials_are_those_of_integers(self) -> None:
        a = public_polynomials(SESSION, range(1))[:, 0]
        s = ternary((N,), random.Random(1).randbytes)
        product = integers(carry(coefficients(spectrum(a) * spectrum(s))))
        for index in (0, 1, 2047, 2048, N - 1):
            assert product[index] == product_coefficient(integers(a), s, index) % Q

    def test_round_to_the_exact_one_where_digits_and_sums_are_largest(self) -> None:
        # All digits 2^32 - 1, all of s 1: coefficient i is (2^32 - 1) (i + 1 - (N - 1 - i)).
        product = coefficients(spectrum(np.full(N, 2.0**32 - 1)) * spectrum(np.ones(N)))
        expected = (2.0**32 - 1) * (2 * np.arange(N) + 2 - N)
        assert np.abs(product - expected).max() < 2**-6

    def test_wrap_round_with_a_minus(self) -> None:
        # (2 X^(N-1) + 5) X = 5 X - 2.
        a, x = np.zeros(N), np.zeros(N)
        a[[0, N - 1]], x[1] = (5, 2), 1
        product = np.rint(coefficients(spectrum(a) * spectrum(x)))
        assert dict(zip(*np.nonzero(product), product[product != 0], strict=True)) == {0: -2, 1: 5}

    @pytest.mark.parametrize("step", [2, 16, 2048])
    def test_at_some_places_only(self, step: int) -> None:
        spectra = spectrum(public_polynomials(SESSION, range(2)))
        assert coefficients(spectra.copy(), step) == pytest.approx(
            coefficients(spectra)[..., ::step], abs=1e-3
        )


class TestWeightedSums:
    @pytest.mark.parametrize(
        ("beta", "count"), [(1, 5), (2, 3), (4, 2), (8, 64), (16, 4), (64, 2), (2048, 1)]
    )
    def test_are_those_of_integers(self, beta: int, count: int) -> None:
        polynomials = public_polynomials(SESSION, range(count))
        weights = np.random.default_rng(beta).integers(-1, 2, (3, count, beta))
        sums = np.rint(weighted_sums(weights.astype(float), polynomials)).astype(np.int64)
        wide = polynomials.astype(np.int64)
        turned = np.concatenate([wide, -wide], axis=-1)
        for index in (0, 1, 31, 32, N - 1):
            met = turned[:, :, index : index + beta]
            assert (sums[:, :, index] == np.einsum("qcm,dcm->dq", weights, met)).all()

    def test_are_exact_at_full_size(self) -> None:
        # Digits 2^32 - 1 and weights 1: a sum of 8 · 512 digits, of which those beyond X^N are
        # negative.
        polynomials = np.full((DIGITS, 512, N), 2**32 - 1, dtype=np.uint32)
        sums = weighted_sums(np.ones((1, 512, 8)), polynomials)
        beyond = np.maximum(0, np.arange(N) + 8 - N)
        expected = (2.0**32 - 1) * 512 * (8 - 2 * beyond)
        assert np.abs(sums - expected).max() < 1 / 4

    def test_of_no_rows(self) -> None:
        assert weighted_sums(np.ones((0, 2, 8)), public_polynomials(SESSION, range(2))).size == 0


class TestCarry:
    def test_by_hand(self) -> None:
        # -1 = q - 1; 2^32 + (2^32 - 1) 2^32 = 2^64; 2^96 = 0; 0.4 and -0.4 are 0.
        digits = np.array([[-1, 2**32, 0, 0.4], [0, 2**32 - 1, 0, -0.4], [0, 0, 2**32, 0]])
        top = 2**32 - 1
        assert carry(digits).T.tolist() == [[top, top, top], [0, 0, 1], [0, 0, 0], [0, 0, 0]]

    def test_is_the_integer_modulo_q(self) -> None:
        digits = np.random.default_rng(0).integers(-(2**52), 2**52, (DIGITS, 50))
        expected = [
            sum(int(digit) << 32 * place for place, digit in enumerate(column)) % Q
            for column in digits.T
        ]
        assert integers(carry(digits.astype(float))).tolist() == expected
