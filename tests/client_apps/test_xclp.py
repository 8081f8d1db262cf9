"""XCLP's clients, a message at a time: states that end, precision of features, files of labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.client_apps import xclp, xclp_predict
from fedul_flwr.client_apps.xclp import XCLPClient
from fedul_flwr.client_apps.xclp_predict import XCLPPredictClient
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.data.run_files.label_files import LEFT_OUT, LOCAL_LP, NETWORK, XCLP
from fedul_flwr.data.types import UNLABELED, Content
from fedul_flwr.propagation.client import RUN_SEED, STORED
from fedul_flwr.propagation.phases import END
from tests.support.settings import Settings
from tests.support.simulated_clients import simulated_client

QUICK: dict[str, Any] = {"labels.total": 60, "points_per_client": 80, "xclp.num-bits": 64}
KINDS: dict[str, Any] = {"xclp": XCLPClient, "xclp-predict": XCLPPredictClient}


def client(settings: Settings, method: str, **options: Any) -> Any:
    config = settings(method=method, model="mlp", **QUICK, **options)
    return simulated_client(KINDS[method], config)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """States whose propagation has been ended."""
    states: list[Any] = []
    for module in (xclp, xclp_predict):
        monkeypatch.setattr(module, "end_propagation", states.append)
    return states


def test_given_a_round_without_rows_then_no_point_is_labeled_and_its_state_ends(
    settings: Settings, ended: list[Any]
) -> None:
    built = client(settings, "xclp")
    ended.clear()
    found = built._pseudo_labels(built.round({"server-round": 11}))
    assert found.labels.tolist() == [UNLABELED] * 60  # of 80 points 20 have labels
    assert ended == [built.state]


def test_given_the_end_then_a_client_that_labels_forgets_the_seed_of_its_codes(
    settings: Settings,
) -> None:
    built = client(settings, "xclp-predict")
    for key in (RUN_SEED, STORED):
        built.state.set_ephemeral(key, {"it": np.ones(3)})
    assert built.on_phase(END, Content()) == Content()
    assert not built.state.ephemeral(RUN_SEED)
    assert not built.state.ephemeral(STORED)


def test_given_a_file_for_labels_then_others_lie_beside_it(
    settings: Settings, tmp_path: Path
) -> None:
    config = settings(method="xclp-predict", **QUICK)
    node = NodeConfig.parse(
        {
            **{"partition-id": 0, "num-partitions": 2, "data": str(tmp_path / "scans")},
            "labels": str(tmp_path / "out" / "found.csv"),
        }
    )
    built = client(settings, "xclp-predict")
    own = XCLPPredictClient(config, node, built.state)
    names = [own._file(source).name for source in (XCLP, NETWORK, LOCAL_LP, LEFT_OUT)]
    others = [f"found-{source}.csv" for source in (NETWORK, LOCAL_LP, LEFT_OUT)]
    assert names == ["found.csv", *others]
    assert own._file(XCLP).parent == tmp_path / "out"
