"""Message logs: what travels, once and in order; secrets are found where they are sent."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from typer.testing import CliRunner

from fedul_flwr.cli.main import app as command_line
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid
from fedul_flwr.engine.message_log import MessageLog, read_message_log
from fedul_flwr.federated.messages import phase_messages, to_record
from tests.support.refusals import code_of

COLUMN_BY_COLUMN = np.arange(6, dtype=np.uint64).reshape(2, 3).T
ODD = {
    "scalar": np.array(2.5, dtype=np.float32),
    "none": np.zeros((0, 3)),
    "by columns": COLUMN_BY_COLUMN,
    "a/b": np.array([True, False]),
}
"""Arrays without axes, without entries, in another order, and with a name like a path."""
VALUES = {
    **{"number": 2**62, "third": 1 / 3, "text": "\u00fc\n", "yes": True, "key": b"\x00\xff"},
    **{"numbers": [1, 2], "texts": ["a", "b"], "keys": [b"", b"\x01"], "none": [0.5, float("inf")]},
}


def answering(fails: int | None = None) -> ClientApp:
    """An app that sends back what it gets, and its number; one client of it fails."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        content, message.content = message.content, RecordDict()
        if number == fails:
            raise ValueError("no power")
        content["numbers"] = MetricRecord({"client": number})
        return Message(content, reply_to=message)

    app.train()(answer)
    app.query("phase")(answer)
    return app


def train_message(client: int) -> Message:
    content = {"config": ConfigRecord(dict(VALUES)), "rows": to_record({"x": np.arange(client)})}
    return Message(RecordDict({"arrays": to_record(ODD), **content}), client + 1000, "train")


@pytest.mark.usefixtures("identity")
def test_all_that_travels_once_and_in_order(tmp_path: Path) -> None:
    grid = InProcessGrid(answering(), 3, {}, MessageLog(tmp_path))
    list(grid.send_and_receive([train_message(2), train_message(0)]))
    (asked,) = phase_messages("greet", {FIRST_NODE_ID + 1: Content(values={"n": 1})})
    assert len(list(grid.pull_messages(grid.push_messages([asked])))) == 1
    found = list(read_message_log(tmp_path))
    assert [message.number for message in found] == [1, 2, 3, 4, 5, 6]
    assert [message.direction for message in found] == ["to client", "to server"] * 3
    assert [message.client for message in found] == [2, 2, 0, 0, 1, 1]
    assert [message.type for message in found] == ["train"] * 4 + ["query.phase"] * 2
    assert [message.phase for message in found] == [None] * 4 + ["greet"] * 2
    assert [message.error for message in found] == [None] * 6
    for message in found[:4]:
        told = {"numbers": {"client": message.client}} if message.direction == "to server" else {}
        assert message.values == {"config": VALUES, **told}
        names = [("arrays", name) for name in ODD] + [("rows", "x")]
        assert [(array.record, array.name) for array in message.arrays] == names
        all_sent = [*ODD.values(), np.arange(message.client)]
        for array, sent in zip(message.arrays, all_sent, strict=True):
            assert array.numpy().dtype == sent.dtype
            np.testing.assert_array_equal(array.numpy(), sent, strict=True)
    assert found[4].values == {"config": {"n": 1, "phase": "greet"}}
    assert found[5].arrays == ()


@pytest.mark.usefixtures("identity")
def test_a_client_that_fails(tmp_path: Path) -> None:
    grid = InProcessGrid(answering(fails=1), 2, {}, MessageLog(tmp_path))
    replies = list(grid.send_and_receive([train_message(1), train_message(0)]))
    assert [reply.has_error() for reply in replies] == [True, False]
    sent, failed, *others = read_message_log(tmp_path)
    # The client had emptied its message before it failed.
    assert sent.values == {"config": VALUES}
    assert len(sent.arrays) == 5
    assert (failed.direction, failed.client, failed.type) == ("to server", 1, "train")
    assert failed.error.startswith("ValueError: no power (line ")
    assert (failed.values, failed.arrays) == ({}, ())
    assert [message.error for message in others] == [None, None]


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    method = 'method="xclp-predict" xclp.num-bits=64'
    options = ["--num-supernodes", "3", "--output", "out", "-c", method, "--message-log", "t"]
    refused = CliRunner().invoke(command_line, ["run", "--engine", "ray", *options])
    assert refused.exit_code == 1
    assert code_of(refused.stderr) == "option-without-effect"
    assert list(tmp_path.iterdir()) == []
    done = CliRunner().invoke(command_line, ["run", "--engine", "in-process", *options])
    assert done.exit_code == 0, done.output
    phases = [message.phase for message in read_message_log(tmp_path / "t")]
    # Each of three clients is asked and answers.
    names = ("describe", "setup", *["xclp-compare"] * 5, "xclp-sum", "xclp-label")
    assert phases == [name for name in names for _ in range(6)]
