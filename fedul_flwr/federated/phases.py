"""Extra phases: send a message to some clients, collect and check their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, Metadata
from flwr.serverapp import Grid

from fedul_flwr.data.content import Content
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import from_records, payload_bytes, phase_messages

Check = Callable[[int, Content], None]
"""``(node, its answer)``: raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse it."""


NO_ANSWER = "no answer"
"""Reason of failure for a node that did not answer in time."""


@dataclass
class Phase:
    """Answers of an extra phase by node id, and reasons of failure for all other nodes."""

    answers: dict[int, Content] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0


def replies_to(sent: Iterable[Metadata], replies: Iterable[Message]) -> Iterator[Message]:
    """Those of ``replies`` that answer one of the messages ``sent``, not an earlier one."""
    numbers = {metadata.message_id for metadata in sent}
    return (reply for reply in replies if reply.metadata.reply_to_message_id in numbers)


def run_phase(
    grid: Grid,
    contents: Mapping[int, Content],
    name: str,
    timeout: float,
    check: Check | None = None,
) -> Phase:
    """Send phase ``name`` with each node's own content, and collect the answers.

    Parameters
    ----------
    check : raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse an answer.
    """
    phase = Phase()
    messages = phase_messages(name, contents)
    phase.bytes_down = sum(payload_bytes(message.content) for message in messages)
    strays = []  # errors about nodes that are gone do not come from those nodes
    received = grid.send_and_receive(messages, timeout=timeout)
    for reply in replies_to([message.metadata for message in messages], received):
        node = reply.metadata.src_node_id
        if reply.has_error() and node not in contents:
            strays.append(failure_reason(reply))
        elif reply.has_error():
            phase.failures[node] = failure_reason(reply)
        elif node in contents:
            phase.bytes_up += payload_bytes(reply.content)
            try:
                answer = from_records(reply.content)
                if check is not None:
                    check(node, answer)
                phase.answers[node] = answer
            except BadMessageError as error:
                phase.refusals[node] = str(error)
    heard = phase.answers.keys() | phase.failures.keys() | phase.refusals.keys()
    for node in contents:
        if node not in heard:
            phase.failures[node] = strays.pop(0) if strays else NO_ANSWER
    return phase


def failure_reason(reply: Message) -> str:
    """The last line of a failed client's error, without the text that Flower adds."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    text = lines[-1] if lines else "unknown error"
    return text.replace("Exception ClientAppException occurred. Message: ", "").removesuffix("'>")
