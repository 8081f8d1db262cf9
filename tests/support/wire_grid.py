"""A grid of devices in this process: what is sent is taken to pieces and put together again."""

from collections.abc import Iterable
from typing import cast

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedul_flwr.federated.grid import GridProxy


class WireGrid(GridProxy):
    """Messages to and from ``grid`` as Flower's grid of devices carries them.

    Attributes
    ----------
    sent, received : messages in the form they travel in, without their ids.
    replies : what has arrived in answer and was not pulled yet, by the id of the message.
    pushes : how many messages were pushed at a time.
    """

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self.pushes: list[int] = []
        self.replies: dict[str, Message] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        alike = list(messages)
        self.pushes.append(len(alike))
        for message in alike:
            message.metadata.__dict__["_message_id"] = message.object_id
            self.sent.append(message)
            (reply,) = self._grid.send_and_receive([self.carried(message)])
            self.received.append(reply)
            self.replies[message.object_id] = self.carried(reply)
        return [message.metadata.message_id for message in alike]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(identity) for identity in sorted(message_ids)]

    def carried(self, message: Message) -> Message:
        """What arrives of a message."""
        objects = get_all_nested_objects(message)
        contents = {identity: found.deflate() for identity, found in objects.items()}
        arrived = cast(Message, inflate_object_from_contents(message.object_id, contents))
        arrived.metadata.__dict__["_message_id"] = message.object_id
        return arrived
