"""Distances by ring-LWE: the messages. The mathematics is in ``rlwe_scheme``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fedul_flwr.data.packed_codes import blocks
from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.pairwise import Forms, Inbox, Party, StepResult
from fedul_flwr.secure.hamming.ring import DIGITS, N
from fedul_flwr.secure.hamming.rlwe_scheme import (
    Offer,
    Packing,
    decrypt,
    encrypt,
    evaluate,
    mask,
    packing,
    rounded,
)
from fedul_flwr.secure.messages import checked_array, messages_from
from fedul_flwr.secure.randomness import KEY_BYTES
from fedul_flwr.secure.similarity import Arrays, Cost

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

    def told(self, step: str, own: int, peer: int) -> tuple[str, Forms]:
        """The key of the evaluator's masks, then what the owner decrypts."""
        if step == "answer":
            return "owners", {MASK_KEY: (np.uint8, (KEY_BYTES,))}
        return "evaluators", {REVEALED: (np.uint32, (peer, own))}

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
        offers = {
            owner: _checked_offer(layout, party.sizes[owner], owner, inbox[owner])
            for owner in party.owners
            if owner in inbox
        }
        sizes = {owner: (len(codes), offer.bits.shape[1]) for owner, offer in offers.items()}
        keys = {owner: party.entropy(KEY_BYTES) for owner in offers}
        a = np.empty((len(codes), N), dtype=np.uint32)
        b = {owner: np.empty(shape, dtype=np.uint32) for owner, shape in sizes.items()}
        for rows in blocks(len(codes), _ROWS) if offers else ():
            weights = 1 - 2 * np.unpackbits(codes[rows], axis=1).astype(np.float64)
            a[rows], found = evaluate(list(offers.values()), party.session, weights, party.entropy)
            for owner, digits in zip(offers, found, strict=True):
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
                f"distance above {num_bits} bits; it must be at most that."
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


def _checked_offer(layout: Packing, size: int, owner: int, message: Arrays) -> Offer:
    origin = f"Client {owner} sent in step 'offer'"
    num_chunks = len(layout.chunks(size))
    with messages_from(owner):
        keys = checked_array(origin, message, KEYS, np.uint32, (DIGITS, num_chunks, N))
        bits = checked_array(origin, message, BITS, np.uint32, (DIGITS, size, layout.num_bits))
    return Offer(layout, keys, bits)
