"""Attacks without a key that read secrets as soon as one random draw of ring-LWE is missing.

Each is run on the scheme as it is, where it is at chance, and on one that lacks the draw, where it
succeeds. Numbers modulo q = 2^96 are looked at modulo small powers of 2, where noise is all that
hides: Delta x vanishes there, a_0 and A_c can be divided by, and secrets are still told apart.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from fedul_flwr.secure.hamming import rlwe
from fedul_flwr.secure.hamming.rlwe import CBD_BITS, DELTA, FLOOD, RLWE, N, Offer, Packing, T, carry
from tests.support.hamming.pairs import play, random_codes, seeded
from tests.support.hamming.reference import Ints, inverse, product, public

BITS = 24
LAYOUT = Packing(1, BITS)
"""Room for N points in a chunk; 24 ciphertexts, more than are made at once."""

CODES = random_codes(2 * N, BITS)
"""Two chunks, both full: all coefficients of all polynomials are sent."""

POLYNOMIALS = 1 + BITS
"""b_0, or a_0, and those of all ciphertexts."""

SESSION = next(
    session
    for session in (bytes([first]) * 32 for first in range(256))
    if public(session, 0)[0].sum() % 2 == 1
)
"""One where a_0 can be divided by, as in every second session."""

DIVISORS = [index for index in range(POLYNOMIALS) if public(SESSION, index)[0].sum() % 2 == 1]

Small = NDArray[np.int8]


def offered() -> tuple[Small, Offer]:
    return rlwe.encrypt(LAYOUT, SESSION, CODES, seeded(1))


def polynomials(offer: Offer) -> NDArray[np.uint32]:
    """Digits ``(3, 2, 25, N)`` of b_0 and b_1 to b_24 of both chunks."""
    bits = offer.bits.reshape(3, 2, N, BITS).swapaxes(2, 3)
    return np.concatenate([offer.keys[:, :, None], bits], axis=2)


def without(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let a random draw give zeros."""
    patch.setattr(rlwe, name, lambda shape, _: np.zeros(shape, np.int8))


def drawn_once(patch: pytest.MonkeyPatch, name: str, axis: int) -> None:
    """Let it give the same along an axis."""
    draw: Callable[..., Small] = getattr(rlwe, name)
    patch.setattr(
        rlwe,
        name,
        lambda shape, entropy: np.repeat(
            draw((*shape[:axis], 1, *shape[axis + 1 :]), entropy), shape[axis], axis
        ),
    )


class TestTheOffer:
    @pytest.mark.parametrize("noisy", [True, False])
    def test_division_by_a_public_polynomial_gives_the_secret_unless_there_is_noise(
        self, monkeypatch: pytest.MonkeyPatch, noisy: bool
    ) -> None:
        if not noisy:
            without(monkeypatch, "binomial")
        secrets, offer = offered()
        low = polynomials(offer)[0].astype(np.int64) % 4
        # b_0, a ciphertext of the first block of 16, and one of the second.
        assert DIVISORS[0] == 0 < DIVISORS[1] < 17 < DIVISORS[-1]
        for index in (DIVISORS[0], DIVISORS[1], DIVISORS[-1]):
            # b = A s + e + Delta x, and Delta is a multiple of 4: without e, s modulo 4 is b / A.
            guesses = product(low[:, index], inverse(public(SESSION, index)[0] % 4, 2)) % 4
            for guess, secret in zip(guesses, secrets, strict=True):
                right = (guess == secret % 4).mean()
                assert right < 0.3 if noisy else right == 1

    def test_no_two_polynomials_have_noise_in_common(self) -> None:
        secrets, offer = offered()
        errors = []
        for chunk, secret in enumerate(secrets.astype(np.int64)):
            for index in range(POLYNOMIALS):
                b = polynomials(offer)[0, chunk, index].astype(np.int64)
                rest = (b - product(public(SESSION, index)[0], secret)) % 2**32
                errors.append((rest + 2**31) % 2**32 - 2**31)
        noise = np.array(errors, dtype=float)
        assert np.abs(noise).max() <= CBD_BITS
        # sqrt(2 / N) · 10.5 = 0.23 and 1 / sqrt(N) = 0.016 are standard deviations.
        assert noise.var(axis=1) == pytest.approx(CBD_BITS / 2, abs=1.5)
        assert np.abs(np.corrcoef(noise) - np.eye(len(noise))).max() < 0.1

    @pytest.mark.parametrize("shared", [False, True])
    def test_differences_of_chunks_are_differences_of_bits_if_they_share_a_secret(
        self, monkeypatch: pytest.MonkeyPatch, shared: bool
    ) -> None:
        if shared:
            drawn_once(monkeypatch, "ternary", 0)
        secrets, offer = offered()
        assert (secrets[0] == secrets[1]).all() == shared
        one, other = np.unpackbits(CODES, axis=1).astype(np.int64).reshape(2, N, BITS)
        b = polynomials(offer)[2, :, 1:].astype(np.int64)
        # The secret's part drops out of the difference, and Delta (x - x') is left of it.
        read = np.rint((b[0] - b[1]) / DELTA) % T
        right = (read == (one - other).T % T).mean()
        assert right > 0.99 if shared else right < 0.01

    def test_no_two_of_all_polynomials_differ_by_bits(self) -> None:
        # As above for any two: with one secret, or with two secrets and one public polynomial
        # whose difference is small, the difference is close to multiples of Delta everywhere.
        _, offer = offered()
        digits = polynomials(offer).reshape(3, -1, N).astype(np.float64)
        numbers = digits[2] + digits[1] / 2**32
        for one, other in itertools.combinations(numbers, 2):
            rest = (one - other) / DELTA
            assert (np.abs(rest - np.rint(rest)) < 2**-10).mean() < 0.01


ROWS = 20
"""Points of the evaluator: more than are answered at once."""


def answered(patch: pytest.MonkeyPatch, ones: Ints) -> Ints:
    """Digits ``(3, rows, N)`` of a' before two are dropped."""
    _, offer = rlwe.encrypt(Packing(1, BITS), SESSION, random_codes(1, BITS), seeded(1))
    whole: list[Any] = []
    with patch.context() as some:
        some.setattr(rlwe, "carry", lambda digits: whole.append(carry(digits)) or [0] * 3)
        rlwe.evaluate([offer], SESSION, 1.0 - 2 * ones, seeded(2))
    return np.asarray(whole[0], dtype=np.int64)


SAME = np.tile(np.random.default_rng(0).integers(0, 2, BITS), (ROWS, 1))
"""Points with equal codes: what differs in their a' is randomness alone."""


class TestTheAnswer:
    @pytest.mark.parametrize("noisy", [True, False])
    def test_a_guess_is_confirmed_by_division_unless_there_is_noise(
        self, monkeypatch: pytest.MonkeyPatch, noisy: bool
    ) -> None:
        if not noisy:
            without(monkeypatch, "binomial")
        ones = np.random.default_rng(1).integers(0, 2, (ROWS, BITS))
        a = answered(monkeypatch, ones)[0] % 4
        inverted = inverse(public(SESSION, 0)[0] % 4, 2)
        each = np.stack([public(SESSION, 1 + c)[0] for c in range(BITS)]) % 4
        wrong = ones.copy()
        wrong[:, 0] = 1 - wrong[:, 0]
        # a' = sum_c w_c A_c + u a_0 + e_1. If the guess of w is right and e_1 is 0, what division
        # leaves is u: -1, 0 or 1, and never 2 modulo 4. One wrong bit adds 2 A_0 / a_0, which makes
        # 2 of every second 0.
        for guess, right in ((ones, True), (wrong, False)):
            left = product((a - (1 - 2 * guess) @ each) % 4, inverted) % 4
            twos = (left == 2).mean(axis=1)
            assert (twos == 0).all() if right and not noisy else (twos > 0.1).all()

    @pytest.mark.parametrize("shared", [False, True])
    def test_of_equal_points_looks_equal_if_they_share_u(
        self, monkeypatch: pytest.MonkeyPatch, shared: bool
    ) -> None:
        if shared:
            with monkeypatch.context() as patch:
                # In blocks of 16 rows: the first and the second of a block.
                drawn_once(patch, "ternary", 0)
                highest = answered(monkeypatch, SAME)[2]
            assert (highest[0] == highest[1]).mean() > 0.99
            return
        highest = answered(monkeypatch, SAME)[2]
        for one, other in itertools.combinations(highest, 2):
            assert (np.abs(one - other) <= 1).mean() < 0.01

    @pytest.mark.parametrize("shared", [False, True])
    def test_of_equal_points_is_found_equal_by_division_if_they_share_noise(
        self, monkeypatch: pytest.MonkeyPatch, shared: bool
    ) -> None:
        if shared:
            drawn_once(monkeypatch, "binomial", 0)
        a = answered(monkeypatch, SAME)[0] % 8
        divided = product(a, inverse(public(SESSION, 0)[0] % 8, 3)) % 8
        # Without e_1 - e_1', what is left is u - u': from -2 to 2, never 3, 4 or 5 modulo 8.
        for (i, one), (j, other) in itertools.combinations(enumerate(divided), 2):
            impossible = np.isin((one - other) % 8, (3, 4, 5)).mean()
            if shared and i // 16 == j // 16:
                assert impossible == 0
            else:
                assert impossible > 0.3

    def test_tells_two_owners_apart_by_masks_of_their_own(self) -> None:
        # Equal codes everywhere: every number that is revealed is a mask.
        same = np.zeros((12, 8), np.uint8)
        played = play(RLWE, dict.fromkeys(range(4), same), entropy=seeded(1))
        told = played.server.items()
        keys = {said[evaluator]["mask-key"].tobytes() for (_, evaluator), said in told}
        masks = [said[owner]["revealed"] for (owner, _), said in told]
        assert len(keys) == len(masks) == 6
        for one, other in itertools.combinations(masks, 2):
            assert (one == other).mean() < 0.1
        for lines in [*masks, *(mask.T for mask in masks)]:
            for one, other in itertools.combinations(lines, 2):
                assert (one == other).mean() < 0.5


LIAR, VICTIM = 0, 1
"""The first owns their pair."""


def agreement(words: NDArray[np.uint32], bits: Ints) -> NDArray[np.float64]:
    """For each bit of ``words`` ``(r, n)``, how often it is that of ``bits``: ``(32, n)``, in
    [0.5, 1], as always and never tell as much."""
    found = [((words >> np.uint32(k) & 1) == bits).mean(axis=0) for k in range(32)]
    return 0.5 + np.abs(np.array(found) - 0.5)


def decrypted_by_a_liar(
    patch: pytest.MonkeyPatch, added: Callable[[NDArray[np.uint32]], None], codes: Any
) -> tuple[NDArray[np.uint32], Any]:
    """What the owner finds in numbers of its pair after ``added`` has changed its ciphertexts."""
    offer = RLWE.offer

    def lying(party: Any, *arguments: Any) -> Any:
        found = offer(party, *arguments)
        if party.client == LIAR:
            added(found.to_evaluators["bits"])
        return found

    patch.setattr(RLWE, "offer", lying)
    patch.setattr(RLWE, "distances", lambda *_: None)  # some are impossible
    played = play(RLWE, codes, entropy=seeded(7))
    return played.server[LIAR, VICTIM][LIAR]["revealed"], played


def masked_as_before(patch: pytest.MonkeyPatch) -> None:
    """Masks that are multiples of Delta, which leave what is below it as it is."""
    masks = rlwe.mask
    patch.setattr(rlwe, "mask", lambda *given: masks(*given) & np.uint32(2**32 - 2**19))


class TestAnOwnerThatLies:
    """It adds to its ciphertexts, and looks for the evaluator's bits in what it decrypts."""

    @pytest.mark.parametrize("masked", [True, False])
    def test_learns_nothing_anywhere(self, monkeypatch: pytest.MonkeyPatch, masked: bool) -> None:
        # Point p adds 2^(p modulo 32) in digit p / 32 to its bit p modulo 64, whose weight is what
        # an evaluator's bit says. Of 1,000 points chance finds 0.5 ± 0.016 of the bits.
        if not masked:
            masked_as_before(monkeypatch)
        points = np.arange(96)

        def added(bits: NDArray[np.uint32]) -> None:
            bits[points // 32, points, points % 64] += np.uint32(1) << (points % 32).astype("u4")

        codes = {LIAR: random_codes(96, 64), VICTIM: random_codes(1000, 64, 1)}
        revealed, _ = decrypted_by_a_liar(monkeypatch, added, codes)
        read = agreement(revealed, np.unpackbits(codes[VICTIM], axis=1)[:, points % 64])
        if masked:
            assert read.max() < 0.5 + 6 * 0.016
        else:
            assert (read.max(axis=0) > 0.99).nonzero()[0].tolist() == [64 + 15, 64 + 16, 64 + 17]

    @pytest.mark.parametrize("masked", [True, False])
    def test_reads_no_three_bits(self, monkeypatch: pytest.MonkeyPatch, masked: bool) -> None:
        # What it adds to bits 3 p to 3 p + 2 makes ±2^15 ± 2^16 ± 2^17, and the flood is narrower
        # than the steps of that sum; the server still finds exact distances.
        if not masked:
            masked_as_before(monkeypatch)
        points = np.arange(80)

        def added(bits: NDArray[np.uint32]) -> None:
            for place in range(3):
                bits[2, points, 3 * points + place] += np.uint32(2 ** (15 + place))

        codes = {LIAR: random_codes(80, 240), VICTIM: random_codes(40, 240, 1)}
        revealed, _ = decrypted_by_a_liar(monkeypatch, added, codes)
        sums = ((revealed + np.uint32(2**18)) % np.uint32(DELTA)).astype(np.int64) - 2**18
        # Sums are odd multiples of 2^15: -7, -5, … 7, which stand for three bits, 1 as minus.
        ones = 7 - np.clip((np.floor(sums / 2**16) + 4).astype(np.int64), 0, 7)
        found = np.stack([ones >> place & 1 for place in range(3)], axis=-1).reshape(40, 240)
        right = (found == np.unpackbits(codes[VICTIM], axis=1)).mean()
        assert right < 0.53 if masked else right > 0.95

    def test_sees_uniform_words_whatever_it_sends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        codes = {LIAR: random_codes(100, 64), VICTIM: random_codes(200, 64, 1)}
        revealed, played = decrypted_by_a_liar(monkeypatch, lambda bits: bits.fill(0), codes)
        for words in (revealed, played.inboxes["reveal"][LIAR][VICTIM]["b"]):
            for shift in (0, 8, 16, 24):
                seen = np.bincount((words >> np.uint32(shift) & 255).ravel(), minlength=256)
                assert chisquare(seen).pvalue > 1e-3


class TestAnEvaluatorThatLies:
    @pytest.mark.parametrize("fill", [0, 2**31, 2**32 - 1, None])
    def test_gets_no_answer_to_what_it_sends(self, fill: int | None) -> None:
        """What it sends is decrypted for the server alone, and no value makes the owner fail."""
        codes = {LIAR: random_codes(5, 64), VICTIM: random_codes(6, 64, 1)}
        played = play(RLWE, codes)
        honest = played.inboxes["reveal"][LIAR][VICTIM]
        random = np.random.default_rng(3)
        lie = {
            name: random.integers(0, 2**32, words.shape, np.uint32)
            if fill is None
            else np.full_like(words, fill)
            for name, words in honest.items()
        }
        result = played.turn("reveal", LIAR, {VICTIM: lie})
        assert (result.to_peers, result.to_evaluators, result.to_owners) == ({}, {}, {})
        assert {*result.to_server} == {VICTIM}
        assert result.to_server[VICTIM]["revealed"].shape == (6, 5)


class TestMasksAndFlood:
    def test_the_flood_is_uniform_in_every_bit_of_80(self) -> None:
        low, middle, high = rlwe.flood((300, 100), seeded(4))
        assert (high.min(), high.max()) == pytest.approx((-FLOOD, FLOOD - 1), abs=30)
        assert -FLOOD <= high.min() < high.max() < FLOOD
        for digits, shifts in ((low, (0, 8, 16, 24)), (middle, (0, 8, 16, 24)), (high, (0, 8))):
            for shift in shifts:
                seen = np.bincount((digits.astype(np.int64) >> shift & 255).ravel(), minlength=256)
                assert chisquare(seen).pvalue > 1e-3

    def test_the_flood_covers_the_noise(self) -> None:
        # sum_k w_k e_k of at most T - 1 bits, u e_0 and s e_1 of N products each, and e_2, of
        # numbers up to 21. A uniform number that is moved by as much is within that / 2^80.
        largest = CBD_BITS * (T - 1 + 2 * N + 1)
        assert largest < 2**19
        assert largest / (2 * FLOOD * 2.0**64) < 2**-61
        # With it, a number is still nearer to its multiple of Delta = 2^83 than to the next.
        assert FLOOD * 2.0**64 + largest + (N + 1) * 2.0**64 < DELTA * 2.0**64 / 2
