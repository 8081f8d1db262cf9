"""Hamming distances by ring learning with errors.

An integer modulo q has three digits of 32 bits, lowest first, on the first axis of an array. Words
are uint32 digits; digits in sums are float64, exact while they are below 2^53.

One factor of a product has coefficients -1, 0 or 1. Digit by digit, products are sums of at most
2^13 numbers below 2^32: float64 is exact to 2^-8 there, and the error of its transforms is 2^-10
for random digits and below 1/4 if all digits are largest (measured). So rounding gives the exact
integer.

XCLP, section 3.2, with the scheme of Lyubashevsky, Peikert and Regev (2010) and Brakerski and
Vaikuntanathan (2011) in the place of Paillier's: R = Z_q[X] / (X^N + 1), ternary secrets, centered
binomial noise, N = 4096 and q = 2^96, inside the 128-bit columns, classical and quantum, of the
Homomorphic Encryption Standard (Albrecht et al. 2018). None of this is constant-time.

**Packing.** Ciphertext c of an owner contains beta bits of each of N / beta points,

    x_c(X) = sum_p sum_(m < beta) b_(p, beta c + m) X^(beta p + m),
    b_c = A_c s + e_c + Delta x_c.

Bits y of an evaluator's point, as weights w = 1 - 2 y, are w_c(X) = sum_m w_(beta c + m) X^-m:
coefficient beta p of sum_c w_c x_c is sum_k w_k b_pk, the distance minus the number of ones in y.
So the evaluator needs sum_c w_c A_c, and of sum_c w_c b_c only coefficients beta p, for which the
owner sends the coefficients that exist.

**Common A_c.** All owners, and all chunks of an owner with more than N / beta points, use the same
A_c with secrets of their own. Samples (A, A s_i + e_i) of several i are pseudo-random together: one
i after the other can be replaced by random ones, as the others are made from A alone.

**Hiding the evaluator's bits from the owner.** The owner gets a' and b'. a' = sum_c w_c A_c alone
would reveal w, so the evaluator adds u a_0 + e_1 with u and e_1 new for every row: a' is then a
sample of ring-LWE, whatever the owner sent, as A_c and a_0 are expanded from the session and not
chosen by it. (The same a' serves all owners: Peikert, Vaikuntanathan and Waters 2008.) b' is a
function of what the owner sent, which may be anything: an owner that adds c to a ciphertext of bit
k finds w_k c in b'. So to every number of b' that is sent, after all else, the evaluator adds a
word that is uniform on all 2^32 values and independent of everything (:func:`mask`). What an owner
sees is a' and uniform words.

**Hiding them from the server as well.** The server takes the words off, and has distances with
noise. The owner knows every e_c, so noise that depends on w would tell both together more than
distances. The evaluator adds u b_0 + e_2, which makes its part with a' an encryption of zero, and
flooding noise uniform on ±2^79, so that noise below 2^19 changes the distribution by a statistical
distance of at most 2^-61. Only then digits are dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import fft, ifft, irfft, rfft

from fedul_flwr.arrays import Bytes, Floats, Ints, blocks, check_num_bits
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.pairwise import Forms, Inbox, Party, StepResult
from fedul_flwr.secure.messages import check_length, checked_array, messages_from
from fedul_flwr.secure.session import KEY_BYTES, Entropy, fresh, keystream
from fedul_flwr.secure.similarity import Arrays, Cost

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

    Returns
    -------
    ``(3, len(indices), N)``. Index i has the key SHAKE128(session ‖ "rlwe" ‖ i) of 32 bytes, i in 4
    bytes; coefficient j is bytes 12 j … 12 j + 11 of its AES-256 stream. All is little endian.
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


T = 2**13
"""Plaintexts are integers modulo t."""

DELTA = 2.0**19
"""Delta = q / t = 2^83, in units of the highest digit."""

FLOOD = 2**15
"""Half the width of the flooding noise, 2^79, in units of the highest digit."""

_NOISE = CBD_BITS * (T + 2 * N + 1)
"""Bound of |sum_k w_k e_k + u e_0 - s e_1 + e_2|."""

assert T * 2**32 < 2**53, "sums of digits must be exact in float64"
assert _NOISE < 2**19, "the flood must cover the noise"
# Dropping two digits of a' and b' adds less than 2^64 (N + 1).
assert FLOOD + N + 2 < DELTA / 2, "honest messages must decrypt"

_CIPHERTEXTS = 512  # at a time, for memory
_CACHED = 16  # polynomials at a time, for the processor's cache


@dataclass(frozen=True)
class Packing:
    """Positions of bits: bit beta c + m of slot p is coefficient beta p + m of x_c."""

    beta: int
    num_bits: int

    @property
    def slots(self) -> int:
        """Number of points per ciphertext, N / beta."""
        return N // self.beta

    @property
    def ciphertexts(self) -> int:
        """C = ceil(L / beta)."""
        return -(-self.num_bits // self.beta)

    def chunks(self, num_points: int) -> list[slice]:
        """Groups of points, each with its own secret and ciphertexts."""
        return list(blocks(num_points, self.slots))


def packing(sizes: Mapping[int, int], num_bits: int) -> Packing:
    """Packing for all clients: the largest power of two beta with room for the largest client."""
    check_num_bits(num_bits)
    check_length(num_bits, T - 1, "rlwe")
    room = N // max((2, *sizes.values()))
    return Packing(2 ** (max(1, room).bit_length() - 1), num_bits)


@dataclass(frozen=True)
class Offer:
    """An owner's ciphertexts.

    Attributes
    ----------
    keys : b_0 of each chunk, ``(3, chunks, N)``.
    bits : ``(3, n_owner, L)``; (p, beta c + m) is coefficient beta p + m of b_c.
    """

    layout: Packing
    keys: Words
    bits: Words

    @property
    def chunks(self) -> list[slice]:
        """Groups of points, one for each of the owner's secrets."""
        return self.layout.chunks(self.bits.shape[1])


def encrypt(layout: Packing, session: bytes, codes: Bytes, entropy: Entropy) -> tuple[Small, Offer]:
    """An owner's secrets, ``(chunks, N)``, and its ciphertexts for evaluators.

    Parameters
    ----------
    codes : ``(n_owner, L / 8)``.
    """
    chunks = layout.chunks(len(codes))
    secrets = ternary((len(chunks), N), entropy)
    keys = coefficients(_base(session)[:, None] * spectrum(secrets))
    keys[0] += binomial(secrets.shape, entropy)
    plain = np.unpackbits(codes, axis=1)
    bits = np.empty((DIGITS, *plain.shape), dtype=np.uint32)
    for chunk, secret in zip(chunks, secrets, strict=True):
        _encrypt_chunk(layout, session, secret, plain[chunk], bits[:, chunk], entropy)
    return secrets, Offer(layout, carry(keys), bits)


def _encrypt_chunk(
    layout: Packing, session: bytes, secret: Small, plain: Bytes, target: Words, entropy: Entropy
) -> None:
    """Write the used coefficients of b_c for bits ``(points, L)`` to ``(3, points, L)``."""
    hidden = spectrum(secret)
    for some in blocks(layout.ciphertexts, _CACHED):
        products = coefficients(spectrum(_public(session, some)) * hidden)
        by_slot = products.reshape(DIGITS, -1, layout.slots, layout.beta)[:, :, : len(plain)]
        columns = slice(some.start * layout.beta, some.stop * layout.beta)
        bits = plain[:, columns]
        digits = np.swapaxes(by_slot, 1, 2).reshape(DIGITS, len(plain), -1)[..., : bits.shape[1]]
        digits[0] += binomial(bits.shape, entropy)
        digits[2] += DELTA * bits
        target[:, :, columns] = carry(digits)


def public_sums(layout: Packing, session: bytes, weights: Floats) -> Floats:
    """Digits ``(3, r, N)`` of sum_c w_c A_c, which are the same for all owners.

    Parameters
    ----------
    weights : -1 or 1, ``(r, L)``.
    """
    padded = np.zeros((len(weights), layout.ciphertexts * layout.beta))
    padded[:, : layout.num_bits] = weights
    by_ciphertext = padded.reshape(len(weights), layout.ciphertexts, layout.beta)
    parts = (
        weighted_sums(by_ciphertext[:, some], _public(session, some))
        for some in blocks(layout.ciphertexts, _CIPHERTEXTS)
    )
    return reduce(np.add, parts)


def evaluate(
    offers: Sequence[Offer],
    session: bytes,
    weights: Floats,
    entropy: Entropy,
) -> tuple[Words, list[Words]]:
    """Encrypted distances of some points of the evaluator to all points of several owners.

    Parameters
    ----------
    weights : 1 - 2 y, ``(r, L)``.

    Returns
    -------
    Highest digits of a', ``(r, N)``, the same for all owners, and those of the used coefficients
    of b' for each owner, ``(r, n_owner)``. The latter depend on what the owner sent, and must be
    masked before it gets them.
    """
    masked = public_sums(offers[0].layout, session, weights)
    digits = [_sums_of_bits(weights, offer.bits) for offer in offers]
    base = _base(session)[:, None]
    keys = [[spectrum(key)[:, None] for key in np.swapaxes(o.keys, 0, 1)] for o in offers]
    for rows in blocks(len(weights), _CACHED):
        hidden = spectrum(ternary(masked[0, rows].shape, entropy))
        masked[:, rows] += coefficients(hidden * base)
        masked[0, rows] += binomial(masked[0, rows].shape, entropy)
        for offer, evaluation_key, target in zip(offers, keys, digits, strict=True):
            for chunk, key in zip(offer.chunks, evaluation_key, strict=True):
                zeros = coefficients(hidden * key, offer.layout.beta)
                target[:, rows, chunk] += zeros[..., : chunk.stop - chunk.start]
    num_ones = (1 - weights).sum(axis=1, keepdims=True) / 2
    for target in digits:
        target[0] += binomial(target[0].shape, entropy)
        target[2] += DELTA * num_ones
        np.add(target, flood(target[0].shape, entropy), out=target)
    return carry(masked)[2], [carry(target)[2] for target in digits]


def _sums_of_bits(weights: Floats, bits: Words) -> Floats:
    """Digits ``(3, r, n_owner)`` of sum_k w_k b_k, in one product of matrices."""
    flat = bits.reshape(DIGITS * bits.shape[1], bits.shape[2]).astype(np.float64)
    sums = (flat @ weights.T).reshape(*bits.shape[:2], len(weights))
    return np.ascontiguousarray(sums.swapaxes(1, 2))


def mask(key: bytes, shape: tuple[int, int]) -> Words:
    """Uniform words ``(r, n_owner)`` that hide b' from its owner: AES-256's stream under a key."""
    return keystream(key, 4 * prod(shape)).view("<u4").reshape(shape)


def decrypt(layout: Packing, secrets: Small, a: Words, b: Words) -> Words:
    """b' - a' s as it is, ``(r, n_owner)``, from the result of :func:`evaluate`, masked or not.

    Nothing is rounded, so that a mask of any size can be taken off later.
    """
    plain = np.empty(b.shape, dtype=np.uint32)
    hidden = spectrum(secrets)
    for rows in blocks(len(b), _CACHED):
        received = spectrum(a[rows])
        for chunk, secret in zip(layout.chunks(b.shape[1]), hidden, strict=True):
            product = coefficients(received * secret, layout.beta)
            noisy = b[rows, chunk] - product[:, : chunk.stop - chunk.start]
            plain[rows, chunk] = np.rint(noisy).astype(np.int64) & (2**32 - 1)
    return plain


def rounded(digits: Words) -> Words:
    """Plaintexts modulo t from decrypted digits without a mask, of the same shape."""
    return (digits + np.uint32(DELTA / 2)) // np.uint32(DELTA)


def flood(shape: tuple[int, ...], entropy: Entropy) -> Floats:
    """Digits ``(3, …)`` of integers that are uniform on [-2^79, 2^79)."""
    low = fresh(8 * prod(shape), entropy).view(np.uint32).reshape(2, *shape)
    high = fresh(2 * prod(shape), entropy).view(np.uint16).reshape(1, *shape)
    return np.concatenate([low.astype(np.float64), high.astype(np.float64) - FLOOD])


def _base(session: bytes) -> Spectra:
    """a_0, as a spectrum ``(3, N / 2)``."""
    return spectrum(public_polynomials(session, range(1))[:, 0])


def _public(session: bytes, ciphertexts: slice) -> Words:
    """A_c for some c."""
    return public_polynomials(session, range(1 + ciphertexts.start, 1 + ciphertexts.stop))


SECRETS, KEYS, BITS, A, B = "secrets", "keys", "bits", "a", "b"
MASK_KEY, REVEALED = "mask-key", "revealed"

_ROWS = 512  # of an evaluator at a time, for memory

# Measured on one core; a second one halves only the time of matrix products.
_SECONDS_PER_POLYNOMIAL = 2e-4  # for any operation on N coefficients
_SECONDS_PER_PRODUCT = 3.5e-11
_ROWS_FOR_TRANSFORMS = 80  # a client's transforms of A_c take as long as this number of its points


class RingLWE:
    """The protocol :class:`~fedul_flwr.secure.hamming.pairwise.PairwiseHamming` by ring-LWE."""

    name = "rlwe"

    groups: ClassVar[Mapping[str, str]] = {"offer": "evaluators", "answer": "owners"}

    def payload_spec(self, step: str, client: int, peer: int) -> tuple[str, Forms]:
        """The key of the evaluator's masks, then what the owner decrypts."""
        if step == "answer":
            return "owners", {MASK_KEY: (np.uint8, (KEY_BYTES,))}
        return "evaluators", {REVEALED: (np.uint32, (peer, client))}

    def prepare(self, party: Party) -> StepResult:
        """Check L; send nothing."""
        packing(party.sizes, party.num_bits)
        return StepResult()

    def offer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """The owner encrypts its bits, once for all evaluators.

        They get ``keys`` ``(3, chunks, N)`` and ``bits`` ``(3, n_own, L)``, uint32.
        """
        del state, inbox
        layout = packing(party.sizes, party.num_bits)
        if not party.evaluators:
            return StepResult()
        secrets, offer = encrypt(layout, party.session, codes, party.entropy)
        return StepResult({SECRETS: secrets}, to_evaluators={KEYS: offer.keys, BITS: offer.bits})

    def answer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """The evaluator computes encrypted distances and masks them.

        All owners get ``a`` ``(n_own, N)``, each owner ``b`` ``(n_own, n_owner)``, uint32; the
        server gets ``mask-key``, 32 bytes from which it makes the words that were added to ``b``.
        """
        layout = packing(party.sizes, party.num_bits)
        offers = {}
        for owner in (peer for peer in party.owners if peer in inbox):
            size, origin = party.sizes[owner], f"Client {owner} sent in step 'offer'"
            chunks, message = len(layout.chunks(size)), inbox[owner]
            with messages_from(owner):
                key = checked_array(origin, message, KEYS, np.uint32, (DIGITS, chunks, N))
                bits = checked_array(
                    origin, message, BITS, np.uint32, (DIGITS, size, layout.num_bits)
                )
            offers[owner] = Offer(layout, key, bits)
        sizes = {owner: (len(codes), offer.bits.shape[1]) for owner, offer in offers.items()}
        keys = {owner: party.entropy(KEY_BYTES) for owner in offers}
        a = np.empty((len(codes), N), dtype=np.uint32)
        b = {owner: np.empty(shape, dtype=np.uint32) for owner, shape in sizes.items()}
        for rows in blocks(len(codes), _ROWS) if offers else ():
            weights = 1 - 2 * np.unpackbits(codes[rows], axis=1).astype(np.float64)
            a[rows], evaluated = evaluate(
                list(offers.values()), party.session, weights, party.entropy
            )
            for owner, digits in zip(offers, evaluated, strict=True):
                b[owner][rows] = digits
        for owner, shape in sizes.items():
            # Last of all, and modulo 2^32: a lying owner's numbers are hidden as any others.
            b[owner] += mask(keys[owner], shape)
        return StepResult(
            state,
            to_peers={owner: {B: b[owner]} for owner in offers},
            to_owners={A: a} if offers else {},
            to_server={
                owner: {MASK_KEY: np.frombuffer(key, np.uint8)} for owner, key in keys.items()
            },
        )

    def reveal(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """The owner decrypts masked digits: ``revealed`` ``(n_evaluator, n_own)``, uint32."""
        layout = packing(party.sizes, party.num_bits)
        to_server = {}
        for peer in party.evaluators:
            if peer in inbox:
                num_rows = party.sizes[peer]
                origin = f"Client {peer} sent in step 'answer'"
                with messages_from(peer):
                    a = checked_array(origin, inbox[peer], A, np.uint32, (num_rows, N))
                    b = checked_array(origin, inbox[peer], B, np.uint32, (num_rows, len(codes)))
                to_server[peer] = {REVEALED: decrypt(layout, state[SECRETS], a, b)}
        return StepResult(to_server=to_server)

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        """Subtract the masks, then round."""
        shape = (sizes[1], sizes[0])
        owner, evaluator = "The owner sent in step 'reveal'", "The evaluator sent in step 'answer'"
        revealed = checked_array(owner, by_owner, REVEALED, np.uint32, shape)
        key = checked_array(evaluator, by_evaluator, MASK_KEY, np.uint8, (KEY_BYTES,))
        distances = rounded(revealed - mask(key.tobytes(), shape))
        if distances.max(initial=0) > num_bits:
            raise UserError(
                "The owner sent in step 'reveal' and the evaluator in step 'answer' numbers of a "
                f"distance above {num_bits} bits; it must be at most that.",
                "peer-cheated",
            )
        return np.ascontiguousarray(distances.T, dtype=np.int64)

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        """Bytes are exact for clients of the same size; else they depend on the pairs' owners."""
        layout = packing(dict(enumerate(sizes)), num_bits)
        num_points = sum(sizes)
        num_chunks = [len(layout.chunks(size)) for size in sizes]
        compared = (num_points**2 - sum(size**2 for size in sizes)) / 2
        # Either client of a pair may be its owner. With two clients only one is an owner.
        rows = (
            sum((num_points - n) * chunks for n, chunks in zip(sizes, num_chunks, strict=True)) / 2
        )
        owning = min(1.0, (len(sizes) - 1) / 2)
        keys = owning * sum(num_chunks)
        sent = (
            4 * DIGITS * (owning * num_points * num_bits + keys * N)
            + 4 * owning * num_points * N
            + 8 * compared
            + KEY_BYTES * len(sizes) * (len(sizes) - 1) / 2
        )
        polynomials = rows + keys * layout.ciphertexts
        weighted = num_points + _ROWS_FOR_TRANSFORMS * sum(size > 0 for size in sizes)
        products = DIGITS * num_bits * (compared + 1.9 * weighted * N / min(layout.beta, 16))
        return Cost(_SECONDS_PER_POLYNOMIAL * polynomials + _SECONDS_PER_PRODUCT * products, sent)


RLWE = RingLWE()
