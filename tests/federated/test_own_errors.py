"""What is wrong at an owner's is written to its own log, and the server hears none of it."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message

from fedul_flwr.client_app import app as own_app
from fedul_flwr.config.base import user_code
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.messages import failure_reason, phase_messages
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.federated.owner.door import build_client, make_client_app
from tests.support.owner_files import CLASSES, NO_DATA, PRIORS, write_points, write_sets

SECRETS = ("january", "0.7", "0.3", "1.25", "cyst", "scan-7", "clinic", "/")
"""Parts of the data and their places; "/" is in every path."""
UNUSABLE = "The client cannot use its data or node config; its own log says why."


pytestmark = pytest.mark.usefixtures("identity")


def plan(method: str, base: Path) -> RunConfig:
    return resolve({**NO_DATA, "method": method}, base)


def ask(config: RunConfig, node_config: dict[str, Any], app: Any = own_app) -> Message:
    """The answer of a node to ``setup``."""
    grid = InProcessGrid(app, 1, dict(config.to_flat()))
    told = setup_content(config, DataShape((8, 8, 1), CLASSES))
    context: Context = grid.contexts[FIRST_NODE_ID]
    context.node_config.clear()
    context.node_config.update({"partition-id": 2, "num-partitions": 3, **node_config})
    (reply,) = grid.send_and_receive(phase_messages("setup", {FIRST_NODE_ID: told}))
    return reply


@pytest.mark.parametrize(
    ("method", "name", "text", "logged"),
    [
        ("fedul", "priors.csv", PRIORS.replace("0.7", "1.25?"), "'1.25?'"),
        ("fedul", "priors.csv", PRIORS + "cyst,0.7,0.3\n", "holds no set 'cyst'"),
        ("xclp", "labels.csv", "name,label\n0,cyst\n", "gives '0' the label 'cyst'"),
        ("fedmatch", "scans.npz", "no archive", "cannot be read"),
    ],
)
def test_bad_files_stay_at_home(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    method: str,
    name: str,
    text: str,
    logged: str,
) -> None:
    write = write_sets if method == "fedul" else write_points
    folder = write(tmp_path / "clinic")
    (folder / name).write_text(text)
    reply = ask(plan(method, tmp_path), {"data": str(folder)})
    assert str(reply.error.reason) == UNUSABLE
    assert not any(secret in str(reply.error) for secret in SECRETS)
    assert failure_reason(reply, FIRST_NODE_ID) == f'it says "{UNUSABLE[:-1]}"'
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("Client 2:")]
    assert logged in line


def test_a_check_names_no_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_sets(tmp_path / "clinic")
    (folder / "priors.csv").write_text(PRIORS.replace("0.7", "0.65"))
    reply = ask(plan("fedul", tmp_path), {"data": str(folder)})
    values = dict(reply.content.config_records["config"])
    assert "set '0'" in values["reason"]
    assert "january" not in str(values)
    said = (
        "Client 2: the class shares of set 'january' do not sum to 1: "
        "they sum to 0.95, and rounding explains 0.01\n"
    )
    assert said in capsys.readouterr().out


def failing(error: BaseException) -> Any:
    """An app whose clients raise ``error``."""

    def build(context: Context) -> Client:
        client = build_client(context)

        def on_phase(name: str, content: Content) -> Content:
            raise error

        client.on_phase = on_phase  # type: ignore[method-assign]
        return client

    return make_client_app(build)


def test_errors_that_nobody_thought_of_stay_at_home(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = {"data": str(write_points(tmp_path / "clinic"))}
    broken = failing(KeyError("cyst"))
    reply = ask(plan("xclp", tmp_path), own, broken)
    assert "log" in str(reply.error.reason)
    assert "Client 2: 'cyst'\n" in capfd.readouterr().err
    # What a protocol refuses is no secret, and the server has to know it.
    told = failing(UserError("The server sent no step of encrypted distances."))
    reply = ask(plan("xclp", tmp_path), own, told)
    assert "server" in str(reply.error.reason)


@pytest.mark.parametrize("error", [KeyError("cyst"), SystemExit("cyst")])
def test_what_a_module_of_somebodys_own_raises_stays_at_home(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], error: BaseException
) -> None:
    own = {"data": str(write_points(tmp_path / "clinic"))}
    with pytest.raises(UserError) as quoted, user_code("A function of features"):
        raise error
    for broken in (error, quoted.value):
        reply = ask(plan("xclp", tmp_path), own, failing(broken))
        assert not any(secret in str(reply.error.reason) for secret in SECRETS)
        assert "cyst" in capfd.readouterr().err
