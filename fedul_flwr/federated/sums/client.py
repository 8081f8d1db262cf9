"""A client's part in secure sums: an update or numbers under masks, in the protocol's phases.

With ``secure-sum = "on"`` it sends one vector of 32-bit words under masks
(:mod:`fedul_flwr.secure.sum_client`): the change of its model times its weight, and a few numbers.
Other sums are of numbers alone, as stages declare them (:class:`fedul_flwr.federated.payload.Sum`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedul_flwr.arrays import Arrays, Floats, below
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Content, count, number
from fedul_flwr.errors import UserError
from fedul_flwr.federated.asked import Asked, question
from fedul_flwr.federated.client import require_model, weight_type
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.combine import clipped
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIRM,
    DIAGNOSTICS,
    KEYS,
    MASKED,
    NORMALIZER,
    OF,
    PART,
    PEERS,
    SETUP,
    SHARES,
    SUM_PHASES,
    UNMASK,
    WEIGHT,
)
from fedul_flwr.federated.owner.ledger import Ledger, ledger_file
from fedul_flwr.federated.owner.log import say_here
from fedul_flwr.federated.payload import NOTHING, UPDATE, Payload, Sum, in_record, reports_of
from fedul_flwr.federated.stage import ClientStage, kind_of, number_of, sums_of
from fedul_flwr.federated.sums.vector import (
    Layout,
    Numbers,
    common_records,
    fewest_summed,
    largest_change,
)
from fedul_flwr.learning.variates import CONTROL
from fedul_flwr.secure.identities import Identities, Purpose, read_identities
from fedul_flwr.secure.messages import COMPLAINT, PeerError, checked_array, complain
from fedul_flwr.secure.session import (
    KEY_BYTES,
    NONCE,
    PARTICIPANTS,
    SIGNATURES,
    bytes_array,
    require_enough,
)
from fedul_flwr.secure.sharing import SEALED, SHARE_SENDERS
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
from fedul_flwr.secure.words import Tail, Words

ROUND, DIGEST = "server-round", "digest"
"""Of which round a sum is, and the digest of what will come with the request for a vector."""

BEGUN, LARGEST_WEIGHT = "round", "largest-weight"
"""Values of phases: the round in which a session began; a weight that no client exceeds."""

_STORED, _SUMMANDS, _MODEL = "secure-sum", "summands", "model"
_STAGE = "stage/"
"""Prefix of the stored arrays that say where the client is in the protocol; the others say of which
sum."""


class SumMember(ClientStage):
    """A client in secure sums: masks in place of an update, or of numbers."""

    phases = frozenset(SUM_PHASES)

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._node = client.node
        self._state: ClientState = client.state
        self._client = client.node.partition_id
        file = ledger_file(client.node)
        self._ledger = Ledger(file) if file else None

    def answer(self, name: str, content: Content) -> Content:
        """Answer one of :data:`SUM_PHASES`; a complaint names whose message cannot be used."""
        answers = {KEYS: self._keys, PEERS: self._peers, SHARES: self._shares, PART: self._part}
        answers |= {CONFIRM: self._confirm, UNMASK: self._unmask}
        try:
            state, reply = answers[name](content)
        except PeerError as error:
            return Content(arrays=dict(complain(error)[1]))
        self._state.set_ephemeral(_STORED, dict(state))
        return Content(arrays=dict(reply))

    def _accept(self, of: str, asked: Asked) -> None:
        """Refuse to compute numbers from anything but what was announced for this sum."""
        state = self._stored()
        if OF not in state:
            raise UserError(
                "The server asked for a part of a sum out of turn.", "server-out-of-turn"
            )
        stage = require_question(_stage(state), self._question(state, asked.digest))
        number = asked.values.get(ROUND, int(state[ROUND]))
        announced, last = (self._of(state), int(state[ROUND])), self.settings.num_rounds
        if (of, number) != announced or number > last:
            raise UserError(
                f"The server asked for {of} in round {number} of {last}, and has announced "
                f"{' in round '.join(map(str, announced))}.",
                "server-out-of-turn",
            )
        self._require_declared(of, asked)
        same = f"{of} {self._node.data} ".encode() + asked.model
        state = {**state, _MODEL: bytes_array(hashlib.sha256(same).digest())}
        self._refuse_others(state, stage.terms.present)
        self._state.set_ephemeral(_STORED, state)

    def _require_declared(self, of: str, asked: Asked) -> None:
        """Refuse what no answer depends on, and other types: they make a question look new."""
        beside = self._sums[of].beside
        model = {n: one for n, one in asked.records.get(ARRAYS, {}).items() if n not in beside}
        if self._sums[of].once:
            odd = [*model, *(asked.values.keys() - {OF})]
        else:
            if model:
                require_model(self.client, model)
            common = (arrays for name, arrays in asked.records.items() if name not in asked.alone)
            types = (weight_type(self.settings), np.int64)
            odd = [n for arrays in common for n, one in arrays.items() if one.dtype not in types]
        if odd:
            raise UserError(
                f"The server sent {odd[0]!r} for a sum of {of}, of which nothing depends on it.",
                "server-asks-too-much",
            )

    def _question(self, state: Arrays, asked: bytes) -> bytes:
        setup = self._state.values(SETUP)
        largest = float(state[LARGEST_WEIGHT])
        of, server_round = self._of(state), int(state[ROUND])
        return question(self._state.run, setup, of, server_round, largest, asked)

    def _refuse_others(self, state: Arrays, clients: Sequence[int], *, note: bool = False) -> None:
        """Refuse a sum over clients of which another one tells the part of some; or note it."""
        if self._ledger is None:
            return
        of, fixed = self._of(state), self._node.fixed_clients
        question, kind = state[_MODEL].tobytes(), kind_of(of, self.settings)
        before = self._ledger.others(question, kind, clients, fixed=fixed, note=note)
        if before:
            odd = ", ".join(map(str, sorted({*before} ^ {*clients})))
            seed = "" if fixed or self._sums[of].once else " begin with another seed,"
            raise UserError(
                "What this client answers was summed before over other clients: both sums together "
                f"would tell the part of client(s) {odd}. Ask all clients of that sum,{seed} or "
                "let the owners' persons allow it (fedul-flwr deploy runs regroup).",
                "server-names-others",
            )

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

    def _written(self, write: Callable[[], Words], nothing: Callable[[], Words]) -> Words:
        """Words of numbers, or of nothing where an owner's are too large: whether they are may
        depend on a single point."""
        try:
            return write()
        except UserError as error:
            if not self._node.data:
                raise
            say_here(self._client, error)
            return nothing()

    def _answered(self, number: int) -> UserError:
        return UserError(
            f"The server asked again for secure sum {number}, or an earlier one: this client has "
            "answered.",
            "server-out-of-turn",
        )

    def _part(self, content: Content) -> tuple[Arrays, Arrays]:
        """Numbers of this client alone, masked."""
        named = content.values.get(OF)
        if named not in self._sums.keys() - {UPDATE}:
            raise UserError("The server did not say which sum it asks for.", "message-incomplete")
        of = str(named)
        of_sum = {SEALED, SHARE_SENDERS}
        shares = {key: array for key, array in content.arrays.items() if key in of_sum}
        sent = {key: array for key, array in content.arrays.items() if key not in shares}
        asked = Asked({ARRAYS: sent}, content.values)
        self._accept(of, asked)
        numbers, encoding = (
            self._numbers(of, Content(sent, content.values)),
            self._sums[of].encoding,
        )
        words = self._written(
            lambda: encoding.write(numbers, encoding.digits),
            lambda: encoding.write(np.zeros(len(numbers)), encoding.digits),
        )
        state, masked = self._masked(shares, words, asked, encoding.tail(len(numbers)))
        return state, {of: masked}

    def _numbers(self, of: str, content: Content) -> Sequence[int] | Floats:
        for stage in self.client.stages:
            part: Sequence[int] | Floats | None = stage.part(of, content)
            if part is not None:
                return part
        raise UserError(
            f"The server asked for a sum of {of} that this run does not have.",
            "server-asks-too-much",
        )

    @cached_property
    def _sums(self) -> dict[str, Sum]:
        return sums_of(self.settings)

    def _of(self, state: Arrays) -> str:
        """What the sum is of for which this client has shared masks."""
        return [*self._sums][int(state[OF])]

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
        is_weight = isinstance(largest, float) and 1 <= largest <= 2.0**40
        if not is_weight or named not in self._sums:
            raise UserError("The server did not say what a secure sum is of.", "message-incomplete")
        of, server_round = str(named), count(content, ROUND)
        asked = checked_array("The server sent", content.arrays, DIGEST, np.uint8, (KEY_BYTES,))
        last = self._ledger.last_answer(self._state.run) if self._ledger else 0
        if (sum_number := number_of(of, server_round, self._sums)) <= last:
            raise self._answered(sum_number)
        terms = {
            **{OF: np.array([*self._sums].index(of)), ROUND: np.array(server_round)},
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
        """Note over whom this is summed, or refuse if it was, or was to be, over others."""
        stage, listed = survivors_of(_stage(state), content.arrays)
        gone = sorted({*stage.terms.present} - {*listed})
        if gone and self._ledger and self._node.fixed_clients:  # else a dropout fixes the rest
            raise UserError(
                f"Client(s) {', '.join(map(str, gone))} dropped out of a secure sum, and this "
                "node's owner has fixed-clients: resume the run when they are back.",
                "server-names-others",
            )
        self._refuse_others(state, listed, note=True)

    @property
    def _fewest(self) -> int:
        """Fewest clients of a sum that this client takes part in."""
        limit = self._node.min_labeled_clients if self._node.data else 0
        return max(fewest_summed(self.settings), limit)

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


class UpdateMember(SumMember):
    """A client in secure sums of updates: masks in place of what it would return."""

    phases = frozenset()

    def before(self, asked: Asked, shares: Mapping[str, Any]) -> None:
        """Take a request for an update, if it is the one that was announced."""
        self._accept(UPDATE, asked)
        self._asked, self._shared = asked, dict(shares)

    def after(self, payload: Payload) -> Payload:
        """The update as a masked vector, and what is kept by client as it is."""
        state, client, asked = self._stored(), self.client, self._asked
        records = {name: dict(arrays) for name, arrays in asked.records.items()}
        start = common_records(self.settings, records)
        num_examples = payload[WEIGHT]
        weight = self._weight(num_examples, float(state[LARGEST_WEIGHT]))
        normalizer = float(payload.get(NORMALIZER, 0.0))
        scale = weight / normalizer if weight and self.settings.base == "fednova" else weight
        numbers = Numbers(self.settings, client.sizes)
        largest = largest_change(self.settings)
        layout = Layout.of(start, client.buffer_names(), largest, numbers.tail)
        changes: Mapping[tuple[str, str], Floats] = {
            (record, name): np.asarray(payload[record][name], np.float64)
            - (0.0 if record == CONTROL else start[record][name])
            if record in payload
            else np.zeros(shape)
            for (record, name), shape in layout.shapes.items()
        }
        if norm := self.settings.max_update_norm:
            changes = clipped(changes, norm)
        factors = {CONTROL: float(weight > 0), ARRAYS: scale}
        changes = {key: value * factors.get(key[0], weight) for key, value in changes.items()}
        clients = int(state[_SUMMANDS])
        for stage in client.stages:
            changes = stage.in_sum(changes, clients)
        rng = stream(self.settings.seed, "rounding", 1 + 2 * int(state[ROUND]), self._client)

        def nothing() -> Words:
            zeros = {key: np.zeros_like(value) for key, value in changes.items()}
            return layout.words(zeros, numbers.write(0.0, dict(NOTHING)), clients, rng)

        words = self._written(
            lambda: layout.words(changes, numbers.write(weight, payload), clients, rng), nothing
        )
        renewed, masked = self._masked(self._shared, words, asked, numbers.tail)
        self._state.set_ephemeral(_STORED, dict(renewed))
        apart = in_record(reports_of(self.settings), DIAGNOSTICS)
        plain = {name: value for name, value in payload.items() if name in apart}
        has_tried = num_examples > 0 or ARRAYS not in payload
        return {ARRAYS: {MASKED: masked}, WEIGHT: int(has_tried), **plain}

    def _weight(self, num_examples: int, largest: float) -> float:
        if self.settings.client_weights == "uniform":
            return float(num_examples > 0)
        if not num_examples <= largest:
            raise UserError(
                "The server named a largest weight that is below this client's.",
                "server-asks-too-much",
            )
        return num_examples / largest


def _stage(state: Arrays) -> SumStage:
    return SumStage.from_arrays(below(_STAGE, state))


def _at(stage: SumStage, state: Arrays) -> Arrays:
    """What is stored: of which sum, as in ``state``, and the new stage."""
    of_sum = {name: array for name, array in state.items() if not name.startswith(_STAGE)}
    return {**of_sum, **{_STAGE + name: array for name, array in stage.to_arrays().items()}}
