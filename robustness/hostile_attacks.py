"""Hostile replies: changes of an honest reply that a server must refuse, each with a name.

Changes that are harmless by definition are left out: other finite weights, losses and times, fewer
points than announced, values that nobody reads, and a second reply after an honest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedul_flwr.federated.flower_internals import ErrorCode, make_message
from fedul_flwr.federated.messages import CONFIG, DIAGNOSTICS, METRICS

FORGED = "Client 0: its update is not finite\x1b[2J\r\nClient 0: it has left\u202e" + "x" * 10**5
DEEP = "[" * 50_000
HUGE = 2**62

Content = Callable[[RecordDict], RecordDict]
"""From the honest content of a reply, a copy that may be changed, to the hostile one."""


class Attack(NamedTuple):
    """A hostile reply.

    Attributes
    ----------
    phase : of the message that it answers: an extra phase, ``train`` or ``evaluate``.
    name : what is hostile about it.
    change : makes its content; ``None`` for attacks on the message itself.
    message : ``(honest reply, this client's reply to the message before) -> hostile reply``, or
        ``None`` for no reply.
    """

    phase: str
    name: str
    change: Content | None
    message: Callable[[Message, Message], Message | None] | None = None


def copied(content: RecordDict) -> RecordDict:
    """A copy whose records can be changed."""
    return RecordDict({name: type(record)(dict(record)) for name, record in content.items()})


def attacks(phase: str, honest: RecordDict, *, few: bool = False) -> Iterator[Attack]:
    """All attacks on replies of a phase.

    Parameters
    ----------
    honest : content of an honest reply to it.
    few : one array of every record instead of up to four.
    """
    yield from _on_messages(phase)
    yield from (Attack(phase, *found) for found in _on_records(honest))
    for name, record in honest.array_records.items():
        names = list(record)
        chosen = names[:1] if few else dict.fromkeys([*names[:3], *names[-1:]])
        for array in chosen:
            for what, change in _on_array(name, array):
                yield Attack(phase, f"{name}/{array}: {what}", change)
    for name, table in honest.metric_records.items():
        for key in table:
            yield from (Attack(phase, *found) for found in _on_metric(name, key))
    for key, value in honest.config_records.get(CONFIG, {}).items():
        yield from (Attack(phase, *found) for found in _on_value(key, value))


def _on_messages(phase: str) -> Iterator[Attack]:
    def raised(text: str) -> Callable[[Message, Message], Message]:
        error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, text)
        return lambda reply, _: make_message(reply.metadata, error=error)

    def of_another(reply: Message, _: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] -= 1
        return reply

    yield Attack(phase, "an error in another client's name", None, raised(FORGED))
    yield Attack(phase, "an error without a text", None, raised(""))
    yield Attack(phase, "an error of 100,000 lines", None, raised("line\n" * 10**5))
    yield Attack(phase, "no reply", None, lambda *_: None)
    yield Attack(phase, "in the name of another client", None, of_another)
    if phase != "describe":
        yield Attack(phase, "the reply to an earlier message", None, lambda _, before: before)


def _on_records(honest: RecordDict) -> Iterator[tuple[str, Content]]:
    def without(name: str) -> Content:
        return lambda content: RecordDict({k: v for k, v in content.items() if k != name})

    def renamed(name: str) -> Content:
        return lambda content: RecordDict(
            {f"{k}s" if k == name else k: v for k, v in content.items()}
        )

    def exchanged(name: str, record: Any) -> Content:
        return lambda content: RecordDict({**content, name: record})

    yield "nothing at all", lambda _: RecordDict()
    kinds: list[Any] = [
        ArrayRecord({"x": Array(np.zeros(2))}),
        MetricRecord({"x": 1.0}),
        ConfigRecord({"x": DEEP}),
    ]
    for name, record in honest.items():
        if len(record):  # an empty one carries nothing
            yield f"{name}: missing", without(name)
            yield f"{name}: renamed", renamed(name)
            yield f"{name}: empty", exchanged(name, type(record)())
        for other in kinds:
            if not isinstance(other, type(record)):
                yield f"{name}: a {type(other).__name__}", exchanged(name, other)
    if honest.metric_records:  # extra phases: what nobody asks for is not read
        yield "more arrays", exchanged("more", kinds[0])
        yield "more metrics", exchanged("more", kinds[1])
        yield "a config", exchanged("more", kinds[2])


def _on_array(record: str, name: str) -> Iterator[tuple[str, Content]]:
    def put(change: Callable[[Array], Array]) -> Content:
        def changed(content: RecordDict) -> RecordDict:
            arrays = cast(ArrayRecord, content[record])
            arrays[name] = change(arrays[name])
            return content

        return changed

    def values(change: Callable[[Any], Any]) -> Content:
        return put(lambda array: Array(np.asarray(change(array.numpy()))))

    def raw(**parts: Any) -> Content:
        def change(array: Array) -> Array:
            kept = {"dtype": array.dtype, "shape": array.shape, "stype": array.stype}
            known = {**kept, "data": array.data, **parts}
            found = {k: v(array) if callable(v) else v for k, v in known.items()}
            return Array(found["dtype"], tuple(found["shape"]), found["stype"], found["data"])

        return put(change)

    def without(content: RecordDict) -> RecordDict:
        del cast(ArrayRecord, content[record])[name]
        return content

    def renamed(content: RecordDict) -> RecordDict:
        arrays = cast(ArrayRecord, content[record])
        arrays[f"{name}\x1b[31m\n"] = arrays[name]
        return without(content)

    yield "missing", without
    yield "renamed", renamed
    yield "a row more", values(lambda a: np.concatenate([a.ravel(), a.ravel()[:1]]))
    yield "one axis more", values(lambda a: a[None])
    yield "no values", values(lambda a: a.ravel()[:0])
    yield "a deep shape", values(lambda a: a.reshape(-1)[:1].reshape((1,) * 32))
    yield "text", values(lambda a: np.full(a.shape, "x"))
    yield "complex", values(lambda a: a.astype(np.complex64))
    yield "dates", values(lambda a: np.zeros(a.shape, "M8[s]"))
    yield "half precision", values(lambda a: a.astype(np.float16))
    yield "int32", values(lambda a: a.astype(np.int32))
    yield "bytes cut off", raw(data=lambda a: a.data[:-1])
    yield "bytes added", raw(data=lambda a: a.data + b"\0")
    yield "no bytes", raw(data=b"")
    yield "no header", raw(data=lambda a: b"x" * len(a.data))
    yield "a pickle", raw(stype="pickle", data=b"cos\nsystem\n(S'false'\ntR.")
    yield "another form", raw(stype="torch.Tensor")
    yield "64 TB announced", raw(shape=(2**44,), data=_header("<f4", (2**44,)))
    yield "64 TB in the header alone", raw(data=_header("<f4", (2**44,)))
    yield "objects", raw(dtype="object", data=lambda a: _header("|O", a.shape) + b"\x80\x04N.")
    yield "a negative shape", raw(shape=(-1, -1), data=_header("<f4", (-1, -1)))
    yield "a shape without end", raw(shape=(2**62, 2**62), data=_header("<f4", (2**62, 2**62)))
    yield "a type of its own", raw(dtype="float33")
    yield "other bytes' order", raw(dtype=">f4")


def of_floats(record: str, name: str) -> Iterator[tuple[str, Content]]:
    """Values that are not finite, for arrays of weights."""

    def first(value: float) -> Content:
        def change(content: RecordDict) -> RecordDict:
            arrays = cast(ArrayRecord, content[record])
            found = arrays[name].numpy().copy()
            if found.size:
                found.flat[0] = value
            arrays[name] = Array(found)
            return content

        return change

    for value in (np.nan, np.inf, -np.inf):
        yield f"{record}/{name}: one {value}", first(value)


SMALL_ORDER = (
    *(bytes([u]) + bytes(31) for u in (0, 1)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    *((2**255 - 19 + more).to_bytes(32, "little") for more in (-1, 0, 1)),
)
"""Public keys of X25519 with which every secret is 0: points of order 1, 2, 4 and 8."""


def forged(phase: str, step: int, honest: RecordDict) -> Iterator[Attack]:
    """Answers of a secure propagation with the right form, and a wrong content.

    Parameters
    ----------
    step : number of the message within the phase.
    """
    names = list(honest.array_records.get("arrays", ()))
    sealed = [name for name in names if name.startswith("to/")]
    for what, change in _WRONG_BYTES.items() if sealed else ():
        if step == 1 or what == "random bytes":
            yield Attack(phase, f"all sealed messages: {what}", _replaced(sealed, change))
    if len(sealed) > 1 and step == 1:
        yield Attack(phase, "sealed messages exchanged", _exchanged(sealed))
    for name in ("commitment", "to-evaluators", "to-owners", "sent"):
        if name in names:
            yield Attack(phase, f"{name}: random bytes", _replaced([name], _random))
    for end in ("/mask-key", "/revealed"):
        if told := [name for name in names if name.endswith(end)]:
            yield Attack(phase, f"all {end[1:]}: random bytes", _replaced(told, _random))
    if "sent" in names:
        yield Attack(phase, "sent: one bit", _replaced(["sent"], _flipped))
        yield Attack(phase, "sent: zeros", _replaced(["sent"], np.zeros_like))
    if "public-keys" in names:
        yield from _forged_keys(phase, honest)


def _forged_keys(phase: str, honest: RecordDict) -> Iterator[Attack]:
    """Public keys of X25519 and ML-KEM-768, one after the other, and their signatures."""

    def begins(key: bytes) -> Callable[[Any], Any]:
        return lambda array: np.concatenate([np.frombuffer(key, np.uint8), array[len(key) :]])

    for key in SMALL_ORDER:
        change = _replaced(["public-keys"], begins(key))
        yield Attack(phase, f"a key of small order, {key.hex()[:8]}…", change)
    beyond = _replaced(["public-keys"], lambda array: np.r_[array[:32], [255] * 1184].astype("u1"))
    yield Attack(phase, "a key that is none of ML-KEM-768", beyond)
    arrays = cast(ArrayRecord, honest["arrays"])
    if not arrays["signatures"].numpy().any():
        return  # owners without identities, who take any key
    for what, change in (("no signature", np.zeros_like), ("a random signature", _random)):
        yield Attack(phase, what, _replaced(["signatures"], change))
    fresh = _replaced(["public-keys"], begins(b"\x09" + bytes(31)))
    yield Attack(phase, "a key that its signature is not of", fresh)

    def earlier(content: RecordDict) -> RecordDict:
        for name in ("public-keys", "signatures"):
            cast(ArrayRecord, content["arrays"])[name] = arrays[name]
        return content

    yield Attack(phase, "key and signature of an earlier run", earlier)

    def of_a_stranger(content: RecordDict) -> RecordDict:
        found = cast(ArrayRecord, content["arrays"])
        text = found["public-keys"].numpy().tobytes()
        numbers = decode_dss_signature(_STRANGER.sign(text, ec.ECDSA(hashes.SHA384())))
        joined = b"".join(number.to_bytes(66, "big") for number in numbers)
        found["signatures"] = Array(np.frombuffer(joined, np.uint8))
        return content

    yield Attack(phase, "the signature of a stranger", of_a_stranger)


_STRANGER = ec.generate_private_key(ec.SECP384R1())


def _random(array: Any) -> Any:
    raw = np.random.default_rng(1).bytes(array.nbytes)
    return np.frombuffer(raw, array.dtype).reshape(array.shape)


def _flipped(array: Any) -> Any:
    """With one bit of the first number changed."""
    changed = array.copy()
    changed.flat[0] ^= changed.dtype.type(1)
    return changed


_WRONG_BYTES: dict[str, Callable[[Any], Any]] = {
    "random bytes": _random,
    "empty": lambda array: array[:0],
    "27 bytes": lambda array: array[:27],
    "a capsule alone": lambda array: array[:1088],
    "cut off": lambda array: array[:-1],
    "one bit": _flipped,
}


def _replaced(names: list[str], change: Callable[[Any], Any]) -> Content:
    def changed(content: RecordDict) -> RecordDict:
        arrays = cast(ArrayRecord, content["arrays"])
        for name in names:
            arrays[name] = Array(np.ascontiguousarray(change(arrays[name].numpy())))
        return content

    return changed


def _exchanged(names: list[str]) -> Content:
    """Each one under the name of the next."""

    def changed(content: RecordDict) -> RecordDict:
        arrays = cast(ArrayRecord, content["arrays"])
        found = [arrays[name] for name in names]
        for name, array in zip(names, found[1:] + found[:1], strict=True):
            arrays[name] = array
        return content

    return changed


def _header(kind: str, shape: tuple[int, ...]) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)}).encode()
    padded = text + b" " * (63 - (10 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


def _put(record: str, key: str, value: Any) -> Content:
    def change(content: RecordDict) -> RecordDict:
        cast(MetricRecord | ConfigRecord, content[record])[key] = value
        return content

    return change


def _without(record: str, key: str) -> Content:
    def change(content: RecordDict) -> RecordDict:
        del cast(MetricRecord | ConfigRecord, content[record])[key]
        return content

    return change


def _on_metric(record: str, key: str) -> Iterator[tuple[str, Content]]:
    put, without = partial(_put, record, key), _without(record, key)
    counts = key in ("num-examples", "steps", "normalizer") or key.startswith("num-")
    for value in (float("nan"), float("inf"), -float("inf"), 1e300, -1e300):
        yield f"{key}: {value}", put(value)
    if record == METRICS:
        for values in ([], [1.0, 2.0], [1] * 10**5):
            yield f"{key}: a list of {len(values)}", put(values)
        yield f"{key}: missing", without
    if record == DIAGNOSTICS and key != "process":
        yield f"{key}: missing", without
        yield f"{key}: a list", put([1.0])
    if counts:
        for value in (-1, HUGE, -HUGE, 10**13):
            yield f"{key}: {value}", put(value)
    if key == "num-examples":
        for value in (1.5, 10**9):
            yield f"{key}: {value}", put(value)


def _on_value(key: str, value: Any) -> Iterator[tuple[str, Content]]:
    put = partial(_put, CONFIG, key)
    yield f"{key}: missing", _without(CONFIG, key)
    others: dict[type, list[Any]] = {
        bool: [1, "yes", DEEP, [True], b"1"],
        int: [-1, HUGE, -HUGE, 1.5, "1", DEEP, [1], True, b"1", float("nan")],
        float: ["1.0", DEEP, [1.0], b"1"],
        str: [1, 1.5, ["x"], b"x", FORGED],
        list: ["x", 1, ["x"], [float("nan")], [float("inf")], [-1.0], [], [1.0] * 10**5],
    }
    for other in others.get(type(value), ()):
        text = repr(other)
        yield f"{key}: {text if len(text) < 40 else text[:20] + '…'}", put(other)
