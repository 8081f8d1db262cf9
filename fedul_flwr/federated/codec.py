"""How a model travels between the server and its clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from flwr.app import ArrayRecord, Message, RecordDict

from fedul_flwr.data.types import Arrays
from fedul_flwr.federated.buffers import add_arrays
from fedul_flwr.federated.messages import ARRAYS, to_arrays
from fedul_flwr.federated.registry import ClientRef
from fedul_flwr.federated.round_record import RoundRecord


class UpdateCodec:
    """Sends and receives whole models; subclasses send other forms.

    Attributes
    ----------
    bounded : records of an update whose distance from the sent arrays ``max-update-norm`` bounds.
    """

    bounded: Sequence[str] = (ARRAYS,)

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, ClientRef],
        arrays: ArrayRecord,
        record: RoundRecord,
    ) -> None:
        """Add the arrays that clients start from to the base's messages, and count their bytes.

        Parameters
        ----------
        clients : by node.
        arrays : the model, including the arrays that the base does not see.
        """
        del clients
        record.down.update(add_arrays(messages, arrays))

    def expected(self, message: RecordDict, arrays: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """Arrays that a decoded update must have, with their names, types and shapes.

        By default ``arrays`` and other records that the base sent, such as SCAFFOLD's variates.
        """
        return {**message.array_records, ARRAYS: arrays}

    def decode(self, client: ClientRef, reply: Message, record: RoundRecord) -> None:
        """Replace the arrays in a client's reply by those that the base combines, in place.

        Metrics and the sizes of all arrays were checked before.

        Raises
        ------
        ValueError, BadMessageError
            If the reply is invalid; the client counts as failed.
        """

    def keeps(self, reply: Message) -> bool:
        """Whether something of a decoded reply is kept even if its update is not used."""
        del reply
        return False

    def keep(self, client: ClientRef, reply: Message) -> None:
        """Keep what later rounds need of a decoded reply; it has passed all other checks.

        Raises
        ------
        ValueError, BadMessageError
            If it cannot be kept; the client counts as failed.
        """

    def model(self, reply: Message) -> Arrays:
        """The model that a client returned, by name, from its decoded reply."""
        return to_arrays(cast(ArrayRecord, reply.content[ARRAYS]))
