"""Errors name the client that they come from, and its words cannot mislead the reader."""

from pathlib import Path

import pytest
from flwr.app import Error, Message, RecordDict

from fedul_flwr.engine.in_process import FIRST_NODE_ID, task_identity
from fedul_flwr.federated.flower_internals import ErrorCode
from fedul_flwr.federated.grid import replies_to
from fedul_flwr.federated.messages import (
    MAX_CHARS,
    METRICS,
    failure_reason,
    printable,
    quote_client_text,
)
from tests.support.runs import MeddlingGrid, is_train, train
from tests.support.settings import QUICK, Settings


def test_given_control_characters_then_they_are_shown_as_codes() -> None:
    assert printable("a\nb\x1b[31m\u202e\ud800ü") == r"a\nb\x1b[31m\u202e\ud800ü"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Client 2: its update is not finite", "its update is not finite"),
        ("client 2 (st-mary): Node 7: gone.", "gone"),
        ('no" (client 2) says "yes', "no' (client 2) says 'yes"),
        ("It has no setup, or has lost it: send it.", "It has no setup, or has lost it: send it"),
    ],
)
def test_given_a_clients_words_then_they_are_a_quote_without_a_sender(
    text: str, shown: str
) -> None:
    assert quote_client_text(text) == f'it says "{shown}"'


def messages(*ids: str) -> list[Message]:
    """Messages with ``ids`` to nodes 1, 2, …"""
    sent = [Message(RecordDict(), node, "query") for node in range(1, len(ids) + 1)]
    for message, number in zip(sent, ids, strict=True):
        message.metadata.__dict__["_message_id"] = number
    return sent


def test_given_a_reply_in_another_nodes_name_then_it_answers_for_nobody() -> None:
    with task_identity():
        sent = messages("a", "b")
        honest, forged = (Message(RecordDict(), reply_to=message) for message in sent)
        forged.metadata.__dict__["_src_node_id"] = 1
        gone = Message(Error(ErrorCode.NODE_UNAVAILABLE, "Node Unavailable"), reply_to=sent[1])
        gone.metadata.__dict__["_src_node_id"] = 99  # the SuperLink's
        found = list(replies_to([m.metadata for m in sent], [forged, honest, gone]))
    assert [(node, reply is gone) for node, reply in found] == [(1, False), (2, True)]
    assert failure_reason(gone, 2) == "Node Unavailable"
    assert failure_reason(gone, 99) == 'it says "Node Unavailable"'


def test_given_names_of_values_with_terminal_codes_then_neither_log_nor_file_has_them(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")

    def change(call: int, replies: list[Message]) -> list[Message]:
        for reply in replies if is_train(replies) else ():
            if reply.metadata.src_node_id == FIRST_NODE_ID + 1:
                reply.content[METRICS]["\x1b[31m\n" + "x" * 10**5] = 1.0
        return replies

    config = settings(**{**QUICK, "num_rounds": 1}, on_client_failure="continue")
    train(config, 3, wrap_grid=lambda grid: MeddlingGrid(grid, change))
    (said,) = [record.getMessage() for record in caplog.records if "failed" in record.message]
    assert said.isprintable()
    assert len(said) < MAX_CHARS + 100
    assert "\x1b" not in (Path(config.output) / "metrics.jsonl").read_text()
