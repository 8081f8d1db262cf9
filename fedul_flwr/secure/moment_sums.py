"""Mean and variance of columns over the points of several clients, from one masked sum.

The server asks for new public keys, tells all participants those of all, and gets from each a
masked vector: for every column the client's sum and its sum of squares. It learns their sums over
all clients alone. Keys and masks are those of the sums of labels
(:mod:`fedul_flwr.secure.session`), the numbers of :mod:`fedul_flwr.secure.wide_sums`. A client
answers once in a run. A sum without those that did not answer would tell their parts as soon as
their answers came late: both sums would be known. So there is none, and the run has to begin anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from fedul_flwr.data.standardize import Moments
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.channels import is_public_key
from fedul_flwr.secure.messages import checked_array
from fedul_flwr.secure.randomness import KEY_BYTES
from fedul_flwr.secure.session import (
    FEWEST,
    NONCE,
    PRIVATE,
    PUBLIC,
    attempt_keys,
    bytes_array,
    join,
    new_key,
    participants_message,
)
from fedul_flwr.secure.similarity import Arrays, TooFewClientsError
from fedul_flwr.secure.wide_sums import DIGITS, FRACTION_BITS, masked, total

PART = "masked-moments"
"""Array of a client's answer, ``(2 d, DIGITS)``: sums of d columns, then of their squares."""

_ROUND, _SUMMANDS, _ATTEMPT = 0, 1, 0
"""Before round 1; what every participant adds: one vector; there is one attempt. The session's
number has the first two."""


def moments_of(num_points: int, sums: list[int]) -> Moments:
    """Pooled moments from sums and sums of squares of all points, rounded once.

    Nothing cancels: m = Σ x / N and v = Σ x² / N - m² are computed in rational numbers.

    Parameters
    ----------
    num_points : number of all points N.
    sums : of all clients' :func:`~fedul_flwr.secure.exact_sums.exact_sums`.

    Raises
    ------
    UserError
        If no points have such sums.
    """
    width, steps = len(sums) // 2, num_points << FRACTION_BITS
    if not all(0 <= number < steps << 256 for number in sums[width:]):  # squares of float32
        raise UserError(
            "The masked sum of columns holds numbers that no points have: masks did not cancel."
        )
    means = [Fraction(number, steps) for number in sums[:width]]
    squares = [Fraction(number, steps) for number in sums[width:]]
    variances = [max(s - m * m, Fraction(0)) for s, m in zip(squares, means, strict=True)]
    return Moments(np.array(list(map(float, means))), np.array(list(map(float, variances))))


# A client


def offer_key(message: Arrays) -> tuple[Arrays, Arrays]:
    """A client's answer to a nonce: ``(remembered, reply)``, the latter with a public key."""
    nonce = checked_array("The server sent", message, NONCE, np.uint8, (KEY_BYTES,))
    return new_key(nonce)


def masked_moments(
    remembered: Arrays, message: Arrays, own: int, part: list[int], fewest: int
) -> Arrays:
    """A client's answer to the list of participants, after which it forgets its key.

    Parameters
    ----------
    remembered : state after :func:`offer_key`.
    own : the client's number.
    part : its :func:`~fedul_flwr.secure.exact_sums.exact_sums`.
    fewest : fewest participants with which it answers.

    Raises
    ------
    UserError
        With too few participants, or without a key.
    """
    if PRIVATE not in remembered:
        raise UserError("The server asked for the sum of columns out of turn.")
    private, nonce = remembered[PRIVATE].tobytes(), remembered[NONCE].tobytes()
    session = join(own, _ROUND, private, nonce, message, _SUMMANDS)
    roots = session.mask_roots()
    _, keys = attempt_keys(roots, own, session.public, _ATTEMPT, "columns", fewest)
    return {PART: masked(part, keys, own)}


# The server


class MomentServer:
    """The server's side of a masked sum of columns.

    The caller sends the messages from :meth:`ask`, passes the answers to :meth:`take`, and repeats
    this until there are no more messages. A client that sends no key has dropped out: its points
    do not count. Once keys are known, all have to answer.

    Parameters
    ----------
    num_points : number of points of each client; clients without points are not asked.
    width : number of columns d.
    fewest : fewest participants.

    Raises
    ------
    TooFewClientsError
        If fewer clients have points.
    """

    def __init__(self, num_points: Mapping[int, int], width: int, fewest: int = FEWEST) -> None:
        self._num_points, self._width, self._fewest = num_points, width, fewest
        self._left = sorted(client for client, count in num_points.items() if count)
        self._public: dict[int, bytes] = {}
        self._sums: list[int] | None = None
        self._require_enough("have points")

    def ask(self) -> Mapping[int, Arrays]:
        """The next message to each client; empty once the sum is known."""
        if self._sums is not None:
            return {}
        if not self._public:
            nonce = bytes_array(os.urandom(KEY_BYTES))
            return {client: {NONCE: nonce} for client in self._left}
        everybody = participants_message(self._public, dict.fromkeys(self._public, _SUMMANDS))
        return dict.fromkeys(self._left, everybody)

    def check(self, client: int, answer: Arrays) -> None:
        """Refuse a malformed answer to the last message.

        Raises
        ------
        BadMessageError
            With the client.
        """
        origin = f"Client {client} sent for the sum of columns"
        if not self._public:
            key = checked_array(origin, answer, PUBLIC, np.uint8, (KEY_BYTES,))
            if not is_public_key(key.tobytes()):
                raise BadMessageError(
                    f"{origin} a public key of small order, with which nothing is secret."
                )
        else:
            checked_array(origin, answer, PART, np.uint32, (2 * self._width, DIGITS))
        if len(answer) > 1:
            raise BadMessageError(f"{origin} something for which nobody asked.")

    def take(self, answers: Mapping[int, Arrays]) -> None:
        """Process answers, by client, that :meth:`check` does not refuse.

        Raises
        ------
        TooFewClientsError
            If too few clients are left.
        UserError
            If a client that has sent a key does not answer.
        """
        if self._public and (silent := [c for c in self._left if c not in answers]):
            raise UserError(
                "Setting standardize-sum = 'masked': no usable answer of client(s) "
                f"{', '.join(map(str, silent))}, and the sum of columns is asked for once, as a "
                "second one would tell the part of whoever is late. Begin the run anew, or choose "
                "standardize = 'owner' or 'constants'."
            )
        self._left = [client for client in self._left if client in answers]
        self._require_enough("were left")
        if not self._public:
            self._public = {client: answers[client][PUBLIC].tobytes() for client in self._left}
        else:
            self._sums = total(answers[client][PART] for client in self._left)

    def moments(self) -> Moments:
        """Mean and variance of every column over the points of all clients that were left."""
        if self._sums is None:
            raise ValueError("the sum is not known yet")
        return moments_of(sum(self._num_points[client] for client in self._left), self._sums)

    def _require_enough(self, how: str) -> None:
        if len(self._left) < self._fewest:
            raise TooFewClientsError(
                f"Setting standardize-sum = 'masked': {len(self._left)} client(s) {how}, and "
                f"fewer than {self._fewest} cannot hide their columns from each other. Choose "
                "standardize = 'owner' or 'constants'.",
                self._left,
            )
