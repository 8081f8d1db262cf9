"""Integers of 640 bits: masks cancel, carries reach every digit, and masked ones are noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from fedul_flwr.secure.column_sums import BYTES, DIGITS, LARGEST, Digits, masked, total
from fedul_flwr.secure.session import keystream
from tests.secure.test_masks import chi_square, keys_of
from tests.support.refusals import refuses

CLIENTS = [0, 4, 7]


def hidden(numbers: dict[int, list[int]], attempt: int = 0) -> dict[int, Digits]:
    """What each client sends."""
    clients = [*numbers]
    return {own: masked(numbers[own], keys_of(own, clients, attempt), own) for own in clients}


def test_given_no_mask_then_digits_are_those_of_the_number() -> None:
    found = masked([1, 2**32 + 5, -1], {}, 0)
    assert found.shape == (3, DIGITS)
    assert found[0].tolist() == [1] + [0] * 19
    assert found[1].tolist() == [5, 1] + [0] * 18
    assert found[2].tolist() == [2**32 - 1] * 20  # modulo 2^640


def test_a_mask_by_hand() -> None:
    # Client 5 adds what it has in common with 9 and takes off what it has in common with 2.
    keys = {9: bytes(32), 2: bytes(31) + b"\1"}
    plus, minus = (int.from_bytes(keystream(k, BYTES).tobytes(), "little") for k in keys.values())
    found = int.from_bytes(masked([11], keys, 5).tobytes(), "little")
    assert found == (11 + plus - minus) % 2**640


@pytest.mark.parametrize("count", range(2, 7))
def test_given_all_participants_then_the_sum_is_exact(count: int) -> None:
    rng = np.random.default_rng(count)

    def drawn() -> int:
        return int.from_bytes(rng.bytes(77), "little") % (2 * LARGEST) - LARGEST + 1

    numbers = {7 * c % 11: [drawn(), drawn(), 0, -1, 1 - LARGEST] for c in range(count)}
    sent = hidden(numbers)
    assert total(sent.values()) == [sum(column) for column in zip(*numbers.values(), strict=True)]
    # Without one of them masks stay, and the rest is far from any sum.
    del sent[0]
    assert min(map(abs, total(sent.values()))) > 2**600


def test_given_a_thousand_participants_then_carries_reach_the_last_digit() -> None:
    assert total([masked([-1], {}, 0)] * 1000 + [masked([1000], {}, 0)]) == [0]
    assert total([masked([2**600 - 1], {}, 0)] * 1000) == [1000 * (2**600 - 1)]


def test_what_a_client_sends_is_uniform() -> None:
    # 100 numbers of 80 bytes: 31 for each value of a byte; keys are fixed.
    numbers = {client: [client << 300] * 100 for client in CLIENTS}
    limit = chi2.isf(1e-6, 255)
    for client, sent in hidden(numbers).items():
        assert chi_square(sent) < limit
        assert chi_square(masked(numbers[client], {}, client)) > 10 * limit


def test_given_fresh_masks_then_every_digit_is_another() -> None:
    numbers = {client: [client << 300] * 20 for client in CLIENTS}
    first, second = hidden(numbers, 0), hidden(numbers, 1)
    # 400 digits of 32 bits: two that are equal by chance are one case in 10^7.
    assert all((first[client] != second[client]).all() for client in CLIENTS)


@pytest.mark.parametrize("number", [LARGEST, -LARGEST])
def test_a_number_that_could_overflow_the_sum_is_refused(number: int) -> None:
    with refuses("array-wrong", match="float32"):
        masked([0, number], {}, 0)
