"""FedUL among data owners with real programs: TLS, keys, faults, and nothing that gets out.

Every message has a process of its own there; most of the time goes into starting these.
"""

import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.run_files.store import DirectoryLockedError, require_unlocked
from fedul_flwr.deploy.init import Options, plan, write
from fedul_flwr.deploy.status import NONE, status
from tests.end_to_end.test_ray import text
from tests.support.deployment import Deployment
from tests.support.learnable_owners import NO_DATA, found_in, write_sets
from tests.support.other_user import as_other_user
from tests.support.patience import PATIENCE, wait_for_end, wait_until
from tests.support.runs import assert_same_arrays, last_model, metrics, own_data_app, summary, train
from tests.support.watched_app import RECORDED, SPOILED, make_app, recorded

CLIENTS = 3
SETTINGS = {
    **{**NO_DATA, "method": "fedul", "model": "mlp", "local-epochs": 1},
    **{"selection": "last"},
}


@pytest.fixture
def owners(tmp_path: Path) -> list[Path]:
    """Folders of unlabeled sets."""
    folders = [tmp_path / f"ward-{client}" for client in range(CLIENTS)]
    for client, folder in enumerate(folders):
        write_sets(folder, seed=client)
    return folders


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return make_app(tmp_path)


def in_process(settings: dict[str, Any], owners: Sequence[Path], output: Path) -> Path:
    """The same run in this process."""
    config = resolve({**settings, "output": str(output)}, output.parent)
    return train(config, len(owners), client_app=own_data_app(owners))


def test_strangers_are_refused(two_owners: Deployment, owners: list[Path], tmp_path: Path) -> None:
    # Another consortium with the same address: its certificates and keys are others.
    address = f"127.0.0.1:{two_owners.ports[0]}"
    write(plan(Options(address, 1, [], [], [], 1)), tmp_path / "others")
    others = replace(two_owners, files=tmp_path / "others", processes={})
    others.start_node(0, owners[0])
    assert wait_for_end(others.processes["node-0"]) != 0
    assert "certificate verify failed" in others.said("node-0")
    # With the right certificate it finds the SuperLink, which does not know its key.
    shutil.copyfile(two_owners.owner(0) / "ca.pem", others.owner(0) / "ca.pem")
    others.start_node(0, owners[0])
    assert wait_for_end(others.processes["node-0"]) != 0
    assert "Failed to activate SuperNode" in others.said("node-0")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads
def test_given_another_user_when_it_submits_a_run_then_refused(two_owners: Deployment) -> None:
    port = two_owners.ports[0]
    assert as_other_user(lambda: status_of(port, "/v1/control/start-run")) == 403
    # The paths that SuperNodes use are open; what they do not understand they refuse themselves.
    assert as_other_user(lambda: status_of(port, "/v1/fleet/activate-node")) not in (0, 403, 404)
    assert status_of(port, "/v1/control/start-run") not in (0, 403, 404)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_given_anybody_without_the_secret_when_a_task_is_asked_for_then_the_supernode_refuses(
    two_owners: Deployment, owners: list[Path]
) -> None:
    two_owners.start_node(0, owners[0])
    two_owners.wait_for("node-0", "Uvicorn running on")
    connection = http.client.HTTPConnection("127.0.0.1", two_owners.ports[1], timeout=20)
    try:
        for call in ("acquire-task", "pull-task-input", "pull-messages", "push-object"):
            headers = {"content-type": "application/protobuf"}
            connection.request("POST", f"/v1/runtime/{call}", b"", headers)
            answer = connection.getresponse()
            assert answer.status == 401, (call, answer.read())
            answer.read()
    finally:
        connection.close()


def status_of(port: int, path: str) -> int:
    trusting = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=trusting)
    try:
        connection.request("POST", path)
        return connection.getresponse().status
    finally:
        connection.close()


def is_free(directory: Path) -> bool:
    try:
        require_unlocked(directory)
    except DirectoryLockedError:
        return False
    return True


@pytest.mark.slow
def test_nothing_but_the_model_leaves_an_owner_though_the_superlink_dies(
    two_owners: Deployment, owners: list[Path], app: Path, tmp_path: Path
) -> None:
    owners = owners[:2]
    settings = {**SETTINGS, "num-rounds": 2}
    for client, folder in enumerate(owners):
        two_owners.start_node(client, folder, **{RECORDED: str(tmp_path / f"sent-{client}")})
    broken = two_owners.submit(text({**settings, "output": str(tmp_path / "there")}), app)
    two_owners.wait_for("run", r"\[ROUND 2/2\]")
    two_owners.kill("superlink")
    said = two_owners.wait(broken)
    assert "Connection to the SuperLink is unavailable" in said
    assert broken.returncode == 1
    assert [line["round"] for line in metrics(tmp_path / "there")] == [1]
    # Owners need do nothing: their SuperNodes find it again, and it still knows their keys.
    two_owners.start_superlink()
    # The server app of the dead SuperLink holds the run until the new one tells it to go.
    wait_until(lambda: is_free(tmp_path / "there"), PATIENCE, "the end of the server app")
    said = two_owners.wait(two_owners.submit(text({"resume": str(tmp_path / "there")}), app))
    here = in_process(settings, owners, tmp_path / "here")
    lines = metrics(tmp_path / "there")
    assert [line.pop("owners") for line in lines] == [["owner-0", "owner-1"]] * 2, said
    assert [line.pop("members") for line in lines] == [2, 2]
    assert lines == metrics(here), said
    assert_same_arrays(last_model(here), last_model(tmp_path / "there"))
    for client, folder in enumerate(owners):
        sent = recorded(tmp_path / f"sent-{client}")
        assert b"num-points" in sent  # the search finds what is there
        assert found_in(sent, folder) == set()


@pytest.mark.slow
def test_a_run_goes_on_without_those_who_fail_and_with_those_who_come(
    deployment: Deployment, owners: list[Path], app: Path, tmp_path: Path
) -> None:
    deployment.start_node(0, owners[0])
    deployment.start_node(1, owners[1], **{SPOILED: "2"})
    for client in (0, 1):
        deployment.node_id(client)
    settings = {**SETTINGS, "num-rounds": 4, "on-client-failure": "continue"}
    settings |= {"connect-timeout": 40.0, "output": str(tmp_path / "there")}
    run = deployment.submit(text(settings), app)
    deployment.wait_for("run", r"\[ROUND 1/4\]")
    deployment.start_node(2, owners[2])
    # Client 0 dies while it trains. The SuperLink notices within a minute.
    deployment.wait_for("run", r"\[ROUND 2/4\].*Sampled")
    deployment.wait_for("node-0", r"\[RUN [^]]*\].*Receiving: train.*" * 2)
    deployment.kill("node-0")
    deployment.wait_for("run", r"failed in round 2: Client 0[^:]*: Error: Node Unavailable")
    deployment.start_node(0, owners[0])
    said = deployment.wait(run)
    found = metrics(tmp_path / "there")
    assert (found[0]["clients"], found[0]["failures"]) == (2, 0), said
    assert "Only 2 of 3 nodes connected within connect-timeout = 40 s" in said
    assert "clients that have joined: 2" in said
    assert "1 client(s) failed in round 2: Client 1 (owner-1): its update is not finite" in said
    assert (found[1]["clients"], found[1]["failures"]) == (1, 2)
    assert re.search(r"Round [34]: clients that have joined: 0", said)
    assert (found[3]["clients"], found[3]["failures"]) == (3, 0)
    assert all(np.isfinite(array).all() for array in last_model(tmp_path / "there").values())
    assert summary(tmp_path / "there")["failures"] == sum(line["failures"] for line in found)


@pytest.mark.slow
def test_given_an_owner_that_claims_the_number_of_another_when_a_run_begins_then_it_is_refused(
    two_owners: Deployment, owners: list[Path], app: Path, tmp_path: Path
) -> None:
    script = two_owners.owner(1) / "start-supernode.sh"
    script.write_text(script.read_text().replace("partition-id=1 ", "partition-id=0 "))
    for client in (0, 1):
        two_owners.start_node(client, owners[client])
        two_owners.node_id(client)
    settings = {**SETTINGS, "num-rounds": 1, "on-client-failure": "continue"}
    run = two_owners.submit(text({**settings, "output": str(tmp_path / "there")}), app)
    said = two_owners.wait(run)
    assert run.returncode == 0, said
    assert "partition-id 0, which is that of owner-0; owner-1 has 1" in said
    assert [line["clients"] for line in metrics(tmp_path / "there")] == [1], said


def test_given_programs_that_run_then_containers_find_them_healthy(
    two_owners: Deployment, owners: list[Path]
) -> None:
    # Not node 0: another test has just ended it, and a SuperLink remembers that for a while.
    two_owners.start_node(1, owners[1])
    two_owners.node_id(1)
    for folder in (two_owners.files / "server", two_owners.owner(1)):
        [service] = yaml.safe_load((folder / "compose.yaml").read_text())["services"].values()
        command, *words = service["healthcheck"]["test"]
        assert command == "CMD"
        words = [word.replace("/consortium", str(folder)) for word in words]
        words[0] = sys.executable
        for port, code in ((str(two_owners.ports[2]), 0), ("1", 1)):
            here = [word.replace("${PORT}", port) for word in words]
            here = here if folder.name == "owner-1" or code == 0 else [*words[:2], "raise OSError"]
            assert subprocess.run(here, capture_output=True, check=False).returncode == code


def test_given_registered_owners_then_status_has_their_nodes(two_owners: Deployment) -> None:
    found = status(two_owners.files)
    assert [(row.client, row.owner) for row in found] == [
        (str(number), f"owner-{number}") for number in range(2)
    ]
    assert len({row.node for row in found} - {NONE}) == 2
    known = {"registered, never connected", "offline", "online"}  # others may have run before
    assert {row.state for row in found} <= known
