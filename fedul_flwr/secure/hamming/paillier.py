"""Hamming distances by Paillier's encryption.

**Encryption.** P. Paillier, "Public-key cryptosystems based on composite degree residuosity
classes", EUROCRYPT 1999, section 4, with base g = 1 + n. The public key is n = p q. A plaintext m
in Z_n becomes

    c = (1 + m n) r^n mod n²

for r uniform among the residues coprime to n, so that the product of ciphertexts encrypts the sum
of their plaintexts. Powers with secret exponents use GMP's ``mpz_powm_sec``. All other functions of
GMP and Python are not constant-time.

**Distances.** The owner encrypts its bits b with its own key. From the ciphertexts and its bits y
the evaluator computes an encryption of

    h = sum_k y_k + sum_k b_k (1 - 2 y_k)    plus a mask,

and sends the mask to the server; the owner decrypts the masked distance and sends it to the server.

A plaintext contains the distances of one evaluator's point to many of the owner's, in slots of 13
bits. A distance is at most L < 2^13, so slots do not overflow. A slot is too small for its own
mask: one mask, uniform in Z_n, hides the whole plaintext. The owner knows the randomness of its
ciphertexts and could test guesses of y against their product. Therefore every product is multiplied
by a new r^n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NoReturn, TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedul_flwr.arrays import Bytes, Ints, blocks
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.pairwise import Forms, Inbox, PairwiseHamming, Party, StepResult
from fedul_flwr.secure.messages import check_length, checked_array, messages_from
from fedul_flwr.secure.session import Entropy
from fedul_flwr.secure.similarity import Arrays, Cost

Number: TypeAlias = mpz

_ROUNDS = 40
"""Rounds of GMP's primality test: Baillie-PSW, and Miller-Rabin 16 times."""

_LONGEST_GROUP = 8
"""Largest group of bits: a table of 2^8 products of 768 bytes fits into a core's cache."""


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """Two primes p and q of the same length. Its repr does not show them."""

    p: Number
    q: Number

    @cached_property
    def n(self) -> Number:
        """The public key."""
        return self.p * self.q

    def encrypt(self, plaintext: Number, entropy: Entropy) -> Number:
        """A new ciphertext, below n², of a plaintext from 0 to n - 1."""
        if not 0 <= plaintext < self.n:
            raise ValueError("a plaintext must be from 0 to n - 1")
        return add_plaintext(self._residue(entropy), plaintext, self.n)

    def decrypt(self, ciphertext: Number) -> Number:
        """The plaintext of a ciphertext that is coprime to n (section 7, by CRT)."""
        in_p, in_q = (
            # With L_p(u) = (u - 1) / p, g^(p-1) = 1 + (p-1) p q = 1 - p q modulo p², so L_p of it
            # is -q modulo p.
            (gmpy2.powmod_sec(ciphertext, prime - 1, prime**2) - 1)
            // prime
            * gmpy2.invert(-other, prime)
            % prime
            for prime, other in ((self.p, self.q), (self.q, self.p))
        )
        return _combine(in_p, self.p, in_q, self.q)

    def _residue(self, entropy: Entropy) -> Number:
        """A uniform n-th power modulo n², as from :func:`nth_residue`, but faster."""
        # Modulo p² the n-th powers are the p-th powers: r^n = (r^q)^p, and r -> r^q only permutes
        # the residues, as q is coprime to p (p - 1). x^p modulo p² depends on x modulo p alone and
        # is x modulo p, so a uniform x from 1 to p - 1 gives each of them once. The same holds for
        # q, and by CRT the two parts of an n-th power are independent.
        in_p, in_q = (
            gmpy2.powmod_sec(1 + uniform_below(prime - 1, entropy), prime, prime**2)
            for prime in (self.p, self.q)
        )
        return _combine(in_p, self.p**2, in_q, self.q**2)


def generate_key(modulus_bits: int, entropy: Entropy) -> PrivateKey:
    """Two different random primes whose product has ``modulus_bits`` (even) bits exactly."""
    p = q = _random_prime(modulus_bits // 2, entropy)
    while q == p:
        q = _random_prime(modulus_bits // 2, entropy)
    return PrivateKey(p, q)


def uniform_below(bound: Number, entropy: Entropy) -> Number:
    """A uniform integer from 0 to ``bound - 1``."""
    bits = (bound - 1).bit_length()
    while True:
        drawn = mpz.from_bytes(entropy((bits + 7) // 8), "big") & ((mpz(1) << bits) - 1)
        if drawn < bound:
            return drawn


def nth_residue(n: Number, entropy: Entropy) -> Number:
    """r^n mod n² for a new uniform r: an encryption of 0 without the private key."""
    return gmpy2.powmod(1 + uniform_below(n - 1, entropy), n, n**2)


def add_plaintext(ciphertext: Number, plaintext: Number, n: Number) -> Number:
    """A ciphertext of the sum, with the same randomness."""
    return (1 + plaintext % n * n) * ciphertext % n**2


def signed_products(ciphertexts: Sequence[Number], bits: Bytes, n: Number) -> list[Number]:
    """For every row y of bits, the product of c_k^(1 - 2 y_k) modulo n².

    Parameters
    ----------
    bits : 0 or 1, ``(rows, L)``.
    """
    modulus = n**2
    rows, length = bits.shape
    width = min(range(1, _LONGEST_GROUP + 1), key=lambda w: (2**w + rows) / w)
    everything, chosen = mpz(1), [mpz(1)] * rows
    for start in range(0, length, width):
        table = [mpz(1)]
        for ciphertext in ciphertexts[start : start + width]:
            table += [entry * ciphertext % modulus for entry in table]
        group = bits[:, start : start + width]
        indices = (group @ (1 << np.arange(group.shape[1]))).tolist()
        everything = everything * table[-1] % modulus
        chosen = [q * table[i] % modulus for q, i in zip(chosen, indices, strict=True)]
    return [everything * gmpy2.invert(q * q, modulus) % modulus for q in chosen]


def all_coprime(numbers: Iterable[Number], n: Number) -> bool:
    """Whether none of the numbers shares a factor with n, 0 included."""
    product = mpz(1)
    for number in numbers:
        product = product * number % n
    return bool(gmpy2.gcd(product, n) == 1)


def to_bytes(numbers: Iterable[Number], width: int) -> Bytes:
    """Big-endian numbers, uint8 ``(count, width)``."""
    joined = b"".join(number.to_bytes(width, "big") for number in numbers)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)


def from_bytes(rows: Bytes) -> list[Number]:
    """The numbers of :func:`to_bytes`."""
    return [mpz.from_bytes(row.tobytes(), "big") for row in rows]


def _random_prime(bits: int, entropy: Entropy) -> Number:
    """A random prime with its two highest bits set, so that a product of two has 2 ``bits``."""
    while True:
        drawn = uniform_below(mpz(1) << bits, entropy) | (mpz(3) << (bits - 2)) | 1
        if gmpy2.is_prime(drawn, _ROUNDS):
            return drawn


def _combine(in_p: Number, p: Number, in_q: Number, q: Number) -> Number:
    """The residue modulo p q that is ``in_p`` modulo p and ``in_q`` modulo q."""
    return in_q + (in_p - in_q) * gmpy2.invert(q, p) % p * q


SLOT_BITS = 13
"""Bits of a plaintext for one distance."""

MOST_BITS = 2**SLOT_BITS - 1
"""The largest L."""

MODULUS, CIPHERTEXTS, MASKS, SUMS = "modulus", "ciphertexts", "masks", "sums"

_SECONDS_PER_KEY, _SECONDS_PER_BIT = 0.2, 0.012
"""Seconds of one core at 3,072 bits to generate a key, and to encrypt one bit of a chunk."""

_SECONDS_PER_ROW, _SECONDS_PER_PRODUCT = 0.042, 2.5e-6
"""Seconds of one core at 3,072 bits for a row of an answer to a chunk: to mask, randomize and
decrypt it, and per bit."""


@dataclass(frozen=True)
class Paillier:
    """The protocol with a modulus of ``modulus_bits`` bits, a multiple of 16.

    Arrays of numbers are big-endian bytes. A *chunk* is a group of an owner's points that fit into
    one plaintext; chunks are the first axis of all arrays.
    """

    modulus_bits: int = 3072
    name = "paillier"

    groups: ClassVar[Mapping[str, str]] = {"offer": "evaluators"}

    def payload_spec(self, step: str, client: int, peer: int) -> tuple[str, Forms]:
        """The evaluator's masks, then what the owner decrypts, and its modulus."""
        width = self._width
        if step == "answer":
            return "owners", {MASKS: (np.uint8, (len(self._chunks(peer)), client, width))}
        sums = len(self._chunks(client)), peer, width
        return "evaluators", {MODULUS: (np.uint8, (width,)), SUMS: (np.uint8, sums)}

    def prepare(self, party: Party) -> StepResult:
        """Send nothing."""
        check_length(party.num_bits, MOST_BITS, self.name)
        return StepResult()

    def offer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """As owner: a new key, and ciphertexts of all bits, uint8 ``(chunks, L, 768)``."""
        del state, inbox
        if not party.evaluators:
            return StepResult()
        key = generate_key(self.modulus_bits, party.entropy)
        bits = np.unpackbits(codes, axis=1)
        ciphertexts = [
            key.encrypt(plaintext, party.entropy)
            for points in self._chunks(len(codes))
            for plaintext in pack(bits[points].T)
        ]
        width = self._width
        return StepResult(
            state={"p": to_bytes([key.p], width // 2)[0], "q": to_bytes([key.q], width // 2)[0]},
            to_evaluators={
                MODULUS: to_bytes([key.n], width)[0],
                CIPHERTEXTS: to_bytes(ciphertexts, 2 * width).reshape(
                    -1, party.num_bits, 2 * width
                ),
            },
        )

    def answer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """Masked distances, encrypted, ``(chunks, n_own, 768)``; masks ``(chunks, n_own, 384)``."""
        bits = np.unpackbits(codes, axis=1)
        ciphertexts = {
            owner: self._answer(party, owner, bits, inbox[owner])
            for owner in party.owners
            if owner in inbox
        }
        return StepResult(
            state=state,
            to_peers={owner: {CIPHERTEXTS: sent} for owner, (sent, _) in ciphertexts.items()},
            to_server={owner: {MASKS: masks} for owner, (_, masks) in ciphertexts.items()},
        )

    def reveal(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """Decrypted: masked distances ``(chunks, n_evaluator, 384)`` and the modulus."""
        if not party.evaluators:
            return StepResult()
        key = PrivateKey(*from_bytes(np.stack([state["p"], state["q"]])))
        chunks = len(self._chunks(len(codes)))
        revealed = {}
        for evaluator in party.evaluators:
            if evaluator not in inbox:
                continue
            message = _Message(f"Client {evaluator} sent in step 'answer'", inbox[evaluator])
            shape = (chunks, party.sizes[evaluator], 2 * self._width)
            with messages_from(evaluator):
                ciphertexts = message.ciphertexts(shape, key.n)
            sums = [key.decrypt(c) for c in ciphertexts]
            revealed[evaluator] = {
                MODULUS: to_bytes([key.n], self._width)[0],
                SUMS: to_bytes(sums, self._width).reshape(*shape[:2], self._width),
            }
        return StepResult(to_server=revealed)

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        """See :meth:`PairwiseHamming.distances`."""
        check_length(num_bits, MOST_BITS, self.name)
        n_owner, n_evaluator = sizes
        chunks = self._chunks(n_owner)
        shape = (len(chunks), n_evaluator, self._width)
        owner = _Message("The owner sent in step 'reveal'", by_owner)
        evaluator = _Message("The evaluator sent in step 'answer'", by_evaluator)
        n = owner.modulus(self.modulus_bits)
        sums, masks = owner.residues(SUMS, shape, n), evaluator.residues(MASKS, shape, n)
        plaintexts = [(s - mask) % n for s, mask in zip(sums, masks, strict=True)]
        distances = np.empty(sizes, dtype=np.int64)
        for chunk, points in enumerate(chunks):
            rows = plaintexts[chunk * n_evaluator : (chunk + 1) * n_evaluator]
            slots = points.stop - points.start
            if max(rows, default=mpz(0)).bit_length() > SLOT_BITS * slots:
                _refuse_distances(owner, num_bits)
            distances[points] = unpack(rows, slots).T
        if distances.max(initial=0) > num_bits:
            _refuse_distances(owner, num_bits)
        return distances

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        """At 3,072 bits, mean over both choices of owner; two clients work in turns."""
        check_length(num_bits, MOST_BITS, self.name)
        clients = len(sizes)
        owners = clients if clients > 2 else clients // 2
        chunks = [len(self._chunks(size)) for size in sizes]
        encrypted = sum(chunks) * num_bits * owners / max(clients, 1)
        sent = sum(size * count for size, count in zip(sizes, chunks, strict=True))
        rows = (sum(sizes) * sum(chunks) - sent) / 2
        per_row = _SECONDS_PER_ROW + num_bits * _SECONDS_PER_PRODUCT
        seconds = owners * _SECONDS_PER_KEY + encrypted * _SECONDS_PER_BIT + rows * per_row
        # Ciphertexts and answers have two widths; masks and sums have one.
        traffic = self._width * (2 * encrypted + 4 * rows)
        return Cost(seconds / (2 if clients > 2 else 1), traffic)

    @property
    def _width(self) -> int:
        """Bytes of a number modulo n; a ciphertext has twice this size."""
        return self.modulus_bits // 8

    def _chunks(self, num_points: int) -> list[slice]:
        """Groups of an owner's points in one plaintext, below 2^(bits - 1) and so below n."""
        return list(blocks(num_points, (self.modulus_bits - 1) // SLOT_BITS))

    def _answer(self, party: Party, owner: int, bits: Bytes, arrays: Arrays) -> tuple[Bytes, Bytes]:
        """The ciphertexts for one owner and the masks for the server."""
        message = _Message(f"Client {owner} sent in step 'offer'", arrays)
        chunks = self._chunks(party.sizes[owner])
        with messages_from(owner):
            n = message.modulus(self.modulus_bits)
            offered = message.ciphertexts((len(chunks), party.num_bits, 2 * self._width), n)
        weights = bits.sum(axis=1, dtype=np.int64).tolist()
        sent, masks = [], []
        for chunk, points in enumerate(chunks):
            ones = pack(np.ones((1, points.stop - points.start), dtype=np.uint8))[0]
            chunk_bits = offered[chunk * party.num_bits : (chunk + 1) * party.num_bits]
            for product, weight in zip(signed_products(chunk_bits, bits, n), weights, strict=True):
                mask = uniform_below(n, party.entropy)
                masked = add_plaintext(product, weight * ones + mask, n)
                sent.append(masked * nth_residue(n, party.entropy) % n**2)
                masks.append(mask)
        shape = (len(chunks), len(bits))
        return (
            to_bytes(sent, 2 * self._width).reshape(*shape, 2 * self._width),
            to_bytes(masks, self._width).reshape(*shape, self._width),
        )


@dataclass(frozen=True)
class _Message:
    """A received message, whose arrays are checked when they are read."""

    origin: str
    arrays: Arrays = field(repr=False)

    def modulus(self, bits: int) -> Number:
        n = from_bytes(self._bytes(MODULUS, (bits // 8,))[None])[0]
        if n.bit_length() != bits or n % 2 == 0:
            self.refuse("a modulus of another kind", f"it must be odd and have {bits} bits")
        return n

    def residues(self, name: str, shape: tuple[int, ...], n: Number) -> list[Number]:
        values = self._numbers(name, shape)
        if any(number >= n for number in values):
            self.refuse(f"{name} out of range", "they must be below the modulus")
        return values

    def ciphertexts(self, shape: tuple[int, ...], n: Number) -> list[Number]:
        values, modulus = self._numbers(CIPHERTEXTS, shape), n**2
        if any(number >= modulus for number in values):
            self.refuse("ciphertexts out of range", "they must be below the modulus squared")
        if not all_coprime(values, n):
            self.refuse("ciphertexts that are none", "they must be coprime to the modulus")
        return values

    def refuse(self, what: str, rule: str) -> NoReturn:
        raise UserError(f"{self.origin} {what}; {rule}.", "message-form")

    def _numbers(self, name: str, shape: tuple[int, ...]) -> list[Number]:
        return from_bytes(self._bytes(name, shape).reshape(-1, shape[-1]))

    def _bytes(self, name: str, shape: tuple[int, ...]) -> Bytes:
        return checked_array(self.origin, self.arrays, name, np.uint8, shape)


def pack(bits: Bytes) -> list[Number]:
    """For every row of bits, ``(rows, slots)``, the plaintext with bit p in slot p."""
    spread = np.zeros((*bits.shape, SLOT_BITS), dtype=np.uint8)
    spread[..., 0] = bits
    rows = np.packbits(spread.reshape(len(bits), -1), axis=1, bitorder="little")
    return [mpz.from_bytes(row.tobytes(), "little") for row in rows]


def unpack(plaintexts: list[Number], slots: int) -> Ints:
    """Slots of plaintexts below 2^(13 ``slots``): int64 ``(rows, slots)``."""
    size = SLOT_BITS * slots
    width = (size + 7) // 8
    joined = b"".join(plaintext.to_bytes(width, "little") for plaintext in plaintexts)
    rows = np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)
    bits = np.unpackbits(rows, axis=1, count=size, bitorder="little")
    return bits.reshape(-1, slots, SLOT_BITS) @ (1 << np.arange(SLOT_BITS))


def _refuse_distances(owner: _Message, num_bits: int) -> NoReturn:
    rule = f"distances must be from 0 to {num_bits}"
    owner.refuse("sums that do not go with the masks of the evaluator", rule)


PAILLIER: PairwiseHamming = Paillier()
"""With 3,072 bits, equal in strength to 128 symmetric bits (NIST SP 800-57, part 1, table 2)."""
