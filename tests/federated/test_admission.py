"""What a server and a client can claim of each other before a round, and what is then refused."""

import json
import sys
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.types import Content
from fedul_flwr.federated.messages import DESCRIBE, SETTINGS, SETUP
from fedul_flwr.federated.nodes import setup_content
from fedul_flwr.federated.owner.door import build_client
from fedul_flwr.run.server_data import named_shape
from tests.support.refusals import refuses

VECTORS = {
    **{"dataset": "none", "class-names": "sound,ill", "columns": "columns.json", "model": "linear"},
    **{"standardize": "federation", "standardize-sum": "masked"},
}


@pytest.fixture
def owner(tmp_path: Path) -> Context:
    """A client with own data, before the first message."""
    ward = tmp_path / "ward"
    ward.mkdir()
    (ward / "january.csv").write_text("a,b\n1,2\n3,4\n")
    (ward / "june.csv").write_text("a,b\n2,2\n5,4\n")
    columns = {"columns": [{"name": "a"}, {"name": "b"}]}
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    (ward / "priors.csv").write_text("set,sound,ill\njanuary,0.8,0.2\njune,0.2,0.8\n")
    return Context(
        run_id=0,
        node_id=0,
        node_config={"data": str(ward), "partition-id": 0, "num-partitions": 3},
        state=RecordDict(),
        run_config=resolve({**VECTORS, "output": str(tmp_path / "run")}, tmp_path).to_flat(),
    )


def set_up(owner: Context, tmp_path: Path) -> None:
    settings = resolve({**VECTORS, "output": str(tmp_path / "run")}, tmp_path)
    build_client(owner).on_phase(SETUP, setup_content(settings, named_shape(settings)))


def test_given_an_owner_that_tightens_its_limits_when_the_next_message_comes_then_it_is_refused(
    owner: Context, tmp_path: Path
) -> None:
    set_up(owner, tmp_path)
    build_client(owner)
    owner.node_config["allow-methods"] = "xclp"
    with refuses("owner-does-not-allow", match="fedul"):
        build_client(owner)


@pytest.mark.parametrize("key", ["method", "model"])
def test_given_a_run_with_a_module_of_its_own_when_not_allowed_then_nothing_of_it_is_imported(
    owner: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    (tmp_path / "module_of_a_server.py").write_text("raise SystemExit\n")
    monkeypatch.setenv("FEDUL_PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    named = {key: "module_of_a_server:NAME"}
    owner.run_config.update(named)
    with refuses("owner-does-not-allow", match=f"{key} = "):
        build_client(owner).on_phase(DESCRIBE, Content())
    del owner.run_config[key]
    owner.run_config["method"] = "fedul"
    settings = resolve({**VECTORS, "output": str(tmp_path / "run")}, tmp_path)
    setup = setup_content(settings, named_shape(settings))
    setup.values[SETTINGS] = json.dumps({**settings.to_flat(), **named})
    with refuses("owner-does-not-allow", match=f"{key} = "):
        build_client(owner).on_phase(SETUP, setup)
    assert "module_of_a_server" not in sys.modules
