"""The ring Z[X] / (X^N + 1) modulo q = 2^96: products, public and small random polynomials.

An integer modulo q has three digits of 32 bits, lowest first, on the first axis of an array. Words
are uint32 digits; digits in sums are float64, exact while they are below 2^53.

One factor of a product has coefficients -1, 0 or 1. Digit by digit, products are sums of at most
2^13 numbers below 2^32: float64 is exact to 2^-8 there, and the error of its transforms is 2^-10
for random digits and below 1/4 if all digits are largest (measured). So rounding gives the exact
integer.
"""

from __future__ import annotations

import hashlib
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import fft, ifft, irfft, rfft

from fedul_flwr.data.types import Floats
from fedul_flwr.secure.randomness import KEY_BYTES, Entropy, fresh, keystream

Words = NDArray[np.uint32]
Small = NDArray[np.int8]
Spectra = NDArray[np.complex128]

N = 4096
"""Coefficients of a polynomial."""

DIGITS = 3
BASE = 2.0**32

CBD_BITS = 21
"""eta: the noise is the difference of two sums of 21 random bits each."""

_HALF = N // 2
_TWIST = np.exp(1j * np.pi / N * np.arange(_HALF))
_LABEL = b"rlwe"

# Measured: longer ones need fewer products, but more work for the transforms.
_MOST_TAPS = 16
_BLOCK = 32


def public_polynomials(session: bytes, indices: range) -> Words:
    """Uniform public polynomials, expanded from the session by a hash.

    Parameters
    ----------
    session : 32 bytes.
    indices : indices of the polynomials, below 2^32.

    Returns
    -------
    ``(3, len(indices), N)``. Index i has the key SHAKE128(session ‖ "rlwe" ‖ i) of 32 bytes, i in 4
    bytes; coefficient j is bytes 12 j … 12 j + 11 of its ChaCha20 stream. All is little endian.
    """
    seeds = (session + _LABEL + index.to_bytes(4, "little") for index in indices)
    keys = (hashlib.shake_128(seed).digest(KEY_BYTES) for seed in seeds)
    streams = [keystream(key, 4 * DIGITS * N).view("<u4") for key in keys]
    return np.moveaxis(np.stack(streams).reshape(-1, N, DIGITS), -1, 0)


def spectrum(polynomials: NDArray[np.number]) -> Spectra:
    """Values at N / 2 of the complex roots of X^N + 1; the others are their conjugates.

    a_j + i a_(j + N/2) is the polynomial modulo X^(N/2) - i, and X = zeta Z, zeta^(N/2) = i, makes
    that Z^(N/2) - 1 (the right-angle convolution of Crandall and Fagin 1994).

    Parameters
    ----------
    polynomials : real ``(…, N)``.

    Returns
    -------
    ``(…, N / 2)``; the product of two is that of the product modulo X^N + 1.
    """
    folded = np.empty((*polynomials.shape[:-1], _HALF), dtype=np.complex128)
    folded.real = polynomials[..., :_HALF]
    folded.imag = polynomials[..., _HALF:]
    folded *= _TWIST
    spectra: Spectra = fft(folded, overwrite_x=True)
    return spectra


def coefficients(spectra: Spectra, step: int = 1) -> Floats:
    """Coefficients 0, step, 2 step … of polynomials, from their :func:`spectrum`.

    Parameters
    ----------
    spectra : ``(…, N / 2)``; overwritten.
    step : a power of two up to N / 2.

    Returns
    -------
    ``(…, N / step)``, not rounded.
    """
    if step > 1:  # the mean over all spectra that agree at these positions
        aliases = spectra.reshape(*spectra.shape[:-1], step, _HALF // step)
        spectra = aliases.sum(axis=-2)
        spectra /= step
    folded = ifft(spectra, overwrite_x=True)
    folded *= _TWIST[::step].conj()
    return np.concatenate([folded.real, folded.imag], axis=-1)


def weighted_sums(weights: Floats, polynomials: Words) -> Floats:
    """Sums of polynomials, each multiplied by one in X^-1 with few coefficients.

    Row q is sum_c w_qc(1/X) A_c(X), where coefficient i is sum_c sum_m w_qcm A_c[i + m] and
    A_c[N + i] = -A_c[i]. For each c that is a correlation; for all c it is a matrix product, n by C
    by N / block, for each of the K products of :func:`_correlation`. For beta = 8 that is less work
    than two of n by C by N, and without transforms there would be eight.

    Parameters
    ----------
    weights : -1, 0 or 1, ``(n, C, beta)``, beta a power of two, at most 2^13 in a row.
    polynomials : ``(3, C, N)``.

    Returns
    -------
    Digits ``(3, n, N)``, integers up to rounding errors.
    """
    num_rows, num_polynomials, beta = weights.shape
    taps = min(beta, _MOST_TAPS)
    block = _BLOCK if taps > 1 else 1
    num_parts = num_polynomials * beta // taps
    of_weights, of_stretches, back = _correlation(taps, block)
    left = (of_weights @ weights.reshape(-1, taps).T).reshape(len(back), num_rows, num_parts)
    sums = np.empty((DIGITS, num_rows, N))
    for digit, target in zip(polynomials, sums, strict=True):
        stretches = _stretches(digit, beta, taps, block)
        right = (of_stretches @ stretches.T).reshape(len(back), num_parts, N // block)
        products = (left @ right).reshape(len(back), -1)
        np.matmul(products.T, back, out=target.reshape(-1, block))
    return sums


def _correlation(taps: int, block: int) -> tuple[Floats, Floats, Floats]:
    """Matrices F, G, H with sum_m w_m a_(i + m) = sum_k H_ki (F w)_k (G a)_k for i < block.

    A Fourier transform of ``block + taps - 1`` numbers, whose wrap-around does not affect the first
    ``block`` (overlap-save). A product of complex numbers takes three real products (Gauss):
    (w - iv)(a + ib) = wa + vb + i((w - v)(a + b) - wa + vb).

    Returns
    -------
    ``(K, taps)``, ``(K, block + taps - 1)`` and ``(K, block)``; one product each if ``taps`` and
    ``block`` are 1.
    """
    length = block + taps - 1
    waves = rfft(np.eye(length), axis=0)
    of_weights = np.concatenate([waves.real, waves.imag, waves.real - waves.imag])[:, :taps]
    of_stretches = np.concatenate([waves.real, waves.imag, waves.real + waves.imag])
    real, imag = (irfft(unit * np.eye(len(waves)), length)[:, :block] for unit in (1, 1j))
    back = np.concatenate([real - imag, real + imag, imag])
    used = of_weights.any(axis=1) & back.any(axis=1)  # the constant has no imaginary part
    return of_weights[used], of_stretches[used], back[used]


def _stretches(digit: Words, beta: int, taps: int, block: int) -> Floats:
    """Coefficients that ``taps`` of a weight's ``beta`` are multiplied by, for ``block`` results.

    ``(C · beta / taps · N / block, block + taps - 1)``: stretch (c, j, i) begins with coefficient
    j taps + i block of polynomial c.
    """
    turned = np.empty((len(digit), N + beta - 1))
    turned[:, :N] = digit
    np.negative(turned[:, : beta - 1], out=turned[:, N:])
    shifted = sliding_window_view(turned, N + taps - 1, axis=-1)[:, ::taps]
    stretches = sliding_window_view(shifted, block + taps - 1, axis=-1)[:, :, ::block]
    return stretches.reshape(-1, block + taps - 1)


def carry(digits: Floats) -> Words:
    """Round digits ``(3, …)`` of any size, and carry them: a number modulo q."""
    words = np.empty(digits.shape, dtype=np.uint32)
    over: Floats | float = 0.0
    for digit, word in zip(digits, words, strict=True):
        total = np.rint(digit)
        total += over
        over = np.floor(total / BASE)
        total -= over * BASE
        word[...] = total
    return words


def ternary(shape: tuple[int, ...], entropy: Entropy) -> Small:
    """Uniform on -1, 0 and 1: 64 bits modulo 3, with a bias of 2^-64."""
    words = fresh(8 * prod(shape), entropy).view(np.uint64).reshape(shape)
    trits: Small = (words % np.uint64(3)).astype(np.int8) - np.int8(1)
    return trits


def binomial(shape: tuple[int, ...], entropy: Entropy) -> Small:
    """Centered binomial, eta = 21: between -21 and 21, with variance 21 / 2."""
    words = fresh(8 * prod(shape), entropy).view(np.uint64).reshape(shape)
    heads = np.bitwise_count(words & np.uint64(2 ** (2 * CBD_BITS) - 1))
    noise: Small = heads.astype(np.int8) - np.int8(CBD_BITS)
    return noise
