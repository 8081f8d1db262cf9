"""Receiving what clients return: which replies count, and what is left of them when checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict

from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.errors import BadMessageError, NoUpdateError
from fedul_flwr.federated.buffers import WEIGHT
from fedul_flwr.federated.membership import Membership
from fedul_flwr.federated.messages import ARRAYS, DIAGNOSTICS, METRICS, payload_parts
from fedul_flwr.federated.phases import Member, failure_reason, replies_to
from fedul_flwr.federated.replies import (
    ENDED,
    STARTED,
    check_all_bytes,
    check_figures,
    check_update,
    common_form,
    form_of,
    update_norm,
)

Received = list[tuple[Member, Message]]
"""Replies in partition order."""


class Reception(Membership):
    """The part of every method's strategy that stands between clients' replies and the base."""

    bounded: Sequence[str] = (ARRAYS,)
    """Records of an update whose distance from what was sent ``max-update-norm`` bounds."""
    _messages: Sequence[Metadata] = ()
    _expected: Mapping[str, ArrayRecord] = {}

    def expected(self, message: RecordDict, model: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """Records of arrays that an update has to have once it is open, in these very forms.

        By default ``model`` and what else the base sent, such as SCAFFOLD's variates.
        """
        return {**message.array_records, ARRAYS: model}

    def open_reply(self, member: Member, reply: Message) -> None:
        """Turn what ``member`` sent into the arrays that the base is to combine, in place.

        Metrics are known to be in order, and all arrays to have the bytes they need.

        Raises
        ------
        ValueError, BadMessageError
            It is a failed client.
        """

    def _updates(self, replies: Iterable[Message]) -> list[Message]:
        """Updates that can be combined, of clients that had something to learn from."""
        found = self._received(replies, trained=True)
        found = self._checked(found, self._open)
        if not found:
            raise NoUpdateError(f"Round {self.record.round}: no client returned an update.")
        for _, reply in found:
            spans = cast(Mapping[str, float], reply.content[DIAGNOSTICS])
            self.record.spans.append((float(spans[STARTED]), float(spans[ENDED])))
        trained = self._of_one_form(found)
        if not trained:
            raise NoUpdateError(f"Round {self.record.round}: no client had anything to learn from.")
        return trained

    def _evaluations(self, replies: Iterable[Message]) -> list[Message]:
        """Losses of clients that have held something out."""
        usable = self._of_one_form(self._received(replies, trained=False))
        for reply in usable:
            reply.content = RecordDict({METRICS: reply.content[METRICS]})
        return usable

    def _received(self, replies: Iterable[Message], *, trained: bool) -> Received:
        """One reply of each client that was asked and gave one in time, with sound figures."""
        nodes = {metadata.dst_node_id for metadata in self._messages}
        asked = {member.node_id: member for member in self.members if member.node_id in nodes}
        heard: dict[Member, Message] = {}
        reasons = []
        for reply in replies_to(self._messages, replies):
            if reply.has_error():
                reasons.append(failure_reason(reply))
                continue
            member = asked.get(reply.metadata.src_node_id)
            if member is not None and member not in heard:
                heard[member] = reply
                self.record.up.update(payload_parts(reply.content))
        silent = [member for member in asked.values() if member not in heard]
        self._failed.update(silent)
        if reasons:
            self._fail(reasons[0], len(reasons))
        if late := max(0, len(silent) - len(reasons)):
            self._fail("no reply within round-timeout", late)

        def check(member: Member, reply: Message) -> None:
            del member
            check_all_bytes(reply.content)
            check_figures(reply.content, trained=trained)

        return self._checked([(member, heard[member]) for member in sorted(heard)], check)

    def _of_one_form(self, found: Received) -> list[Message]:
        """Replies that weigh something, with the metrics that most have: bases want the same."""
        weighty = [(member, reply) for member, reply in found if _weight(reply) > 0]
        forms = [form_of(_metrics(reply)) for _, reply in weighty]
        common = common_form(forms) if forms else frozenset()

        def check(member: Member, reply: Message) -> None:
            del member
            if odd := sorted(form_of(_metrics(reply)) ^ common):
                name = odd[0][0]
                raise BadMessageError(f"its metrics differ from the other clients' in {name!r}")

        return [reply for _, reply in self._checked(weighty, check)]

    def _open(self, member: Member, reply: Message) -> None:
        self.open_reply(member, reply)
        if _weight(reply) == 0:
            clipping = self.settings.section("dp", DPSettings).clipping
            if clipping != "none":
                raise BadMessageError(
                    f"it had nothing to learn from, and with dp.clipping = {clipping!r} every "
                    "client of a round must return an update"
                )
            return  # nothing of it is used
        check_update(reply.content, self._expected)
        bound = self.settings.max_update_norm
        for name in self.bounded if bound else ():
            norm = update_norm(cast(ArrayRecord, reply.content[name]), self._expected[name])
            if norm > bound:
                raise BadMessageError(
                    f"its update has norm {norm:.6g}, above max-update-norm = {bound:g}"
                )

    def _checked(self, found: Received, check: Callable[[Member, Message], None]) -> Received:
        """Those of ``found`` that ``check`` does not refuse; the others have failed."""
        sound = []
        for member, reply in found:
            try:
                check(member, reply)
            except (BadMessageError, ValueError) as error:
                self._fail(f"Client {member.partition_id}: {error}", 1)
            else:
                sound.append((member, reply))
        return sound


def _metrics(reply: Message) -> MetricRecord:
    return cast(MetricRecord, reply.content[METRICS])


def _weight(reply: Message) -> float:
    return float(cast(float, _metrics(reply)[WEIGHT]))
