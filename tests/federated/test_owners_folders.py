"""Runs on owners' class folders: labels are written at home, and nobody can tell them by order."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from flwr.clientapp import ClientApp

from fedul_flwr.data.run_files.label_files import read_labels
from tests.support.identities import identities, write_identity
from tests.support.message_log import TO_SERVER, read_message_log
from tests.support.owner_files import CLASSES, NO_DATA, write_folders
from tests.support.runs import last_model, own_data_app, train
from tests.support.settings import Settings

OWNERS = 3
PREDICT = {"method": "xclp-predict", "xclp.num-bits": 64}


def owners_app(place: Path) -> ClientApp:
    return own_data_app([place / f"{n}" for n in range(OWNERS)], format="class-folders")


def write_owners(place: Path) -> Path:
    for number in range(OWNERS):
        write_folders(place / f"{number}")
    return place


def swap_classes(folder: Path) -> None:
    one, other = CLASSES
    (folder / one).rename(folder / "x")
    (folder / other).rename(folder / one)
    (folder / "x").rename(folder / other)


def test_inferred_labels_are_written_beside_the_folder(settings: Settings, tmp_path: Path) -> None:
    place = write_owners(tmp_path / "owners")
    train(settings(**PREDICT, **NO_DATA), OWNERS, client_app=owners_app(place))
    for number in range(OWNERS):
        names, found = read_labels(place / f"{number}-labels.csv")
        assert sorted(names) == [f"unlabeled/{image}.png" for image in range(3)]
        assert set(found.labels) <= {-1, 0, 1}


def test_given_identities_then_labels_are_the_same_and_who_has_another_is_left_out(
    settings: Settings, tmp_path: Path
) -> None:
    place = tmp_path / "owners"
    for number in range(4):
        write_folders(place / f"{number}")
    folders = [place / f"{number}" for number in range(4)]
    secret = {"xclp.secure": "rlwe", "xclp.codes-seed": "run", "on-client-failure": "continue"}

    def labels(where: str, **options: str) -> list[str]:
        there = str(tmp_path / where / "{client}.csv")
        (tmp_path / where).mkdir()
        config = settings(**PREDICT, **NO_DATA, **secret)
        train(config, 4, client_app=own_data_app(folders, labels=there, **options))
        return [file.read_text() for file in sorted((tmp_path / where).glob("[0-9].csv"))]

    known = identities(range(4))
    for number, one in known.items():
        write_identity(tmp_path / "keys" / f"{number}", one)
    keys = {"format": "class-folders", "identity": str(tmp_path / "keys" / "{client}")}
    unsigned = labels("unsigned", format="class-folders")
    assert len(unsigned) == 4
    assert labels("signed", **keys) == unsigned
    # Client 2 has an identity that the others do not know.
    write_identity(tmp_path / "keys" / "2", identities([2])[2])
    assert len(labels("stranger", **keys)) == 3
    assert not (tmp_path / "stranger" / "2.csv").exists()


def test_the_server_cannot_tell_classes_by_the_order_of_points(
    settings: Settings, tmp_path: Path
) -> None:
    place, seen = write_owners(tmp_path / "owners"), []
    for number in range(2):
        there = tmp_path / f"t{number}"
        config = settings(**PREDICT, **NO_DATA)
        train(config, OWNERS, client_app=owners_app(place), message_log=there)
        seen.append([m for m in read_message_log(there) if m.direction == TO_SERVER])
        for folder in place.iterdir():
            if folder.is_dir() and folder.suffix != ".ledger":
                swap_classes(folder)
    before, after = (
        [m for m in messages if m.phase in ("setup", "xclp-compare")] for messages in seen
    )
    assert len(before) == len(after) == 2 * OWNERS
    for one, other in zip(before, after, strict=True):
        assert one.values == other.values
        assert [a.data for a in one.arrays] == [a.data for a in other.arrays]
    for message in [*seen[0], *seen[1]]:
        assert not any(name in str(message.values) for name in (*CLASSES, "png", "owners"))


@pytest.mark.parametrize("simulated", [False, True])
def test_supervised_learning_on_folders_whose_points_all_have_labels(
    settings: Settings, tmp_path: Path, simulated: bool
) -> None:
    place = write_owners(tmp_path / "owners")
    for folder in place.iterdir():
        shutil.rmtree(folder / "unlabeled")
    config = {**NO_DATA, "method": "supervised", "num-rounds": 1}
    if simulated:
        directory = train(settings(**config, client_data=str(place)), OWNERS)
    else:
        directory = train(settings(**config), OWNERS, client_app=owners_app(place))
    assert all(np.isfinite(array).all() for array in last_model(directory).values())
