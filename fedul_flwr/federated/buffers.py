"""Messages as clients know them and as base strategies do: with and without batch-norm buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    METRICS,
    WEIGHT,
    payload_parts,
)

OURS = (ARRAYS, METRICS, DIAGNOSTICS)
"""Records of a reply that the wrapper deals with; others are between the base and the clients."""


def add_arrays(messages: Iterable[Message], arrays: ArrayRecord) -> Counter[str]:
    """Complete the model of a base's messages by what it was not given.

    Returns
    -------
    Bytes of the messages by part (:func:`fedul_flwr.federated.messages.payload_parts`).
    """
    # Messages of most bases share one content: rebuild and measure it once, not per client.
    rebuilt: dict[int, tuple[RecordDict, Counter[str]]] = {}
    total: Counter[str] = Counter()
    for message in messages:
        content = message.content
        if id(content) not in rebuilt:
            sent = cast(ArrayRecord, content[ARRAYS])
            full = ArrayRecord({name: sent.get(name, arrays[name]) for name in arrays})
            records = RecordDict({**content, ARRAYS: full})
            rebuilt[id(content)] = records, payload_parts(records)
        message.content, parts = rebuilt[id(content)]
        total.update(parts)
    return total


def client_weights(replies: Sequence[Message], kind: str) -> NDArray[np.float64]:
    """Weights of the clients' mean: ``"uniform"``, or ``"examples"`` by what each trained on."""
    if kind == "uniform":
        return np.ones(len(replies))
    metrics = [cast(MetricRecord, reply.content[METRICS]) for reply in replies]
    return np.array([float(cast(float, metric[WEIGHT])) for metric in metrics])


def strip(reply: Message, weight: float, names: Iterable[str]) -> None:
    """Leave what a base expects: weights in the model's order, metrics, and its own records."""
    sent = cast(ArrayRecord, reply.content[ARRAYS])
    own = {name: record for name, record in reply.content.items() if name not in OURS}
    metrics = MetricRecord(dict(cast(MetricRecord, reply.content[METRICS])))
    metrics[WEIGHT] = weight
    arrays = ArrayRecord({name: sent[name] for name in names})
    reply.content = RecordDict({ARRAYS: arrays, METRICS: metrics, **own})
