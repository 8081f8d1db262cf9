"""A model in closed form without an owner that has left: equal to one that never had it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import resolve
from fedul_flwr.deploy.forget import settings_again
from fedul_flwr.federated.owner.ledger import LEDGER, Ledger
from fedul_flwr.federated.stages.heads import client_sums
from fedul_flwr.federated.sums.server import SecureSums
from tests.support.learnable_owners import NO_DATA, write_labeled, write_sets
from tests.support.lying_server import Owners
from tests.support.refusals import code_of, refuses
from tests.support.runs import last_model, train
from tests.support.settings import Settings

VICTIM = 4
METHODS: dict[str, dict[str, Any]] = {
    "sets": {"method": "closed-form", "model": "whitened-filters"},
    "vectors": {"method": "closed-form-labels", "model": "linear"},
}
CLOSED: dict[str, Any] = {**NO_DATA, "num_rounds": 2, "selection": "last", "precision": "float32"}


def owners(root: Path, kind: str, **limits: Any) -> Owners:
    return Owners(root, 5, write_sets if kind == "sets" else write_labeled, **limits)


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, list[int]]]:
    """Every sum that the server opens: of what, its numbers, and over whom."""
    opened: list[tuple[str, Any, list[int]]] = []
    honest = SecureSums.collect

    def collect(self: SecureSums, grid: Any, of: str, *others: Any) -> Any:
        numbers, left = honest(self, grid, of, *others)
        opened.append((of, np.array(numbers, np.float64), left))
        return numbers, left

    monkeypatch.setattr(SecureSums, "collect", collect)
    return opened


def run(settings: Settings, owners: Owners, kind: str, clients: int) -> Path:
    options = {"require-secure-sum": False}
    owners.limits |= options
    return train(settings(**CLOSED, **METHODS[kind]), clients, client_app=owners.app)


def assert_same_bits(one: Path, other: Path) -> None:
    here, there = last_model(one), last_model(other)
    assert here.keys() == there.keys()
    for name, array in here.items():
        np.testing.assert_array_equal(array, there[name], strict=True)


def leave(owner: Owners, tmp_path: Path) -> Path:
    """The victim's statement, by the command in its folder."""
    file = tmp_path / "leaves.json"
    command("leave", node_file(owner, VICTIM), "-o", str(file))
    return file


def node_file(owner: Owners, client: int) -> str:
    file = owner.root / f"{client}.toml"
    own = {"data": owner.folders[client], "identity": owner.root / "keys" / str(client)}
    lines = [f'{key} = "{value}"' for key, value in own.items()]
    file.write_text("\n".join([*lines, f"partition-id = {client}"]))
    return str(file)


def command(*words: str) -> str:
    done = CliRunner().invoke(app, ["deploy", "runs", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("fixed", [False, True])
def test_given_a_statement_then_the_model_is_that_of_a_run_without_the_owner(
    kind: str, fixed: bool, settings: Settings, tmp_path: Path
) -> None:
    never = run(settings, owners(tmp_path / "never", kind), kind, VICTIM)
    all_owners = owners(tmp_path / "all", kind, **{"fixed-clients": fixed})
    both = run(settings, all_owners, kind, VICTIM + 1)
    with pytest.raises(AssertionError):
        assert_same_bits(both, never)
    with refuses("client-failed"):  # each of the others refuses a sum without it
        run(settings, all_owners, kind, VICTIM)
    statement = leave(all_owners, tmp_path)
    for client in range(VICTIM):
        command("regroup", node_file(all_owners, client), "--without", str(statement))
        ledger = Ledger(all_owners.folders[client].with_suffix(".ledger") / LEDGER)
        assert ledger.groups()["Heads"] == [0, 1, 2, 3]
    assert_same_bits(run(settings, all_owners, kind, VICTIM), never)
    with refuses("client-failed"):  # nor again with it, or without another one
        run(settings, all_owners, kind, VICTIM + 1)
    with refuses("client-failed"):
        run(settings, all_owners, kind, VICTIM - 1)


def test_what_a_server_that_has_kept_the_old_sums_computes(
    settings: Settings,
    tmp_path: Path,
    sums: list[tuple[str, Any, list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The victim's own sums, to the last step of fixed point: as docs/privacy.md says."""
    own: list[NDArray[np.float64]] = []

    def seen(client: Any, content: Any) -> Any:
        flat = client_sums(client, content)
        if client.node.partition_id == VICTIM:
            own.append(flat)
        return flat

    monkeypatch.setattr("fedul_flwr.federated.stages.heads.client_sums", seen)
    there = owners(tmp_path, "vectors")
    run(settings, there, "vectors", VICTIM + 1)
    statement = leave(there, tmp_path)
    for client in range(VICTIM):
        command("regroup", node_file(there, client), "--without", str(statement))
    run(settings, there, "vectors", VICTIM)
    (_, before, _), (_, after, _) = [one for one in sums if one[0] == "head"]
    np.testing.assert_allclose((before - after).sum(axis=1), own[0].sum(axis=1), rtol=0, atol=1e-9)


def test_a_statement_is_the_signers_alone(tmp_path: Path) -> None:
    there = owners(tmp_path, "sets")
    for client in range(5):
        Ledger(there.folders[client].with_suffix(".ledger") / LEDGER).regroup()
    statement = leave_of(there, tmp_path)
    about = json.loads(statement.read_text())
    assert about["owner"] == VICTIM
    for change in ({"owner": 1}, {"date": "2020-01-01"}, {"signature": "00" * 132}, {"owner": 9}):
        statement.write_text(json.dumps({**about, **change}))
        wrong = CliRunner().invoke(
            app, ["deploy", "runs", "regroup", node_file(there, 0), "--without", str(statement)]
        )
        assert code_of(wrong.output) == "signature-wrong"
    without_key = there.root / "no-key.toml"
    without_key.write_text(f'data = "{there.folders[VICTIM]}"\n')
    wrong = CliRunner().invoke(
        app, ["deploy", "runs", "leave", str(without_key), "-o", str(tmp_path / "x")]
    )
    assert code_of(wrong.output) == "options-contradict"


def leave_of(there: Owners, tmp_path: Path) -> Path:
    file = tmp_path / "statement.json"
    command("leave", node_file(there, VICTIM), "-o", str(file))
    again = CliRunner().invoke(
        app, ["deploy", "runs", "leave", node_file(there, VICTIM), "-o", str(file)]
    )
    assert code_of(again.output) == "file-exists"
    return file


def test_without_an_owner_each_group_lacks_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ward.ledger")
    for kind, group in (("Heads", [0, 1, 2, 3]), ("HeldOut", [0, 1, 2])):
        assert not ledger.others(kind.encode(), kind, group, fixed=True, note=True)
    assert ledger.without(3) == {"Heads": [0, 1, 2], "HeldOut": [0, 1, 2]}
    assert ledger.others(b"Heads", "Heads", [0, 1, 2, 3], fixed=False, note=False) == [0, 1, 2]
    assert ledger.others(b"other", "Heads", [0, 1], fixed=True, note=True) == [0, 1, 2]
    assert not ledger.others(b"other", "Heads", [0, 1, 2], fixed=True, note=True)


def test_a_run_that_trained_forgets_nobody(settings: Settings, tmp_path: Path) -> None:
    there = owners(tmp_path, "vectors")
    trained = {**NO_DATA, "method": "labels-only", "model": "mlp", "num_rounds": 1}
    there.limits |= {"require-secure-sum": False}
    run_ = train(settings(**trained, selection="last"), 5, client_app=there.app)
    with refuses("method-mismatch"):
        settings_again(run_, "west", tmp_path / "again")
    closed = run(settings, there, "vectors", 5)
    with refuses("unknown-name", name="west"):
        settings_again(closed, "west", tmp_path / "again")
    name_owners(closed, "west")
    again = settings_again(closed, "west", tmp_path / "again")
    # A server takes them as it took those of the first run.
    assert resolve(again.to_flat(), tmp_path).num_rounds == 2
    before = settings_of(closed)
    changed = {key for key, value in again.to_flat().items() if value != before.get(key, value)}
    assert changed - find_method(again.method).idle == {"output"}


def name_owners(directory: Path, name: str) -> None:
    file = directory / "federation.json"
    about = json.loads(file.read_text())
    about["clients"][0]["name"] = name
    file.write_text(json.dumps(about))


def settings_of(directory: Path) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((directory / "config.json").read_text())["settings"]
    return stored
