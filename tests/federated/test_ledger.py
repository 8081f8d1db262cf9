"""An owner's ledger: what was answered and spent, over all runs and processes."""

import math
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.errors import OwnDataError
from fedul_flwr.federated.owner.ledger import LEDGER, Ledger, ledger_file, spender
from fedul_flwr.secure.noise import gaussian_epsilon
from fedul_flwr.secure.sharing import quorum
from tests.support.refusals import refuses


def test_sums_are_answered_in_ascending_order_in_each_run(tmp_path: Path) -> None:
    file = tmp_path / "ward.ledger"
    assert Ledger(file).last_answer(2**63 + 1) == 0
    assert Ledger(file).answer(2**63 + 1, 3)
    assert not Ledger(file).answer(2**63 + 1, 3)
    assert not Ledger(file).answer(2**63 + 1, 2)
    assert Ledger(file).answer(2**63 + 1, 5)
    assert Ledger(file).answer(7, 3)
    assert [Ledger(file).last_answer(run) for run in (2**63 + 1, 7, 8)] == [5, 3, 0]
    assert file.stat().st_mode & 0o777 == 0o600


def test_nobody_but_its_owner_reads_the_folder_of_a_ledger(tmp_path: Path) -> None:
    file = tmp_path / "ward.ledger" / LEDGER
    assert Ledger(file).answer(1, 1)
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_of_many_processes_one_answers(tmp_path: Path) -> None:
    def answer(_: int) -> bool:
        return Ledger(tmp_path / "ward.ledger").answer(1, 9)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(answer, range(16))) == 1


def bound(ledger: Ledger, question: bytes, clients: list[int], **options: bool) -> list[int]:
    return ledger.others(question, "Heads", clients, **{"fixed": False, "note": True, **options})


def test_a_question_is_bound_to_its_clients(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ward.ledger")
    assert bound(ledger, b"a", [4, 0, 2], note=False) == []  # asks, and binds nothing
    assert bound(ledger, b"a", [0, 1]) == []
    assert bound(ledger, b"a", [4, 0, 2]) == [0, 1]
    assert bound(ledger, b"b", [4, 0, 2]) == []
    assert bound(ledger, b"a", [1, 0]) == []


def test_with_a_fixed_group_each_question_of_a_kind_is_bound(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ward.ledger")
    assert bound(ledger, b"a", [0, 1, 2], fixed=True) == []
    assert bound(ledger, b"b", [0, 1], fixed=True) == [0, 1, 2]
    assert ledger.others(b"b", "HeldOut", [0, 1], fixed=True, note=True) == []
    assert ledger.regroup() == {"Heads": [0, 1, 2], "HeldOut": [0, 1]}
    assert bound(ledger, b"a", [0, 1], fixed=True) == []


def test_of_many_processes_with_other_groups_one_is_bound(tmp_path: Path) -> None:
    def bind(number: int) -> bool:
        return not bound(Ledger(tmp_path / "ward.ledger"), b"a", [0, 1, number], fixed=True)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(bind, range(2, 18))) == 1


def test_releases_add_up_and_one_beyond_the_limit_is_not_noted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ward.ledger")
    # Two releases with z = 1: μ² = 2, so ε = 6.26 at δ = 1e-5; three have more.
    two, three = (gaussian_epsilon(math.sqrt(count), 1e-5) for count in (2, 3))
    for _ in range(2):
        ledger.spend("updates", 1.0, (two + three) / 2)
    for _ in range(2):
        with refuses("privacy-budget", limit="max-epsilon"):
            ledger.spend("updates", 1.0, (two + three) / 2)
    ledger.spend("codes", 0.25, (two + three) / 2)  # an account of its own
    one, other = ledger.spent()
    assert "1 message(s)" in one
    assert f"2 message(s): epsilon = {two:.4g} " in other
    ledger.spend("updates", 1.0, 0)  # no limit
    assert f"3 message(s): epsilon = {three:.4g} " in ledger.spent()[1]


def test_a_release_without_noise_is_counted_and_beyond_every_limit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ward.ledger")
    with refuses("privacy-budget"):
        ledger.spend("distances", math.inf, 1e6)
    ledger.spend("distances", math.inf, 0)
    assert "1 message(s): without bound" in ledger.spent()[0]


def test_the_same_data_have_one_ledger_whatever_folder_a_node_has(tmp_path: Path) -> None:
    data = tmp_path / "ward"
    data.mkdir()
    (tmp_path / "link").symlink_to(data)
    assert ledger_file(NodeConfig()) is None
    names = (str(data), str(tmp_path / "link"), f"{data}/../ward/")
    nodes = [NodeConfig(data=name, log=str(tmp_path / f"{i}.csv")) for i, name in enumerate(names)]
    assert {ledger_file(node) for node in nodes} == {tmp_path / "ward.ledger" / LEDGER}
    elsewhere = NodeConfig(data=str(data), ledger=str(tmp_path / "kept"))
    assert ledger_file(elsewhere) == tmp_path / "kept" / LEDGER
    spender(NodeConfig())("updates", 1.0)  # a simulation has none


@pytest.mark.parametrize("kind", ["a folder", "a link", "no database", "no folder"])
def test_a_ledger_that_cannot_be_used_lets_nothing_out(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "ward.ledger"
    if kind == "a folder":
        file.mkdir()
    elif kind == "a link":
        file.symlink_to(tmp_path / "nowhere")
    elif kind == "no database":
        file.write_text("not one of ours, and long enough to be read as a header of pages")
    else:
        file = tmp_path / "missing" / "ward.ledger" / LEDGER
    with refuses("file-not-writable", OwnDataError):
        Ledger(file).answer(1, 1)


def test_another_process_waits_while_one_asks_and_notes(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ward.ledger")
    ledger.regroup()  # makes its tables
    with ThreadPoolExecutor(1) as pool:
        with ledger._open():
            other = pool.submit(bound, ledger, b"a", [0, 1, 2], fixed=True)
            done, _ = wait([other], timeout=0.5)
            assert not done
        assert other.result() == []


OWNERS = frozenset(range(5))
GROUPS = st.frozensets(st.sampled_from(sorted(OWNERS)), min_size=3)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["SummedUpdates", "Heads"]),
        st.binary(max_size=1),
        GROUPS,
        st.frozensets(st.sampled_from(sorted(OWNERS))),
    ),
    max_size=8,
)


def opened(requests: Any, *, fixed: bool) -> dict[str, list[list[int]]]:
    """Groups whose sums a server opens, by kind.

    Questions, groups, their order, restarts and who hears of the list are the server's. Each owner
    has a ledger of its own. A sum is opened if all of its group have sent a vector, and a quorum
    has signed the list.
    """
    rows: dict[str, list[list[int]]] = {}
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(dir=memory) as folder:
        ledgers = {owner: Ledger(Path(folder) / f"{owner}.ledger") for owner in OWNERS}
        for kind, question, group, hears in requests:
            asks = [question, kind, group]
            if any(ledgers[one].others(*asks, fixed=fixed, note=False) for one in group):
                continue
            here = sorted(group & hears)
            signed = [not ledgers[one].others(*asks, fixed=fixed, note=True) for one in here]
            if sum(signed) >= quorum(len(group)):
                rows.setdefault(kind, []).append([owner in group for owner in sorted(OWNERS)])
    return rows


def told(groups: list[list[int]]) -> list[int]:
    """Owners whose part is a combination of the sums over these groups."""
    sums = np.array(groups, float)
    rank = np.linalg.matrix_rank(sums)
    return [
        owner
        for owner in range(len(OWNERS))
        if np.linalg.matrix_rank(np.vstack([sums, np.eye(len(OWNERS))[owner]])) == rank
    ]


@pytest.mark.parametrize("traces", [40, pytest.param(10_000, marks=pytest.mark.slow)])
def test_whatever_a_server_asks_no_combination_of_sums_is_one_owners_part(traces: int) -> None:
    """Questions may be nearly the same, so nothing that differs in them counts."""

    @settings(max_examples=traces, deadline=None, database=None)
    @given(REQUESTS)
    def holds(requests: Any) -> None:
        for groups in opened(requests, fixed=True).values():
            assert told(groups) == []

    holds()


def test_without_fixed_groups_a_combination_is_one_owners_part() -> None:
    """The control: two questions that differ by a hair."""
    four = OWNERS - {2}
    asked = [("Heads", b"a", OWNERS, OWNERS), ("Heads", b"b", four, four)]
    assert told(opened(asked, fixed=False)["Heads"]) == [2]
    assert told(opened(asked, fixed=True)["Heads"]) == []
