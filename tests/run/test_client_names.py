"""Clients of a simulation have the names that their data have, also where they fail."""

from pathlib import Path

import numpy as np
from flwr.app import Message

from fedul_flwr.data.run_files.run import Run
from fedul_flwr.federated.messages import client_label
from tests.support.runs import MeddlingGrid, as_error, is_train, metrics, summary, train
from tests.support.settings import Settings

NAMES = ("north", "south", "west")


def write_hospitals(folder: Path) -> Path:
    """Points of three hospitals, by a column of their names."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 90), ("test", 30)):
        rows = [
            f"{rng.normal():.3f},{rng.normal():.3f},{NAMES[i % 3]},{i % 2}" for i in range(count)
        ]
        text = "\n".join(["age,dose,hospital,label", *rows])
        (folder / f"{split}.csv").write_text(text + "\n", encoding="utf-8")
    return folder


def test_who_failed_has_a_name(settings: Settings, tmp_path: Path) -> None:
    def fail(call: int, replies: list[Message]) -> list[Message]:
        del call
        return [as_error(replies[0], "no power"), *replies[1:]] if is_train(replies) else replies

    config = settings(
        dataset=str(write_hospitals(tmp_path)),
        method="supervised",
        model="linear",
        num_rounds=1,
        partition="natural",
        **{"natural.column": "hospital"},
        on_client_failure="continue",
    )
    directory = train(config, 3, wrap_grid=lambda grid: MeddlingGrid(grid, fail))
    names = [client_label("Client", one.id, one.name) for one in Run.read(directory).clients]
    assert names == ["Client 0 (north)", "Client 1 (south)", "Client 2 (west)"]
    (failed,) = metrics(directory)[0]["failed"]
    assert failed in names
    assert summary(directory)["failed"] == {failed: [1]}
