"""An owner's log: what each run asked of its node, what left it, and nothing of the data."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict

from fedul_flwr.client_app import app as client_app
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.types import Content
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.declared import disclosures
from fedul_flwr.federated.grid import PackingGrid, announce_end
from fedul_flwr.federated.messages import phase_messages
from fedul_flwr.federated.owner.log import COLUMNS, refuse_unwritable, settings_digest
from fedul_flwr.federated.payload import LOSS, OF_ALL, STARTED
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.message_log import TO_SERVER, read_message_log
from tests.support.refusals import refuses
from tests.support.runs import EVERYTHING_ALLOWED, train

ROUNDS = 2
SETTINGS = {
    **{**NO_DATA, "method": "fedul", "model": "mlp", "local-epochs": 1, "num-rounds": ROUNDS},
    "selection": "last",
}


def read_log(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Owners:
    """Two owners whose nodes have a log; runs go through the app that devices have."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.folders = [place / f"ward-{client}" for client in range(2)]
        for client, folder in enumerate(self.folders):
            write_sets(folder, seed=client)

    def log(self, client: int) -> Path:
        return self.place / f"log-{client}.csv"

    def app(self, **node: Any) -> Any:
        def answer(message: Message, context: Context) -> Message:
            client = int(str(context.node_config["partition-id"]))
            named = {"data": str(self.folders[client]), "log": str(self.log(client))}
            context.node_config |= {**named, **EVERYTHING_ALLOWED, **node}
            return client_app(message, context)

        return answer

    def run(self, settings: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> Path:
        config = resolve({**SETTINGS, "output": str(self.place / "run"), **settings}, self.place)
        return train(config, 2, client_app=self.app(), **options)


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return Owners(tmp_path)


def test_given_a_run_then_each_owner_has_a_line_for_every_message_with_its_size_and_content(
    owners: Owners, tmp_path: Path
) -> None:
    run = owners.run(message_log=tmp_path / "messages")
    sent = [m for m in read_message_log(tmp_path / "messages") if m.direction == TO_SERVER]
    flat = json.loads((run / "config.json").read_text())["settings"]
    disclosed = json.loads((run / "disclosures.json").read_text())
    assert disclosed["settings"] == settings_digest(flat)
    assert settings_digest({**flat, "resume": "runs/before"}) == disclosed["settings"]
    assert settings_digest({**flat, "seed": 9}) != disclosed["settings"]
    assert [entry["what"] for entry in disclosed["sent"]] == [
        entry.part.says for entry in disclosures(resolve({**flat, "output": "elsewhere"}, tmp_path))
    ]
    for client in range(2):
        lines = read_log(owners.log(client))
        assert tuple(lines[0]) == COLUMNS
        assert owners.log(client).stat().st_mode & 0o777 == 0o600
        mine = [message for message in sent if message.client == client]
        assert [line["message"] for line in lines] == [m.phase or m.type for m in mine]
        trained = [line for line in lines if line["message"] == "train"]
        assert [line["round"] for line in trained] == ["1 of 2", "2 of 2"]
        assert {line["settings"] for line in lines[1:]} == {disclosed["settings"]}
        assert {line["outcome"] for line in lines} == {"answered"}
        assert {line["method"] for line in lines} == {"fedul"}
        sizes = [sum(len(a.data) for a in m.arrays) for m in mine if m.type == "train"]
        for line, size in zip(trained, sizes, strict=True):
            # beside the model seven numbers of 8 bytes
            assert int(line["bytes_sent"]) == size + 32 + 24
            assert line["sent"] == (
                "the model after local training, to the server; all clients get the mean "
                f"({size} bytes); {OF_ALL[LOSS].says}, to the server (32 bytes); "
                f"{OF_ALL[STARTED].says}, to the server (24 bytes)"
            )
            assert int(line["bytes_received"]) >= size


def test_given_what_a_method_does_not_declare_then_it_does_not_leave(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = FedULClient.register
    monkeypatch.setattr(FedULClient, "register", lambda self: {**register(self), "diagnosis": 7})
    with refuses("client-failed", match="diagnosis.*FedULClient.answers"):
        owners.run({"num-rounds": 1})
    [line] = [line for line in read_log(owners.log(0)) if line["message"] == "setup"]
    assert (line["bytes_sent"], line["sent"]) == ("0", "")
    assert line["outcome"].startswith("not answered: ")


def test_given_the_log_then_no_path_name_or_value_of_the_data_is_in_it(owners: Owners) -> None:
    owners.run()
    content = owners.log(1).read_text()
    assert str(owners.place) not in content
    # The word "priors" is in what a method declares.
    for name in (path.stem for path in owners.folders[1].iterdir() if path.stem != "priors"):
        assert name not in content, name


def refused(owners: Owners, **node: Any) -> list[dict[str, str]]:
    config = resolve({**SETTINGS, "output": str(owners.place / "run")}, owners.place)
    with pytest.raises(UserError):
        train(config, 2, client_app=owners.app(**node))
    return read_log(owners.log(0))


def test_given_a_run_that_the_owner_does_not_allow_then_the_refusal_is_in_the_log(
    owners: Owners,
) -> None:
    last = refused(owners, **{"allow-methods": "xclp"})[-1]
    assert (last["message"], last["bytes_sent"], last["sent"]) == ("setup", "0", "")
    assert last["outcome"].startswith("not answered: The node's owner does not allow")
    assert last["settings"] != ""


@pytest.mark.usefixtures("identity")
def test_what_a_server_says_is_no_formula_in_the_log(owners: Owners) -> None:
    asked = phase_messages("end", {5: Content(values={"end": "ended"})})[0]
    context = Context(7, 5, {"partition-id": 0}, RecordDict(), {"method": "=1+1"})
    with pytest.raises(UserError):
        owners.app()(asked, context)
    [line] = read_log(owners.log(0))
    assert line["method"] == "'=1+1"


def test_given_a_log_that_cannot_be_written_then_nothing_is_sent(owners: Owners) -> None:
    owners.log(0).mkdir()
    config = resolve({**SETTINGS, "output": str(owners.place / "run")}, owners.place)
    with refuses("client-failed", match="log"):
        train(config, 2, client_app=owners.app())
    with pytest.raises(OwnDataError, match="log"):
        refuse_unwritable(owners.log(0))
    with pytest.raises(OwnDataError, match="log"):
        refuse_unwritable(owners.place / "no folder" / "log.csv")
    refuse_unwritable(owners.place / "new.csv")


@pytest.mark.usefixtures("identity")
def test_given_a_link_to_nowhere_as_log_then_nothing_is_sent(owners: Owners) -> None:
    nowhere = owners.place / "nowhere.csv"
    owners.log(0).symlink_to(nowhere)
    config = resolve({**SETTINGS, "output": str(owners.place / "run")}, owners.place)
    with refuses("client-failed"):
        train(config, 2, client_app=owners.app())
    assert not nowhere.exists()


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize("how", ["finished", "failed"])
def test_given_the_end_of_a_run_when_announced_then_it_is_in_the_log(
    owners: Owners, how: str
) -> None:
    class Device(PackingGrid):
        def __init__(self) -> None:
            self.waiting: dict[str, Message] = {}

        def get_node_ids(self) -> list[int]:
            return [5]

        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            context = Context(7, 5, {"partition-id": 0}, RecordDict(), {"method": "fedul"})
            return [owners.app()(message, context) for message in messages]

    announce_end(Device(), how)
    [line] = read_log(owners.log(0))
    assert (line["message"], line["outcome"]) == ("end", f"the run has {how}")
    assert line["bytes_sent"] == "0"
