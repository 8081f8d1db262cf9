"""Encrypted XCLP: comparisons by every backend, masked sums, and the extra cost of a round."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.figures import Growth
from benchmarks.propagation import GIBIBYTE, peak_memory, seconds
from benchmarks.report import Bar, Outcome
from fedul_flwr.arrays import Bytes
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import resolve
from fedul_flwr.engine.in_process import run_in_process
from fedul_flwr.propagation.codes import hamming
from fedul_flwr.secure import session as channels
from fedul_flwr.secure.encrypted_distances import backend_of, hamming_protocol
from fedul_flwr.secure.hamming.pairwise import Party, StepResult
from fedul_flwr.secure.rowsums import open_rows, pair_masks, split_share, sum_shares
from fedul_flwr.secure.similarity import Arrays, Task

MEGABYTE = 1e6
BITS = (1024, 2048, 4096)
GROUPS = {"rlwe": [(5, 500, 4096), *((3, 100, bits) for bits in BITS)]}
PAIRS = {"ot": (100, 1024), "paillier": (20, 256)}
QUICK_GROUPS, QUICK_PAIRS = {"rlwe": [(3, 20, 128)]}, {"ot": (20, 64)}
QUICK_ROUND = {"model": "mlp", "local-epochs": 1, "points-per-client": 40, "xclp.num-bits": 128}
LIMITS = {
    ("rlwe", 5, 500, 4096): {"s": 40, "MB": 350, "GiB": 1},
    ("rlwe", 3, 100, 1024): {"s": 4},
    ("ot", 2, 100, 1024): {"s": 3, "MB": 25},
    ("paillier", 2, 20, 256): {"s": 60},
}
UNITS = {"s": "time", "MB": "sent by clients", "GiB": "peak memory"}


def measure(quick: bool) -> Outcome:
    """Each comparison in a new process, with all its clients and the server one after the other."""
    outcome = Outcome(
        "secure: clients × points × bits, all parties in one process",
        ("comparison", "seconds", "MB sent", "peak GiB"),
    )
    groups, pairs = (QUICK_GROUPS, QUICK_PAIRS) if quick else (GROUPS, PAIRS)
    jobs = [(name, *size) for name, sizes in groups.items() for size in sizes]
    for job in jobs + [(name, 2, *size) for name, size in pairs.items()]:
        _compare(outcome, *job)
    _growth(outcome, [size for size in groups["rlwe"] if size[0] == 3])
    _sums(outcome, 3 if quick else 15)
    _round(outcome, 1 if quick else 8, QUICK_ROUND if quick else {})
    outcome.notes.append("distances were checked against those of the codes themselves")
    return outcome


def _compare(outcome: Outcome, name: str, clients: int, points: int, num_bits: int) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.secure", name, *map(str, (clients, points, num_bits))],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(answer.stdout)
    title = f"{name} {clients} × {points} × {num_bits:,}"
    values = {"s": found["seconds"], "MB": found["sent"] / MEGABYTE}
    values["GiB"] = found["peak"] / GIBIBYTE
    outcome.rows.append((title, *(f"{value:.2f}" for value in values.values())))
    for unit, limit in LIMITS.get((name, clients, points, num_bits), {}).items():
        outcome.bars.append(Bar(f"{title}, {UNITS[unit]}", values[unit], limit, f" {unit}"))
    outcome.figures[title] = found


def _growth(outcome: Outcome, sizes: list[tuple[int, int, int]]) -> None:
    """Cost of a comparison over the length of codes, encrypted and unencrypted."""
    found = {bits: outcome.figures[f"rlwe {c} × {n} × {bits:,}"] for c, n, bits in sizes}
    clear = []
    for clients, points, bits in sizes:
        codes = np.concatenate(_codes(clients, points, bits))
        hamming(codes, codes)  # compiles
        taken = [seconds(lambda codes=codes: hamming(codes, codes)) for _ in range(5)]
        clear.append((bits, median(taken)))
    outcome.figures["in the clear"] = clear
    clients, points, _ = sizes[0]
    outcome.plots.append(
        Growth(
            "bits",
            f"Comparing the codes of {clients} clients of {points} points",
            "bits of a code",
            {
                "seconds": {
                    "rlwe, all parties": [(bits, one["seconds"]) for bits, one in found.items()],
                    "distances in the clear": clear,
                },
                "megabytes sent by clients": {
                    "rlwe, all parties": [(b, one["sent"] / MEGABYTE) for b, one in found.items()]
                },
            },
        )
    )


def _sums(outcome: Outcome, turns: int) -> None:
    """2,500 rows, 500 of each of 5 clients, of 10 classes: shares, their sum, and final rows."""
    rng = np.random.default_rng(0)
    parts = [rng.random((2500, 10)) for _ in range(5)]
    sizes = dict.fromkeys(range(5), 500)
    keys = {(i, j): os.urandom(32) for i in range(5) for j in range(i + 1, 5)}
    sent: dict[int, Any] = {}

    def add_up() -> None:
        kept = {}
        for client, part in enumerate(parts):
            shared = {j: keys[min(client, j), max(client, j)] for j in range(5) if j != client}
            mask = pair_masks(shared, client, part.shape)
            own = slice(500 * client, 500 * (client + 1))
            sent[client], kept[client] = split_share(part, own, 5, mask)
        rows = sum_shares(sent, sizes)
        for client in range(5):
            found = open_rows(kept[client], rows[client])
            expected = sum(parts)[500 * client : 500 * (client + 1)]
            assert np.abs(found - expected).max() < 1e-9

    taken = [seconds(add_up) for _ in range(turns)]
    ratio = sum(words.nbytes for words in sent.values()) / sum(part.nbytes for part in parts)
    what = "row sums 2,500 × 10, 5 clients"
    outcome.bars.append(Bar(f"{what}, all of it", 1000 * median(taken), 50, " ms"))
    outcome.bars.append(Bar(f"{what}, bytes / float64 in the clear", ratio, 1.2, "×"))
    outcome.figures[what] = {"seconds": taken, "bytes": ratio}


def _round(outcome: Outcome, rounds: int, changed: Mapping[str, Scalar]) -> None:
    """FedAvg+XCLP on digits with 5 clients in one process; settings but ``changed`` are default."""
    taken = {name: _round_seconds(name, rounds, changed) for name in ("plaintext", "rlwe")}
    ratio = median(taken["rlwe"]) / median(taken["plaintext"])
    figures = " and ".join(f"{median(times):.2f} s ({name})" for name, times in taken.items())
    outcome.notes.append(f"a FedAvg+XCLP round on digits: {figures}")
    outcome.bars.append(Bar("secure round / plaintext round", ratio, 3, "×"))
    outcome.figures["rounds"] = taken


def _round_seconds(secure: str, rounds: int, changed: Mapping[str, Scalar]) -> list[float]:
    """Seconds of every round but the first, in which loops are compiled."""
    with tempfile.TemporaryDirectory() as directory:
        flat = {"method": "xclp", "num-rounds": rounds + 1, "output": f"{directory}/run"}
        flat |= {"semi.labels-only-rounds": 0, "xclp.secure": secure, **changed}
        settings = resolve(flat, Path(directory))
        run_in_process(settings, 5)
        lines = (Path(directory) / "run" / "metrics.jsonl").read_text().splitlines()
    return [float(json.loads(line)["seconds"]) for line in lines][1:]


# In a new process


def compare_group(name: str, clients: int, points: int, num_bits: int) -> dict[str, Any]:
    """A comparison among all clients: keys, seed, codes and distances."""
    backend, codes = backend_of(name), _codes(clients, points, num_bits)
    server = backend.server(range(clients), num_bits, bytes(32))
    memory: list[Arrays] = [{} for _ in codes]
    sent = 0
    start = time.perf_counter()
    while messages := server.ask():
        answers: dict[int, Arrays] = {}
        for client in list(messages):
            task = Task(
                client=client,
                server_round=1,
                num_points=points,
                num_bits=num_bits,
                min_labeled_clients=1,
                seed_is_public=True,
                run_seed=b"",
                encode=lambda _, own=codes[client]: own,
            )
            memory[client], answers[client] = backend.respond(
                memory[client], messages[client], task
            )
            sent += _size(answers[client])
        server.take(answers)
        del messages, answers
    found = server.distances()
    taken = time.perf_counter() - start
    peak = peak_memory()
    assert np.array_equal(found, hamming(np.concatenate(codes), np.concatenate(codes)))
    return {"seconds": taken, "sent": sent, "peak": peak}


def compare_pair(name: str, points: int, num_bits: int) -> dict[str, Any]:
    """A comparison of an owner and an evaluator with existing keys, all messages encrypted."""
    protocol, codes = hamming_protocol(name), _codes(2, points, num_bits)
    sizes = {0: points, 1: points}
    parties = [
        Party(0, (1,), (), sizes, num_bits, bytes(32)),
        Party(1, (), (0,), sizes, num_bits, bytes(32)),
    ]
    key, sent = os.urandom(32), 0
    told: list[dict[str, Any]] = [{}, {}]
    inbox: list[Mapping[int, Arrays]] = [{}, {}]
    start = time.perf_counter()
    turns = [protocol.prepare(party) for party in parties]
    for step in (None, protocol.offer, protocol.answer, protocol.reveal):
        if step is not None:
            turns = [step(parties[i], turns[i].state, codes[i], inbox[i]) for i in range(2)]
        for client, result in enumerate(turns):
            place = channels.Address(bytes(32), 0, "step", client, 1 - client)
            sealed = channels.seal(_to_other(result, client), key, place, os.urandom)
            told[client] |= result.to_server.get(1 - client, {})
            sent += sealed.nbytes + _size(result.to_server.get(1 - client, {}))
            inbox[1 - client] = {client: channels.unseal(sealed, key, place)}
    found = protocol.distances((points, points), num_bits, told[0], told[1])
    taken = time.perf_counter() - start
    peak = peak_memory()
    assert np.array_equal(found, hamming(codes[0], codes[1]))
    return {"seconds": taken, "sent": sent, "peak": peak}


def _to_other(result: StepResult, client: int) -> Arrays:
    shared = result.to_evaluators if client == 0 else result.to_owners
    return {**shared, **result.to_peers.get(1 - client, {})}


def _codes(clients: int, points: int, num_bits: int) -> list[Bytes]:
    rng = np.random.default_rng(0)
    shape = (clients, points, num_bits // 8)
    return list(rng.integers(0, 256, shape, dtype=np.uint8))


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def against(checkout: Path, turns: int) -> Iterator[str]:
    """Processor time and bytes of ``rlwe`` here and in another checkout, by turns: a table's lines.

    Processor time of a whole program, with its imports, says more than seconds where others use
    the machine, too.
    """
    places = {"there": checkout, "here": Path(__file__).parents[1]}
    names = f"{checkout.name} | here | ratio"
    yield f"| clients × points × bits | seconds: {names} | MB: {names} |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for size in sorted(GROUPS["rlwe"]):
        command = [sys.executable, "-m", "benchmarks.secure", "rlwe", *map(str, size)]
        taken: dict[str, list[float]] = {name: [] for name in places}
        sent: dict[str, float] = {}
        for _ in range(turns):
            for name, place in places.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                done = subprocess.run(
                    command, cwd=place, stdout=subprocess.PIPE, text=True, check=True
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                taken[name].append(used)
                sent[name] = json.loads(done.stdout)["sent"] / MEGABYTE
        seconds_of = {name: median(values) for name, values in taken.items()}
        cells = [
            *(f"{seconds_of[name]:.2f}" for name in places),
            f"{seconds_of['here'] / seconds_of['there']:.2f}",
            *(f"{sent[name]:.2f}" for name in places),
            f"{sent['here'] / sent['there']:.2f}",
        ]
        yield f"| {' × '.join(f'{n:,}' for n in size)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1] == "against":  # python -m benchmarks.secure against CHECKOUT [TURNS]
        for line in against(Path(sys.argv[2]).resolve(), int((*sys.argv, "3")[3])):
            print(line, flush=True)
        raise SystemExit
    name, (clients, points, num_bits) = sys.argv[1], map(int, sys.argv[2:])
    if clients == 2:
        print(json.dumps(compare_pair(name, points, num_bits)))
    else:
        print(json.dumps(compare_group(name, clients, points, num_bits)))
