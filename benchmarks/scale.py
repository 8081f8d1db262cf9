"""Costs of rounds of 10^3 to 10^6 clients, by method: formulas with measured unit costs.

``python -m benchmarks.scale`` prints the table of docs/scale.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.report import Outcome
from benchmarks.scale_costs import Group, sparse_bytes
from benchmarks.scale_units import MEGABYTE, units
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model
from fedul_flwr.propagation.solve import NUM_NEIGHBORS
from fedul_flwr.secure.encrypted_distances import backend_of
from fedul_flwr.strategies.fedmatch_parts import HEADER

COUNTS = (100, 1_000, 10_000, 100_000, 1_000_000)
"""Clients in a round."""
LABELED, UNLABELED, NUM_BITS, NUM_CLASSES, HELPERS, GROUP = 10, 90, 4096, 10, 2, 20
SMALLER = 1024
"""Number of bits in encrypted comparisons."""
POINTS = LABELED + UNLABELED

Formula = Callable[[int], float]
Costs = dict[str, tuple[Formula, str]]
"""By quantity: a formula of the clients in a round, and its kind: number, bytes or seconds."""


def measure(quick: bool) -> Outcome:
    """One row for each method and quantity."""
    found = units(quick)
    model = model_bytes()
    outcome = Outcome(
        f"scale: ResNet-9 ({model / MEGABYTE:.1f} MB), {LABELED} labeled and {UNLABELED} "
        f"unlabeled points a client, {NUM_BITS:,} bits ({SMALLER:,} in secret)",
        ("clients in a round", "quantity", *(f"{count:,}" for count in COUNTS)),
    )
    for method, costs in methods(found, model).items():
        for quantity, (formula, kind) in costs.items():
            cells = (readable(formula(count), kind) for count in COUNTS)
            outcome.rows.append((method, quantity, *cells))
    outcome.figures = {"units": found, "model_bytes": model}
    outcome.notes.append("processor time of the server alone, one core's")
    return outcome


def model_bytes() -> int:
    """B: ResNet-9 for images of 32 x 32 x 3, as a message's payload."""
    arrays = dump_arrays(build_model("resnet9", (32, 32, 3), NUM_CLASSES))
    return sum(array.nbytes + HEADER for array in arrays.values())


def methods(found: dict[str, dict[str, float]], model: int) -> dict[str, Costs]:
    """Formulas by method, for S clients of a round, with the measured unit costs."""
    clients, combining = found["membership"], found["aggregation"]
    megabytes = model / MEGABYTE

    def mean(base: str, models: int = 1) -> Formula:
        per_reply = models * megabytes * (combining["check"] + combining[base])
        return lambda count: count * (clients["reply"] + per_reply)

    parts = sparse_bytes(2, model)
    matching = mean("fedavg", 2)
    coding = megabytes * ((2 + HELPERS) * combining["encode"] + 4 * combining["decode"])
    return {
        "once, before round 1 (C clients)": {
            "exchanges": (lambda count: 1 + count, "number"),
            "bytes to clients": (lambda count: count * clients["prepare_down"], "bytes"),
            "federation.json": (lambda count: count * clients["described"], "bytes"),
            "processor": (lambda count: count * clients["once"], "seconds"),
        },
        "a model each way": {
            "exchanges": (lambda count: count, "number"),
            "bytes either way": (lambda count: count * model, "bytes"),
            "replies on disk": (lambda count: count * model, "bytes"),
            "processor": (mean("fedavg"), "seconds"),
        },
        "the same on fedmedian": {"processor": (mean("fedmedian"), "seconds")},
        "the same on krum": {
            "processor": (lambda count: count**2 * megabytes * combining["krum"], "seconds")
        },
        "held-out losses (E clients)": {"bytes to clients": (lambda count: count * model, "bytes")},
        "scaffold": {
            "bytes either way": (lambda count: 2 * count * model, "bytes"),
            "processor": (mean("fedavg", 2), "seconds"),
        },
        "fedmatch": {
            "bytes to clients, at most": (
                lambda count: count * (parts + sparse_bytes(HELPERS, model)),
                "bytes",
            ),
            "bytes from clients, at most": (lambda count: count * parts, "bytes"),
            "disk (C clients)": (lambda count: 2 * count * model, "bytes"),
            "processor": (lambda count: matching(count) + count * coding, "seconds"),
        },
        "xclp, plaintext": propagation(found["propagation"], model),
        **{f"compared in secret, {name}": secret(name) for name in ("rlwe", "ot", "paillier")},
        f"the same in groups of {GROUP}, rlwe": secret("rlwe", GROUP),
    }


def propagation(unit: dict[str, float], model: int) -> Costs:
    """One propagation among all S clients; memory of codes and columns at the server."""

    def group(count: int) -> Group:
        return Group((LABELED,) * count, (UNLABELED,) * count, NUM_BITS, NUM_CLASSES)

    def processor(count: int) -> float:
        points, labeled = count * POINTS, count * LABELED
        return points**2 / 2 * unit["pair"] + points * labeled * unit["column"]

    def memory(count: int) -> float:
        points, labeled = count * POINTS, count * LABELED
        return points * (2 * NUM_BITS / 8 + 8 * NUM_NEIGHBORS) + 12 * points * labeled

    return {
        "exchanges": (lambda count: 3 * count, "number"),
        "bytes to clients": (
            lambda count: sum(group(count).down(model).values()) + count * model,
            "bytes",
        ),
        "bytes from clients": (
            lambda count: sum(group(count).up().values()) + count * model,
            "bytes",
        ),
        "memory of the graph": (memory, "bytes"),
        "processor": (processor, "seconds"),
    }


def secret(name: str, group: int = 0) -> Costs:
    """Comparisons by the backend's estimate, among all S clients or in groups of ``group``."""
    backend = backend_of(name)

    def members(count: int) -> int:
        return group or count

    def cost(count: int, place: int) -> float:
        # Pairs of clients of the same size have the same cost, plus messages to all at once. So
        # the cost is a polynomial of degree 2, which three numbers of clients determine.
        counts = (4, 8, 16)
        values = [backend.cost([POINTS] * some, SMALLER)[place] for some in counts]
        return count // members(count) * parabola(counts, values, members(count))

    shares = Group((LABELED,), (UNLABELED,), SMALLER, NUM_CLASSES)
    per_row = 8 * shares.num_classes

    def summed(count: int) -> float:
        size = members(count)
        return count // size * per_row * (size - 1) * size * (UNLABELED + 1)

    return {
        "exchanges": (lambda count: 6 * count, "number"),
        "bytes from clients": (lambda count: cost(count, 1), "bytes"),
        "of the sum of labels": (summed, "bytes"),
        "distances at the server": (lambda count: 2 * (members(count) * POINTS) ** 2, "bytes"),
        "clients' time, two cores": (lambda count: cost(count, 0), "seconds"),
    }


def parabola(places: tuple[int, int, int], values: list[float], at: int) -> float:
    """Value at ``at`` of the polynomial of degree 2 through three points (Lagrange)."""
    total = 0.0
    for place, value in zip(places, values, strict=True):
        others = [other for other in places if other != place]
        total += value * math.prod((at - other) / (place - other) for other in others)
    return total


def readable(value: float, kind: str) -> str:
    """Three digits with a unit; 1 kB is 1,000 bytes."""
    steps: dict[str, tuple[tuple[float, str], ...]] = {
        "number": ((1, ""),),
        "bytes": tuple((1000**power, f" {name}B") for power, name in enumerate(("k", *"MGTPE"), 1)),
        "seconds": ((1e-3, " ms"), (1, " s"), (60, " min"), (3600, " h"), (86_400, " days")),
    }
    size, unit = max((step for step in steps[kind] if step[0] <= value), default=steps[kind][0])
    scaled = value / size
    digits = 0 if kind == "number" or scaled >= 99.5 else 1 if scaled >= 9.95 else 2
    return f"{scaled:,.{digits}f}{unit}"


if __name__ == "__main__":
    outcome = measure(quick=False)
    for row in (outcome.columns, ["---"] * len(outcome.columns), *outcome.rows):
        print("| " + " | ".join(row) + " |")
    print(outcome.figures)
