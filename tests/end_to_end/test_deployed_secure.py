"""XCLP in secret among data owners with SuperNodes of their own, against the same in the clear.

Every message has a process of its own there: what a client knows of a session lies in Flower's
state. Most of the time goes into starting these processes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.bridge import make_client_app
from fedul_flwr.client_app import build_client
from fedul_flwr.config import resolve
from tests.deployment import Deployment, deployed
from tests.end_to_end.test_ray_partly_labeled import text
from tests.runs import last_model, summary, train
from tests.strategies.test_dropouts import LOST, PREPARE, losing

pytestmark = pytest.mark.slow
CLIENTS, POINTS, KNOWN = 4, 30, 6
ANSWER = 5
"""Message that it is, hello not counted: prepare, keys, shares, offer, answer."""

NO_DATA = {"dataset": "none", "class-names": "first,second,third", "image-shape": "8x8x1"}
PREDICT = {
    **{**NO_DATA, "method": "xclp-predict", "xclp.num-bits": 512},
    **{"xclp-predict.compare": False},
}
TRAIN = {
    **{**NO_DATA, "method": "xclp", "xclp.num-bits": 512, "model": "mlp", "num-rounds": 1},
    **{"local-epochs": 1, "semi.labels-only-rounds": 0},
}


def write_owners(root: Path) -> None:
    """A folder for each: images in which a brighter row shows the class, a few with their label."""
    rng = np.random.default_rng(0)
    names = NO_DATA["class-names"].split(",")
    for client in range(CLIENTS):
        folder = root / f"owner-{client}"
        folder.mkdir(parents=True)
        classes = rng.integers(0, len(names), POINTS)
        images = rng.integers(0, 120, (POINTS, 8, 8))
        images[np.arange(POINTS), 1 + 2 * classes] += 80
        np.savez(folder / "images.npz", images=images.astype(np.uint8))
        rows = [f"{point},{names[classes[point]]}\n" for point in range(KNOWN)]
        (folder / "labels.csv").write_text("".join(["name,label\n", *rows]))


def node_configs(place: Path) -> dict[int, dict[str, Any]]:
    return {
        client: {
            **{"partition-id": client, "num-partitions": CLIENTS},
            **{"data": str(place / f"owner-{client}"), "labels": str(place / f"{client}.csv")},
        }
        for client in range(CLIENTS)
    }


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Deployment]:
    """Four of them, connected; each lets its labels be written to ``there``."""
    write_owners(tmp_path / "there")
    configs = {client: text(found) for client, found in node_configs(tmp_path / "there").items()}
    with deployed(tmp_path, configs) as deployment:
        yield deployment


def in_secret(settings: dict[str, Any], place: Path) -> str:
    secret = {"xclp.secure": "rlwe", "xclp.codes-seed": "run", "output": str(place / "secret")}
    return text({**settings, **secret})


def in_the_clear(settings: dict[str, Any], place: Path, **options: Any) -> Path:
    """In process, by owners with the same points, whose labels are written to ``here``."""
    write_owners(place / "here")
    configs = node_configs(place / "here")

    def build(context: Any) -> Any:
        context.node_config.update(configs[context.node_config["partition-id"]])
        return build_client(context)

    flat = {**settings, "xclp.secure": "plaintext", "output": str(place / "clear")}
    return train(resolve(flat, place), CLIENTS, client_app=make_client_app(build), **options)


def written(place: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in place.glob("*.csv")}


def test_the_same_labels(owners: Deployment, tmp_path: Path) -> None:
    said = owners.wait(owners.submit(in_secret(PREDICT, tmp_path)))
    in_the_clear(PREDICT, tmp_path)
    assert written(tmp_path / "there") == written(tmp_path / "here"), said
    assert sorted(written(tmp_path / "there")) == [f"{client}.csv" for client in range(CLIENTS)]


def test_the_same_model(owners: Deployment, tmp_path: Path) -> None:
    said = owners.wait(owners.submit(in_secret(TRAIN, tmp_path)))
    clear = in_the_clear(TRAIN, tmp_path)
    assert (tmp_path / "secret" / "summary.json").exists(), said
    for name, array in last_model(clear).items():
        np.testing.assert_array_equal(array, last_model(tmp_path / "secret")[name])


def test_a_node_that_is_killed_while_points_are_compared(
    owners: Deployment, tmp_path: Path
) -> None:
    # The SuperLink gives up a node a minute after it last heard from it, long before round-timeout.
    settings = {**PREDICT, "on-client-failure": "continue"}
    run = owners.submit(in_secret(settings, tmp_path))
    owners.wait_for_messages(LOST, ANSWER)
    os.kill(owners.nodes[LOST].pid, signal.SIGKILL)
    said = owners.wait(run)
    assert "1 client(s) failed in round 0: Error: Node Unavailable" in said
    in_the_clear(settings, tmp_path, **losing(PREPARE, LOST))
    assert written(tmp_path / "there") == written(tmp_path / "here"), said
    assert sorted(written(tmp_path / "there")) == ["0.csv", "1.csv", "3.csv"]
    found = summary(tmp_path / "secret")
    assert (found["labelled_clients"], found["failures"]) == (3, 1)
