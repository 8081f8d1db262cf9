"""The life of a consortium, as docs/consortium.md tells it, with real programs on this machine."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.deploy.status import status
from tests.end_to_end.test_ray import text
from tests.support.deployment import Deployment, consortium
from tests.support.learnable_owners import NO_DATA, write_labeled, write_sets
from tests.support.patience import wait_for_end
from tests.support.runs import last_model, metrics

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    **{**NO_DATA, "method": "labels-only", "model": "mlp", "num-rounds": 1, "local-epochs": 1},
    **{"selection": "last", "connect-timeout": 400.0},
}


def start(there: Deployment, *clients: int) -> None:
    for client in clients:
        folder = there.place / f"ward-{client}"
        if not folder.exists():
            write_labeled(folder, client)
        there.start_node(client, folder)
    for client in clients:
        there.node_id(client)


def stop(there: Deployment, *clients: int) -> None:
    for client in clients:
        there.processes[f"node-{client}"].terminate()
        wait_for_end(there.processes.pop(f"node-{client}"))


def clients_of_a_run(there: Deployment, name: str, secure_sum: str = "on") -> int:
    """How many took part in a run that waits for all, and stops where one is missing.

    In a secure sum every owner's client checks the keys of all others. Each run has its own seed:
    owners refuse a second sum of the same without one of them, as both would tell its part.
    """
    output = there.files / "server" / "runs" / name
    settings = {**SETTINGS, "secure-sum": secure_sum, "seed": len(name), "output": str(output)}
    run = there.submit(text(settings))
    said = there.wait(run)
    assert (output / "summary.json").exists(), said
    assert "takes no part" not in said
    return int(metrics(output)[0]["clients"])


def states(there: Deployment) -> dict[str, str]:
    return {row.owner: row.state for row in status(there.files)}


def test_a_consortium_lives(tmp_path: Path) -> None:
    with consortium(tmp_path, 3) as there:
        start(there, 0, 1, 2)
        said = there.register()  # to repeat it harms nobody
        assert said == "".join(f"owner-{client}: registered before\n" for client in range(3))

        # A fourth hospital.
        said = there.manage("add", there.files, "owner-3")
        assert "owner-3: registered\n" in said
        start(there, 3)
        assert clients_of_a_run(there, "four") == 4

        # One withdraws. Its SuperNode still runs, and no run waits for it or asks it.
        assert ": node " in there.manage("remove", there.files, "owner-1")
        for client in (0, 2, 3):
            said = there.manage("runs", "regroup", there.owner(client))
            assert "SummedUpdates: summed over owners 0, 1, 2, 3 until now" in said
        assert clients_of_a_run(there, "without-one") == 3
        stop(there, 1)
        there.start_node(1, tmp_path / "ward-1")
        assert wait_for_end(there.processes.pop("node-1")) != 0
        assert "Failed to activate SuperNode" in there.said("node-1")
        assert list(states(there)) == ["owner-0", "owner-2", "owner-3"]

        # A key is lost. Whoever has the old one is nobody any more.
        shutil.copytree(there.owner(2), tmp_path / "stolen")
        there.manage("rotate", there.files, "key", "owner-2")
        stop(there, 2)
        start(there, 2)
        assert clients_of_a_run(there, "new-key") == 3
        shutil.copy(tmp_path / "stolen/node.key", there.owner(1) / "node.key")
        there.start_node(1, tmp_path / "ward-1")
        assert wait_for_end(there.processes.pop("node-1")) != 0

        # The authority's key is lost: everybody gets a new certificate of it.
        there.manage("rotate", there.files, "authority")
        stop(there, 0, 2, 3)
        there.kill("superlink")
        there.start_superlink()
        start(there, 0, 2, 3)
        assert clients_of_a_run(there, "new-authority", "off") == 3

        # The server's disk dies. Owners need do nothing: their SuperNodes find it again.
        there.manage("backup", there.files, "-o", tmp_path / "backup.tar.gz")
        there.kill("superlink")
        shutil.rmtree(there.files / "server")
        subprocess.run(["tar", "-xzf", tmp_path / "backup.tar.gz", "-C", there.files], check=True)
        there.manage("rotate", there.files, "certificate")
        there.start_superlink()
        assert "not registered" not in states(there).values()
        assert (there.files / "server/runs/four/summary.json").exists()
        assert clients_of_a_run(there, "restored", "off") == 3


def closed_form(there: Deployment, name: str) -> Path:
    """The directory of a run in closed form, of one sum."""
    output = there.files / "server" / "runs" / name
    settings = {**NO_DATA, "method": "closed-form", "model": "random-features", "num-rounds": 1}
    settings |= {"closed-form.refinements": 0, "output": str(output), "connect-timeout": 400.0}
    run = there.submit(text({**settings, "selection": "last"}))
    said = there.wait(run)
    assert (output / "summary.json").exists(), said
    return output


def test_given_a_forgotten_owner_then_the_model_is_as_if_it_had_never_come(tmp_path: Path) -> None:
    with consortium(tmp_path, 3) as there:
        for client in range(4):
            write_sets(tmp_path / f"ward-{client}", client)
        start(there, 0, 1, 2)
        never = closed_form(there, "never")
        there.manage("add", there.files, "owner-3")
        start(there, 3)
        for client in (0, 1, 2):
            there.manage("runs", "regroup", there.owner(client))
        with_it = closed_form(there, "with-it")
        statement = tmp_path / "owner-3.json"
        there.manage("runs", "leave", there.owner(3), "-o", statement)
        for client in (0, 1, 2):
            there.manage("runs", "regroup", there.owner(client), "--without", statement)
        forgotten = there.files / "server" / "runs" / "forgotten"
        there.manage("forget", there.files, "owner-3", "--run", with_it, "--output", forgotten)
        assert list(states(there)) == ["owner-0", "owner-1", "owner-2"]
        models = [last_model(path) for path in (never, with_it, forgotten)]
        assert [
            all((model[name] == models[0][name]).all() for name in models[0]) for model in models
        ] == [True, False, True]


OTHER_FLOWER = Path(__file__).parents[2] / ".venv-flower"


@pytest.mark.skipif(
    not (OTHER_FLOWER / "bin" / "fedul-flwr").exists(),
    reason="make flower-versions installs another version of Flower",
)
def test_given_an_owner_with_another_flower_then_it_takes_part(tmp_path: Path) -> None:
    """So owners can upgrade one after the other."""
    with consortium(tmp_path, 2) as there:
        write_labeled(tmp_path / "ward-0", 0)
        there.start_node(0, tmp_path / "ward-0", venv=OTHER_FLOWER)
        there.node_id(0)
        start(there, 1)
        assert clients_of_a_run(there, "mixed", "off") == 2
