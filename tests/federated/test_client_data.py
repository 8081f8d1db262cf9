"""The hospital case: simulated clients that bring their own folders, one per healthcare system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.errors import UserError
from tests.support.runs import own_data_app, train
from tests.support.settings import Settings

CLASSES = (
    "healthy",
    "epidural",
    "intraparenchymal",
    "intraventricular",
    "subarachnoid",
    "subdural",
)
QUICK = {"model": "mlp", "num_rounds": 1, "local_epochs": 1}
NO_DATA = {"dataset": "none", "class_names": ",".join(CLASSES), "input_shape": "8x8x1"}


def scans(classes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Noise of 8 x 8 pixels with a brighter row that shows the class."""
    images = rng.integers(0, 120, (len(classes), 8, 8))
    images[np.arange(len(classes)), 1 + classes] += 80
    return images.astype(np.uint8)


def write_systems(root: Path, hospitals: int, patients: int, systems: int) -> Path:
    """Healthcare systems, one with folders of PNG files and the others with a file per hospital."""
    for system in range(systems):
        rng = np.random.default_rng(system)
        folder = root / f"system{system}"
        folder.mkdir(parents=True)
        lines = ["set," + ",".join(CLASSES)]
        for hospital in range(hospitals):
            weights = rng.uniform(0.1, 1.0, len(CLASSES))
            weights[hospital % len(CLASSES)] *= 10
            classes = rng.choice(len(CLASSES), patients, p=weights / weights.sum())
            shares = np.bincount(classes, minlength=len(CLASSES)) / patients
            lines.append(f"hospital{hospital}," + ",".join(map(str, shares)))
            images = scans(classes, rng)
            if system == 0:
                (folder / f"hospital{hospital}").mkdir()
                for number, image in enumerate(images):
                    Image.fromarray(image).save(folder / f"hospital{hospital}" / f"{number}.png")
            else:
                np.savez(folder / f"hospital{hospital}.npz", images=images)
        (folder / "priors.csv").write_text("\n".join(lines) + "\n")
    return root


# Refusals


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_systems(tmp_path / "systems", hospitals=6, patients=12, systems=2)


def refused(settings: RunConfig, message: str, clients: int = 2, **options: Any) -> None:
    with pytest.raises(UserError, match=message) as error:
        train(settings, clients, **options)
    assert "\n" not in str(error.value)


def test_a_folder_per_client_is_needed(settings: Settings, place: Path) -> None:
    config = settings(**QUICK, **NO_DATA, client_data=str(place))
    message = "holds 2 folders, one per client, so the run needs that many clients, not 3"
    refused(config, message, clients=3)


def test_only_folders_may_lie_there(settings: Settings, place: Path) -> None:
    (place / ".DS_Store").touch()
    assert train(settings(**QUICK, **NO_DATA, client_data=str(place)), 2)
    (place / "notes.txt").touch()
    config = settings(**QUICK, **NO_DATA, client_data=str(place))
    refused(config, r"notes\.txt is no folder; client-data holds one folder per client")
    config = settings(**QUICK, **NO_DATA, client_data=str(place / "missing"))
    refused(config, "Setting client-data = .*missing': there is no such folder")


@pytest.mark.parametrize(
    ("name", "message"),
    [("priors.csv", r"system1/priors\.csv is missing"), ("hospital3.npz", "no set 'hospital3'")],
)
def test_a_bad_system_is_one_sentence(
    settings: Settings, place: Path, name: str, message: str
) -> None:
    (place / "system1" / name).unlink()
    refused(settings(**QUICK, **NO_DATA, client_data=str(place)), message)


def test_devices_with_their_own_data_take_no_client_data(settings: Settings, place: Path) -> None:
    app = own_data_app([place / f"system{client}" for client in range(2)])
    assert train(settings(**QUICK, **NO_DATA), 2, client_app=app)
    config = settings(**QUICK, **NO_DATA, client_data=str(place))
    refused(config, "client-data is for simulations", client_app=app)
