"""XCLP in secret among data owners with SuperNodes of their own, against the same in the clear.

Every message has a process of its own there: what a client knows of a session lies in Flower's
state. Most of the time goes into starting these processes.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.columns import read_columns
from fedul_flwr.federated.owner.ledger import LEDGER
from tests.end_to_end.conftest import OWNERS
from tests.end_to_end.test_ray import text
from tests.strategies.test_dropouts import LOST, SETUP, losing
from tests.support.deployment import Deployment, consortium
from tests.support.learnable_owners import NAMES, NO_DATA, found_in, write_labeled
from tests.support.runs import last_model, own_data_app, summary, train
from tests.support.watched_app import RECORDED, make_app, recorded

pytestmark = pytest.mark.slow

ANSWER = 5
"""Message that it is, hello not counted: prepare, keys, shares, offer, answer."""

PREDICT = {**NO_DATA, "method": "xclp-predict", "xclp.num-bits": 512}
TRAIN = {
    **{**NO_DATA, "method": "xclp", "xclp.num-bits": 512, "model": "mlp", "num-rounds": 1},
    **{"local-epochs": 1, "semi.labels-only-rounds": 0},
}


COLUMNS = [f"column-{number}" for number in range(6)]


def write_table(folder: Path, seed: int) -> None:
    """30 rows of columns from 1e-6 to 1e4 in size that tell three classes, and 6 labels."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    classes = np.arange(30) % 3
    values = rng.normal(3 * np.eye(3)[classes].repeat(2, axis=1), 1) * 10.0 ** np.arange(-6, 5, 2)
    lines = [",".join(COLUMNS), *(",".join(map(repr, row)) for row in values.tolist())]
    (folder / "patients.csv").write_text("\n".join(lines))
    known = [f"{point},{NAMES[classes[point]]}" for point in range(6)]
    (folder / "labels.csv").write_text("\n".join(["name,label", *known]))


Write = Callable[[Path, int], None]


def start(
    deployment: Deployment, place: Path, clients: int, write: Write = write_labeled, **env: Path
) -> None:
    """Connect owners, each of whom lets its labels be written to ``place``; env by ``{client}``."""
    for client in range(clients):
        folder = place / f"owner-{client}"
        write(folder, client)
        own = {key: str(path).format(client=client) for key, path in env.items()}
        deployment.start_node(client, folder, place / f"{client}.csv", **own)


def in_secret(settings: dict[str, Any], place: Path) -> str:
    secret = {"xclp.secure": "rlwe", "xclp.codes-seed": "run", "output": str(place / "secret")}
    return text({**settings, **secret})


def in_the_clear(
    settings: dict[str, Any],
    place: Path,
    clients: int,
    write: Write = write_labeled,
    **options: Any,
) -> Path:
    """In process, by owners with the same points, whose labels are written to ``here``."""
    here = place / "here"
    folders = [here / f"owner-{client}" for client in range(clients)]
    for client, folder in enumerate(folders):
        write(folder, client)
    app = own_data_app(folders, labels=str(here / "{client}.csv"))
    flat = {**settings, "xclp.secure": "plaintext", "output": str(place / "clear")}
    return train(resolve(flat, place), clients, client_app=app, **options)


def written(place: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in place.glob("*.csv")}


def inferred(file: Path) -> list[bytes]:
    """The labels that an owner has got, in forms that they could travel in."""
    with file.open() as rows:
        classes = np.array([int(row["label"]) for row in csv.DictReader(rows)])
    return [classes.astype(kind).tobytes() for kind in (np.int8, np.int32, np.int64, np.float64)]


def test_the_same_labels_and_only_with_their_owners(deployment: Deployment, tmp_path: Path) -> None:
    there, sent = tmp_path / "there", tmp_path / "sent-{client}"
    start(deployment, there, OWNERS, **{RECORDED: sent})
    run = deployment.submit(in_secret(PREDICT, tmp_path), make_app(tmp_path))
    said = deployment.wait(run)
    in_the_clear(PREDICT, tmp_path, OWNERS)
    assert written(there) == written(tmp_path / "here"), said
    assert {f"{client}.csv" for client in range(OWNERS)} <= written(there).keys()
    assert not list((tmp_path / "secret").rglob("*.csv"))
    for client in range(OWNERS):
        left = recorded(Path(str(sent).format(client=client)))
        assert found_in(left, there / f"owner-{client}") == set()
        assert not any(labels in left for labels in inferred(there / f"{client}.csv"))


def test_the_same_labels_of_tables_whose_owners_do_not_allow_means_of_columns(
    deployment: Deployment, tmp_path: Path
) -> None:
    start(deployment, tmp_path / "there", OWNERS, write_table)
    (tmp_path / "columns.json").write_text(json.dumps({"columns": [{"name": n} for n in COLUMNS]}))
    settings = {**PREDICT, "columns": str(tmp_path / "columns.json")}
    del settings["input-shape"]
    said = deployment.wait(deployment.submit(in_secret(settings, tmp_path)))
    clear = in_the_clear(settings, tmp_path, OWNERS, write_table)
    assert written(tmp_path / "there") == written(tmp_path / "here"), said
    pairs = zip(read_columns(tmp_path / "secret").columns, read_columns(clear).columns, strict=True)
    for masked, plain in pairs:
        assert masked.mean == pytest.approx(plain.mean, rel=1e-12)
        assert masked.scale == pytest.approx(plain.scale, rel=1e-12)


def test_the_same_model(deployment: Deployment, tmp_path: Path) -> None:
    start(deployment, tmp_path / "there", OWNERS)
    said = deployment.wait(deployment.submit(in_secret(TRAIN, tmp_path)))
    clear = in_the_clear(TRAIN, tmp_path, OWNERS)
    assert (tmp_path / "secret" / "summary.json").exists(), said
    for name, array in last_model(clear).items():
        np.testing.assert_array_equal(array, last_model(tmp_path / "secret")[name])


def test_a_node_that_is_killed_while_points_are_compared(tmp_path: Path) -> None:
    # The SuperLink gives up a node a minute after it last heard from it, long before round-timeout.
    settings = {**PREDICT, "on-client-failure": "continue"}
    with consortium(tmp_path, 4) as deployment:
        start(deployment, tmp_path / "there", 4)
        run = deployment.submit(in_secret(settings, tmp_path))
        deployment.wait_for_messages(LOST, ANSWER)
        deployment.kill(f"node-{LOST}")
        said = deployment.wait(run)
    assert "Error: Node Unavailable" in said
    in_the_clear(settings, tmp_path, 4, **losing(SETUP, LOST))
    there = written(tmp_path / "there")
    there.pop(f"{LOST}-local-lp.csv")  # labels from its points alone, before it was killed
    assert there == written(tmp_path / "here"), said
    assert sorted(there) == [f"{c}{kind}.csv" for c in (0, 1, 3) for kind in ("-local-lp", "")]
    found = summary(tmp_path / "secret")
    assert (found["answered_clients"], found["failures"]) == (3, 1)


def test_given_a_node_that_is_killed_after_it_has_sent_its_masked_update_then_the_sum_has_it(
    tmp_path: Path,
) -> None:
    settings = {
        **{**NO_DATA, "method": "labels-only", "model": "mlp", "num-rounds": 1, "local-epochs": 1},
        **{"secure-sum": "on", "selection": "last", "on-client-failure": "continue"},
    }
    with consortium(tmp_path, 4) as deployment:
        start(deployment, tmp_path / "there", 4)
        there = {**settings, "output": str(tmp_path / "there-run")}
        run = deployment.submit(text(there))
        # Description, setup, keys, peers, shares, training, and now the list of who is in the sum.
        deployment.wait_for_messages(LOST, 7)
        deployment.kill(f"node-{LOST}")
        said = deployment.wait(run)
    assert "Error: Node Unavailable" in said
    here = tmp_path / "here"
    folders = [here / f"owner-{client}" for client in range(4)]
    for client, folder in enumerate(folders):
        write_labeled(folder, client)
    flat = {**settings, "output": str(tmp_path / "here-run")}
    whole = train(resolve(flat, tmp_path), 4, client_app=own_data_app(folders))
    for name, array in last_model(whole).items():
        np.testing.assert_array_equal(array, last_model(tmp_path / "there-run")[name])


@pytest.mark.parametrize("remembers", [True, False])
def test_given_restarted_nodes_that_are_asked_for_a_round_twice_then_their_ledgers_refuse(
    remembers: bool, tmp_path: Path
) -> None:
    """The control: without its ledger an owner answers again: nothing else is left of round 1."""
    settings = {
        **{**NO_DATA, "method": "labels-only", "model": "mlp", "num-rounds": 2, "local-epochs": 1},
        **{"secure-sum": "on", "selection": "last", "on-client-failure": "continue"},
        "output": str(tmp_path / "run"),
    }
    with consortium(tmp_path, OWNERS) as deployment:
        start(deployment, tmp_path / "there", OWNERS)
        run = deployment.submit(text(settings), make_app(tmp_path, lies=True))
        deployment.wait_for("run", r"ROUND 2/2")
        deployment.stop_nodes()
        ledgers = [tmp_path / "there" / f"owner-{c}.ledger" / LEDGER for c in range(OWNERS)]
        assert all(ledger.is_file() for ledger in ledgers)
        for ledger in () if remembers else ledgers:
            ledger.unlink()
        for client in range(OWNERS):
            folder, labels = tmp_path / "there" / f"owner-{client}", tmp_path / "there" / "x.csv"
            deployment.start_node(client, folder, labels)
        for client in range(OWNERS):
            deployment.node_id(client)
        (tmp_path / "again").touch()
        said = deployment.wait(run)
    for client in range(OWNERS):
        with (deployment.owner(client) / "log" / "messages.csv").open() as file:
            answers = [row for row in csv.DictReader(file) if row["message"] == "train"]
        answered = [row["outcome"] == "answered" for row in answers]
        assert sum(answered) == (1 if remembers else 2), said
    assert ("asked again for secure sum" in said) is remembers
