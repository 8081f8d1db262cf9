"""Extra phases: a message to some clients, their answers, and the numbers in these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Message, Metadata
from flwr.serverapp import Grid

from fedul_flwr.data.types import Floats
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import Content, from_records, payload_bytes, step_messages

Check = Callable[[int, Content], None]
"""``(node, its answer)``: raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse it."""


NO_ANSWER = "no answer"
"""Why a node failed that said nothing in time."""


@dataclass
class Phase:
    """Answers of one extra phase by node id; nodes that gave none, or one of no use, and why."""

    answers: dict[int, Content] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0


def replies_to(sent: Iterable[Metadata], replies: Iterable[Message]) -> Iterator[Message]:
    """Those of ``replies`` that answer one of the messages in hand, and not an earlier one."""
    numbers = {metadata.message_id for metadata in sent}
    return (reply for reply in replies if reply.metadata.reply_to_message_id in numbers)


def run_phase(
    grid: Grid,
    contents: Mapping[int, Content],
    name: str,
    timeout: float,
    check: Check | None = None,
) -> Phase:
    """Send phase ``name`` to nodes, to each its own content, and collect their answers.

    Parameters
    ----------
    check : refuses what a node answered, by a :class:`~fedul_flwr.errors.BadMessageError`.
    """
    phase = Phase()
    messages = step_messages(name, contents)
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
    """The last sentence of a failing client's error, without Flower's wrapping."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    text = lines[-1] if lines else "unknown error"
    return text.replace("Exception ClientAppException occurred. Message: ", "").removesuffix("'>")


def number(content: Content, key: str) -> int:
    """A whole number that came with a message.

    Raises
    ------
    BadMessageError
        If there is none.
    """
    value = content.values.get(key)
    if not isinstance(value, int):
        raise BadMessageError(f"A message came with no valid {key}.")
    return value


def count(content: Content, key: str) -> int:
    """A whole number that is not negative; see :func:`number`."""
    value = number(content, key)
    if value < 0:
        raise BadMessageError(f"A message came with {key} below 0.")
    return value


def numbers(content: Content, key: str) -> Floats:
    """``(n,)``, finite numbers that came with a message; see :func:`number`."""
    value = content.values.get(key)
    of_numbers = isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    if not of_numbers or not np.isfinite(found := np.array(value, dtype=np.float64)).all():
        raise BadMessageError(f"A message came with no valid {key}.")
    return found
