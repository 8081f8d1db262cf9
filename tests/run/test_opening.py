"""What a run writes of itself before it begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import nn

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.run_files.store import ENVIRONMENT, RunDirectory
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.run.server_data import ServerData
from fedul_flwr.run.setup import describe


@pytest.mark.parametrize(
    ("settings", "model", "arithmetic"),
    [
        ({"device": "cpu"}, nn.Linear(2, 2), "float32"),
        ({"device": "cpu", "precision": "float64"}, nn.Linear(2, 2), "float64"),
        ({"device": "cpu", "precision": "bfloat16"}, nn.Linear(2, 2), "bfloat16"),
        ({"device": "cpu"}, None, None),
        ({"device": "cuda"}, nn.Linear(2, 2), None),
    ],
)
def test_the_arithmetic_is_written_where_it_is_known(
    tmp_path: Path,
    settings: dict[str, Scalar],
    model: nn.Module | None,
    arithmetic: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    data = SimpleNamespace(
        shape=DataShape((8, 8, 1), ("a", "b")), num_clients=2, split=None, client_data=()
    )
    directory = RunDirectory(tmp_path)
    describe(directory, resolve(settings, tmp_path), cast(ServerData, data), None, model)
    assert directory.read_json(ENVIRONMENT)["arithmetic"] == arithmetic
