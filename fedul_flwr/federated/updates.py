"""Models in rounds: how they travel, and how they are averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import UserError
from fedul_flwr.federated.grid import RoundRecord
from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    METRICS,
    WEIGHT,
    PlainArray,
    TensorArray,
    array_record,
    metric,
    payload_parts,
    to_arrays,
)
from fedul_flwr.federated.nodes import ClientRef


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


def weighted_mean(records: Sequence[ArrayRecord], weights: Sequence[float]) -> ArrayRecord:
    """Mean of the arrays of ``records``, computed as Flower's FedAvg does, bit for bit.

    Parameters
    ----------
    records : n records with arrays of the same names and shapes, at least one.
    weights : n weights of any sign, whose sum is not 0.
    """
    total = sum(weights)
    mean: dict[str, NDArray[Any]] = {}
    for record, weight in zip(records, weights, strict=True):
        for name, array in record.items():
            part = array.numpy() * (weight / total)
            mean[name] = mean[name] + part if name in mean else part
    return array_record({name: PlainArray.of(np.asarray(value)) for name, value in mean.items()})


def mean_on_device(records: Sequence[ArrayRecord], weights: Sequence[float]) -> ArrayRecord | None:
    """:func:`weighted_mean` of arrays that are all on a device, computed there; else ``None``."""
    if not all(isinstance(array, TensorArray) for record in records for array in record.values()):
        return None
    import torch

    names, total = list(records[0]), sum(weights)
    mean: list[Any] = []
    for record, weight in zip(records, weights, strict=True):
        tensors = [cast(TensorArray, record[name]).tensor for name in names]
        if mean:
            tensors = [t.to(m.device) for t, m in zip(tensors, mean, strict=True)]
        part = list(torch._foreach_mul(tensors, weight / total))
        if mean:
            torch._foreach_add_(mean, part)
        mean = mean or part
    if any(value.is_cuda for value in mean):  # lanes read it, and get the memory of its parts
        torch.cuda.synchronize()
    return array_record(
        {name: TensorArray.holding(value) for name, value in zip(names, mean, strict=True)}
    )


def average_buffers(
    records: Sequence[ArrayRecord],
    weights: NDArray[np.float64],
    names: Iterable[str],
    previous: ArrayRecord,
    *,
    robust: bool = False,
) -> dict[str, Array]:
    """Weighted mean of the arrays ``names``, or their median; integer ones stay as in ``previous``.

    Integer arrays are counters (batch norm's), for which a mean makes no sense.

    Parameters
    ----------
    records : what each of the n clients returned, at least one.
    weights : ``(n,)``, not negative, of a positive sum.
    previous : the arrays before the round.
    robust : the median of every value, which less than half of the clients cannot move at will.
    """
    share = weights / weights.sum()
    result: dict[str, Array] = {}
    for name in names:
        if np.issubdtype(np.dtype(previous[name].dtype), np.integer):
            result[name] = previous[name]
        else:
            layers = _stacked([record[name] for record in records])
            wide = layers.astype(np.float64)
            middle = np.median(wide, axis=0) if robust else np.tensordot(share, wide, axes=1)
            result[name] = PlainArray.of(np.asarray(middle, dtype=layers.dtype))
    return result


def _stacked(arrays: Sequence[Array]) -> NDArray[Any]:
    """``(n, …)``, the values of n arrays, in one copy if they are on a device."""
    tensors = [array.tensor for array in arrays if isinstance(array, TensorArray)]
    if len(tensors) < len(arrays):
        return np.stack([array.numpy() for array in arrays])
    import torch

    first = tensors[0].device
    stacked: NDArray[Any] = torch.stack([tensor.to(first) for tensor in tensors]).cpu().numpy()
    return stacked


def merge(weights: ArrayRecord, buffers: Mapping[str, Array], model: ArrayRecord) -> ArrayRecord:
    """Weights and buffers in the order and the dtypes of ``model`` (adaptive bases widen them).

    Examples
    --------
    >>> model = array_record({"weight": PlainArray.of(np.zeros(1, dtype=np.float32))})
    >>> wide = array_record({"weight": PlainArray.of(np.array([0.5]))})
    >>> merge(wide, {}, model)["weight"].numpy().dtype.name
    'float32'
    """
    merged = {}
    for name, before in model.items():
        array = buffers[name] if name in buffers else weights[name]
        stays = isinstance(array, TensorArray) and array.dtype == before.dtype
        if name not in buffers and not stays:
            value = np.asarray(array.numpy(), dtype=np.dtype(before.dtype))
            array = PlainArray.of(value)
        merged[name] = array
    return array_record(merged)


def mix(one: ArrayRecord, other: ArrayRecord, weight: float) -> ArrayRecord:
    """(1 − weight)·one + weight·other in the dtypes of ``one``; integers stay those of ``one``."""
    mixed: dict[str, Array] = {}
    for name, array in one.items():
        mixed[name] = array
        value = array.numpy()
        if np.issubdtype(value.dtype, np.floating):
            value = np.asarray((1 - weight) * value + weight * other[name].numpy(), value.dtype)
            mixed[name] = PlainArray.of(value)
    return array_record(mixed)


def refuse_non_finite(
    arrays: ArrayRecord,
    memory: Mapping[str, NDArray[Any]],
    round_number: int,
    last_model: Path,
) -> None:
    """Stop before non-finite weights are evaluated or overwrite the last finite model.

    A model and the state that belongs to it are saved together or not at all.

    Parameters
    ----------
    memory : the other arrays that the next round needs, by name (variates, momenta).
    round_number : the round that ends with ``arrays``.
    last_model : file of the previous round's model, for the error's text; an app of somebody's own
        has none.
    """
    unsound = [] if is_finite(arrays) else ["the combined model"]
    unsound += [
        f"{name!r}, which the next round needs,"
        for name, array in memory.items()
        if not np.isfinite(array).all()
    ]
    if not unsound:
        return
    before = round_number - 1
    file = f", in {last_model}" if last_model.exists() else ""
    last = f"round {before}'s{file}" if before else "the one that the run began with"
    raise UserError(
        f"Round {round_number}: {unsound[0]} is not finite and was not kept; the last good model "
        f"is {last}.",
        "model-not-finite",
    )


def is_finite(record: ArrayRecord) -> bool:
    """Whether no array of ``record`` holds NaN or infinity."""
    on_device = [a.tensor.isfinite().all() for a in record.values() if isinstance(a, TensorArray)]
    others = (array for array in record.values() if not isinstance(array, TensorArray))
    return bool(reduce(and_, on_device, True)) and all(
        np.isfinite(array.numpy()).all() for array in others
    )


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
    return np.array([metric(reply, WEIGHT) for reply in replies])


def strip(reply: Message, weight: float, names: Iterable[str]) -> None:
    """Reduce a reply to the base's form: weights in the model's order, metrics, its own records."""
    sent = cast(ArrayRecord, reply.content[ARRAYS])
    content = {name: record for name, record in reply.content.items() if name not in OURS}
    metrics = MetricRecord(dict(cast(MetricRecord, reply.content[METRICS])))
    metrics[WEIGHT] = weight
    arrays = array_record({name: sent[name] for name in names})
    reply.content = RecordDict({ARRAYS: arrays, METRICS: metrics, **content})


ATTRIBUTES = ("m_t", "v_t", "momentum_vector", "control", "used", "ledger")
"""Attributes with state: moments (FedOpt family of Flower 1.41, dicts), momentum (FedAvgM, a list),
SCAFFOLD's variate and the clients in it, and the ledger of differential privacy."""


def dump_base_state(base: FlowerStrategy) -> dict[str, NDArray[Any]]:
    """Moments and momentum of ``base`` as flat named arrays; empty if it has none."""
    state: dict[str, NDArray[Any]] = {}
    for attribute in ATTRIBUTES:
        value = getattr(base, attribute, None)
        if isinstance(value, dict):
            state |= {f"{attribute}/dict/{key}": array for key, array in value.items()}
        elif isinstance(value, list):
            state |= {f"{attribute}/list/{i:06d}": array for i, array in enumerate(value)}
    return state


def load_base_state(base: FlowerStrategy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Restore the state that :func:`dump_base_state` returned."""
    state: dict[str, Any] = {}
    for name in sorted(arrays):
        attribute, kind, key = name.split("/", 2)
        if kind == "dict":
            state.setdefault(attribute, {})[key] = arrays[name]
        else:
            state.setdefault(attribute, []).append(arrays[name])
    for attribute, value in state.items():
        setattr(base, attribute, value)
