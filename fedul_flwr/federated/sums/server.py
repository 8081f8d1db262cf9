"""The server's part in secure sums: sessions of keys, and sums that it opens.

Two phases begin a session, once a run and again when a client joins; one comes before the messages
that ask for vectors and one after the replies, or two if the owners have identities.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from logging import INFO, WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.arrays import Arrays, l2_norm
from fedul_flwr.data.types import Content, Value
from fedul_flwr.errors import (
    BadMessageError,
    NothingToLearnError,
    NoUpdateError,
    TooFewLeftError,
    UserError,
)
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.members import ClientRegistry
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    CONFIRM,
    KEYS,
    MASKED,
    METRICS,
    OF,
    PART,
    PEERS,
    SHARES,
    UNMASK,
    WEIGHT,
    PlainArray,
    array_record,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import UPDATE
from fedul_flwr.federated.stage import number_of, stages_of, sums_of
from fedul_flwr.federated.sums.client import BEGUN, DIGEST, LARGEST_WEIGHT, ROUND
from fedul_flwr.federated.sums.vector import Layout, Numbers, common_records, largest_change
from fedul_flwr.learning.variates import CONTROL
from fedul_flwr.secure.identities import SIGNATURE_BYTES, UNSIGNED
from fedul_flwr.secure.messages import COMPLAINT, check_complaint, checked_array, judge, subjects
from fedul_flwr.secure.session import (
    FEWEST,
    FEWEST_SEALED,
    FROM,
    KEY_BYTES,
    NONCE,
    PUBLIC,
    SIGNATURES,
    TO,
    Session,
    bytes_array,
    check_key,
    is_sealed,
    participants_message,
)
from fedul_flwr.secure.sharing import COMPLETE, neighbors, spare
from fedul_flwr.secure.stored import Pairs
from fedul_flwr.secure.sum_server import Opened, SumServer, apart_message
from fedul_flwr.secure.words import Tail, Words

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
        self._sums = sums_of(self._settings)
        self._session: bytes = b""
        self._members: dict[int, ClientRef] = {}
        self._parts: dict[int, Arrays] = {}
        self._pinned = self._renew = self._heard = False
        self._apart: set[tuple[int, int]] = set()
        """Complaints of the run: who has made one, and about whom."""
        self._server: SumServer | None = None
        self.smallest = 0
        """Fewest clients in a sum so far, of owners with identities; 0 before there is one."""

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
            answers = self._shared(asked, Asked(received, config).digest, UPDATE)
        except TooFewLeftError as error:
            raise NoUpdateError(f"Round {round_number}: {error}") from error
        assert self._server is not None
        chosen = []
        for client in answers:
            record = to_record(self._server.shares_for(client))
            message = asked[client]
            message.content = RecordDict({**message.content, SHARES: record})
            chosen.append(message)
        form = PlainArray.of(np.zeros(self._layout.size, np.uint32))
        return chosen, {ARRAYS: array_record({MASKED: form})}

    def _shared(self, asked: Iterable[int], question: bytes, of: str) -> list[int]:
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
                number_of(of, self._round, self._sums),
                present,
                pinned=self._pinned,
                apart=self._apart_here(self._members),
            )
            terms = {**server.terms(), DIGEST: bytes_array(question)}
            self._largest = self._largest_weight(present)
            values: dict[str, Value] = {
                **{OF: of, ROUND: self._round},
                LARGEST_WEIGHT: self._largest,
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
        points = map(self._registry.points, present)
        return float(2 ** math.ceil(math.log2(max(1, *points))))

    def _without_giants(self, present: list[int]) -> list[int]:
        """Clients without those beside whose number of points all others round to nothing."""
        if self._settings.client_weights == "uniform":
            return present
        points = {client: self._registry.points(client) for client in present}
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
                here, why = {*map(str, left)}, self._rounds.record.why
                gone = "".join(f"; {name}: {why[name]}" for name in why if name not in here)
                raise TooFewLeftError(
                    f"A secure sum takes {FEWEST} clients or more; {len(left)} are there{gone}."
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
        of: str,
        clients: Iterable[ClientRef],
        size: int,
        arrays: Arrays | None = None,
        values: Mapping[str, Value] | None = None,
    ) -> tuple[Any, list[int]]:
        """Sums of ``size`` numbers over clients, and the clients whose numbers they are.

        They are as the sum's encoding reads them.
        """
        self._grid, self._round = grid, self._rounds.record.round
        sent, shared = dict(arrays or {}), {**(values or {}), OF: of}
        numbers = [client.partition_id for client in clients]
        sharing = self._shared(numbers, Asked({ARRAYS: sent}, shared).digest, of)
        server, encoding = self._server, self._sums[of].encoding
        tail = encoding.tail(size)
        assert server is not None

        contents = {
            self._members[client]: Content({**sent, **server.shares_for(client)}, dict(shared))
            for client in sharing
        }
        answers = self._ask(PART, contents, _one_array(of, np.uint32, tail.size))
        opened = self._opened({c: arrays[of] for c, arrays in answers.items()}, tail)
        return encoding.read(opened.words, encoding.digits), opened.survivors

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
            if self._pinned:
                self.smallest = min(self.smallest or len(members), len(members))
        finally:
            self._server = None
        reason = "the shares that it sent to open a secure sum are wrong"
        self._registry.fail({self._members[client]: reason for client in liars})
        return opened

    def _heaviest(self, replies: Sequence[Message]) -> float:
        """The largest sum of weights of these clients, with room for rounding."""
        if self._settings.client_weights == "uniform":
            return len(replies) + 1e-6
        by_node = {client.node_id: client.partition_id for client in self._registry.clients}
        clients = [by_node[reply.metadata.src_node_id] for reply in replies]
        points = sum(map(self._registry.points, clients))
        return points / self._largest + 1e-6 * len(replies)

    def _dishonest(self, what: str, clients: int) -> UserError:
        return UserError(
            f"Round {self._round}: the sum of {clients} clients has larger {what}: one of them has "
            "sent what is not of its points. A sum does not show which.",
            "sum-wrong",
        )

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
        if weight > self._heaviest(replies):
            raise self._dishonest("weights than points that are announced", len(replies))
        if weight <= 0 or trained <= 0:
            text = f"Round {self._round}: no client had anything to learn from."
            raise NothingToLearnError(text)
        if trained < len(replies):
            text = "Round %s: %s of %s clients in the sum have no update; their own logs say why."
            log(WARNING, text, self._round, len(replies) - int(trained), len(replies))
        metrics = self._numbers.read(numbers, len(replies))
        scale = float(numbers[2] / weight) if self._settings.base == "fednova" else 1.0
        records: dict[str, Arrays] = {name: dict(arrays) for name, arrays in self._start.items()}
        for (record, name), total in changes.items():
            before = records[record][name]
            by = scale if record == ARRAYS else 1.0
            value = total / trained if record == CONTROL else before + by * total / weight
            records[record][name] = np.asarray(value, before.dtype)
        most, update = self._settings.max_update_norm, records[ARRAYS]
        is_plain = not any(stage.noises for stage in stages_of(self._settings))
        if most and is_plain and self._settings.base != "fednova":
            start = self._start[ARRAYS]
            moved = l2_norm(np.asarray(update[n], np.float64) - start[n] for n in update)
            if moved > 1.01 * most + 1e-6 * sum(a.size for a in update.values()) ** 0.5:
                raise self._dishonest("updates than max-update-norm allows", len(replies))
        shared = {name: to_record(arrays) for name, arrays in records.items()}
        for reply in replies:
            measured = MetricRecord({WEIGHT: 1, **metrics})
            reply.content = RecordDict({**reply.content, **shared, METRICS: measured})
