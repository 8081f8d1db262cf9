"""All that a server says on which an owner's answer in a secure sum depends, as one digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.trusted_modules import named_modules
from fedul_flwr.data.types import Value
from fedul_flwr.federated.messages import ARRAYS, FORGETFUL, SETTINGS
from fedul_flwr.learning.variates import USED_ROUND


@dataclass(frozen=True)
class Asked:
    """What came with a request for numbers: they are computed from nothing else of the server's.

    Attributes
    ----------
    alone : records for this client alone, which others have put under masks for it.
    """

    records: Mapping[str, Arrays]
    values: Mapping[str, Any]
    alone: frozenset[str] = field(default=frozenset())

    @cached_property
    def digest(self) -> bytes:
        """32 bytes of all that every client of the sum gets alike."""
        apart = {ARRAYS, *self.alone}
        records = {name: arrays for name, arrays in self.records.items() if name not in apart}
        values = {key: value for key, value in self.values.items() if key != USED_ROUND}
        together = b"fedul-flwr asked 1" + self.model + _digest(records) + _text(values)
        return hashlib.sha256(together).digest()

    @cached_property
    def model(self) -> bytes:
        """32 bytes of the model alone."""
        return _digest({ARRAYS: self.records.get(ARRAYS, {})})


def _digest(records: Mapping[str, Arrays]) -> bytes:
    sha = hashlib.sha256(b"fedul-flwr arrays 1")
    for record in sorted(records):
        for name in sorted(records[record]):
            array = records[record][name]
            sha.update(repr((record, name, array.dtype.str, array.shape)).encode())
            sha.update(np.ascontiguousarray(array).data)
    return sha.digest()


def _text(values: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(values), sort_keys=True, default=bytes.hex).encode()


def question(
    run: int,
    setup: Mapping[str, Value],
    of: str,
    server_round: int,
    largest: float,
    asked: bytes,
) -> bytes:
    """32 bytes of all that a client's numbers in a sum are computed from, but its own."""
    common = {key: value for key, value in setup.items() if key != FORGETFUL}
    named = named_modules(json.loads(str(setup.get(SETTINGS, "{}"))))
    code = code_digest(*(name.partition(":")[0] for name in named))
    fields = {"run": run, "setup": common, "of": of, "round": server_round, "largest": largest}
    fields |= {"asked": asked, "code": code}
    return hashlib.sha256(b"fedul-flwr question 1" + _text(fields)).digest()


def _source(module: str) -> Path | None:
    """The file of a module; ``None`` of one that was made in memory."""
    try:
        spec = find_spec(module)
    except ValueError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


@cache
def code_digest(*modules: str) -> str:
    """SHA-256 of this program's sources, and of ``modules`` of somebody's own."""
    root = Path(__file__).parents[1]
    files = sorted(
        Path(folder, name)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.endswith(".py")
    )
    files += [file for name in modules if (file := _source(name)) is not None]
    sha = hashlib.sha256()
    for file in files:
        name = file.relative_to(root) if file.is_relative_to(root) else file.name
        sha.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return sha.hexdigest()
