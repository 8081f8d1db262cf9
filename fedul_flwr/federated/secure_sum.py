"""What the server reads as a sum over clients alone: a client's part, and the server's.

With ``secure-sum = "on"`` a client sends one vector of 32-bit words under masks
(:mod:`fedul_flwr.secure.sum_client`): the change of its model times its weight, in fixed point, and
a few numbers, its weight and its metrics among them. Other sums are of numbers alone
(:class:`Summed`).

Two phases begin a session, once a run and again when a client joins; one comes before the messages
that ask for vectors and one after the replies, or two if the owners have identities.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from logging import INFO, WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr.config.base import setting_error
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.exact_sums import DIGITS
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Arrays, Content, Floats, Value, below, count, l2_norm, number
from fedul_flwr.errors import BadMessageError, NothingToLearnError, NoUpdateError, UserError
from fedul_flwr.federated.asked import Asked, question
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.members import ClientRegistry
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    CONFIRM,
    DIAGNOSTICS,
    KEYS,
    MASKED,
    METRICS,
    NORMALIZER,
    NUM_POINTS,
    OF,
    PART,
    PEERS,
    SETUP,
    SHARES,
    UNMASK,
    WEIGHT,
    PlainArray,
    array_record,
    payload_parts,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.owner.ledger import Ledger, ledger_file, spender
from fedul_flwr.federated.payload import (
    HEADS,
    SUMMED_ONCE,
    Payload,
    Sizes,
    Summed,
    groups_of,
    in_record,
    reports_of,
)
from fedul_flwr.learning.variates import CONTROL
from fedul_flwr.secure.identities import (
    SIGNATURE_BYTES,
    UNSIGNED,
    Identities,
    Purpose,
    read_identities,
)
from fedul_flwr.secure.messages import (
    COMPLAINT,
    PeerError,
    check_complaint,
    checked_array,
    complain,
    judge,
    subjects,
)
from fedul_flwr.secure.noise import fresh_gaussians
from fedul_flwr.secure.session import (
    FEWEST,
    FEWEST_SEALED,
    FROM,
    KEY_BYTES,
    NONCE,
    PARTICIPANTS,
    PUBLIC,
    SIGNATURES,
    TO,
    Session,
    bytes_array,
    check_key,
    is_sealed,
    participants_message,
    require_enough,
)
from fedul_flwr.secure.sharing import COMPLETE, SEALED, SHARE_SENDERS, neighbors, quorum, spare
from fedul_flwr.secure.stored import Pairs
from fedul_flwr.secure.sum_client import (
    SumStage,
    begin_session,
    confirm,
    join_sum,
    mask_vector,
    offer_shares,
    require_question,
    survivors_of,
    unmask,
)
from fedul_flwr.secure.sum_server import Opened, SumServer, TooFewLeftError, apart_message
from fedul_flwr.secure.words import (
    FIXED_DIGITS,
    Tail,
    Words,
    dequantize,
    fixed_numbers,
    fixed_words,
    quantize,
    step_size,
    whole_numbers,
    whole_words,
)

ROUND, DIGEST = "server-round", "digest"
"""Of which round a sum is, and the digest of what will come with the request for a vector."""

BEGUN, LARGEST_WEIGHT = "round", "largest-weight"
"""Values of phases: the round in which a session began; a weight that no client exceeds."""

BOUND = 8.0
"""Largest change of a weight of the model in a round without ``max-update-norm``."""
BUFFER_BOUND = 4096.0
"""The same of a batch-norm statistic."""
CONTROL_BOUND = 64.0
"""Largest change of a value of SCAFFOLD's variates, which are gradients."""

SLOTS = 64
"""Fewest numbers that travel with an update: weight, count, weight times a_i (FedNova), metrics."""
FIRST_METRIC = 3
NUMBERS = Tail(SLOTS, 4)
"""Where they are in a vector: last, each in four words."""
_STEPS = 2**64
"""Steps of one: numbers are added exactly, as multiples of 2^-64."""
_STORED, _SUMMANDS, _MODEL = "secure-sum", "summands", "model"
_STAGE = "stage/"
"""Prefix of the stored arrays that say where the client is in the protocol; the others say of which
sum."""


def _tail(of: Summed, count: int) -> Tail:
    """The form of a vector of ``count`` numbers."""
    digits = {Summed.COLUMNS: DIGITS, **dict.fromkeys(HEADS, FIXED_DIGITS)}
    return Tail(count, digits.get(of, NUMBERS.digits))


# The vector


@dataclass(frozen=True)
class Layout:
    """Order and range of the values of a vector."""

    shapes: Mapping[tuple[str, str], tuple[int, ...]]
    bounds: Mapping[tuple[str, str], float]
    tail: Tail = NUMBERS

    @classmethod
    def of(
        cls,
        records: Mapping[str, Arrays],
        buffers: Collection[str],
        largest: float,
        tail: Tail = NUMBERS,
    ) -> Layout:
        """The layout of an update of ``records``, the arrays that the server has sent."""
        shapes, bounds = {}, {}
        for record, arrays in records.items():
            for name, array in arrays.items():
                if np.issubdtype(array.dtype, np.floating):
                    shapes[record, name] = array.shape
                    free = BUFFER_BOUND if name in buffers else BOUND
                    bounds[record, name] = CONTROL_BOUND if record == CONTROL else largest or free
        return cls(shapes, bounds, tail)

    @property
    def size(self) -> int:
        """Number of words."""
        values = sum(int(np.prod(shape)) for shape in self.shapes.values())
        return values + self.tail.size

    def words(
        self,
        changes: Mapping[tuple[str, str], Floats],
        numbers: Sequence[float],
        clients: int,
        rng: np.random.Generator,
    ) -> Words:
        """One client's vector."""
        parts = []
        for key in self.shapes:
            values, bound = changes[key].ravel(), self.bounds[key]
            if not (np.abs(values) <= bound).all():
                raise UserError(
                    f"A value of its update is not finite, or beyond {bound:g}, the range of a "
                    "secure sum: lower the learning rate, or clip updates by max-update-norm.",
                    "update-too-large",
                )
            parts.append(quantize(values, bound, clients, rng))
        return np.concatenate([*parts, write_numbers(numbers, self.tail)])

    def read(
        self, words: Words, clients: int
    ) -> tuple[dict[tuple[str, str], Floats], NDArray[np.float64]]:
        """Sums of all clients' changes and numbers from the sum of their vectors."""
        changes, at = {}, 0
        for key, shape in self.shapes.items():
            count = int(np.prod(shape))
            total = dequantize(words[at : at + count], self.bounds[key], clients)
            changes[key] = total.reshape(shape)
            at += count
        return changes, read_numbers(words[at:], self.tail)


def largest_change(settings: RunConfig) -> float:
    """Largest absolute value of an entry of a clipped update with its noise; 0 if none is clipped.

    A client's noise is at most 8.6 / √3 times z·C, as :data:`FEWEST` is 3.
    """
    privacy = settings[DPSettings]
    if privacy.clipping == "none":
        return settings.max_update_norm
    return privacy.norm * (1 + 6 * privacy.noise_multiplier)


def add_noise(
    changes: Mapping[tuple[str, str], Floats], privacy: DPSettings, step: float, least: int
) -> dict[tuple[str, str], Floats]:
    """``changes`` with one client's part of the noise of a differentially private sum.

    The sum over ``least`` clients or more has the standard deviation z·C or more. Noise is a
    multiple of ``step``: with 1,024 steps a deviation and more, parts of it add up as Gaussian
    numbers do (Kairouz, Liu and Steinke 2021). Rounding lengthens an update of d values by √d steps
    at most, which the noise covers.
    """
    size = sum(value.size for value in changes.values())
    sensitivity = privacy.norm + step * math.sqrt(size)
    deviation = privacy.noise_multiplier * sensitivity / math.sqrt(least)
    if deviation < 1024 * step:
        why = "it is too small for the steps of a secure sum among so many clients"
        multiplier = privacy.noise_multiplier
        raise setting_error("dp.noise-multiplier", multiplier, why, "setting-breaks-privacy")
    return {
        key: value
        + step * np.rint(deviation / step * fresh_gaussians(value.size)).reshape(value.shape)
        for key, value in changes.items()
    }


class Numbers:
    """Numbers of an update in a vector's tail, in the order of their names.

    Each is times the client's weight, or where it is added up times 1 if the client has trained; of
    what some rounds do not have also the factor itself, which tells the server whether it is there.
    """

    def __init__(self, settings: RunConfig, sizes: Sizes) -> None:
        reports = in_record(reports_of(settings), METRICS)
        self._parts = {
            name: (part, part.sized(sizes))
            for name, part in sorted(reports.items())
            if name != WEIGHT
        }
        needed = [math.prod(shape) + part.optional for part, shape in self._parts.values()]
        self.tail = Tail(max(SLOTS, FIRST_METRIC + sum(needed)), NUMBERS.digits)

    def write(self, weight: float, payload: Payload) -> list[float]:
        """One client's numbers."""
        trained, normalizer = float(weight > 0), float(payload.get(NORMALIZER, 0.0))
        numbers = [weight, trained, weight * normalizer]
        for name, (part, shape) in self._parts.items():
            factor = (trained if part.combine == "sum" else weight) * (name in payload)
            numbers += [factor] * part.optional
            values = np.ravel(payload.get(name, np.zeros(shape)))
            numbers += [factor * float(value) for value in values]
        return numbers

    def read(self, sums: Floats, replies: int) -> dict[str, Any]:
        """Means of the clients' numbers; of those to be added up such shares that the sum of
        ``replies`` equal ones is right."""
        totals, metrics = iter(sums[FIRST_METRIC:]), {}
        for name, (part, shape) in self._parts.items():
            by = float(next(totals)) if part.optional else float(sums[0])
            values = [float(next(totals)) for _ in range(math.prod(shape))]
            if by:
                by = replies if part.combine == "sum" else by
                metrics[name] = [v / by for v in values] if shape else values[0] / by
        if NORMALIZER in metrics:
            metrics[NORMALIZER] = float(sums[2] / sums[0])
        return metrics


def write_numbers(numbers: Sequence[float], tail: Tail = NUMBERS) -> Words:
    """Numbers as words of a vector's tail, whose sums over clients cannot overflow."""
    if len(numbers) > tail.numbers:
        raise UserError(
            f"An update in this secure sum has at most {tail.numbers - FIRST_METRIC} numbers.",
            "message-out-of-range",
        )
    if not np.isfinite(numbers).all():
        raise UserError("A number of its update is not finite.", "message-out-of-range")
    steps = in_steps(numbers)
    return whole_words([*steps, *[0] * (tail.numbers - len(steps))], tail.digits)


def read_numbers(words: Words, tail: Tail = NUMBERS) -> Floats:
    """Sums of numbers from the sums of the words of :func:`write_numbers`."""
    return from_steps(whole_numbers(words, tail.digits))


def in_steps(numbers: Iterable[float]) -> list[int]:
    """Finite numbers as multiples of 2^-64, rounded."""
    return [round(Fraction(number) * _STEPS) for number in numbers]


def from_steps(steps: Sequence[int]) -> Floats:
    """The numbers of :func:`in_steps`, or sums of them."""
    return np.array([number / _STEPS for number in steps])


def common_records(settings: RunConfig, records: Mapping[str, Arrays]) -> dict[str, Arrays]:
    """The records that all clients of a round get and change: the model, SCAFFOLD's variate, and
    what the method declares."""
    names = (ARRAYS, *sorted({CONTROL, *groups_of(reports_of(settings))}))
    return {name: records[name] for name in names if name in records}


# The client


def fewest_summed(settings: RunConfig) -> int:
    """Fewest clients in a sum: 3, or more with ``xclp.min-labeled-clients``."""
    codes = settings.find(XCLPSettings)
    return max(FEWEST, codes.min_labeled_clients if codes else 0)


class MaskedUpdates:
    """A client's part in secure sums."""

    def __init__(
        self,
        settings: RunConfig,
        node: NodeConfig,
        state: ClientState,
        part: Callable[[Summed, Content], Sequence[int] | Floats],
    ) -> None:
        self._settings, self._node, self._state, self._part_of = settings, node, state, part
        self._client = node.partition_id
        file = ledger_file(node)
        self._ledger = Ledger(file) if file else None

    def on_phase(self, name: str, content: Content) -> Content:
        """Answer one of :data:`SUM_PHASES`; a complaint names whose message cannot be used."""
        if not self._settings.has_sums:
            raise UserError(
                "The server asked for a secure sum that this run does not have.",
                "server-asks-too-much",
            )
        answers = {KEYS: self._keys, PEERS: self._peers, SHARES: self._shares, PART: self._part}
        answers |= {CONFIRM: self._confirm, UNMASK: self._unmask}
        try:
            state, reply = answers[name](content)
        except PeerError as error:
            return Content(arrays=dict(complain(error)[1]))
        self._state.set_ephemeral(_STORED, dict(state))
        return Content(arrays=dict(reply))

    def accept(self, of: Summed, asked: Asked) -> None:
        """Refuse to compute numbers from anything but what was announced for this sum."""
        state = self._stored()
        if OF not in state:
            raise UserError(
                "The server asked for a part of a sum out of turn.", "server-out-of-turn"
            )
        stage = require_question(_stage(state), self._question(state, asked.digest))
        number = asked.values.get(ROUND, int(state[ROUND]))
        announced, last = (_of(state), int(state[ROUND])), self._settings.num_rounds
        if (of, number) != announced or number > last:
            raise UserError(
                f"The server asked for {of} in round {number} of {last}, and has announced "
                f"{' in round '.join(map(str, announced))}.",
                "server-out-of-turn",
            )
        same = f"{of} {self._node.data} ".encode() + asked.model
        state = {**state, _MODEL: bytes_array(hashlib.sha256(same).digest())}
        self._refuse_others(state, stage.terms.present)
        self._state.set_ephemeral(_STORED, state)

    def _question(self, state: Arrays, asked: bytes) -> bytes:
        setup = self._state.values(SETUP)
        largest = float(state[LARGEST_WEIGHT])
        of, server_round = _of(state), int(state[ROUND])
        return question(self._state.run, setup, of, server_round, largest, asked)

    def _groups(self, state: Arrays) -> list[tuple[bytes, str, bool]]:
        """What is summed over one group of clients: a key, a name, and whether the group must stay:
        that of a model's sums, and if the owner wants it that of all sums of a run."""
        run = hashlib.sha256(f"run {self._state.run}".encode()).digest()
        return [
            (state[_MODEL].tobytes(), "The same", not self._node.allow_regrouping),
            (run, "What this run asks for", self._node.fixed_clients),
        ]

    def _refuse_others(self, state: Arrays, clients: Sequence[int]) -> None:
        """Refuse a sum of what was summed before over others: two sums tell the difference."""
        for key, what, must_stay in self._groups(state):
            before = self._ledger.clients_of(key) if self._ledger and must_stay else None
            if before is not None and before != [*clients]:
                odd = ", ".join(map(str, sorted({*before} ^ {*clients})))
                seed = " or begin with another seed," * (_of(state) not in SUMMED_ONCE)
                raise UserError(
                    f"{what} was summed before over other clients: both sums together would tell "
                    f"the part of client(s) {odd}. Ask all clients of that sum,{seed} or let the "
                    "owners allow it (limits allow-regrouping, fixed-clients).",
                    "server-names-others",
                )

    def mask(
        self,
        payload: Payload,
        start: Mapping[str, Arrays],
        shares: Arrays,
        asked: Asked,
        buffers: Collection[str],
        sizes: Sizes,
    ) -> Payload:
        """The update as a masked vector, and what is kept by client as it is."""
        state, privacy = self._stored(), self._settings[DPSettings]
        num_examples = payload[WEIGHT]
        is_private = privacy.clipping != "none"
        if is_private and not num_examples:
            raise UserError(
                "The client had nothing to learn from, and with dp.clipping = "
                f"{privacy.clipping!r} every client of a round must return an update.",
                "nothing-to-learn",
            )
        weight = self._weight(num_examples, float(state[LARGEST_WEIGHT]))
        normalizer = float(payload.get(NORMALIZER, 0.0))
        scale = weight / normalizer if weight and self._settings.base == "fednova" else weight
        numbers = Numbers(self._settings, sizes)
        layout = Layout.of(start, buffers, largest_change(self._settings), numbers.tail)
        changes = {
            (record, name): np.asarray(payload[record][name], np.float64)
            for record, name in layout.shapes
        }
        for record, name in changes:
            if record != CONTROL:
                changes[record, name] -= start[record][name]
        for norm in (self._settings.max_update_norm, privacy.norm * is_private):
            length = l2_norm(changes.values()) if norm else 0.0
            if length:
                factor = min(1.0, norm / length)
                changes = {key: value * factor for key, value in changes.items()}
        factors = {CONTROL: float(weight > 0), ARRAYS: scale}
        for record, name in changes:
            changes[record, name] *= factors.get(record, weight)
        clients = int(state[_SUMMANDS])
        if is_private:
            step = step_size(largest_change(self._settings), clients)
            changes = add_noise(changes, privacy, step, quorum(clients))
        rng = stream(self._settings.seed, "rounding", 1 + 2 * int(state[ROUND]), self._client)
        words = layout.words(changes, numbers.write(weight, payload), clients, rng)
        renewed, masked = self._masked(shares, words, asked, numbers.tail)
        if is_private:  # clients open no sum with less noise than z·C
            spender(self._node)("updates", privacy.noise_multiplier**-2)
        self._state.set_ephemeral(_STORED, dict(renewed))
        apart = in_record(reports_of(self._settings), DIAGNOSTICS)
        plain = {name: value for name, value in payload.items() if name in apart}
        return {ARRAYS: {MASKED: masked}, WEIGHT: int(num_examples > 0), **plain}

    def _masked(
        self, shares: Arrays, words: Words, asked: Asked, tail: Tail
    ) -> tuple[Arrays, Words]:
        """State after a vector, and the vector under its masks."""
        state = self._stored()
        what = self._question(state, asked.digest)
        try:
            stage, masked = mask_vector(_stage(state), shares, words, what, tail)
        except PeerError as error:
            # A complaint in place of a vector would be another kind of reply: it follows when the
            # next sum begins, and this client drops out of this one.
            subjects = {COMPLAINT: np.array(error.peers, np.int64)}
            self._state.set_ephemeral(_STORED, {**state, **subjects})
            raise UserError(str(error), error.code) from error
        if self._ledger and not self._ledger.answer(self._state.run, stage.last):
            raise self._answered(stage.last)
        return _at(stage, state), masked

    def _answered(self, number: int) -> UserError:
        return UserError(
            f"The server asked again for secure sum {number}, or an earlier one: this client has "
            "answered.",
            "server-out-of-turn",
        )

    def _part(self, content: Content) -> tuple[Arrays, Arrays]:
        """Numbers of this client alone, masked."""
        named = content.values.get(OF)
        if named not in {*Summed} - {Summed.UPDATE}:
            raise UserError("The server did not say which sum it asks for.", "message-incomplete")
        of = Summed(str(named))
        of_sum = {SEALED, SHARE_SENDERS}
        shares = {key: array for key, array in content.arrays.items() if key in of_sum}
        sent = {key: array for key, array in content.arrays.items() if key not in shares}
        asked = Asked({ARRAYS: sent}, content.values)
        self.accept(of, asked)
        numbers: Any = self._part_of(of, Content(sent, content.values))
        tail = _tail(of, len(numbers))
        words = fixed_words(numbers) if of in HEADS else whole_words(numbers, tail.digits)
        state, masked = self._masked(shares, words, asked, tail)
        return state, {of.value: masked}

    def _weight(self, num_examples: int, largest: float) -> float:
        if self._settings.client_weights == "uniform":
            return float(num_examples > 0)
        if not num_examples <= largest:
            raise UserError(
                "The server named a largest weight that is below this client's.",
                "server-asks-too-much",
            )
        return num_examples / largest

    def _keys(self, content: Content) -> tuple[Arrays, Arrays]:
        nonce = checked_array("The server sent", content.arrays, NONCE, np.uint8, (KEY_BYTES,))
        begun = number(content, BEGUN)
        before = self._state.ephemeral(_STORED)
        stage, reply = begin_session(
            _stage(before) if before else None,
            Purpose("sum", self._state.run, begun, nonce.tobytes()),
            self._identities,
        )
        return _at(stage, self._complaint()), reply

    def _peers(self, content: Content) -> tuple[Arrays, Arrays]:
        stage, run = _stage(self._stored()), self._state.run
        joined, reply = join_sum(stage, self._client, run, content.arrays, self._identities)
        return _at(joined, self._complaint()), reply

    def _complaint(self) -> Arrays:
        """The complaint that this client has not made yet, if there is one."""
        state = self._state.ephemeral(_STORED)
        return {name: state[name] for name in state.keys() & {COMPLAINT}}

    def _shares(self, content: Content) -> tuple[Arrays, Arrays]:
        state = dict(self._stored())
        if COMPLAINT in state:
            peers = [*map(int, state.pop(COMPLAINT))]
            self._state.set_ephemeral(_STORED, state)
            if here := [p for p in peers if p in content.arrays.get(PARTICIPANTS, ())]:
                raise PeerError(f"Client {here[0]} sent shares that do not open.", *here)
        largest, named = content.values.get(LARGEST_WEIGHT), content.values.get(OF)
        if not isinstance(largest, float) or not 1 <= largest <= 2.0**40 or named not in {*Summed}:
            raise UserError("The server did not say what a secure sum is of.", "message-incomplete")
        of, server_round = Summed(str(named)), count(content, ROUND)
        asked = checked_array("The server sent", content.arrays, DIGEST, np.uint8, (KEY_BYTES,))
        last = self._ledger.last_answer(self._state.run) if self._ledger else 0
        if (sum_number := of.number(server_round)) <= last:
            raise self._answered(sum_number)
        terms = {
            **{OF: np.array([*Summed].index(of)), ROUND: np.array(server_round)},
            LARGEST_WEIGHT: np.array(largest),
        }
        what = self._question(terms, asked.tobytes())
        stage, reply = offer_shares(_stage(state), content.arrays, sum_number, what)
        present = content.arrays[PARTICIPANTS]
        require_enough(present, self._fewest)
        return _at(stage, {**terms, _SUMMANDS: np.array(len(present))}), reply

    def _confirm(self, content: Content) -> tuple[Arrays, Arrays]:
        state = self._stored()
        if self._identities is None:
            raise UserError(
                "The server asked for a signature of an owner without an identity.",
                "server-asks-too-much",
            )
        signed, signature = confirm(_stage(state), content.arrays, self._identities, self._fewest)
        self._record_list(state, content)
        return _at(signed, state), {SIGNATURES: signature}

    def _unmask(self, content: Content) -> tuple[Arrays, Arrays]:
        state = self._stored()
        joined, reply = unmask(_stage(state), content.arrays, self._identities, self._fewest)
        if not joined.member.pinned:  # else it has signed the list
            self._record_list(state, content)
        return _at(joined, state), reply

    def _record_list(self, state: Arrays, content: Content) -> None:
        """Note over whom this is summed, or refuse if it was over others before."""
        _, listed = survivors_of(_stage(state), content.arrays)
        self._refuse_others(state, listed)
        if self._ledger:
            for key, _, _ in self._groups(state):
                self._ledger.sign(key, listed)

    @property
    def _fewest(self) -> int:
        """Fewest clients of a sum that this client takes part in."""
        limit = self._node.min_labeled_clients if self._node.data else 0
        return max(fewest_summed(self._settings), limit)

    @cached_property
    def _identities(self) -> Identities | None:
        return read_identities(self._node.identity, self._client)

    def _stored(self) -> Arrays:
        stored = self._state.ephemeral(_STORED)
        if not stored:
            raise UserError(
                "The server asked for a secure sum that this client has not joined.", "not-sent-yet"
            )
        return stored


def _stage(state: Arrays) -> SumStage:
    return SumStage.from_arrays(below(_STAGE, state))


def _at(stage: SumStage, state: Arrays) -> Arrays:
    """What is stored: of which sum, as in ``state``, and the new stage."""
    of_sum = {name: array for name, array in state.items() if not name.startswith(_STAGE)}
    return {**of_sum, **{_STAGE + name: array for name, array in stage.to_arrays().items()}}


def _of(state: Arrays) -> Summed:
    """What the sum is of for which this client has shared masks."""
    return list(Summed)[int(state[OF])]


# The server

_ORIGIN = "Client {} sent for a secure sum"
MOST_TIMES_MEDIAN = 2**16
"""A client with more points than this times the median drowns the others in rounding."""


CheckArrays = Callable[[int, Arrays], object]
"""``(client, arrays)``: refuses what a client has sent."""


def _complaint_or(check: CheckArrays, present: Collection[int]) -> CheckArrays:
    """Take a complaint about others, or else what passes ``check``."""

    def either(client: int, arrays: Arrays) -> None:
        if COMPLAINT in arrays:
            check_complaint(_ORIGIN.format(client), client, arrays, present)
        else:
            check(client, arrays)

    return either


def _one_array(name: str, dtype: Any, size: int) -> CheckArrays:
    """Take one row of numbers."""
    return lambda client, arrays: checked_array(
        _ORIGIN.format(client), arrays, name, dtype, (size,)
    )


class SecureSums:
    """Opens sums: of updates (:meth:`begin`, :meth:`open`) or of numbers (:meth:`collect`)."""

    def __init__(self, registry: ClientRegistry) -> None:
        self._settings, self._registry, self._rounds = registry.settings, registry, registry.rounds
        self._session: bytes = b""
        self._members: dict[int, ClientRef] = {}
        self._parts: dict[int, Arrays] = {}
        self._pinned = self._renew = self._heard = False
        self._apart: set[tuple[int, int]] = set()
        """Complaints of the run: who has made one, and about whom."""
        self._server: SumServer | None = None

    # Before training

    def begin(
        self,
        grid: Grid,
        messages: Sequence[Message],
        round_number: int,
        buffers: Collection[str],
    ) -> tuple[list[Message], Mapping[str, ArrayRecord]]:
        """Messages to the clients whose masks are shared, and the form of their replies' arrays."""
        self._grid, self._round = grid, round_number
        by_node = {client.node_id: client for client in self._registry.clients}
        asked = {by_node[m.metadata.dst_node_id].partition_id: m for m in messages}
        content = messages[0].content
        received = {name: to_arrays(record) for name, record in content.array_records.items()}
        self._start = common_records(self._settings, received)
        config = dict(cast(ConfigRecord, content[CONFIG]))
        self._numbers = Numbers(self._settings, self._registry.sizes)
        largest = largest_change(self._settings)
        self._layout = Layout.of(self._start, buffers, largest, self._numbers.tail)
        try:
            answers = self._shared(asked, Asked(received, config).digest, Summed.UPDATE)
        except TooFewLeftError as error:
            raise NoUpdateError(f"Round {round_number}: {error}") from error
        assert self._server is not None
        chosen = []
        for client in answers:
            record = to_record(self._server.shares_for(client))
            message = asked[client]
            message.content = RecordDict({**message.content, SHARES: record})
            self._rounds.record.down.update(payload_parts(RecordDict({SHARES: record})))
            chosen.append(message)
        form = PlainArray.of(np.zeros(self._layout.size, np.uint32))
        return chosen, {ARRAYS: array_record({MASKED: form})}

    def _shared(self, asked: Iterable[int], question: bytes, of: Summed) -> list[int]:
        """The clients that have shared this sum's masks; new sessions without who must leave."""
        self._heard = False
        present = self._without_giants(sorted(asked))
        while True:
            by_number = {client.partition_id: client for client in self._registry.clients}
            if self._apart:
                trusted = self._trusted([by_number[client] for client in present])
                present = [client.partition_id for client in trusted]
            if not set(present) <= self._members.keys() or self._is_stale(present):
                self._open_session(present)
                present = [client for client in present if client in self._members]
            server = SumServer(
                self._session,
                sorted(self._members),
                of.number(self._round),
                present,
                pinned=self._pinned,
                apart=self._apart_here(self._members),
            )
            terms = {**server.terms(), DIGEST: bytes_array(question)}
            values: dict[str, Value] = {
                **{OF: of.value, ROUND: self._round},
                LARGEST_WEIGHT: self._largest_weight(present),
            }
            contents = {
                self._members[client]: Content({**terms, **self._parts.get(client, {})}, values)
                for client in present
            }

            answers = self._ask(SHARES, contents, _complaint_or(server.check_shares, present))
            self._summands = len(present)
            if self._complaints(answers):
                self._members = {}
                present = [client for client in present if client in answers]
                continue
            for client in answers:
                self._parts.pop(client, None)
            if len(answers) < len(present):  # who comes back may have lost its keys
                self._renew = True
            server.take_shares(answers)
            self._server = server
            return sorted(answers)

    def _ask(
        self, phase: str, contents: Mapping[ClientRef, Content], check: CheckArrays
    ) -> dict[int, Arrays]:
        """Arrays that clients answer, by their numbers."""

        def check_answer(client: ClientRef, answer: Content) -> None:
            check(client.partition_id, answer.arrays)

        replies = self._registry.query(self._grid, phase, contents, check_answer)
        return {client.partition_id: answer.arrays for client, answer in replies.items()}

    def _largest_weight(self, present: Iterable[int]) -> float:
        """What weights are divided by: a power of two, which tells less than a number of points."""
        if self._settings.client_weights == "uniform":
            return 1.0
        points = (count(self._registry.answers[client], NUM_POINTS) for client in present)
        return float(2 ** math.ceil(math.log2(max(1, *points))))

    def _without_giants(self, present: list[int]) -> list[int]:
        """Clients without those beside whose number of points all others round to nothing."""
        if self._settings.client_weights == "uniform":
            return present
        points = {client: count(self._registry.answers[client], NUM_POINTS) for client in present}
        most = MOST_TIMES_MEDIAN * max(1.0, float(np.median([*points.values()])))
        giants = {client for client in present if points[client] > most}
        reason = (
            f"it has announced more than {MOST_TIMES_MEDIAN} times as many points as half of the "
            "clients have, too many for a secure sum with client-weights = 'examples'"
        )
        by_number = {client.partition_id: client for client in self._registry.clients}
        self._registry.fail({by_number[client]: reason for client in giants})
        return [client for client in present if client not in giants]

    def _is_stale(self, present: Sequence[int]) -> bool:
        """Whether a client of the session may have come back without its keys, or so few of a
        sparse graph are there that they would have no neighbors."""
        now = {client.partition_id: client for client in self._registry.clients}
        moved = any(now.get(number) != client for number, client in self._members.items())
        sparse = len(self._members) > COMPLETE and 4 * len(present) < 3 * len(self._members)
        return self._renew or moved or sparse

    def _open_session(self, present: Sequence[int]) -> None:
        """Exchange keys among all clients, or among those of this round if they are a part of many.

        The graph of more than :data:`COMPLETE` clients is sparse: of a client's neighbors in a part
        of them too few would be there.
        """
        everyone = self._trusted(self._registry.clients)
        if len(everyone) > COMPLETE and 4 * len(present) < 3 * len(everyone):
            everyone = [client for client in everyone if client.partition_id in present]
        left = self._registry.present(everyone)
        while True:
            if len(left) < FEWEST:
                raise TooFewLeftError(
                    f"A secure sum takes {FEWEST} clients or more; {len(left)} are there."
                )
            answers = self._exchanged(left)
            if answers is not None:
                return
            left = [client for client in left if str(client) not in self._rounds.record.failed]
            left = self._trusted(left)

    def _exchanged(self, members: Sequence[ClientRef]) -> bool | None:
        """One attempt: whether all have sent what others need; ``None`` if some have to leave."""
        nonce = bytes_array(os.urandom(KEY_BYTES))
        content = Content(arrays={NONCE: nonce}, values={BEGUN: self._round})
        keys = self._ask(
            KEYS,
            dict.fromkeys(members, content),
            lambda number, arrays: check_key(_ORIGIN.format(number), arrays),
        )
        if len(keys) < len(members):
            return None
        participants = participants_message(keys, dict.fromkeys(keys, 0))
        public = {client: answer[PUBLIC].tobytes() for client, answer in sorted(keys.items())}
        sizes = dict.fromkeys(public, 0)
        some = Session(min(keys), b"", public, sizes, nonce.tobytes(), self._round)
        self._pinned = all((answer[SIGNATURES] != UNSIGNED).any() for answer in keys.values())
        beside = neighbors(some.number, sorted(keys), self._pinned, self._apart_here(keys))

        def check_sealed(number: int, arrays: Arrays) -> None:
            for peer in beside[number]:
                if not is_sealed(arrays.get(f"{TO}{peer}"), FEWEST_SEALED):
                    raise BadMessageError(f"{_ORIGIN.format(number)} no secret for client {peer}.")

        sent = Content(arrays={**participants, **apart_message(self._apart_here(keys))})
        sealed = self._ask(
            PEERS, dict.fromkeys(members, sent), _complaint_or(check_sealed, sorted(keys))
        )
        if self._complaints(sealed) or len(sealed) < len(keys):
            return None
        by_number = {client.partition_id: client for client in members}
        self._session, self._members, self._renew = some.number, by_number, False
        self._parts = {
            client: {f"{FROM}{peer}": sealed[peer][f"{TO}{client}"] for peer in beside[client]}
            for client in keys
        }
        log(INFO, "Round %s: %s clients share keys for secure sums.", self._round, len(keys))
        return True

    def _complaints(self, answers: dict[int, Arrays]) -> bool:
        """Whether clients complain for the first time in this sum, so that keys are made anew.

        Two clients of which one complains about the other share no masks from now on, whoever of
        them lies. Who would share with too few leaves. In the second try of a sum those who
        complain leave it, and their answers go from ``answers``.
        """
        complaints = subjects(answers)
        if not complaints:
            return False
        by_number = {client.partition_id: client for client in self._registry.clients}
        named = [f"{by_number[a]} about {by_number[b]}" for a, b in complaints]
        log(WARNING, "Round %s: messages do not open: %s.", self._round, ", ".join(named))
        if self._heard:
            reason = "it complained about other clients a second time while a secure sum began"
            again = {client for client, _ in complaints}
            self._registry.fail({by_number[client]: reason for client in sorted(again)})
            for client in again:
                del answers[client]
            return False
        self._heard = True
        self._apart |= {*complaints}
        return True

    def _trusted(self, clients: Sequence[ClientRef]) -> list[ClientRef]:
        """``clients`` without those that would share masks with too few of the others.

        Those who are at fault leave first, then who has lost too many of the remaining pairs.
        """
        numbers, most = [c.partition_id for c in clients], partial(spare, pinned=self._pinned)
        guilty, pairs = judge(self._apart, numbers, most)
        lost = Counter(client for pair in pairs for client in pair)
        allowed = most(len(numbers) - len(guilty))
        out = {**guilty, **{client: n for client, n in lost.items() if n > allowed}}
        reasons = {c: f"its messages and those of {n} other(s) do not open" for c, n in out.items()}
        gone = {
            client: reasons[client.partition_id] for client in clients if client.partition_id in out
        }
        self._registry.fail(gone)
        return [client for client in clients if client not in gone]

    def _apart_here(self, clients: Collection[int]) -> Pairs:
        """Pairs of ``clients`` that share nothing."""
        here = {*clients}
        return frozenset((min(pair), max(pair)) for pair in self._apart if here.issuperset(pair))

    # After training

    def open(self, replies: Sequence[Message]) -> list[Message]:
        """The replies that are in the sum, each with the clients' mean in place of its update."""
        by_node = {c.node_id: c for c in self._members.values()}
        numbers = {by_node[reply.metadata.src_node_id].partition_id: reply for reply in replies}
        vectors = {
            client: cast(ArrayRecord, reply.content[ARRAYS])[MASKED].numpy()
            for client, reply in numbers.items()
        }
        try:
            opened = self._opened(vectors, self._layout.tail)
        except TooFewLeftError as error:
            raise NoUpdateError(f"Round {self._round}: {error}") from error
        self._replace(opened.words, [numbers[client] for client in opened.survivors])
        return [numbers[client] for client in opened.survivors]

    def collect(
        self,
        grid: Grid,
        of: Summed,
        clients: Iterable[ClientRef],
        size: int,
        arrays: Arrays | None = None,
        values: Mapping[str, Value] | None = None,
    ) -> tuple[Any, list[int]]:
        """Sums of ``size`` numbers over clients, and the clients whose numbers they are.

        They are a list of whole numbers, for heads an array of floating point.
        """
        self._grid, self._round = grid, self._rounds.record.round
        sent, shared = dict(arrays or {}), {**(values or {}), OF: of.value}
        numbers = [client.partition_id for client in clients]
        sharing = self._shared(numbers, Asked({ARRAYS: sent}, shared).digest, of)
        server, tail = self._server, _tail(of, size)
        assert server is not None

        contents = {
            self._members[client]: Content({**sent, **server.shares_for(client)}, dict(shared))
            for client in sharing
        }
        answers = self._ask(PART, contents, _one_array(of.value, np.uint32, tail.size))
        opened = self._opened({c: arrays[of.value] for c, arrays in answers.items()}, tail)
        if of in HEADS:
            return fixed_numbers(opened.words), opened.survivors
        return whole_numbers(opened.words, tail.digits), opened.survivors

    def _opened(self, vectors: Mapping[int, Words], tail: Tail) -> Opened:
        """The sum of masked vectors, by client."""
        server = self._server
        assert server is not None
        try:
            server.take_vectors(vectors)
            members = [self._members[client] for client in server.survivors]
            contents = dict.fromkeys(members, Content(arrays=server.list_message()))
            if self._pinned:
                check = _one_array(SIGNATURES, np.uint8, SIGNATURE_BYTES)
                answers = self._ask(CONFIRM, contents, check)
                signed = {client: arrays[SIGNATURES] for client, arrays in answers.items()}
                contents = dict.fromkeys(members, Content(arrays=server.signed_list(signed)))
            shares = self._ask(UNMASK, contents, server.check_unmask)
            opened, liars = server.open_sum(shares, tail)
        finally:
            self._server = None
        reason = "the shares that it sent to open a secure sum are wrong"
        self._registry.fail({self._members[client]: reason for client in liars})
        return opened

    def _replace(self, words: Any, replies: Sequence[Message]) -> None:
        """Put the mean model, variate and metrics into every reply."""
        changes, numbers = self._layout.read(words, self._summands)
        weight, trained = numbers[0], numbers[1]
        if not (0 <= trained <= len(replies) and float(trained).is_integer()):
            raise UserError(
                f"Round {self._round}: the clients' masks do not cancel: the server has said "
                "different things to them, or one of them runs another program.",
                "sum-wrong",
            )
        if weight <= 0 or trained <= 0:
            text = f"Round {self._round}: no client had anything to learn from."
            raise NothingToLearnError(text)
        metrics = self._numbers.read(numbers, len(replies))
        scale = float(numbers[2] / weight) if self._settings.base == "fednova" else 1.0
        records: dict[str, Arrays] = {name: dict(arrays) for name, arrays in self._start.items()}
        for (record, name), total in changes.items():
            before = records[record][name]
            by = scale if record == ARRAYS else 1.0
            value = total / trained if record == CONTROL else before + by * total / weight
            records[record][name] = np.asarray(value, before.dtype)
        shared = {name: to_record(arrays) for name, arrays in records.items()}
        for reply in replies:
            measured = MetricRecord({WEIGHT: 1, **metrics})
            reply.content = RecordDict({**reply.content, **shared, METRICS: measured})
