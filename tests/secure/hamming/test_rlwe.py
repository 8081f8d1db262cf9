"""Distances by ring-LWE: the ring's arithmetic, equality, noise, transcripts, refusals, cost."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fedul_flwr.arrays import Bytes, Floats, Ints
from fedul_flwr.secure.hamming import rlwe
from fedul_flwr.secure.hamming.rlwe import (
    DELTA,
    DIGITS,
    FLOOD,
    RLWE,
    N,
    Packing,
    carry,
    coefficients,
    packing,
    public_polynomials,
    spectrum,
    ternary,
    weighted_sums,
)
from tests.support.hamming.pairs import (
    SESSION,
    Played,
    changed,
    check,
    parties,
    plain_distances,
    play,
    random_codes,
    seeded,
    traffic,
)
from tests.support.hamming.reference import integers, product
from tests.support.refusals import refuses


class TestProducts:
    def test_of_dense_polynomials_are_those_of_integers(self) -> None:
        a = public_polynomials(SESSION, range(1))[:, 0]
        s = ternary((N,), random.Random(1).randbytes)
        result = carry(coefficients(spectrum(a) * spectrum(s)))
        assert integers(result) == integers(product(a.astype(np.int64), s.astype(np.int64)))

    def test_round_to_the_exact_one_where_digits_and_sums_are_largest(self) -> None:
        # All digits 2^32 - 1, all of s 1: coefficient i is (2^32 - 1) (i + 1 - (N - 1 - i)).
        result = coefficients(spectrum(np.full(N, 2.0**32 - 1)) * spectrum(np.ones(N)))
        expected = (2.0**32 - 1) * (2 * np.arange(N) + 2 - N)
        assert np.abs(result - expected).max() < 2**-6


class TestWeightedSums:
    def test_are_exact_at_full_size(self) -> None:
        # Digits 2^32 - 1 and weights 1: a sum of 8 · 512 digits, of which those beyond X^N are
        # negative.
        polynomials = np.full((DIGITS, 512, N), 2**32 - 1, dtype=np.uint32)
        sums = weighted_sums(np.ones((1, 512, 8)), polynomials)
        beyond = np.maximum(0, np.arange(N) + 8 - N)
        expected = (2.0**32 - 1) * 512 * (8 - 2 * beyond)
        assert np.abs(sums - expected).max() < 1 / 4


class TestCarry:
    def test_by_hand(self) -> None:
        # -1 = q - 1; 2^32 + (2^32 - 1) 2^32 = 2^64; 2^96 = 0; 0.4 and -0.4 are 0.
        digits = np.array([[-1, 2**32, 0, 0.4], [0, 2**32 - 1, 0, -0.4], [0, 0, 2**32, 0]])
        top = 2**32 - 1
        assert carry(digits).T.tolist() == [[top, top, top], [0, 0, 1], [0, 0, 0], [0, 0, 0]]

    def test_is_the_integer_modulo_q(self) -> None:
        digits = np.random.default_rng(0).integers(-(2**52), 2**52, (DIGITS, 50))
        assert integers(carry(digits.astype(float))) == integers(digits)


def some_codes(sizes: list[int], num_bits: int, seed: int = 0) -> dict[int, Bytes]:
    """Of clients 3, 4 and so on."""
    return {
        client: random_codes(size, num_bits, seed + client)
        for client, size in enumerate(sizes, start=3)
    }


class TestDistances:
    @pytest.mark.parametrize(
        ("sizes", "num_bits"),
        [
            ([20, 20], 256),
            ([1, 1], 8),
            ([1, 7, 3, 12], 64),
            ([0, 5, 2], 16),
            ([0, 0], 8),
            ([300, 2], 88),  # beta = 8: 11 ciphertexts
            ([100, 3], 72),  # beta = 32, which 72 is no multiple of
            ([2, 2], 8184),  # the longest codes
            ([4100, 3], 16),  # the first has more points than N: two chunks
            ([3, 4100], 8),
        ],
    )
    def test_are_those_of_the_codes(self, sizes: list[int], num_bits: int) -> None:
        played = play(RLWE, some_codes(sizes, num_bits))
        assert len(played.distances) == len(sizes) * (len(sizes) - 1) // 2
        check(played)

    def test_of_rows_and_ciphertexts_in_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, size in (("_ROWS", 3), ("_CIPHERTEXTS", 2), ("_CACHED", 2)):
            monkeypatch.setattr(rlwe, name, size)
        check(play(RLWE, some_codes([7, 600], 24)))

    @pytest.mark.parametrize("value", [0x00, 0xFF])
    def test_of_equal_and_of_opposite_points(self, value: int) -> None:
        constant = np.full((3, 8), value, dtype=np.uint8)
        played = play(RLWE, {0: constant, 1: constant, 2: ~constant})
        assert (played.distances[0, 1] == 0).all()
        assert (played.distances[2, 0] == 64).all()
        assert (played.distances[1, 2] == 64).all()

    @pytest.mark.parametrize("step", ["offer", "answer", "reveal"])
    def test_of_those_who_stay(self, step: str) -> None:
        played = play(RLWE, some_codes([4, 5, 6, 3], 32), gone={step: [4]})
        assert {client for pair in played.distances for client in pair} == {3, 5, 6}
        check(played)


class TestPacking:
    @pytest.mark.parametrize(
        ("largest", "beta", "slots"),
        [(0, 2048, 2), (2, 2048, 2), (3, 1024, 4), (500, 8, 512), (4096, 1, N), (5000, 1, N)],
    )
    def test_has_room_for_the_largest_client(self, largest: int, beta: int, slots: int) -> None:
        layout = packing({0: largest, 1: 0}, 24)
        assert (layout.beta, layout.slots) == (beta, slots)
        assert layout.ciphertexts == max(1, 24 // beta)

    @pytest.mark.parametrize(
        ("num_bits", "code"), [(8192, "setting-out-of-range"), (12, "argument-not-allowed")]
    )
    def test_refuses_codes_of_other_lengths(self, num_bits: int, code: str) -> None:
        party = parties(some_codes([1, 1], 8), SESSION, seeded(0))[3]
        with refuses(code, match=str(num_bits)):
            RLWE.prepare(replace(party, num_bits=num_bits))


def offered_noise(session: bytes, secrets: Any, offer: rlwe.Offer) -> Floats:
    """What its owner knows: e of all its bits, ``(points, L)``, for beta = 1."""
    digits = offer.bits.astype(np.float64)
    for chunk, secret in zip(offer.chunks, secrets, strict=True):
        public = public_polynomials(session, range(1, 1 + offer.layout.num_bits))
        products = coefficients(spectrum(public) * spectrum(secret))
        digits[:, chunk] -= np.swapaxes(products, 1, 2)[:, : chunk.stop - chunk.start]
    return centered(carry(digits))


def centered(words: Any) -> Floats:
    """The number modulo q less the nearest multiple of Delta."""
    high = (words[2].astype(np.int64) + 2**18) % 2**19 - 2**18
    return (high * 2**32 + words[1]) * 2.0**32 + words[0]


def decryption_noise(played: Played, owner: int, evaluator: int) -> Floats:
    """What the server finds beside multiples of Delta, in units of 2^64."""
    said = played.server[owner, evaluator]
    revealed, key = said[owner]["revealed"], said[evaluator]["mask-key"].tobytes()
    noisy = (revealed - rlwe.mask(key, revealed.shape)).astype(np.float64)
    return noisy - DELTA * np.rint(noisy / DELTA)


class TestNoise:
    def test_is_the_flood_and_little_else(self) -> None:
        codes = some_codes([60, 60], 512)
        noise = decryption_noise(play(RLWE, codes, entropy=seeded(1)), 3, 4)
        # Uniform on 2^16 numbers has a standard deviation of 2^16 / sqrt(12) = 18919. What is
        # dropped of a' makes sqrt(2/3 N / 12) = 15 more.
        assert np.abs(noise).max() <= FLOOD + N + 2 < 2**18
        assert noise.std() == pytest.approx(18919, rel=0.02)
        assert np.abs(noise.mean()) < 1500


class TestTranscript:
    def test_of_the_owner_fits_any_evaluators_points(self, monkeypatch: pytest.MonkeyPatch) -> None:
        codes = some_codes([5, 6], 64)
        others = {**codes, 4: some_codes([5, 6], 64, seed=1)[4]}
        words = np.random.default_rng(0).integers(0, 2**32, (6, 5), dtype=np.uint32)
        differ = plain_distances(codes[4], codes[3]) - plain_distances(others[4], codes[3])
        moved = words + (differ * int(DELTA)).astype(np.uint32)
        revealed = []
        for held, used in ((codes, words), (others, moved)):
            # Flood and encryptions of zero hide what they hide; without the former, it is exact.
            monkeypatch.setattr(rlwe, "mask", lambda *_, used=used: used)
            revealed.append(play(RLWE, held).server[3, 4][3]["revealed"].astype(np.int64))
        difference = (revealed[0] - revealed[1] + 2**31) % 2**32 - 2**31
        assert np.abs(difference).max() <= 2 * (FLOOD + N + 2)

    def test_of_the_server_is_uniform_words_and_a_key(self) -> None:
        same = np.zeros((64, 8), dtype=np.uint8)
        played = play(RLWE, {0: same, 1: same}, entropy=seeded(1))
        said = played.server[0, 1]
        assert {name for message in said.values() for name in message} == {"mask-key", "revealed"}
        revealed = said[0]["revealed"].ravel()
        for shift in range(0, 32, 8):
            seen = np.bincount(revealed >> shift & 255, minlength=256)
            assert chisquare(seen).pvalue > 1e-3
        # Without the masks: distance 0, and the flood.
        noise = revealed - rlwe.mask(said[1]["mask-key"].tobytes(), (64, 64)).ravel()
        assert np.abs(noise.view(np.int32)).max() <= FLOOD + N + 2

    def test_of_the_evaluator_is_uniform(self) -> None:
        same = np.zeros((4, 64), dtype=np.uint8)
        played = play(RLWE, {0: same, 1: same}, entropy=seeded(1))
        for words in played.inboxes["answer"][1][0].values():
            assert chisquare(np.bincount((words >> 26).ravel(), minlength=64)).pvalue > 1e-3

    def test_is_fresh_each_time(self) -> None:
        codes = some_codes([3, 3], 16)
        first, second = play(RLWE, codes), play(RLWE, codes)
        for step, client, peer in (("answer", 4, 3), ("reveal", 3, 4)):
            for name, words in first.inboxes[step][client][peer].items():
                assert (words != second.inboxes[step][client][peer][name]).mean() > 0.99


class TestWhatTheOwnerCouldLearn:
    """Negative controls. 10 N points of the owner, 16 bits, 100 points of the evaluator.

    The owner is given all digits: dropping two hides noise too, but nothing proves how well.
    """

    LAYOUT = Packing(1, 16)

    def whole_answer(
        self, monkeypatch: pytest.MonkeyPatch, ones: Ints
    ) -> tuple[Any, rlwe.Offer, list[Any]]:
        """The owner's secrets and offer, and all digits of a' and b' before two are dropped."""
        entropy = seeded(5)
        codes = some_codes([10 * N], 16)[3]
        secrets, offer = rlwe.encrypt(self.LAYOUT, SESSION, codes, entropy)
        whole: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(rlwe, "carry", lambda digits: whole.append(carry(digits)) or [0] * 3)
            rlwe.evaluate([offer], SESSION, 1.0 - 2 * ones, entropy)
        return secrets, offer, whole

    def guessed_bits(self, monkeypatch: pytest.MonkeyPatch, ones: Ints) -> float:
        """Share of the evaluator's bits that least squares finds in the noise."""
        secrets, offer, (a, b) = self.whole_answer(monkeypatch, ones)
        digits = b.astype(np.float64)
        for chunk, secret in zip(offer.chunks, secrets, strict=True):
            digits[:, :, chunk] -= coefficients(spectrum(a) * spectrum(secret))
        noise = centered(carry(digits))
        known = offered_noise(SESSION, secrets, offer)
        weights = np.linalg.lstsq(known, noise.T, rcond=None)[0].T
        return float(((weights < 0) == ones).mean())

    def test_all_bits_without_the_flood(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # u e_0 - s e_1 has a variance of 2 · 2/3 N · 10.5, so that a weight, estimated from 10 N
        # equations, has a standard deviation of sqrt(4/3 / 10) = 0.37 around -1 or 1.
        ones = np.random.default_rng(1).integers(0, 2, (100, 16))
        monkeypatch.setattr(rlwe, "flood", lambda shape, _: np.zeros((3, *shape)))
        assert self.guessed_bits(monkeypatch, ones) > 0.95

    def test_none_with_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ones = np.random.default_rng(1).integers(0, 2, (100, 16))
        assert self.guessed_bits(monkeypatch, ones) == pytest.approx(0.5, abs=0.05)


CODES = some_codes([5, 6], 64)
"""Client 3 owns the pair, client 4 is the evaluator; beta = 512."""
MASK_KEY = np.arange(32, dtype=np.uint8)
MASK = rlwe.mask(MASK_KEY.tobytes(), (2, 1))


class TestRefusals:
    @pytest.mark.parametrize(
        ("step", "name", "change"),
        [
            ("offer", "keys", lambda _: None),
            ("offer", "keys", lambda keys: keys.astype(float)),
            ("offer", "bits", lambda bits: bits[:, :4]),
            ("answer", "a", lambda a: a[:, :9]),
            ("answer", "b", lambda b: b[:5]),
        ],
    )
    def test_of_another_form(self, step: str, name: str, change: Any) -> None:
        played = play(RLWE, CODES)
        peer, client, then = {"offer": (3, 4, "answer"), "answer": (4, 3, "reveal")}[step]
        message = played.inboxes[then][client][peer]
        inbox = {peer: changed(message, name, change(message[name]))}
        with refuses("message-form", match=f"Client {peer} .* '{step}' .*'{name}'"):
            played.turn(then, client, inbox)

    def test_at_the_server(self) -> None:
        with refuses("message-form", match="The owner .*'reveal' nothing as 'revealed'"):
            RLWE.distances((1, 2), 16, {}, {})
        with refuses("message-form", match="The evaluator .*'answer' .*'mask-key'"):
            zeros = np.zeros((2, 1), np.uint32)
            RLWE.distances((1, 2), 16, {"revealed": zeros}, {"mask-key": MASK_KEY[:31]})
        with refuses("peer-cheated", match="above 16 bits"):
            far = np.full((2, 1), 17, np.uint32) * np.uint32(DELTA) + MASK
            RLWE.distances((1, 2), 16, {"revealed": far}, {"mask-key": MASK_KEY})

    @pytest.mark.parametrize(
        ("digit", "distance"),
        # Nearest multiples of 2^19, modulo 2^32.
        [(0, 0), (2**18 - 1, 0), (2**18, 1), (2**32 - 2**18, 0), (8 * 2**19 - 2**18, 8)],
    )
    def test_of_a_digit_beside_its_multiple_of_delta(self, digit: int, distance: int) -> None:
        told = {"revealed": np.full((2, 1), digit, np.uint32) + MASK}, {"mask-key": MASK_KEY}
        assert RLWE.distances((1, 2), 8, *told).tolist() == [[distance, distance]]


class TestCost:
    @pytest.mark.parametrize(("count", "size", "num_bits"), [(3, 7, 64), (2, 5, 16), (5, 3, 8)])
    def test_counts_the_bytes_that_are_sent(self, count: int, size: int, num_bits: int) -> None:
        codes = some_codes([size] * count, num_bits)
        assert RLWE.cost([size] * count, num_bits).traffic == traffic(play(RLWE, codes))

    @pytest.mark.parametrize(
        ("sizes", "num_bits", "polynomials", "products"),
        [
            # beta = 8: 500 rows and 512 ciphertexts, 500² distances, 1000 + 2 · 80 points.
            ([500, 500], 4096, 1012, 12288 * (250_000 + 1.9 * 1160 * 512)),
            # beta = 1024, in stretches of 16: (3 + 1) / 2 rows and 2 ciphertexts; 3 distances;
            # clients without points have no transforms.
            ([1, 0, 3], 16, 4, 48 * (3 + 1.9 * 164 * 256)),
        ],
    )
    def test_in_seconds_by_hand(
        self, sizes: list[int], num_bits: int, polynomials: int, products: float
    ) -> None:
        seconds = RLWE.cost(sizes, num_bits).seconds
        assert seconds == pytest.approx(2e-4 * polynomials + 3.5e-11 * products)

    def test_without_points(self) -> None:
        assert RLWE.cost([0, 0], 8) == (0, 32)  # a key of masks
