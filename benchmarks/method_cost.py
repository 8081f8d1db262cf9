"""Seconds of an epoch at a client and operations of a forward pass, by method (table D.8)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from flwr.common import NDArrays
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.clients import fresh_weights, prepared_clients
from benchmarks.inputs import EXPERIMENTS, mnist_like
from benchmarks.report import Outcome
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.types import InputShape, network_shape
from fedul_flwr.experiments.table import read_table
from fedul_flwr.federated.client import Client
from fedul_flwr.models import build_model

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


SPLITS: dict[str, dict[str, Any]] = {
    "Non-IID": {"partition": "majority"},
    "IID": {"partition": "iid", "fedul.shared-prior-draws": CLIENTS},
}
NETWORKS: dict[str, tuple[str, InputShape, int, int]] = {
    "MNIST": ("cnn6", (28, 28, 1), 10, 10),
    "CIFAR-10": ("resnet18-fedul", (32, 32, 3), 10, 10),
    "hospitals": ("resnet18-fedul", (224, 224, 3), 6, 12),
}
"""Model, shape of an image, classes K and sets M of the data sets in table D.8."""


def measure(quick: bool) -> Outcome:
    """All of table D.8: seconds on MNIST are measured, the others follow from operations.

    Methods take turns, several times, so that other load on the machine affects all equally.
    """
    model, points, turns = ("cnn6-quarter", 100, 1) if quick else ("cnn6", 2000, 2)
    folder, name = mnist_like()
    seconds = {split: _seconds(folder, split, model, points, turns) for split in SPLITS}
    forward = {
        data: forward_operations(build_model(*of_data[:3]).eval(), of_data[1])
        for data, of_data in NETWORKS.items()
    }
    measured = forward_operations(build_model(model, (28, 28, 1), 10).eval(), (28, 28, 1))
    paper = read_table(EXPERIMENTS, "fedul/table-d8").figure
    outcome = Outcome(
        f"method_cost: table D.8, an epoch of one of {CLIENTS} clients; {points} points of {name}, "
        f"{model}, batch 128 (FedLLP: a set), 1 thread",
        ("column", "method", "s / 1,000 points", "over FedAvg", "Gops", "its s", "its Gops"),
    )
    for data, split in ((d, s) for d in NETWORKS for s in SPLITS if (d, s) != ("hospitals", "IID")):
        column = f"{data} {split}"
        _, _, classes, sets = NETWORKS[data]
        plain = median(seconds[split]["FedAvg, all labels"])
        for label, values in seconds[split].items():
            middle = median(values)
            scaled = 1000 / points * middle
            if data != "MNIST":
                scaled *= forward[data] / measured
            # The paper counts the transition as a linear layer, with a bias, from K classes to M
            # sets.
            transition = sets * (classes + 1) if label.startswith("FedUL") else 0
            outcome.rows.append(
                (
                    column,
                    label,
                    f"{'' if data == 'MNIST' else '~'}{scaled:.2f}",
                    f"{middle / plain:.2f}",
                    f"{(forward[data] + transition) / 1e9:.9f}",
                    _shown(paper("epoch-seconds", column, label)),
                    _shown(paper("gflops", column, label)),
                )
            )
    outcome.notes += [
        "Gops: billion operations of a forward pass of one image, counted as in the paper; the "
        "transition adds M (K + 1). The paper's MNIST has three equal channels, ours one.",
        "~: not measured; the seconds of MNIST times the operations of an image over MNIST's.",
        "its: the paper's, of a whole client's epoch on a TITAN X.",
    ]
    outcome.figures.update(seconds=seconds, forward=forward)
    return outcome


def _shown(figures: Sequence[float | None]) -> str:
    """The paper's mean; empty without one."""
    return "" if figures[0] is None else f"{figures[0]:.10g}"


def _seconds(
    folder: Path, split: str, model: str, points: int, turns: int
) -> dict[str, list[float]]:
    """Seconds of an epoch of each method, one of each turn."""
    with tempfile.TemporaryDirectory() as place:
        shared = {
            **{"dataset": str(folder), "model": model, "points-per-client": points},
            **{"local-epochs": 1, "batch-size": 128, "learning-rate": 1e-3, "l1": 1e-5},
            **{"augment": "rotate", "partition": SPLITS[split]["partition"]},
        }
        settings = {
            label: resolve(
                {
                    **shared,
                    **({} if own["method"] == "supervised" else SPLITS[split]),
                    **own,
                    "output": f"{place}/{index}",
                },
                Path(place),
            )
            for index, (label, own) in enumerate(METHODS.items())
        }
        clients = {k: prepared_clients(config, CLIENTS)[0] for k, config in settings.items()}
        # A model that is confident about some points, which FedPL mixes with the others.
        start, _ = _epoch(clients["FedAvg, all labels"], fresh_weights(settings["FedUL"]))
        seconds: dict[str, list[float]] = {label: [] for label in clients}
        for turn in range(turns + 1):
            for label, client in clients.items():
                _, taken = _epoch(client, start)
                if turn:  # the first warms up
                    seconds[label].append(taken)
    return seconds


def _epoch(client: Client, start: NDArrays) -> tuple[NDArrays, float]:
    """The model after one epoch from ``start``, and its seconds."""
    parameters = {
        name: array.copy() for name, array in zip(client.array_names(), start, strict=True)
    }
    began = time.perf_counter()
    config = {"server-round": ROUND, "proximal-mu": _proximal_mu(client.settings)}
    trained = client.train(parameters, config)["arrays"].values()
    taken = time.perf_counter() - began
    return [array.copy() for array in trained], taken


def _proximal_mu(settings: RunConfig) -> float:
    return float(settings.to_flat().get("fedprox.proximal-mu", 0.0))


def forward_operations(model: nn.Module, shape: InputShape) -> int:
    """Operations of ``model``, in evaluation mode, on one image, counted as in table D.8.

    A multiplication with an addition is one; a value that batch norm makes is five, and one that an
    average pool reads is one.
    """
    others = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal others
        is_norm = isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)
        others += 5 * output.numel() if is_norm else inputs[0].numel()

    counted = (nn.BatchNorm1d, nn.BatchNorm2d, nn.AdaptiveAvgPool2d)
    hooks = [
        layer.register_forward_hook(count)
        for layer in model.modules()
        if isinstance(layer, counted)
    ]
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.zeros(1, *network_shape(shape)))
    for hook in hooks:
        hook.remove()
    return counter.get_total_flops() // 2 + others
