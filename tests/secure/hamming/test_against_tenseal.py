"""Another implementation gives the same distances: BFV of Microsoft SEAL, through TenSEAL.

TenSEAL is for this test alone: ``pip install 'fedul-flwr[crosscheck]'``, or ``make crosscheck``. It
is no backend, as its BFV has no room for a flood (docs/privacy.md).
"""

from typing import Any

import numpy as np
import pytest

from fedul_flwr.arrays import Bytes, Ints
from fedul_flwr.secure.encrypted_distances import hamming_protocol
from tests.support.hamming.pairs import plain_distances, play, random_codes

tenseal: Any = pytest.importorskip("tenseal", reason="TenSEAL is not installed (make crosscheck)")

CODES = {0: random_codes(5, 64), 1: random_codes(4, 64, 1)}
"""Client 0 owns the pair."""


def distances_by_bfv(owner: Bytes, evaluator: Bytes) -> Ints:
    """A ciphertext holds one bit of all the owner's points; sums of them, added and subtracted."""
    context = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=4096, plain_modulus=1032193
    )
    bits = np.unpackbits(owner, axis=1).T.tolist()
    encrypted = [tenseal.bfv_vector(context, bit) for bit in bits]
    found = []
    for y in np.unpackbits(evaluator, axis=1).tolist():
        # sum_k y_k + sum_k (1 - 2 y_k) b_k
        total = tenseal.bfv_vector(context, [sum(y)] * len(owner))
        for ciphertext, one in zip(encrypted, y, strict=True):
            total = total - ciphertext if one else total + ciphertext
        found.append(total.decrypt())
    return np.array(found).T


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n == "paillier" else [])
        for n in ("rlwe", "paillier", "ot")
    ],
)
def test_each_protocol_gives_the_distances_of_another_implementation(name: str) -> None:
    found = distances_by_bfv(*CODES.values())
    np.testing.assert_array_equal(found, plain_distances(*CODES.values()))
    np.testing.assert_array_equal(play(hamming_protocol(name), CODES).distances[0, 1], found)
