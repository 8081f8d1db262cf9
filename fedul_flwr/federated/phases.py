"""Extra phases: send a message to some clients, collect and check their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from logging import WARNING

from flwr.app import Message, Metadata
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.data.content import Content
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.blame import failure_reason, printable
from fedul_flwr.federated.grid import PackingGrid
from fedul_flwr.federated.messages import END, from_records, payload_bytes, phase_messages

Check = Callable[[int, Content], None]
"""``(node, its answer)``: raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse it."""


_PATIENCE = 10.0
"""Seconds that nodes have to note the end of a run."""
NO_ANSWER = "no answer"
"""Reason of failure for a node that did not answer in time."""


@dataclass
class Phase:
    """Answers of an extra phase by node id, and reasons of failure for all other nodes.

    Reasons are printable (:mod:`fedul_flwr.federated.blame`): ``failures`` of nodes that did not
    answer or reported an error, ``refusals`` of those whose answer is not what it must be.
    """

    answers: dict[int, Content] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0


def replies_to(
    sent: Sequence[Metadata], replies: Iterable[Message]
) -> Iterator[tuple[int, Message]]:
    """Those of ``replies`` that answer one of the messages ``sent``, each with the node asked.

    A reply to an earlier message is left out, and one from another node than was asked: no node can
    answer for another. Errors about a node may come from the SuperLink.
    """
    asked = {metadata.message_id: metadata.dst_node_id for metadata in sent}
    numbered = len(asked) == len(sent)
    nodes = {metadata.dst_node_id for metadata in sent}
    for reply in replies:
        number, source = reply.metadata.reply_to_message_id, reply.metadata.src_node_id
        if number not in asked:
            continue
        node = asked[number] if numbered else source
        if node in nodes and (source == node or reply.has_error()):
            yield node, reply


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
    received = grid.send_and_receive(messages, timeout=timeout)
    for node, reply in replies_to([message.metadata for message in messages], received):
        if node in phase.answers or node in phase.failures or node in phase.refusals:
            continue  # the first reply counts
        if reply.has_error():
            phase.failures[node] = failure_reason(reply, node)
            continue
        phase.bytes_up += payload_bytes(reply.content)
        try:
            answer = from_records(reply.content)
            if check is not None:
                check(node, answer)
            phase.answers[node] = answer
        except BadMessageError as error:
            phase.refusals[node] = printable(str(error))
    heard = phase.answers.keys() | phase.failures.keys() | phase.refusals.keys()
    phase.failures |= {node: NO_ANSWER for node in contents if node not in heard}
    return phase


def announce_end(grid: Grid, how: str) -> None:
    """Tell the owners' devices, for their logs, how a run has ended.

    Parameters
    ----------
    how : ``"finished"`` or ``"failed"``: what the reason says is not for everybody.
    """
    if not isinstance(grid, PackingGrid):  # a simulation has no owners
        return
    try:
        nodes = dict.fromkeys(grid.get_node_ids(), Content(values={END: how}))
        run_phase(grid, nodes, END, _PATIENCE)
    except Exception as error:  # the run itself is over
        log(WARNING, "Owners were not told that the run has %s: %s", how, error)
