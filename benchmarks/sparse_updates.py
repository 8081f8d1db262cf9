"""Sparse updates: speed of both ends and size of the message, by fraction of changed values."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from flwr.app import RecordDict

from benchmarks.report import Bar, Outcome
from fedul_flwr.arrays import Arrays
from fedul_flwr.federated.messages import payload_bytes, to_record
from fedul_flwr.strategies.fedmatch_parts import decode, encode

SHARES = (0, 0.01, 0.1, 0.5, 1)
THRESHOLD = 5e-5
LIMIT = 200.0
CHANNELS = (3, 64, 128, 128, 128, 256, 512, 512, 512)
"""Channels of the 3 × 3 convolutions of ResNet-9."""


def measure(quick: bool) -> Outcome:
    """A float32 model with the arrays of ResNet-9; one thread."""
    turns = 3 if quick else 15
    held = _model()
    size = sum(array.nbytes for array in held.values())
    outcome = Outcome(
        f"sparse_updates: {size / 1e6:.1f} MB in {len(held)} arrays, threshold {THRESHOLD:g}",
        ("changed", "encode MB/s", "decode MB/s", "payload"),
    )
    speeds: dict[str, list[float]] = {"encode": [], "decode": []}
    for share in SHARES:
        new = _moved(held, share)
        update = encode(new, held, THRESHOLD)
        taken = {
            "encode": _seconds(lambda new=new: encode(new, held, THRESHOLD), turns),
            "decode": _seconds(lambda record=update.record: decode(record, held), turns),
        }
        for way, values in taken.items():
            speeds[way].append(size / 1e6 / median(values))
        payload = payload_bytes(RecordDict({"sigma": to_record(update.record)})) / size
        cells = (f"{100 * share:g} %", *(f"{speed[-1]:,.0f}" for speed in speeds.values()))
        outcome.rows.append((*cells, f"{100 * payload:.2f} %"))
        outcome.figures[f"{100 * share:g} %"] = {**taken, "payload": payload}
    for way, found in speeds.items():
        outcome.bars.append(Bar(f"{way}, slowest row", min(found), LIMIT, " MB/s", True))
    outcome.notes.append("MB/s of the dense model, median; payload: message / dense model")
    return outcome


def _model() -> Arrays:
    rng = np.random.default_rng(0)
    shapes = [(out, inputs, 3, 3) for inputs, out in pairwise(CHANNELS)]
    return {
        f"layer{position}.weight": rng.normal(0, 0.05, shape).astype(np.float32)
        for position, shape in enumerate([*shapes, (10, CHANNELS[-1])])
    }


def _moved(held: Arrays, share: float) -> Arrays:
    """The model with a random fraction of its values changed by more than the threshold."""
    rng = np.random.default_rng(1)
    steps = {name: np.float32(0.01) * (rng.random(a.shape) < share) for name, a in held.items()}
    return {name: array + steps[name] for name, array in held.items()}


def _seconds(function: Callable[[], Any], turns: int) -> list[float]:
    """Seconds of every turn, after one to warm up."""
    taken = []
    for _ in range(turns + 1):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return taken[1:]
