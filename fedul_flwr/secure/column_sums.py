"""Exact sums of columns over clients, masked: numbers as integers of 640 bits.

Numbers are integers modulo 2^640 that count multiples of 2^-320. Sums of float32 numbers, of their
squares and of 10^12 such points fit, so that nobody has to tell how large a column is. An integer
travels as 20 digits of 32 bits, the lowest one first. A mask is added to the whole integer: were
digits masked one by one, their sums would tell more than the sum. Sums are exact: rounded ones
would depend on which client has which points, and their last digits could tell something of it.

The server asks for new public keys, tells all participants those of all, passes on what each has
sealed for each other one for their masks, and gets from each a masked vector: for every column the
client's sum and its sum of squares. It learns their sums over all clients alone. Keys and masks are
those of the sums of labels (:mod:`fedul_flwr.secure.session`). A client sends its sums once in a
run. A sum without those that did not answer would tell their parts as soon as their answers came
late: both sums would be known. So there is none, and the run has to begin anew. Until then a client
that cannot use another one's message answers with a complaint about its sender, and the server
begins without who is at fault.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.standardize import Moments
from fedul_flwr.data.types import Inputs, Ints
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.identities import Identities, Purpose
from fedul_flwr.secure.messages import (
    COMPLAINT,
    PeerError,
    check_complaint,
    checked_array,
    complain,
    exclude,
    messages_from,
    subjects,
)
from fedul_flwr.secure.rowsums import pair_masks
from fedul_flwr.secure.session import (
    FEWEST,
    FEWEST_SEALED,
    FROM,
    KEY_BYTES,
    MASK_SHARE,
    NONCE,
    PARTICIPANTS,
    PRIVATE,
    PUBLIC,
    SIGNATURES,
    TO,
    Session,
    attempt_keys,
    bytes_array,
    check_key,
    is_sealed,
    join,
    new_key,
    participants_message,
    require_enough,
)
from fedul_flwr.secure.similarity import Arrays, ExcludedClientsError, TooFewClientsError

Digits = NDArray[np.uint32]
"""``(n, DIGITS)``: n integers."""

FRACTION_BITS = 320
"""Number of fractional bits."""

DIGITS, DIGIT_BITS = 20, 32
BYTES = DIGITS * DIGIT_BITS // 8

LARGEST = 2 ** (298 + FRACTION_BITS)
"""Bound on a summand: 2^40 squares of float32 numbers, which are below 2^256, are below it, and
sums of 2^20 summands below half of the ring."""


def masked(numbers: Sequence[int], keys: Mapping[int, bytes], client: int) -> Digits:
    """A client's summands, hidden by masks that cancel in the sum of all participants.

    Parameters
    ----------
    numbers : integers, which count multiples of 2^-320.
    keys : for each other participant, 32 bytes shared only with it, for this sum only.
    client : this client's number.

    Raises
    ------
    UserError
        If a number is too large.
    """
    if any(abs(number) >= LARGEST for number in numbers):
        raise UserError(
            "Columns hold numbers beyond float32, or more points than 10^12.",
            "array-wrong",
        )
    written = b"".join(number.to_bytes(BYTES, "little", signed=True) for number in numbers)
    digits = np.frombuffer(written, "<u4").reshape(-1, DIGITS)
    mask = pair_masks(keys, client, digits.shape, "<u4")
    return _carried(digits + mask)


def total(parts: Iterable[Digits]) -> list[int]:
    """The sum of the participants' numbers, from all that :func:`masked` returned to them."""
    digits = _carried(np.sum(list(parts), axis=0, dtype=np.uint64))
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in digits]


def _carried(digits: NDArray[np.uint64]) -> Digits:
    """Digits below 2^32 of the same integers modulo 2^640.

    Parameters
    ----------
    digits : sums and differences of fewer than 2^31 digits, modulo 2^64.
    """
    carried = np.empty(digits.shape, dtype="<u4")
    carry = np.zeros(len(digits), dtype=np.int64)
    for digit in range(DIGITS):
        carry = carry + digits[:, digit].view(np.int64)
        carried[:, digit] = carry & (2**DIGIT_BITS - 1)
        carry >>= DIGIT_BITS  # rounds down, so that what is below 0 borrows
    return carried


CHUNK = 4096
"""Rows at a time."""

_DIGITS = 24
"""Binary digits of a float32 number."""
_SMALLEST, _SPAN = -148, 277
"""Exponents e of float32 numbers m 2^e with 0.5 <= |m| < 1: the first one, and how many."""


def exact_sums(inputs: Inputs, points: Ints) -> list[int]:
    """Sums of d columns over rows ``points`` of ``inputs``, then sums of their squares.

    Returns
    -------
    ``2 d`` integers: multiples of 2^-320, for :func:`fedul_flwr.secure.column_sums.masked`.

    Raises
    ------
    UserError
        If a number is not finite.
    """
    width = inputs.shape[1]
    # By column and exponent e: sums of the integers M = m 2^24, and of both halves of M².
    limbs = np.zeros((3, width * _SPAN), dtype=np.int64)
    first = _SPAN * np.arange(width) - _SMALLEST
    for start in range(0, len(points), CHUNK):
        rows = np.asarray(inputs[points[start : start + CHUNK]], dtype=np.float32)
        if not np.isfinite(rows).all():
            raise UserError("A column has numbers that are not finite, and no sum.", "array-wrong")
        parts, exponents = np.frexp(rows.astype(np.float64))
        whole = parts * 2.0**_DIGITS
        high = np.floor(whole * whole * 2.0**-_DIGITS)
        low = whole * whole - high * 2.0**_DIGITS
        positions = (exponents + first).ravel()
        for kind, numbers in enumerate((whole, high, low)):
            # Exact: 4,096 integers below 2^24 add up to less than 2^53.
            limbs[kind] += np.bincount(positions, numbers.ravel(), width * _SPAN).astype(np.int64)
    # x = M 2^(e - 24), and x² = (high 2^24 + low) 2^(2 e - 48).
    sums, highs = (_joined(limbs[k], width, k + 1, FRACTION_BITS - _DIGITS) for k in (0, 1))
    lows = _joined(limbs[2], width, 2, FRACTION_BITS - 2 * _DIGITS)
    return sums + [high + low for high, low in zip(highs, lows, strict=True)]


def _joined(totals: NDArray[np.int64], width: int, power: int, shift: int) -> list[int]:
    """For each column Σ_e total_e 2^(power e + shift)."""
    joined = [0] * width
    for index in np.flatnonzero(totals).tolist():
        column, exponent = index // _SPAN, index % _SPAN + _SMALLEST
        joined[column] += int(totals[index]) << (power * exponent + shift)
    return joined


PART = "masked-moments"
"""Array of a client's last answer, ``(2 d, DIGITS)``: sums of d columns, then of their squares."""

_ROUND, _SUMMANDS, _ATTEMPT = 0, 1, 0
"""Before round 1; what every participant adds: one vector; there is one attempt. The session's
number has the first two."""

_STEP = "masks"
_OUT_OF_TURN = "The server asked for the sum of columns out of turn."
KEYS, SHARES, PARTS = range(3)
"""The three messages."""


def moments_of(num_points: int, sums: list[int]) -> Moments:
    """Pooled moments from sums and sums of squares of all points, rounded once.

    Nothing cancels: m = Σ x / N and v = Σ x² / N - m² are computed in rational numbers.

    Parameters
    ----------
    num_points : number of all points N.
    sums : of all clients' :func:`~fedul_flwr.secure.column_sums.exact_sums`.

    Raises
    ------
    UserError
        If no points have such sums.
    """
    width, steps = len(sums) // 2, num_points << FRACTION_BITS
    if not all(0 <= number < steps << 256 for number in sums[width:]):  # squares of float32
        raise UserError(
            "The masked sum of columns holds numbers that no points have: masks did not cancel.",
            "sum-wrong",
        )
    means = [Fraction(number, steps) for number in sums[:width]]
    squares = [Fraction(number, steps) for number in sums[width:]]
    variances = [max(s - m * m, Fraction(0)) for s, m in zip(squares, means, strict=True)]
    return Moments(np.array(list(map(float, means))), np.array(list(map(float, variances))))


# A client


def answer_sum(
    remembered: Arrays,
    message: Arrays,
    client: int,
    part: Callable[[], list[int]],
    fewest: int,
    run: int,
    identities: Identities | None,
) -> tuple[Arrays, Arrays]:
    """A client's answer to one of the three messages: ``(remembered, reply)``.

    It remembers nothing after the last one, and after a complaint.

    Parameters
    ----------
    client : the client's number.
    part : computes its :func:`~fedul_flwr.secure.column_sums.exact_sums`.
    fewest : fewest participants with which it answers.
    run : Flower's id of the run.
    identities : who the owners are; ``None`` if nobody has said so.

    Raises
    ------
    UserError
        With too few participants, without a key, or if the server's message is malformed.
    """
    if NONCE in message:
        nonce = checked_array("The server sent", message, NONCE, np.uint8, (KEY_BYTES,))
        return new_key(Purpose("columns", run, _ROUND, nonce.tobytes()), identities)
    try:
        if PARTICIPANTS in message:
            return _shares(remembered, message, client, fewest, run, identities)
        return {}, {PART: masked(part(), _keys(remembered, message, client, fewest), client)}
    except PeerError as error:
        return complain(error)


def _shares(
    remembered: Arrays,
    message: Arrays,
    client: int,
    fewest: int,
    run: int,
    identities: Identities | None,
) -> tuple[Arrays, Arrays]:
    """Join the participants; for each a sealed share of the masks with it."""
    if PRIVATE not in remembered or PARTICIPANTS in remembered:
        raise UserError(_OUT_OF_TURN, "server-out-of-turn")
    purpose = Purpose("columns", run, _ROUND, remembered[NONCE].tobytes())
    private = remembered[PRIVATE].tobytes()
    session = join(client, private, message, _SUMMANDS, purpose, identities)
    require_enough(session.public, fewest)
    reply = {
        f"{TO}{peer}": session.seal(peer, _STEP, {MASK_SHARE: session.mask_share(peer)}, os.urandom)
        for peer in session.peers
    }
    return session.as_arrays(), reply


def _keys(remembered: Arrays, message: Arrays, client: int, fewest: int) -> Mapping[int, bytes]:
    """Keys of the masks with all who have sent it a share."""
    if PARTICIPANTS not in remembered:
        raise UserError(_OUT_OF_TURN, "server-out-of-turn")
    session = Session.from_arrays(client, _ROUND, remembered)
    shares = {}
    for peer in session.peers:
        if f"{FROM}{peer}" in message:
            arrays = session.unseal(peer, _STEP, message[f"{FROM}{peer}"])
            with messages_from(peer):
                origin = f"Client {peer} sent in step {_STEP!r}"
                share = checked_array(origin, arrays, MASK_SHARE, np.uint8, (KEY_BYTES,))
            shares[peer] = share.tobytes()
    _, keys = attempt_keys(
        session.mask_roots(shares), client, [client, *shares], _ATTEMPT, "columns", fewest
    )
    return keys


# The server


class MomentServer:
    """The server's side of a masked sum of columns.

    The caller sends the messages from :meth:`ask`, passes the answers to :meth:`take`, and repeats
    this until there are no more messages. A client that does not answer one of the first two has
    dropped out: its points do not count. The last one all have to answer.

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
        self._step = KEYS
        self._answers: dict[int, Arrays] = {}
        self._require_enough("have points")

    def ask(self) -> Mapping[int, Arrays]:
        """The next message to each client; empty once the sum is known."""
        if self._step == KEYS:
            nonce = bytes_array(os.urandom(KEY_BYTES))
            return {client: {NONCE: nonce} for client in self._left}
        if self._step == SHARES:
            sizes = dict.fromkeys(self._left, _SUMMANDS)
            return dict.fromkeys(self._left, participants_message(self._answers, sizes))
        if self._step == PARTS:
            return {client: self._post(client) for client in self._left}
        return {}

    def check(self, client: int, answer: Arrays) -> None:
        """Refuse a malformed answer to the last message.

        Raises
        ------
        BadMessageError
            With the client.
        """
        origin = f"Client {client} sent for the sum of columns"
        if self._step == KEYS:
            check_key(origin, answer)
            names = {PUBLIC, SIGNATURES}
        elif COMPLAINT in answer:
            check_complaint(origin, client, answer, self._answers)
            names = {COMPLAINT}
        elif self._step == SHARES:
            names = {f"{TO}{peer}" for peer in self._left if peer != client}
            for name in sorted(names):
                if not is_sealed(answer.get(name), FEWEST_SEALED):
                    raise BadMessageError(
                        f"{origin} no message to client {name[len(TO) :]}.", "message-incomplete"
                    )
        else:
            checked_array(origin, answer, PART, np.uint32, (2 * self._width, DIGITS))
            names = {PART}
        if answer.keys() - names:
            raise BadMessageError(f"{origin} something for which nobody asked.", "message-unasked")

    def take(self, answers: Mapping[int, Arrays]) -> None:
        """Process answers, by client, that :meth:`check` does not refuse.

        Raises
        ------
        TooFewClientsError
            If too few clients are left.
        ExcludedClientsError
            If clients have complained about others, before any has sent its sums: a new sum can
            begin without some.
        UserError
            If a client that was asked for its sums does not send them.
        """
        about = subjects(answers)
        if self._step == PARTS:
            silent = [client for client in self._left if client not in answers]
            if about or silent:
                raise UserError(_no_second(silent, about), "client-silent")
        self._left = [client for client in self._left if client in answers]
        exclude(about.items(), self._left)
        self._require_enough("were left")
        self._answers = {client: answers[client] for client in self._left}
        self._step += 1

    def moments(self) -> Moments:
        """Mean and variance of every column over the points of all clients that were left."""
        if self._step <= PARTS:
            raise ValueError("the sum is not known yet")
        sums = total(answer[PART] for answer in self._answers.values())
        return moments_of(sum(self._num_points[client] for client in self._left), sums)

    def _post(self, client: int) -> Arrays:
        """What the others that are left have sealed for a client."""
        return {
            f"{FROM}{peer}": self._answers[peer][f"{TO}{client}"]
            for peer in self._left
            if peer != client
        }

    def _require_enough(self, how: str) -> None:
        if len(self._left) < self._fewest:
            raise TooFewClientsError(
                f"Setting standardize-sum = 'masked': {len(self._left)} client(s) {how}, and "
                f"fewer than {self._fewest} cannot hide their columns from each other. Choose "
                "standardize = 'owner' or 'constants'.",
                self._left,
            )


def _no_second(silent: list[int], about: Mapping[int, int]) -> str:
    """Why the run ends at the last message, with who is at fault."""
    try:
        exclude(about.items(), {*about, *about.values()})
        fault = f"no usable answer of client(s) {', '.join(map(str, silent))}"
    except ExcludedClientsError as error:
        fault = str(error)
    return (
        f"Setting standardize-sum = 'masked': {fault}, and the sum of columns is asked for once, "
        "as a second one would tell the part of whoever is late. Begin the run anew, or choose "
        "standardize = 'owner' or 'constants'."
    )
