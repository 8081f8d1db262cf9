"""The loop that rounds are compared with does the same; what is measured loads no more."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.clients import prepared_clients
from benchmarks.plain_rounds import PlainRounds
from tests.support.runs import last_model, train
from tests.support.settings import Settings


def test_a_plain_round_of_our_clients_is_a_round(settings: Settings) -> None:
    config = settings(
        method="supervised", model="mlp", num_rounds=2, local_epochs=1, points_per_client=50
    )
    with PlainRounds("ours", config, num_clients=2, processes=1, threads=1) as plain:
        assert len(plain.seconds(2)) == 2
        found = [array.copy() for array in plain.weights]
    expected = last_model(train(config, 2))
    names = prepared_clients(config, 2)[0].array_names()
    for name, array in zip(names, found, strict=True):
        np.testing.assert_allclose(array, expected[name], atol=1e-6)


@pytest.mark.parametrize("name", ["propagation", "secure"])
def test_what_computes_without_torch_does_not_load_it(name: str) -> None:
    """It is half a gigabyte of a peak that these report."""
    program = f"import sys; import benchmarks.{name}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
