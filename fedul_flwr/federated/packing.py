"""All arrays of a message in one, which is how they travel to real devices and back.

There every object of a message is pushed and pulled by requests of its own, and each array is two
objects. A packed message has one record ``packed`` in place of its records of arrays, and all its
other records. That record holds nothing if there were no arrays, else one array of bytes:

- the data of all arrays, as Flower has them, one after the other. They come first so that messages
  that begin with the same model have its chunks in common, which Flower then stores once;
- a table in JSON: for each record of the message, in order, its name and null, or if it has arrays
  a list of their names, types, shapes, formats and numbers of bytes;
- the number of bytes of the table, in 8 bytes, the lowest first.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from pydantic import ConfigDict, NonNegativeInt, TypeAdapter

from fedul_flwr.errors import BadMessageError

PACKED = "packed"
"""Name of the record that shows that a message is packed, and of the array in it."""

_FORMAT = "fedul_flwr.packed"
"""In place of Flower's name for a serialized NumPy array, so that nobody takes it for one."""
_TAIL, _LONGEST_TABLE = 8, 1 << 22
"""Bytes that hold the table's length, and most bytes that a table may have."""

_Form = tuple[str, str, list[NonNegativeInt], str, NonNegativeInt]
_Table = list[tuple[str, list[_Form] | None]]
_TABLE: TypeAdapter[_Table] = TypeAdapter(_Table, config=ConfigDict(strict=True))


def pack(records: RecordDict) -> RecordDict:
    """Content of a message with all its arrays in one; ``records`` stay as they are."""
    found = records.array_records
    others = {name: record for name, record in records.items() if name not in found}
    if not found:
        return RecordDict({**others, PACKED: ArrayRecord()})
    table = json.dumps([[name, _forms(found.get(name))] for name in records]).encode()
    parts = [array.data for record in found.values() for array in record.values()]
    data = b"".join([*parts, table, len(table).to_bytes(_TAIL, "little")])
    whole = Array("uint8", (len(data),), _FORMAT, data)
    return RecordDict({**others, PACKED: ArrayRecord({PACKED: whole})})


def unpack(records: RecordDict) -> RecordDict:
    """What :func:`pack` was given; content that is not packed is returned as it is.

    The bytes are cut into the pieces that were announced, and no array is decoded. Whoever decodes
    one checks it first, as it would be had it come alone
    (:func:`fedul_flwr.federated.arrays.check_bytes`).

    Raises
    ------
    BadMessageError
        It claims to be packed and has another format, or other records or another number of bytes
        than it announces.
    """
    if PACKED not in records:
        return records
    others = {name: record for name, record in records.items() if name != PACKED}
    if not records[PACKED]:
        return RecordDict(others)
    data = _data(records[PACKED])
    table, size = _read_table(data)
    _check(table, others, size)
    content, stream = RecordDict(), BytesIO(data)
    for name, forms in table:
        content[name] = others[name] if forms is None else _next_record(stream, forms)
    return content


def packing_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower's modifier by which a client sees messages unpacked; it answers in kind."""
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


def _next_record(stream: BytesIO, forms: list[_Form]) -> ArrayRecord:
    """The arrays that come next in the stream."""
    record = ArrayRecord()
    for name, dtype, shape, stype, length in forms:
        record[name] = Array(dtype, tuple(shape), stype, stream.read(length))
    return record


def _data(packed: object) -> bytes:
    """The bytes of the one array that a record must be."""
    if isinstance(packed, ArrayRecord) and list(packed) == [PACKED]:
        array = packed[PACKED]
        if (array.dtype, array.shape, array.stype) == ("uint8", (len(array.data),), _FORMAT):
            return array.data
    raise _unreadable()


def _read_table(data: bytes) -> tuple[_Table, int]:
    """The table, and how many bytes there are before it."""
    length = int.from_bytes(data[-_TAIL:], "little")
    size = len(data) - _TAIL - length
    if length > _LONGEST_TABLE or size < 0:
        raise _unreadable()
    try:
        return _TABLE.validate_json(data[size : size + length]), size
    except ValueError as error:
        raise _unreadable() from error


def _check(table: _Table, others: dict[str, Any], size: int) -> None:
    """See that names are there once, and that what is announced is what has come."""
    names = [name for name, _ in table]
    records = [forms for _, forms in table if forms is not None]
    beside = {name for name, forms in table if forms is None}
    unique = all(len({form[0] for form in forms}) == len(forms) for forms in records)
    if len(set(names)) < len(names) or not unique or beside != others.keys():
        raise BadMessageError("its packed records are not those that it announces")
    announced = sum(form[-1] for forms in records for form in forms)
    if announced != size:
        raise BadMessageError(
            f"its packed arrays are announced as {announced} bytes and are {size}"
        )


def _unreadable() -> BadMessageError:
    return BadMessageError("its packed arrays are not in the format of this app")
