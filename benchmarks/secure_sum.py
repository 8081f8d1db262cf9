"""Secure sums of clients' vectors: a client's time, the server's, bytes, and growth."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.flower_runs import run_ours
from benchmarks.inputs import mnist_like
from benchmarks.report import Bar, Outcome
from fedul_flwr.config.base import Scalar
from fedul_flwr.secure.identities import Purpose
from fedul_flwr.secure.session import FROM, TO, participants_message
from fedul_flwr.secure.sharing import degree
from fedul_flwr.secure.sum_client import begin_session, join_sum, mask_vector, offer_shares, unmask
from fedul_flwr.secure.sum_server import SumServer, apart_message

SIZES = ((10, 1_000_000), (50, 1_000_000), (100, 1_000_000))
GROWTH = ((50, 1000), (100, 1000), (200, 1000), (400, 1000), (1000, 1000))
QUICK_SIZES, QUICK_GROWTH = ((5, 1000),), ((5, 100), (10, 100))
QUESTION = b"m" * 32


def measure(quick: bool) -> Outcome:
    """All parties in one process, one after the other; a tenth drops out after its shares."""
    outcome = Outcome(
        "secure_sum: processor seconds, parties in one process, a tenth of the clients drops out",
        ("clients × values", "client, a run", "client, a round", "server", "bytes / plain"),
    )
    for clients, size in QUICK_SIZES if quick else SIZES:
        found = _round(outcome, clients, size)
        if clients == 100:
            outcome.bars.append(Bar("a client's round, 100 clients, s", found["client"], 0.5, " s"))
            outcome.bars.append(Bar("its bytes over plain float32", found["bytes"], 1.1))
    small = [_round(outcome, *size)["client"] for size in (QUICK_GROWTH if quick else GROWTH)]
    outcome.notes.append(
        f"from {(QUICK_GROWTH if quick else GROWTH)[0][0]} to "
        f"{(QUICK_GROWTH if quick else GROWTH)[-1][0]} clients a client's round takes "
        f"{small[-1] / small[0]:.1f} times as long"
    )
    outcome.notes.append("every sum was compared with that of the vectors, bit by bit")
    clients, rounds = (4, 2) if quick else (100, 3)
    whole = _whole_rounds(clients, rounds, quick)
    outcome.figures["round seconds"] = whole
    plain, summed = (median(whole[side]) for side in ("off", "on"))
    for side, seconds in whole.items():
        listed = ", ".join(f"{one:.1f}" for one in seconds)
        outcome.notes.append(f"secure-sum = {side!r}: seconds of rounds {listed}")
    outcome.bars.append(
        Bar(f"a round of FedUL, {clients} clients, over the plain round", summed / plain, 1.2)
    )
    return outcome


def _whole_rounds(clients: int, rounds: int, quick: bool) -> dict[str, list[float]]:
    """Seconds of rounds but the first on MNIST, 0.9 million weights, by ``secure-sum``.

    Runs of both kinds take turns, so that a machine that slows down slows both.
    """
    dataset = "digits" if quick else mnist_like()[0]
    options: dict[str, Scalar] = {
        **{"dataset": str(dataset), "model": "mlp" if quick else "cnn6-quarter"},
        **{"num-rounds": rounds, "evaluate-every": rounds, "selection": "last"},
        **{"points-per-client": 40 if quick else 480, "fedul.num-sets": 10},
    }
    seconds: dict[str, list[float]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        for turn in range(1 if quick else 2):
            for side, listed in seconds.items():
                output = Path(scratch) / f"{side}-{turn}"
                listed.extend(run_ours({**options, "secure-sum": side}, output, clients).seconds())
    return seconds


def _round(outcome: Outcome, clients: int, size: int) -> dict[str, float]:
    spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        spent[name] += time.process_time() - start

    everyone, purpose = range(clients), Purpose("sum", 1, 0, b"n" * 32)
    state: dict[int, Any] = {}
    keys, sealed, answers, masked = {}, {}, {}, {}
    with timed("run"):
        for client in everyone:
            state[client], keys[client] = begin_session(None, purpose, None)
        message = participants_message(keys, dict.fromkeys(everyone, 0))
        message |= apart_message(frozenset())
        for client in everyone:
            state[client], sealed[client] = join_sum(state[client], client, 1, message, None)
    number = state[0].member.session.number
    with timed("server"):
        server = SumServer(number, everyone, 1, everyone, pinned=False)
    terms = server.terms()
    for client in everyone:
        parts = {
            f"{FROM}{peer}": sealed[peer][f"{TO}{client}"]
            for peer in everyone
            if f"{TO}{client}" in sealed[peer]
        }
        with timed("client"):
            state[client], answers[client] = offer_shares(
                state[client], {**terms, **parts}, 1, QUESTION
            )
    with timed("server"):
        server.take_shares(answers)
    draw = np.random.default_rng(0)
    words = {client: draw.integers(0, 2**32, size, dtype=np.uint32) for client in everyone}
    left = [client for client in everyone if client % 10 or not client or clients < 10]
    for client in left:
        shares = server.shares_for(client)
        with timed("client"):
            state[client], masked[client] = mask_vector(
                state[client], shares, words[client], QUESTION
            )
    opened = {}
    with timed("server"):
        server.take_vectors(masked)
    for client in left:
        with timed("client"):
            state[client], opened[client] = unmask(state[client], server.list_message(), None)
    with timed("server"):
        result, _ = server.open_sum(opened)
    expected = np.zeros(size, np.uint32)
    for client in left:
        expected += words[client]
    assert (result.words == expected).all()
    sent = sum(
        array.nbytes
        for client in left
        for array in (*answers[client].values(), masked[client], *opened[client].values())
    )
    figures = {
        "run": spent["run"] / clients,
        "client": spent["client"] / clients,
        "server": spent["server"],
        "bytes": sent / (4 * size * len(left)),
    }
    title = f"{clients} × {size:,} ({degree(clients, False)} neighbors)"
    outcome.rows.append(
        (
            title,
            *(f"{figures[name]:.3f}" for name in ("run", "client", "server")),
            f"{figures['bytes']:.3f}",
        )
    )
    outcome.figures[title] = figures
    return figures
