"""Convert messages between clients' form (with batch-norm buffers) and bases' form (without)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedul_flwr.federated.arrays import array_record
from fedul_flwr.federated.messages import ARRAYS, DIAGNOSTICS, METRICS, WEIGHT, payload_parts

OURS = (ARRAYS, METRICS, DIAGNOSTICS)
"""Records of a reply that the wrapper handles; all others are passed on to the base."""


def add_arrays(messages: Iterable[Message], arrays: ArrayRecord) -> Counter[str]:
    """Add the arrays that the base does not see to the models in its messages.

    Returns
    -------
    Bytes of the messages by part (:func:`fedul_flwr.federated.messages.payload_parts`).
    """
    # Most bases send every client the same content: rebuild and measure it once.
    rebuilt: dict[int, tuple[RecordDict, Counter[str]]] = {}
    total: Counter[str] = Counter()
    for message in messages:
        content = message.content
        if id(content) not in rebuilt:
            sent = cast(ArrayRecord, content[ARRAYS])
            full = array_record({name: sent.get(name, arrays[name]) for name in arrays})
            records = RecordDict({**content, ARRAYS: full})
            rebuilt[id(content)] = records, payload_parts(records)
        message.content, parts = rebuilt[id(content)]
        total.update(parts)
    return total


def client_weights(replies: Sequence[Message], kind: str) -> NDArray[np.float64]:
    """Weights of the clients' mean: ``"uniform"``, or ``"examples"`` (points trained on)."""
    if kind == "uniform":
        return np.ones(len(replies))
    metrics = [cast(MetricRecord, reply.content[METRICS]) for reply in replies]
    return np.array([float(cast(float, metric[WEIGHT])) for metric in metrics])


def strip(reply: Message, weight: float, names: Iterable[str]) -> None:
    """Reduce a reply to the base's form: weights in the model's order, metrics, its own records."""
    sent = cast(ArrayRecord, reply.content[ARRAYS])
    own = {name: record for name, record in reply.content.items() if name not in OURS}
    metrics = MetricRecord(dict(cast(MetricRecord, reply.content[METRICS])))
    metrics[WEIGHT] = weight
    arrays = array_record({name: sent[name] for name in names})
    reply.content = RecordDict({ARRAYS: arrays, METRICS: metrics, **own})
