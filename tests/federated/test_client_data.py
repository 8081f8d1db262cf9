"""The hospital case: simulated clients that bring their own folders, one for each owner."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.refusals import refuses
from tests.support.runs import metrics, own_data_app, train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {**NO_DATA, "model": "mlp", "num_rounds": 3, "local_epochs": 1}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Folders of two owners."""
    for client in range(2):
        write_sets(tmp_path / "owners" / f"owner{client}", seed=client)
    return tmp_path / "owners"


def test_given_folders_then_clients_learn_from_them(settings: Settings, place: Path) -> None:
    (place / ".DS_Store").touch()
    directory = train(settings(**QUICK, client_data=str(place)), 2)
    losses = [line["surrogate_loss"] for line in metrics(directory)]
    assert losses[-1] < losses[0]
    clients = json.loads((directory / "federation.json").read_text())["clients"]
    assert [client["num_points"] for client in clients] == [80, 80]
    assert all(client["priors"] is None for client in clients)
    assert [client["name"] for client in clients] == ["owner0", "owner1"]


def test_a_folder_per_client_is_needed(settings: Settings, place: Path) -> None:
    with refuses("number-of-clients", match="2 .* 3"):
        train(settings(**QUICK, client_data=str(place)), 3)
    with refuses("folder-missing", match="client-data"):
        train(settings(**QUICK, client_data=str(place / "missing")), 2)


@pytest.mark.parametrize("name", ["priors.csv", "month-3.npz"])
def test_a_bad_folder_ends_the_run(settings: Settings, place: Path, name: str) -> None:
    (place / "owner1" / name).unlink()
    with refuses("client-failed", match=name.partition(".")[0]):
        train(settings(**QUICK, client_data=str(place)), 2)


def test_devices_with_their_own_data_take_no_client_data(settings: Settings, place: Path) -> None:
    app = own_data_app([place / f"owner{client}" for client in range(2)])
    with refuses("setting-for-simulations", match="client-data"):
        train(settings(**QUICK, client_data=str(place)), 2, client_app=app)
