"""Traffic of a round by part: totals, percents of a dense model, and what real runs count."""

from collections import Counter
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedul_flwr.federated.grid import RoundRecord
from fedul_flwr.federated.messages import payload_bytes, payload_parts

QUICK: dict[str, Any] = {"model": "mlp", "num_rounds": 1, "local_epochs": 1}
HEADER = 128
"""Bytes with which NumPy's format begins an array: type, shape, padding."""


def parts(line: dict[str, Any], way: str) -> dict[str, int]:
    prefix = f"bytes_{way}_"
    return {key.removeprefix(prefix): line[key] for key in line if key.startswith(prefix)}


def test_a_message_by_part() -> None:
    records = RecordDict(
        {
            "arrays": ArrayRecord({"w": Array(np.zeros((3, 2), np.float32))}),
            "sigma": ArrayRecord({"w": Array(np.zeros(5)), "b": Array(np.zeros(0))}),
            "config": ConfigRecord({"name": "né", "on": True, "rates": [0.5, 0.25]}),
            "metrics": MetricRecord({"loss": 1.0}),
        }
    )
    expected = {
        "model": HEADER + 6 * 4,
        "sigma": 2 * HEADER + 5 * 8,
        "other": 3 + 8 + 2 * 8 + 8,  # the text has three bytes
    }
    assert payload_parts(records) == expected
    assert payload_bytes(records) == sum(expected.values())
    assert payload_parts(RecordDict()) == {"other": 0}
    # A model that travels as something else is no part; another record that is empty is one.
    without = RecordDict({"arrays": ArrayRecord(), "psi": ArrayRecord()})
    assert payload_parts(without) == {"psi": 0, "other": 0}


def test_percents_by_hand() -> None:
    record = RoundRecord(
        round=3,
        model_bytes=1000,
        model_values=250,
        sampled=2,
        down=Counter(sigma=500, psi=300, other=200),
        up=Counter(sigma=100),
        nonzero_down=Counter(sigma=100, psi=25),
        released_down=50,
    )
    assert record.traffic() == {
        "model_bytes": 1000,
        "bytes_up": 100,
        "bytes_up_sigma": 100,
        "percent_up": 5.0,  # 100 of 2·1000
        "bytes_down": 1000,
        "bytes_down_sigma": 500,
        "bytes_down_psi": 300,
        "bytes_down_other": 200,
        "percent_down": 50.0,
        "nonzero_down_percent": 25.0,  # 125 of 2·250
        "nonzero_down_percent_sigma": 20.0,
        "nonzero_down_percent_psi": 5.0,
        "released_down_percent": 10.0,
    }
    assert (record.up.total(), record.down.total()) == (100, 1000)
