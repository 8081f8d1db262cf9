"""Uniform and Gaussian numbers by hand, and at the ends of what raw bits can be."""

from __future__ import annotations

import numpy as np

from fedul_flwr.propagation.codes import gaussians, uniforms


def test_uniforms_by_hand() -> None:
    # The highest 53 of 64 bits, over 2^53.
    raw = np.array([0, 2**11 - 1, 2**11, 2**63, 2**64 - 1], dtype=np.uint64)
    assert uniforms(raw).tolist() == [0, 0, 2.0**-53, 0.5, 1 - 2.0**-53]
    assert uniforms(raw.reshape(1, 5)).shape == (1, 5)


def test_gaussians_by_hand() -> None:
    # u = 1/2 and 1/4: radius √(-2 log(1/2)) = 1.1774100, angle π/2. u = 0: radius 0.
    raw = np.array([2**63, 2**62, 0, 2**63], dtype=np.uint64)
    np.testing.assert_allclose(gaussians(raw), [0, 1.1774100, 0, 0], atol=1e-7)
    assert gaussians(raw[:0]).shape == (0,)


def test_the_largest_gaussian() -> None:
    # u = 1 - 2^-53: radius √(-2 log 2^-53) = √(106 log 2) = 8.5717.
    found = gaussians(np.array([2**64 - 1, 0], dtype=np.uint64))
    np.testing.assert_allclose(found, [np.sqrt(106 * np.log(2)), 0])
