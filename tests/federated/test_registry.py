"""Clients that come late, go, come back, or are somebody else."""

import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.baselines.labels_only import LabelsOnly
from fedul_flwr.config.methods import METHODS, Method
from fedul_flwr.data.run_files.records import incident_rows, missing, missing_in_words
from fedul_flwr.data.types import Content
from fedul_flwr.engine.simulate import _who
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import CONFIG, SETUP_BEFORE, phase_of
from fedul_flwr.federated.policies import LabeledClientStages
from fedul_flwr.results.model_file import pack
from tests.support.fake_fleet import OWNERS, Flock, run_fleet, write_owners
from tests.support.refusals import refuses
from tests.support.runs import metrics, same, summary
from tests.support.settings import Settings

Run = Callable[..., tuple[Path, Flock]]
ALL = range(4)
LENIENT = {"on_client_failure": "continue"}
FLEET = {"partitions", "announced", "forgets", "fails", "silent", "lost", "registered"}


@pytest.fixture
def run(settings: Settings, tmp_path: Path) -> Run:
    """``run(there=…, **settings)`` of four owners; results, and what was heard."""
    write_owners(tmp_path / "owners", 4)

    def start(there: Callable[[int], Any] = lambda round: ALL, **options: Any) -> Any:
        told = {key: options.pop(key) for key in FLEET & options.keys()}
        fleet: dict[str, Any] = {"partitions": ALL, "announced": 4, "there": there, **told}
        return run_fleet(settings(**{**OWNERS, **options}), tmp_path / "owners", **fleet)

    return start


def counts(directory: Path) -> list[tuple[int, int]]:
    return [(line["clients"], line["failures"]) for line in metrics(directory)]


def federation(directory: Path) -> dict[int, str]:
    found = json.loads((directory / "federation.json").read_text())["clients"]
    return {client["id"]: client["status"] for client in found}


# Late


def late(round: int) -> range:
    return ALL if round > 2 else range(3)


def test_who_comes_late_joins(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="flwr")
    directory, flock = run(late, **LENIENT)
    assert counts(directory) == [(3, 0), (3, 0), (4, 0), (4, 0)]
    assert flock.heard[3][:2] == [("describe", 3), ("setup", 3)]
    assert flock.asked(3, "train") == [0, 1, 2, 3]
    assert len(flock.heard[2]) == 3
    assert len(flock.heard[4]) == 4
    assert federation(directory) == dict.fromkeys(ALL, "accepted")
    assert summary(directory)["num_clients"] == 4
    started = "Only 3 of 4 nodes connected within connect-timeout = 0.05 s. The run starts with"
    assert started in caplog.text
    assert "Round 3: clients that have joined: 3" in caplog.text


def test_nobody_comes(run: Run) -> None:
    with refuses("too-few-clients", match="0 of 1"):
        run(lambda round: [], **LENIENT)


# Back again


def test_who_was_restarted_is_prepared_again(run: Run) -> None:
    """Node 1 is gone in round 2, and back in round 3 without a memory."""
    away = lambda round: [0, 2, 3] if round == 2 else ALL  # noqa: E731
    directory, flock = run(away, forgets=[(3, 1)], **LENIENT)
    assert counts(directory) == [(4, 0), (3, 1), (4, 0), (4, 0)]
    found = summary(directory)
    # It was away in round 2, where everybody is drawn: so it also failed.
    assert (found["failed"], found["away"]) == ({"Client 1": [2]}, {"Client 1": [2]})
    rows = incident_rows({kind: found[kind] for kind in ("failed", "away")})
    assert rows == dict.fromkeys(("failed", "away"), "Client 1 (round 2)")
    assert flock.heard[3][0] == ("setup", 1)
    assert flock.asked(3, "setup") == [1]
    assert flock.asked(3, "train") == [0, 1, 2, 3]
    prepared = [message for message in flock.told if phase_of(message) == "setup"]
    before = [message.content[CONFIG].get(SETUP_BEFORE) for message in prepared]
    assert before == [None, None, None, None, True]


def test_who_is_away_is_not_drawn_where_others_are(run: Run) -> None:
    """Half of four is two, and three are there; in round 1 and from round 4 on all are."""
    half = {"fraction_train": 0.5, "num_rounds": 6, **LENIENT}
    full = run(**half)[1]
    away = full.asked(2, "train")[0]
    rest = [node for node in ALL if node != away]
    directory, flock = run(lambda round: rest if round in (2, 3) else ALL, **half)
    assert counts(directory) == [(2, 0)] * 6
    assert all(away not in flock.asked(number, "train") for number in (2, 3))
    for number in (1, 4, 5, 6):
        assert flock.asked(number, "train") == full.asked(number, "train")


def test_where_too_few_are_there_they_are_drawn_from_all(run: Run) -> None:
    """Three quarters of four are three, and only two are there: one or two of them are drawn."""
    plan = {"fraction_train": 0.75, **LENIENT}
    full = run(**plan)[1]
    directory, flock = run(lambda round: [0, 1] if round > 1 else ALL, **plan)
    for number in (2, 3, 4):
        drawn = full.asked(number, "train")
        here = [node for node in drawn if node in (0, 1)]
        assert flock.asked(number, "train") == here
        assert counts(directory)[number - 1] == (len(here), 3 - len(here))


# There, and silent


def test_a_member_that_hangs_holds_up_one_round(run: Run) -> None:
    """Node 1 is silent in rounds 2 to 5, gone in round 6, and back from then on."""
    directory, flock = run(
        lambda round: [0, 2, 3] if round == 6 else ALL,
        silent=[(number, 1) for number in range(2, 6)],
        num_rounds=8,
        **LENIENT,
    )
    asked = [flock.asked(number, "setup") for number in range(2, 9)]
    assert asked == [[], [1], [], [], [], [1], []]
    assert flock.bounds[3, "setup"] == 0.05  # connect-timeout
    assert flock.bounds[2, "train"] == 3600  # round-timeout
    assert counts(directory) == [(4, 0), *[(3, 1)] * 5, (4, 0), (4, 0)]
    assert flock.asked(7, "train") == [0, 1, 2, 3]


def test_a_run_begins_where_the_first_nodes_hang(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    directory, flock = run(silent=[(1, 0), (1, 1), (2, 1)], **LENIENT)
    assert flock.heard[1][:4] == [("describe", node) for node in ALL]
    assert flock.bounds[1, "describe"] == 0.025  # half of connect-timeout, twice at most
    assert re.search("Node 1001 .*no answer", caplog.text)
    # Node 0 is heard again before round 2, as a newcomer; node 1 is silent then too.
    assert counts(directory) == [(2, 2), (3, 0), (3, 0), (3, 0)]


# Somebody else


def test_another_node_of_a_client_that_is_there_is_refused_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    five = lambda round: range(5) if round > 1 else ALL  # noqa: E731
    directory, flock = run(five, partitions=[0, 1, 2, 3, 2])
    assert caplog.text.count("Node 1004 takes no part: Node 1002 has its partition-id, 2.") == 1
    assert [flock.asked(number, "describe") for number in (2, 3, 4)] == [[4], [], []]
    assert ("setup", 4) not in flock.heard[2]
    assert same(directory, run()[0])


def test_a_client_without_a_key_comes_back_as_another_node(run: Run) -> None:
    """Node 1 had partition 1, node 4 has it from round 3 on."""
    there = [ALL, [0, 2, 3], [0, 2, 3, 4], [0, 2, 3, 4]]
    moved = lambda round: there[min(round, 4) - 1]  # noqa: E731
    directory, flock = run(moved, partitions=[0, 1, 2, 3, 1], **LENIENT)
    assert counts(directory) == [(4, 0), (3, 1), (4, 0), (4, 0)]
    assert flock.heard[3][:2] == [("describe", 4), ("setup", 4)]
    assert flock.asked(4, "train") == [0, 2, 3, 4]
    assert federation(directory) == dict.fromkeys(ALL, "accepted")
    assert summary(directory)["num_clients"] == 4
    stays = run(lambda round: [0, 2, 3] if round == 2 else ALL, **LENIENT)[0]
    assert same(directory, stays)


def impostor(round: int) -> Any:
    """Node 4 comes in round 2, while node 0 is gone; from round 3 on both are there."""
    return {1: ALL, 2: range(1, 5)}.get(round, range(5))


@pytest.mark.parametrize("registered", [[0], [4]])
def test_a_registered_node_neither_loses_its_place_nor_takes_one(
    run: Run, caplog: pytest.LogCaptureFixture, registered: Any
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    directory, flock = run(impostor, partitions=[0, 1, 2, 3, 0], registered=registered, **LENIENT)
    name = " (owner-4)" if 4 in registered else ""
    said = (
        f"Node 1004{name} takes no part: partition-id 0 is that of a node that is gone, and "
        "registered nodes keep theirs."
    )
    assert caplog.text.count(said) == 1
    assert [flock.asked(number, "train") for number in (2, 3)] == [[1, 2, 3], [0, 1, 2, 3]]
    assert [flock.asked(number, "describe") for number in (2, 3, 4)] == [[4], [], []]
    assert counts(directory) == [(4, 0), (3, 1), (4, 0), (4, 0)]


def test_two_nodes_with_one_partition_at_the_start(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Nodes 2 and 3 say that they are client 2; node 2 is gone from round 3 on."""
    caplog.set_level("WARNING", logger="flwr")
    options = {"partitions": [0, 1, 2, 2], "announced": 4}
    directory, flock = run(lambda round: ALL if round < 3 else [0, 1, 3], **options, **LENIENT)
    assert caplog.text.count("Node 1003 takes no part: Node 1002 has its partition-id, 2.") == 1
    assert [flock.asked(number, "train") for number in (1, 2, 3)] == [
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 3],
    ]
    assert counts(directory) == [(3, 0)] * 4
    assert summary(directory)["num_clients"] == 3
    with refuses("name-twice", match="Node 1002 .* Node 1003 .* 2 "):
        run(**options)


@pytest.fixture
def owners_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of owners by which node n is registered as owner-n and is client 3 - n."""
    file = tmp_path / "owners.txt"
    file.write_text("".join(f"{3 - n} owner-{n}\n" for n in ALL))
    monkeypatch.setenv("FEDUL_OWNERS", str(file))
    return file


def test_given_a_list_of_owners_when_one_claims_the_number_of_another_then_it_alone_is_refused(
    run: Run, owners_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    # Node 0, of the lowest id, claims the number of owner-2, and so does node 4 without a name.
    five = lambda round: range(5) if round > 1 else ALL  # noqa: E731
    options = {"partitions": [1, 2, 1, 0, 1], "announced": 4, "registered": ALL}
    _, flock = run(five, **options, **LENIENT)
    assert [flock.asked(number, "train") for number in (1, 2)] == [[1, 2, 3], [1, 2, 3]]
    said = "its node config has partition-id 1, which is that of owner-2"
    assert f"{said}; owner-0 has 3" in caplog.text
    assert f"Node 1004 takes no part: {said}" in caplog.text
    with pytest.raises(UserError, match=f"owner-0.*{said}"):
        run(**options)


def test_given_owners_when_one_goes_then_lines_and_card_say_who_the_model_has_learned_from(
    run: Run, owners_file: Path
) -> None:
    """Owner-1 is killed in round 2 and never comes back; another owner has never come."""
    with owners_file.open("a") as file:
        file.write("# 8 gone, until 2026-01-01\n9 absent\n")
    there = lambda round: ALL if round == 1 else [0, 2, 3]  # noqa: E731
    fleet = {"partitions": [3, 2, 1, 0], "registered": ALL, "fails": [(1, 2)]}
    directory, _ = run(there, **fleet, selection="last", **LENIENT)
    lines = metrics(directory)
    # In the order of their numbers, 0 to 3, which are those of owner-3 to owner-0.
    assert [line["owners"] for line in lines] == [
        ["owner-3", "owner-1", "owner-0"],
        *[["owner-3", "owner-2", "owner-0"]] * 3,
    ]
    assert {line["members"] for line in lines} == {5}
    never = {"Client 9 (absent)": "it has not come"}
    assert missing(lines[0]) == {**never, "Client 1 (owner-2)": 'it says "no connection"'}
    gone = {"Client 2 (owner-1)": "its node is not connected"}
    assert missing(lines[3]) == {**gone, **never}
    assert missing_in_words(lines[3]) in _who(lines[3])
    assert summary(directory)["reasons"] == {**missing(lines[0]), **gone}
    card = (directory / "model-card.md").read_text()
    assert "| owners in round 4 | owner-3, owner-0, owner-2 |" in card
    assert (
        "| owners in the rounds to it | owner-3 (rounds 1-4), owner-1 (round 1), "
        "owner-0 (rounds 1-4), owner-2 (rounds 2-4) |"
    ) in card
    with zipfile.ZipFile(pack(directory)) as packed:
        assert "owner-1 (round 1)" in packed.read("model-card.md").decode()


def test_given_an_owner_added_while_a_run_goes_on_then_it_joins_and_a_removed_one_does_not(
    run: Run, owners_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    listed = owners_file.read_text().splitlines(keepends=True)
    owners_file.write_text("".join(listed[:2]))

    def there(round: int) -> range:
        if round == 3:  # `deploy add` has written the list anew
            owners_file.write_text("".join(listed[:3]) + "# 0 owner-3, until 2026-01-01\n")
        return ALL if round > 2 else range(2)

    fleet = {"partitions": [3, 2, 1, 0], "announced": 9, "registered": ALL}
    directory, _ = run(there, **fleet, **LENIENT)
    assert [line["owners"] for line in metrics(directory)] == [
        *[["owner-1", "owner-0"]] * 2,
        *[["owner-2", "owner-1", "owner-0"]] * 2,
    ]
    assert "away" not in metrics(directory)[0]  # the list has two, whatever nodes announce
    assert "partition-id 0, which is that of nobody in the list of owners" in caplog.text


# Newcomers that are refused


class PickyClients(LabeledClientStages):
    def changed(self, answers: Mapping[int, Content]) -> None:
        super().changed(answers)
        if 3 in answers:
            raise UserError("Client 3 is one too many.")


class Picky(LabelsOnly):
    policy_class = PickyClients


PICKY = Method(
    name="picky",
    strategy="tests.federated.test_registry:Picky",
    client="fedul_flwr.baselines.labels_only:LabelsOnlyClient",
    settings=METHODS["labels-only"].settings,
    data="partly-labeled",
)


def test_a_newcomer_that_the_method_refuses_leaves_all_as_it_was(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    method = {"method": "tests.federated.test_registry:PICKY"}
    directory, flock = run(late, announced=3, **method)
    assert counts(directory) == [(3, 0)] * 4
    assert caplog.text.count("Client 3 takes no part: Client 3 is one too many.") == 1
    assert flock.asked(4, "describe") == []
    without, _ = run(lambda round: range(3), announced=3)
    assert same(directory, without)
    with pytest.raises(UserError, match="Client 3"):
        run(**method)
