"""Messages between server and clients: their content, arrays checked as bytes, quoted texts.

Weights are sent as sparse differences from the arrays of the last exchange. The server keeps a copy
of each client's arrays. Its message names the round of that exchange. A client without those arrays
(its state or its last reply was lost) reports so, skips the round and gets whole arrays in the next
one.

Between real devices Flower sends every object of a message in a request of its own, and each array
is two objects. In a packed message one record ``packed`` replaces all records of arrays; other
records stay. The record is empty if there were no arrays, else it has one array of bytes:

- the data of all arrays in Flower's format, one after the other. They come first so that messages
  with the same model share chunks, which Flower then stores once;
- a table in JSON: for each record of the message, in order, its name and null, or if it has arrays
  a list of their names, types, shapes, formats and numbers of bytes;
- the number of bytes of the table, in 8 bytes, the lowest first.

The server names the client that it heard from itself, by the node that answered. A client's own
words are quoted after that name. Nothing from a client reaches a log, a file or a terminal before
:func:`printable`.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from pickle import PickleBuffer
from typing import Any, BinaryIO, NamedTuple, Self, SupportsIndex, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray
from pydantic import ConfigDict, NonNegativeInt, TypeAdapter

from fedul_flwr.arrays import Arrays
from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError

ARRAYS, CONFIG, METRICS, DIAGNOSTICS = "arrays", "config", "metrics", "diagnostics"
"""Names of the records in a message."""

MODEL, OTHER = "model", "other"
"""Parts of a message's traffic: its record ``arrays``, and everything that is not an array."""

WEIGHT, NORMALIZER = "num-examples", "normalizer"
"""Metrics of an update: number of points, which is its weight, and FedNova's a_i."""

NUM_POINTS = "num-points"
"""Value of a client's answer to phase ``setup``: its number of points. No later count is above."""

APPROVAL, DIGEST, BECAUSE = "approval", "approval-digest", "approval-because"
"""Values of an answer to phase ``setup`` of a client whose owner has not approved the run."""
WAITING = "waiting"
"""Value of :data:`APPROVAL` where the owner has not decided yet."""

END = "end"
"""Phase after the last round, on devices: a client gets, under this name, how the run has ended. It
sends nothing and stores nothing; the owner's log has it."""

PERSONAL = "personal"
"""Phase after the last round, with setting `personal`: a client gets the chosen model, and makes
its own from it. It sends nothing."""

HEAD, SUMS, PRIOR, OF = "head", "sums", "prior", "of"
"""Phase of a run with heads in closed form: a client gets the model and sends sums, if these are
not summed in secret. Its array; its values: the class priors that the model is trained for, and
which sums are asked for."""

FILTERS = "filters"
"""Phase before the first head of a run whose filters follow from a sum: a client sends its array
:data:`SUMS`, if these are not summed in secret; and the name of the sum."""

AGREEMENT = "agreement"
"""Phase before round 1 with setting `agreement`: a client gets the counts of all owners' data; and
the name of their sum. It sends nothing."""

HEAD_SCALE = "head-scale"
"""Value of a round before which a head was made: what its logits were multiplied by."""

DESCRIBE, SETUP, COLUMNS = "describe", "setup", "columns"
"""Phases before round 1: a client says which one it is; it gets the setup and registers; if the
federation standardizes vectors, it gets the means and scales of all clients. A client stores what
it is told under the name of phase ``setup``."""

SETTINGS = "settings"
"""Value of phase ``setup``: the run's settings, flat, as JSON."""

SETUP_BEFORE, FORGETFUL = "setup-before", "forgetful"
"""Value of phase ``setup`` if the server has sent this client a setup before, and the value that a
client stores with its setup if it has no state from that time."""

CLASS_MASSES, TEST_PRIOR = "class-masses", "test-prior"
"""Values where pi is estimated from all sets: sent by a client, and sent to it in every round."""

RATE_FACTOR = "rate-factor"
"""Value that the server sends in a round: factor of the step size (`plateau`)."""

VALIDATION_LOSS, VALIDATED_ROUND = "validation-loss", "validated-round"
"""Values for clients that run `plateau` themselves: the latest validation loss, and the round of
the model that it was measured on."""

SERVER_ROUND = "server-round"
"""Value of every message of a round: its number, from 1."""

OWN_MODEL = "own-model"
"""Value that tells a client to continue from its own model (`base = "local"`), and the name under
which it stores that model."""

LEARNED, PRIOR_FIT = "learned-priors", "prior-fit"
"""Names under which a client keeps the class priors of its sets that it has learned, and under
which a simulation's clients write how well the priors that they were told fit, to be scored."""

KEYS, PEERS, SHARES, PART = "sum-keys", "sum-peers", "sum-shares", "sum-part"
CONFIRM, UNMASK = "sum-confirm", "sum-unmask"
SUM_PHASES = (KEYS, PEERS, SHARES, PART, CONFIRM, UNMASK)
"""Phases of a secure sum: two once a run; one before the vectors, which come as the reply of a
training message or of :data:`PART`; one or two after them."""

MASKED = "masked"
"""Name of the array in which a vector travels."""
PHASE = "query.phase"
"""Message type of a method's extra phases."""

OF_TRAINING = (
    *(ARRAYS, CONFIG, SHARES, SERVER_ROUND, "proximal-mu", OWN_MODEL, RATE_FACTOR, HEAD_SCALE),
    *(VALIDATION_LOSS, VALIDATED_ROUND, TEST_PRIOR, "variate-round", "scaffold-option", "control"),
)
"""Records and values of a training message that are the framework's, and no others."""


def phase_messages(name: str, contents: Mapping[int, Content]) -> list[Message]:
    """Messages for phase ``name``; an array that several nodes get is encoded once."""
    encoded: dict[int, Array] = {}
    messages = []
    for node, content in contents.items():
        records = to_records(Content(values={**content.values, "phase": name}))
        if content.arrays:
            for array in content.arrays.values():
                if id(array) not in encoded:
                    encoded[id(array)] = PlainArray.of(array)
            array_names = {key: encoded[id(array)] for key, array in content.arrays.items()}
            records[ARRAYS] = array_record(array_names)
        messages.append(Message(records, node, PHASE))
    return messages


def phase_of(message: Message) -> str | None:
    """Name of the extra phase that a message asks for; ``None`` for other messages."""
    config: Mapping[str, Any] = message.content.config_records.get(CONFIG) or {}
    return config.get("phase")


def to_records(content: Content) -> RecordDict:
    """Content as Flower's records."""
    records = RecordDict({CONFIG: ConfigRecord(dict(content.values))})
    if content.arrays:
        records[ARRAYS] = to_record(content.arrays)
    return records


def from_records(records: RecordDict) -> Content:
    """Flower's records as content."""
    arrays, values = records.array_records.get(ARRAYS), records.config_records.get(CONFIG)
    present = {ARRAYS: arrays, CONFIG: values}
    present_names = [name for name, record in present.items() if record is not None]
    require_names("answer", records, (), present_names)
    return Content(to_arrays(arrays) if arrays else {}, dict(values) if values else {})


def require_names(
    what: str, received: Iterable[str], needed: Collection[str], more: Collection[str] = ()
) -> None:
    """Refuse a part of a message that lacks one of ``needed``, or has other names than allowed."""
    if missing := sorted({*needed} - {*received}):
        raise BadMessageError(f"its {what} has no {missing[0]!r}", "message-incomplete")
    if odd := sorted({*received} - {*needed} - {*more}):
        raise BadMessageError(
            f"its {what} has {odd[0]!r}, which was not asked for", "message-unasked"
        )


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Named arrays, or tensors of torch, as an ArrayRecord, names kept."""
    return array_record(
        {
            name: TensorArray.holding(array) if hasattr(array, "is_cuda") else PlainArray.of(array)
            for name, array in arrays.items()
        }
    )


def to_arrays(record: ArrayRecord) -> Arrays:
    """An ArrayRecord as named arrays."""
    for name, array in record.items():
        check_bytes(name, array)
    return {name: array.numpy() for name, array in record.items()}


def metric(reply: Message, name: str) -> float:
    """A number among the metrics of a reply."""
    return float(cast(float, reply.content.metric_records[METRICS][name]))


def metric_forms(metrics: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Names of a reply's metrics in a secure sum's order, with their lists' lengths or -1."""
    return [
        (key, len(metrics[key]) if isinstance(metrics[key], list) else -1)
        for key in sorted(metrics)
        if key != WEIGHT
    ]


def payload_parts(records: RecordDict) -> Counter[str]:
    """Bytes of a message's content by part, before packing; keys are not counted.

    Arrays count under the name of their record, the model's as ``model``; all other values as
    ``other``.
    """
    parts: Counter[str] = Counter()
    arrays = records.array_records
    for name in arrays:
        if name != ARRAYS or arrays[name]:  # else the model travels as something else
            parts[MODEL if name == ARRAYS else name] = 0
    parts[OTHER] = 0
    for record, _, size in item_sizes(records):
        part = (MODEL if record == ARRAYS else record) if record in arrays else OTHER
        parts[part] += size
    return parts


def item_sizes(records: RecordDict) -> Iterator[tuple[str, str, int]]:
    """Record, name and bytes of every array and value of a message's content."""
    for record, arrays in records.array_records.items():
        yield from ((record, name, num_bytes(array)) for name, array in arrays.items())
    for tables in (records.metric_records, records.config_records):
        for record, table in tables.items():
            yield from ((record, name, _value_bytes(value)) for name, value in table.items())


def payload_bytes(records: RecordDict) -> int:
    """Bytes of a message's content, all parts together."""
    return payload_parts(records).total()


def _value_bytes(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list):
        return sum(_value_bytes(item) for item in value)
    return 8


EXCHANGED = "held"
"""Name under which both ends store the arrays of their last exchange."""
HELPERS = "helpers"
"""Record of the helpers' psi, as differences from the psi that is sent, and their number."""
BASE_ROUND = "since"
"""Round of the exchange that differences start from, 0 for none; stored with the arrays."""
STALE = "out-of-step"
"""Whether a client lacks the arrays that the server's differences start from."""


_NUMPY = "numpy.ndarray"
"""Flower's name for arrays in NumPy's ``.npy`` format."""
_HEADERS = {
    b"\x93NUMPY\x01\x00": (2, np.lib.format.read_array_header_1_0),
    b"\x93NUMPY\x02\x00": (4, np.lib.format.read_array_header_2_0),
}
"""Versions of the ``.npy`` format by their first bytes: size of the length field, and parsers."""


_dtype_name = lru_cache(maxsize=64)(str)  # NumPy puts it together anew each time


class _Form(NamedTuple):
    """Type and shape from a header, and the header's length in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    in_columns: bool
    length: int


class PlainArray(Array):
    """Flower's array with fewer copies, for many small models sent within one machine.

    It is built with one copy of the values, read without a copy, and pickled with its bytes out of
    band, as Ray wants them. Messages to devices carry it in Flower's own form.
    """

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """The array with these ``values``, rows first in memory.

        Raises
        ------
        ValueError
            If they are Python objects: their memory holds addresses, not values.
        """
        values = np.asarray(values, order="C")
        if values.dtype.hasobject:
            raise ValueError(f"Object arrays cannot be sent: {values.dtype} {values.shape}.")
        # NumPy exposes the memory of dates and times only as integers.
        numbers = values.view(np.int64) if values.dtype.kind in "mM" else values
        data = b"".join([_write_header(values.dtype, values.shape), numbers.data])
        return cls(_dtype_name(values.dtype), values.shape, _NUMPY, data)

    @classmethod
    def seen(cls, array: Array) -> Self:
        """``array`` as a :class:`PlainArray` that shares its bytes; itself if it is one."""
        if isinstance(array, cls):
            return array
        return cls.over(array.dtype, tuple(array.shape), array.stype, array.data)

    @classmethod
    def over(cls, dtype: str, shape: tuple[int, ...], stype: str, data: bytes | memoryview) -> Self:
        """An array that shares ``data``, read-only memory in NumPy's ``.npy`` format.

        Flower's own constructor takes ``bytes`` alone.
        """
        array = cls(dtype, shape, stype, b"")
        array.data = data  # type: ignore[assignment]
        return array

    def numpy(self) -> NDArray[Any]:
        """The values, read-only."""
        data = self.data
        form = _checked("", self, data)
        values = np.frombuffer(data, form.dtype, offset=form.length)
        return values.reshape(form.shape, order="F" if form.in_columns else "C")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        mine, its = ((a.dtype, tuple(a.shape), a.stype, a.data) for a in (self, other))
        return mine == its

    __hash__ = None  # type: ignore[assignment]

    def deflate(self) -> bytes:
        """Bytes for the network, under the class name of Flower's own array, which they include."""
        return Array(self.dtype, self.shape, self.stype, bytes(self.data)).deflate()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if int(protocol) < 5:
            return super().__reduce_ex__(protocol)
        return _restore, (self.dtype, self.shape, self.stype, PickleBuffer(self.data))


class StoredArray(PlainArray):
    """An array whose bytes lie in a file, and are read each time that they are used.

    Many large replies are held so: only one array at a time is in memory when they are averaged.
    """

    _location: tuple[BinaryIO, int, int]

    @classmethod
    def at(
        cls, dtype: str, shape: tuple[int, ...], stype: str, file: BinaryIO, start: int, size: int
    ) -> Self:
        """An array of ``size`` bytes from ``start`` on in an open file, which it keeps open."""
        array = cls(dtype, shape, stype, b"")
        array._location = file, start, size
        return array

    @property
    def num_bytes(self) -> int:
        """Number of its bytes."""
        return self._location[2]

    @property
    def data(self) -> bytes:
        """The bytes, read anew."""
        file, start, size = self._location
        return os.pread(file.fileno(), size, start)

    @data.setter
    def data(self, value: bytes) -> None:
        """Do nothing: Flower's constructor sets it."""


class TensorArray(PlainArray):
    """An array whose values stay on the device where they were computed, until they are read.

    Attributes
    ----------
    tensor : the values, of torch.
    """

    tensor: Any
    _read: PlainArray | None = None

    @classmethod
    def holding(cls, tensor: Any) -> Self:
        """The array with the values of ``tensor``."""
        dtype = _dtype_name(tensor.dtype).removeprefix("torch.")
        array = cls(dtype, tuple(tensor.shape), _NUMPY, b"")
        array.tensor = tensor
        return array

    @property
    def num_bytes(self) -> int:
        """Number of its bytes, once read."""
        header = _write_header(np.dtype(self.dtype), tuple(self.shape))
        return len(header) + int(self.tensor.nbytes)

    @property
    def plain(self) -> PlainArray:
        """The array in this machine's memory."""
        if self._read is None:
            self._read = PlainArray.of(self.tensor.cpu().numpy())
        return self._read

    def numpy(self) -> NDArray[Any]:
        """The values, read-only."""
        return self.plain.numpy()

    @property
    def data(self) -> bytes:
        """The bytes."""
        return self.plain.data

    @data.setter
    def data(self, value: bytes) -> None:
        """Do nothing: Flower's constructor sets it."""


def num_bytes(array: Array) -> int:
    """Number of an array's bytes, without reading them."""
    return array.num_bytes if isinstance(array, StoredArray | TensorArray) else len(array.data)


MOST_IN_MEMORY = 64 * 2**20
"""Bytes of a round's replies beyond which the arrays of further ones are on disk."""
MOST_ON_DEVICE = 2 * 2**30
"""The same of those on a GPU."""


class Spool:
    """The replies of a round: whatever their number, a few are in memory.

    Sums of floating-point numbers depend on their order, and replies come in any; their weights are
    shares of a total that the last one tells. So further ones wait in a file without a name until
    the server reads them, one array at a time, in the order of the clients.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._file: BinaryIO | None = None

    def add(self, reply: Message) -> Message:
        """``reply``, the same object; its arrays are on disk if those before it are many."""
        if reply.has_error():
            return reply
        records = list(reply.content.array_records.values())
        arrays = [array for record in records for array in record.values()]
        on_gpu = any(isinstance(a, TensorArray) and a.tensor.is_cuda for a in arrays)
        if self._bytes <= (MOST_ON_DEVICE if on_gpu else MOST_IN_MEMORY):
            self._bytes += sum(map(num_bytes, arrays))
            return reply
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  arrays keep it open
        for record in records:
            for name, array in record.items():
                start, data = self._file.seek(0, os.SEEK_END), array.data
                self._file.write(data)
                record[name] = StoredArray.at(
                    array.dtype, tuple(array.shape), array.stype, self._file, start, len(data)
                )
        self._file.flush()
        return reply


def _restore(dtype: str, shape: tuple[int, ...], stype: str, data: Any) -> PlainArray:
    # A copy: Ray's store keeps an object as long as anything refers to it.
    return PlainArray(dtype, shape, stype, bytes(data))


def check_bytes(name: str, array: Array) -> None:
    """Check that an array has the bytes that its type and shape need, without decoding it.

    NumPy would trust the header and allocate memory for as many values as it announces.
    """
    if not isinstance(array, TensorArray):  # which was made in this process
        _checked(name, array, array.data)


def _checked(name: str, array: Array, data: bytes) -> _Form:
    shape = tuple(array.shape)
    announced = f"array {name!r} is announced as {array.dtype} {shape}"
    form = _form(name, array.stype, data)
    dtype, shape_seen = form.dtype, form.shape
    rest, needed = len(data) - form.length, math.prod(shape) * dtype.itemsize
    if (
        _dtype_name(dtype) != array.dtype
        or shape_seen != shape
        or dtype.hasobject
        or min(shape, default=0) < 0
        or rest != needed
    ):
        raise BadMessageError(
            f"its {announced}, begins as {dtype} {shape_seen} and has {rest} bytes, not {needed}",
            "message-form",
        )
    return form


def _form(name: str, stype: str, data: bytes) -> _Form:
    try:
        if stype != _NUMPY:
            raise ValueError(stype)
        size, _ = _HEADERS[bytes(data[:8])]
        length = 8 + size + int.from_bytes(data[8 : 8 + size], "little")
        return _read_header(bytes(data[:length]))
    except Exception as error:  # a parser may raise anything on untrusted bytes
        raise BadMessageError(
            f"its array {name!r} is not in NumPy's format", "message-form"
        ) from error


def array_record(arrays: Mapping[str, Array]) -> ArrayRecord:
    """A record of ``arrays`` as they are: Flower's constructor would make plain ones of its own."""
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = array
    return record


@lru_cache(maxsize=1024)  # NumPy parses it as Python
def _read_header(header: bytes) -> _Form:
    stream = BytesIO(header)
    shape, in_columns, dtype = _HEADERS[stream.read(8)][1](stream)
    return _Form(dtype, shape, in_columns, stream.tell())


@lru_cache(maxsize=1024)
def _write_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    stream = BytesIO()
    described = np.lib.format.dtype_to_descr(dtype)
    form = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, form)
    return stream.getvalue()


PACKED = "packed"
"""Name of the record that marks a packed message, and of the array in it."""

_FORMAT = "fedul_flwr.packed"
"""Format name of the packed array, so that it is not decoded as a serialized NumPy array."""
_TAIL, _LONGEST_TABLE = 8, 1 << 22
"""Bytes that hold the table's length, and most bytes that a table may have."""

_PackedForm = tuple[str, str, list[NonNegativeInt], str, NonNegativeInt]
_Table = list[tuple[str, list[_PackedForm] | None]]
_TABLE: TypeAdapter[_Table] = TypeAdapter(_Table, config=ConfigDict(strict=True))


def pack(records: RecordDict) -> RecordDict:
    """Content of a message with all its arrays in one; ``records`` stay as they are."""
    arrays = records.array_records
    others = {name: record for name, record in records.items() if name not in arrays}
    if not arrays:
        return RecordDict({**others, PACKED: ArrayRecord()})
    table = json.dumps([[name, _forms(arrays.get(name))] for name in records]).encode()
    parts = [array.data for record in arrays.values() for array in record.values()]
    data = b"".join([*parts, table, len(table).to_bytes(_TAIL, "little")])
    whole = Array("uint8", (len(data),), _FORMAT, data)
    return RecordDict({**others, PACKED: ArrayRecord({PACKED: whole})})


def unpack(records: RecordDict) -> RecordDict:
    """Undo :func:`pack`; content that is not packed is returned unchanged.

    The bytes are split as announced, and no array is decoded. Before decoding one, check it like
    any array from the network
    (:func:`fedul_flwr.federated.messages.check_bytes`).
    """
    if PACKED not in records:
        return records
    others = {name: record for name, record in records.items() if name != PACKED}
    if not records[PACKED]:
        return RecordDict(others)
    data = _data(records[PACKED])
    length = int.from_bytes(data[-_TAIL:], "little")
    size = len(data) - _TAIL - length  # of all arrays
    if length > _LONGEST_TABLE or size < 0:
        raise _unreadable()
    try:
        table = _TABLE.validate_json(data[size : size + length])
    except ValueError as error:
        raise _unreadable() from error
    _check(table, others, size)
    content, stream = RecordDict(), BytesIO(data)
    for name, forms in table:
        record = ArrayRecord()
        for key, dtype, shape, stype, length in forms or ():
            record[key] = Array(dtype, tuple(shape), stype, stream.read(length))
        content[name] = others[name] if forms is None else record
    return content


def packing_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower mod that unpacks a message for the client and packs its reply."""
    if PACKED not in message.content:
        return call_next(message, context)
    message.content = unpack(message.content)
    reply = call_next(message, context)
    if reply.has_content() and reply.content.array_records:
        reply.content = pack(reply.content)
    return reply


def _forms(record: ArrayRecord | None) -> list[list[Any]] | None:
    if record is None:
        return None
    return [
        [name, array.dtype, list(array.shape), array.stype, len(array.data)]
        for name, array in record.items()
    ]


def _data(packed: object) -> bytes:
    """The bytes of a record, which must hold exactly one array."""
    if isinstance(packed, ArrayRecord) and list(packed) == [PACKED]:
        array = packed[PACKED]
        if (array.dtype, array.shape, array.stype) == ("uint8", (len(array.data),), _FORMAT):
            return array.data
    raise _unreadable()


def _check(table: _Table, others: dict[str, Any], size: int) -> None:
    """Check that names are unique, and that records and sizes match the table."""
    names = [name for name, _ in table]
    records = [forms for _, forms in table if forms is not None]
    beside = {name for name, forms in table if forms is None}
    unique = all(len({form[0] for form in forms}) == len(forms) for forms in records)
    if len(set(names)) < len(names) or not unique or beside != others.keys():
        raise BadMessageError(
            "its packed records are not those that it announces", "message-contradicts"
        )
    announced = sum(form[-1] for forms in records for form in forms)
    if announced != size:
        raise BadMessageError(
            f"its packed arrays are announced as {announced} bytes and are {size}",
            "message-contradicts",
        )


def _unreadable() -> BadMessageError:
    return BadMessageError("its packed arrays are not in the format of this app", "message-form")


MAX_CHARS = 300
"""Most characters of a text from a client; the rest is cut off."""

_SENDER = re.compile(r"\s*(?:(?:client|node)\s*#?\d+\s*(?:\([^)]*\)\s*)?:\s*)+", re.IGNORECASE)
"""A sender's name before a text, as in ``Client 2: …``: only the server says who has sent it."""
_FLOWER = "Exception ClientAppException occurred. Message: "
"""What Flower writes before a client's error."""


class UnreadableReplyError(Error):
    """The server's own error about a reply that it could not read; its text is no client's."""


def printable(text: str, longest: int = MAX_CHARS) -> str:
    """``text`` on one line: control characters escaped, and cut after ``longest`` characters."""
    # Cut first: a text of a gigabyte is not escaped whole.
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[: longest + 1]
    )
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def quote_client_text(text: str) -> str:
    """A client's words as a quote, without a sender's name at their beginning."""
    text = text[: 10 * MAX_CHARS]
    sender = _SENDER.match(text)
    bare = (text[sender.end() :] if sender else text).strip().removesuffix(".")
    return f'it says "{printable(bare).replace(chr(34), chr(39))}"'


def failure_reason(reply: Message, node: int) -> str:
    """Why ``node`` has not answered as it was asked, from an error reply to its message.

    The SuperLink reports some errors itself, about nodes that are gone; others are the client's.
    """
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    text = (lines[-1] if lines else "unknown error").replace(_FLOWER, "").removesuffix("'>")
    if isinstance(reply.error, UnreadableReplyError) or reply.metadata.src_node_id != node:
        return printable(text)
    return quote_client_text(text)


def client_label(kind: str, number: int, name: str = "") -> str:
    """``Client 3``, or ``Client 3 (st-mary)`` for an owner with a name."""
    return f"{kind} {number} ({printable(name, 64)})" if name else f"{kind} {number}"


def prefix_sender(sender: str, reason: str) -> str:
    """A sentence about ``sender``; a reason that begins with its number is not told twice."""
    number = sender.partition(" (")[0]
    for end in (":", " "):
        if reason.startswith(number + end):
            return sender + reason[len(number) :]
    return f"{sender}: {reason}"
