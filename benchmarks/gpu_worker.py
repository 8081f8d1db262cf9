"""One run for ``gpu``: ``gpu_worker.py SETTINGS CLIENTS WAY BEFORE``; its last line is JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch.nn import functional

from benchmarks.clients import prepared_clients
from benchmarks.plain_rounds import client_tensors
from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.engine.in_process import run_in_process
from fedul_flwr.learning import lanes
from fedul_flwr.learning.device import choose_device

NUMBERS: dict[str, int | str] = {"kernel by kernel": 1, "one lane": 1, "lanes": "auto"}


def main() -> None:
    order, clients, way, before = sys.argv[1:5]
    flat = json.loads(order)
    with watched() as busy:
        if way == "plain loop":
            seconds = plain(parse_flat(flat), int(clients))
        else:
            number = NUMBERS[way]
            if way == "kernel by kernel":
                lanes.RECORDERS = {}
            if number == "auto" and not torch.cuda.is_available():
                number = 4
            settings = parse_flat({**flat, "lanes": number})
            run_in_process(settings, int(clients))
            log = Path(settings.output) / "metrics.jsonl"
            seconds = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
    answer: dict[str, Any] = {"seconds": seconds[int(before) :]}
    if torch.cuda.is_available():
        answer["peak"] = torch.cuda.max_memory_reserved() / 1e9
    if busy:
        answer["busy"] = mean(busy[len(busy) // 2 :])  # the first half starts and records
    print(json.dumps(answer))


@contextmanager
def watched() -> Iterator[list[float]]:
    """Context in which the share of the time is noted in which a GPU computes, in percent."""
    found: list[float] = []
    ended = threading.Event()
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]

    def watch() -> None:
        while not ended.wait(0.25):
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            if said.strip():
                found.append(float(said.splitlines()[0]))

    thread = threading.Thread(target=watch, daemon=True)
    if torch.cuda.is_available() and shutil.which(command[0]):
        thread.start()
    try:
        yield found
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


def plain(settings: RunConfig, clients: int) -> list[float]:
    """Seconds of rounds of a plain loop: data on the device, no framework."""
    device = choose_device(settings.device)
    members = prepared_clients(settings, clients)
    data = [[part.to(device) for part in client_tensors(client)] for client in members]
    model = members[0].model.to(device).train()
    weights = list(model.parameters())
    seconds = []
    for _ in range(settings.num_rounds):
        began = time.perf_counter()
        start = [weight.detach().clone() for weight in weights]
        total = [torch.zeros_like(weight) for weight in start]
        for inputs, labels in data:
            with torch.no_grad():
                torch._foreach_copy_(weights, start)
            for batch in torch.randperm(len(inputs), device=device).split(settings.batch_size):
                loss = functional.cross_entropy(model(inputs[batch]), labels[batch])
                slopes = torch.autograd.grad(loss, weights)
                with torch.no_grad():
                    torch._foreach_add_(weights, slopes, alpha=-settings.learning_rate)
            with torch.no_grad():
                torch._foreach_add_(total, weights, alpha=1 / clients)
        with torch.no_grad():
            torch._foreach_copy_(weights, total)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main()
