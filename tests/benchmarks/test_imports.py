"""What processes load whose memory is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["propagation", "secure"])
def test_what_computes_without_torch_does_not_load_it(name: str) -> None:
    """It is half a gigabyte of a peak that these report."""
    program = f"import sys; import benchmarks.{name}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
