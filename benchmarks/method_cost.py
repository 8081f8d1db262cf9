"""Seconds of an epoch at a client and forward operations, by method (table D.8)."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from flwr.common import NDArrays
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.clients import fresh_weights, prepared_clients
from benchmarks.inputs import mnist_like
from benchmarks.report import Outcome
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.models import build_model
from fedul_flwr.run.server_data import open_server_data

CLIENTS, ROUND = 5, 50
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg, all labels": {"method": "supervised"},
    "FedUL": {"method": "fedul"},
    "FedUL, FedProx": {"method": "fedul", "base": "fedprox"},
    "FedUL, consistency": {"method": "fedul-consistency"},
    "FedPL": {"method": "fedpl"},
    "FedLLP": {"method": "fedllp"},
    "FedLLP-VAT": {"method": "fedllp-vat"},
}
"""Round 50: after every warm-up and ramp-up."""


def measure(quick: bool) -> Outcome:
    """Methods in turns, several times, so that other load on the machine affects all equally."""
    model, points, turns = ("cnn6-quarter", 100, 1) if quick else ("cnn6", 2000, 2)
    folder, name = mnist_like()
    with tempfile.TemporaryDirectory() as place:
        shared = {
            **{"dataset": str(folder), "model": model, "partition": "majority"},
            **{"points-per-client": points, "local-epochs": 1},
            **{"batch-size": 128, "learning-rate": 1e-3, "l1": 1e-5, "augment": "rotate"},
        }
        settings = {
            label: resolve({**shared, **own, "output": f"{place}/{index}"}, Path(place))
            for index, (label, own) in enumerate(METHODS.items())
        }
        clients = {k: prepared_clients(config, CLIENTS)[0] for k, config in settings.items()}
        # A model that is confident about some points, which FedPL mixes with the others.
        start = fresh_weights(settings["FedUL"])
        start, _ = _epoch(clients["FedAvg, all labels"], start)
        seconds: dict[str, list[float]] = {label: [] for label in clients}
        for turn in range(turns + 1):
            for label, client in clients.items():
                _, taken = _epoch(client, start)
                if turn:  # the first warms up
                    seconds[label].append(taken)
        forward = _forward_operations(settings["FedUL"])
    outcome = Outcome(
        f"method_cost: an epoch of one of {CLIENTS} clients, {points} points, {model}, batch 128 "
        f"(FedLLP: a set), 1 thread, {name}",
        ("method", "seconds", "over FedAvg", "forward Mops"),
    )
    plain = median(seconds["FedAvg, all labels"])
    # The paper counts the transition as a linear layer from K classes to M sets with a bias.
    transition = 10 * (10 + 1)
    for label, values in seconds.items():
        own = forward + (transition if label.startswith("FedUL") else 0)
        middle = median(values)
        outcome.rows.append((label, f"{middle:.2f}", f"{middle / plain:.2f}", f"{own / 1e6:.6f}"))
    outcome.notes.append(
        "forward Mops: multiplications with additions for one image; the transition adds "
        f"M·(K + 1) = {transition}"
    )
    outcome.figures.update(seconds=seconds, forward=forward, transition=transition)
    return outcome


def _epoch(client: MethodClient, start: NDArrays) -> tuple[NDArrays, float]:
    """The model after one epoch from ``start``, and its seconds."""
    parameters = [array.copy() for array in start]
    began = time.perf_counter()
    config = {"server-round": ROUND, "proximal-mu": _proximal_mu(client.settings)}
    trained, _, _ = client.fit(parameters, config)
    taken = time.perf_counter() - began
    return [array.copy() for array in trained], taken


def _proximal_mu(settings: RunConfig) -> float:
    return float(settings.to_flat().get("fedprox.proximal-mu", 0.0))


def _forward_operations(settings: RunConfig) -> int:
    """Multiplications with additions of the model on one image."""
    shape = open_server_data(settings).shape
    height, width, channels = shape.input_shape
    model = build_model(settings.model, shape.input_shape, len(shape.class_names)).eval()
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.zeros(1, channels, height, width))
    return counter.get_total_flops() // 2
