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
    """Sends and receives whole models; others override its methods.

    Attributes
    ----------
    bounded : records of an update whose distance from what was sent ``max-update-norm`` bounds.
    """

    bounded: Sequence[str] = (ARRAYS,)

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, ClientRef],
        arrays: ArrayRecord,
        record: RoundRecord,
    ) -> None:
        """Complete the base's messages by what clients start from, and count their bytes.

        Parameters
        ----------
        clients : by node.
        arrays : what the base combines, with what it was not given.
        """
        del clients
        record.down.update(add_arrays(messages, arrays))

    def expected(self, message: RecordDict, arrays: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """Records of arrays that an update has to have once it is decoded, in these very forms.

        By default ``arrays`` and what else the base sent, such as SCAFFOLD's variates.
        """
        return {**message.array_records, ARRAYS: arrays}

    def decode(self, client: ClientRef, reply: Message, record: RoundRecord) -> None:
        """Turn what ``client`` sent into the arrays that the base is to combine, in place.

        Metrics are known to be in order, and all arrays to have the bytes they need.

        Raises
        ------
        ValueError, BadMessageError
            It is a failed client.
        """

    def model(self, reply: Message) -> Arrays:
        """The model that a client returned, by name, from its decoded reply."""
        return to_arrays(cast(ArrayRecord, reply.content[ARRAYS]))
