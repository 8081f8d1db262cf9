"""Result of a benchmark, and its output."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Growth, Sides


@dataclass(frozen=True)
class Bar:
    """A measured value with its limit.

    Attributes
    ----------
    name : what is measured.
    value, limit : in ``unit``.
    at_least : whether the limit is a lower bound.
    """

    name: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        verdict = "met" if self.met else "MISSED"
        limit = f"{sign} {self.limit:g}{self.unit}"
        return f"{self.name}: {self.value:.2f}{self.unit} (bar {limit}) {verdict}"


@dataclass
class Outcome:
    """Result of one benchmark: a table and figures, and values for further processing."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plots: list[Growth | Sides] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def show(self) -> None:
        """Print the table, the values with limits, and the notes."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        print(f"\n{self.title}")
        for row in (self.columns, ["-" * width for width in widths], *self.rows):
            first, *others = zip(row, widths, strict=True)
            cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
            print("  " + "  ".join(cells).rstrip())
        for line in (*map(str, self.bars), *self.notes):
            print(f"  {line}")

    def draw(self, directory: Path) -> list[Path]:
        """Draw the figures into ``directory``."""
        return [plot.draw(directory) for plot in self.plots]

    def as_json(self) -> dict[str, Any]:
        """The same for ``latest.json``."""
        bars = [{**vars(bar), "met": bar.met} for bar in self.bars]
        return {"title": self.title, "bars": bars, "notes": self.notes, **self.figures}


def best(taken: Mapping[str, Sequence[float]], side: str) -> str:
    """Name of the fastest variant of ``side``, by median; names of variants start with ``side``."""
    return min((name for name in taken if name.startswith(side)), key=lambda n: median(taken[n]))


def arithmetic(model: str, input_shape: tuple[int, int, int]) -> str:
    """Precision that ``"auto"`` chooses for a model of ten classes on this processor."""
    import torch

    from fedul_flwr.learning.device import choose_dtype
    from fedul_flwr.models import build_model

    chosen = choose_dtype("auto", build_model(model, input_shape, 10), torch.device("cpu"))
    return str(chosen).removeprefix("torch.")


def machine() -> dict[str, Any]:
    """Hardware and versions on which values were measured."""
    # Imported here: it takes half a gigabyte, which would count as memory of other processes.
    import torch

    from fedul_flwr.learning.device import fast_bfloat16

    packages = ("torch", "torchvision", "flwr", "ray", "numpy")
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "fast bfloat16": fast_bfloat16(torch.device("cpu")),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def processor_name() -> str:
    """Vendor, name and model number of the processor (virtual machines often hide the name)."""
    found: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    if "model name" not in found:
        return platform.processor() or platform.machine()
    return f"{found['model name']} (family {found.get('cpu family')}, model {found.get('model')})"
