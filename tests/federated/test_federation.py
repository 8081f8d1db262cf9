"""Finding the nodes of a run, and numbers that come with their messages."""

from collections.abc import Callable

import pytest
from flwr.app import Message
from flwr.serverapp import Grid

from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.errors import UserError
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, as_error, metrics, train
from tests.support.settings import QUICK, Settings


def failing(change: Callable[[Message], Message]) -> Callable[[Grid], Grid]:
    """The first node's answer to ``describe`` is another."""

    def meddle(call: int, replies: list[Message]) -> list[Message]:
        return [change(replies[0]), *replies[1:]] if call == 0 else replies

    return lambda grid: MeddlingGrid(grid, meddle)


def silent_about_itself(reply: Message) -> Message:
    del reply.content["config"]["num-partitions"]
    return reply


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda reply: as_error(reply, "disk full"), 'it says "disk full"'),
        (silent_about_itself, "A message came with no valid num-partitions."),
    ],
)
def test_the_first_node_fails(
    settings: Settings, change: Callable[[Message], Message], reason: str
) -> None:
    with pytest.raises(UserError) as error:
        train(settings(**QUICK), 3, wrap_grid=failing(change))
    assert str(error.value) == f"Node {FIRST_NODE_ID}: {reason}"
    # Another one knows as well how many there are.
    config = settings(**QUICK, on_client_failure="continue")
    directory = train(config, 3, wrap_grid=failing(change))
    assert [line["clients"] for line in metrics(directory)] == [3, 3]


def test_no_node_says_who_it_is(settings: Settings) -> None:
    def lose(call: int, replies: list[Message]) -> list[Message]:
        return [as_error(reply, "disk full") for reply in replies]

    config = settings(**QUICK, on_client_failure="continue")
    with refuses("client-silent", match="connect-timeout"):
        train(config, 1, wrap_grid=lambda grid: MeddlingGrid(grid, lose))
