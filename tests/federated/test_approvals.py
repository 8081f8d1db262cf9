"""Owners who approve each run: who takes part, what the server learns, what is another run."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.deploy.runs import decide, protects_less, shown
from fedul_flwr.errors import OwnDataError
from fedul_flwr.federated import members
from fedul_flwr.federated.owner import ledger
from fedul_flwr.federated.owner.ledger import Approvals, Ledger, changes, describe_run, digest_of
from tests.support.identities import identities, write_identity
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.refusals import code_of, refuses
from tests.support.runs import MeddlingGrid, metrics, own_data_app, train

SETTINGS = {
    **{**NO_DATA, "method": "fedul", "model": "mlp", "local-epochs": 1, "selection": "last"},
    **{"on-client-failure": "continue", "num-rounds": 4},
}
OWNERS = range(3)


class Consortium:
    """Three owners with keys, who approve each run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.data = [place / f"ward-{client}" for client in OWNERS]
        for client, identity in identities(OWNERS).items():
            write_sets(self.data[client], seed=client)
            write_identity(self.own(client), identity)

    def own(self, client: int) -> Path:
        return self.place / f"owner-{client}"

    def node(self, client: int) -> NodeConfig:
        own = self.own(client)
        return NodeConfig.parse(
            {"partition-id": client, "data": str(self.data[client]), "identity": str(own)}
            | {"log": str(own / "log.csv"), "approve": "each-run"}
        )

    def approvals(self, client: int) -> Approvals:
        return Approvals.of_node(self.node(client))

    def settings(self, **flat: Any) -> RunConfig:
        named = {key.replace("_", "-"): value for key, value in flat.items()}
        named.setdefault("output", str(self.place / f"run-{len([*self.place.glob('run-*')])}"))
        return resolve({**SETTINGS, **named}, self.place)

    def run(self, wrap_grid: Any = None, **flat: Any) -> Path:
        folders = str(self.own(0)).replace("owner-0", "owner-{client}")
        client_app = own_data_app(
            self.data, identity=folders, log=f"{folders}/log.csv", approve="each-run"
        )
        meddled = {} if wrap_grid is None else {"wrap_grid": wrap_grid}
        return train(self.settings(**flat), 3, client_app=client_app, **meddled)


@pytest.fixture
def consortium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Consortium:
    monkeypatch.setattr(members, "QUIET", 0.05)
    return Consortium(tmp_path)


@pytest.fixture
def persons() -> Iterator[Callable[[Approvals, Callable[[Approvals, str], None]], None]]:
    """``persons(approvals, decide)``: somebody who decides on the first run that is asked for."""
    ended, threads = threading.Event(), []

    def wait(of: Approvals, decide: Callable[[Approvals, str], None]) -> None:
        def look() -> None:
            while not ended.wait(0.02):
                if of.file.exists() and (runs := of.runs()):
                    decide(of, next(iter(runs)))
                    return

        threads.append(threading.Thread(target=look))
        threads[-1].start()

    yield wait
    ended.set()
    for thread in threads:
        thread.join()


def approve(of: Approvals, digest: str) -> None:
    of.decide(digest, "approved")


def test_one_approves_late_one_refuses_one_withdraws(
    consortium: Consortium, persons: Any, caplog: pytest.LogCaptureFixture
) -> None:
    north, south, west = map(consortium.approvals, OWNERS)
    persons(north, approve)
    persons(south, lambda of, digest: (time.sleep(0.5), approve(of, digest)))
    persons(west, lambda of, digest: of.decide(digest, "refused", because="audit in May"))

    def withdraw(call: int, replies: list[Message]) -> list[Message]:
        file = consortium.place / "run-0" / "metrics.jsonl"
        done = file.exists() and len(metrics(file.parent)) == 2
        if done and south.standing(next(iter(south.runs()))).state == "approved":
            south.decide(next(iter(south.runs())), "withdrawn", because="new director")
        return replies

    run = consortium.run(wrap_grid=lambda grid: MeddlingGrid(grid, withdraw))
    lines = metrics(run)
    assert len(lines) == 4
    assert [line["clients"] for line in lines[:2]] == [2, 2]
    assert lines[-1]["clients"] == 1
    said = caplog.text
    assert "(waiting)" in said
    assert "audit in May" in said
    assert "new director" in said
    # Of the owner who refused nothing is known but who it is.
    log = (consortium.own(2) / "log.csv").read_text()
    assert "train" not in log
    assert "how many" not in log


def test_changed_settings_are_another_run(consortium: Consortium, persons: Any) -> None:
    for client in OWNERS:
        persons(consortium.approvals(client), approve)
    same = {"num_rounds": 1, "connect_timeout": 2.0}
    consortium.run(**same)
    # The same again needs nobody, wherever the server has its results.
    consortium.run(**same)
    with refuses("too-few-clients"):
        consortium.run(**same, l1=0.5)
    with refuses("client-failed", match="waiting"):
        consortium.run(**same, l1=0.5, on_client_failure="stop")
    assert len(consortium.approvals(0).runs()) == 3


def test_what_makes_another_run(consortium: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    node = consortium.node(0)
    about = describe_run(consortium.settings(), node, {})
    assert digest_of(about) == digest_of(
        describe_run(consortium.settings(output="there"), node, {})
    )
    every = consortium.settings().to_flat().keys()
    assert about["settings"].keys() == every - {"output", "resume"}
    assert any("the model after local training" in line for line in about["sent"])
    assert [line.split()[0] for line in about["owners"]] == ["0", "1", "2"]
    longer = describe_run(consortium.settings(num_rounds=9), node, {})
    assert changes(about, longer) == ["num-rounds: 4 before, 9 now"]
    columns = [describe_run(consortium.settings(), node, {"columns": c}) for c in ("age", "hiv")]
    assert digest_of(columns[0]) != digest_of(columns[1])
    assert changes(*columns) == ["columns: age before, hiv now"]
    told = describe_run(consortium.settings(**{"fedul.share-priors": True}), node, {})
    assert "sent, new: class shares and size of every set: to the server; once, before round 1" in (
        changes(about, told)
    )
    write_identity(consortium.own(0), identities(range(2))[0])
    fewer = changes(about, describe_run(consortium.settings(), node, {}))
    gone = [line for line in fewer if line.startswith("owners, gone: ")]
    assert [line.split()[2] for line in gone] == ["0", "1", "2"]  # two have other keys now
    monkeypatch.setattr(ledger, "code_digest", lambda: "another")
    assert "another now" in changes(about, describe_run(consortium.settings(), node, {}))[0]


def test_another_program_of_ones_own_is_another_run(
    consortium: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "program_of_ones_own.py"
    monkeypatch.syspath_prepend(tmp_path)
    settings = consortium.settings(model="program_of_ones_own:build")
    digests = []
    for text in ("build = None\n", "build = 0\n"):
        file.write_text(text)
        digests.append(digest_of(describe_run(settings, consortium.node(0), {})))
    assert digests[0] != digests[1]


def test_a_run_is_asked_for_once(consortium: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    for time_of_day in ("2026-01-01T10:00:00", "2026-01-02T10:00:00"):
        monkeypatch.setattr(ledger, "_now", lambda now=time_of_day: now)
        ledger.ask(consortium.settings(), consortium.node(0), {})
    [(asked, _)] = consortium.approvals(0).runs().values()
    assert asked == "2026-01-01T10:00:00"


def test_an_approval_ends_and_cannot_be_forged(consortium: Consortium) -> None:
    of, settings, node = consortium.approvals(0), consortium.settings(), consortium.node(0)
    today = datetime.now(UTC).date()
    assert ledger.ask(settings, node, {})["approval"] == "waiting"
    [digest] = of.runs()
    of.decide(digest, "approved", until=today)
    assert ledger.ask(settings, node, {}) == {}
    ledger.require_approval(settings, node, {})
    of.decide(digest, "approved", until=today - timedelta(days=1))
    assert "ended" in ledger.ask(settings, node, {})["approval-because"]
    with refuses("run-not-approved"):
        ledger.require_approval(settings, node, {})
    for forged in ("until = ''", "signature = x''"):
        with closing(sqlite3.connect(of.file)) as entries, entries:
            entries.execute(f"UPDATE decided SET {forged}")
        with refuses("signature-wrong", OwnDataError):
            ledger.require_approval(settings, node, {})
    of.decide(digest, "approved")
    ledger.require_approval(settings, node, {})
    # Nor is the decision on one run that on another.
    other = consortium.settings(l1=0.5)
    ledger.ask(other, node, {})
    columns = "decision, until, because, time, signature"
    with closing(sqlite3.connect(of.file)) as entries, entries:
        entries.execute(
            f"INSERT INTO decided SELECT ?, {columns} FROM decided",
            (digest_of(describe_run(other, node, {})),),
        )
    with refuses("signature-wrong", OwnDataError):
        ledger.require_approval(other, node, {})


def test_a_person_reads_the_purpose_and_what_is_less_protected(
    consortium: Consortium,
) -> None:
    of, node = consortium.approvals(0), consortium.node(0)
    setup = {"columns": '{"columns": [{"name": "age"}, {"name": "hiv"}]}', "class-names": ["a"]}
    noisy = {"dp.clipping": "server", "dp.noise-multiplier": 2.0, "test_prior": "uniform"}
    study = {"study.title": "Sepsis, study 17", "study.contact": "Dr. Ada"}

    def asked(**flat: Any) -> str:
        config = consortium.settings(**flat)
        ledger.ask(config, node, setup)
        return digest_of(describe_run(config, node, setup))

    def screen(digest: str) -> str:
        return "\n".join(shown(of, digest))

    first = asked(**noisy, **study)
    of.decide(first, "approved")
    head = {"Purpose: Sepsis, study 17", "Contact: Dr. Ada"}
    assert head | {"Learns from: columns age, hiv; classes a"} <= {*screen(first).splitlines()}
    more_noise = screen(asked(**{**noisy, "dp.noise-multiplier": 3.0}))
    assert "Protects no less" in more_noise
    assert "Purpose: not said" in more_noise
    less_noise = screen(asked(**{**noisy, "dp.noise-multiplier": 1.0}))
    marked = less_noise.split("PROTECTS LESS")[1].split("Differs")[0].splitlines()[1:]
    assert marked == ["  dp.noise-multiplier = 1"]
    none = screen(asked(**{"test_prior": "uniform"})).split("PROTECTS LESS")[1].split("Differs")[0]
    assert "  dp.clipping = 'none'" in none.splitlines()
    said = [
        {*describe_run(consortium.settings(**flat), node, setup)["unprotected"]}
        for flat in (noisy, {"test_prior": "uniform"})
    ]
    assert said[1] - said[0]
    assert {f"  {line}" for line in said[1] - said[0]} <= {*none.splitlines()}


def test_a_run_is_compared_with_the_last_one_that_was_approved(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, node = consortium.approvals(0), consortium.node(0)
    digests = []
    for hour, noise in enumerate((2.0, 1.0, 1.5)):
        monkeypatch.setattr(ledger, "_now", lambda hour=hour: f"2026-01-01T1{hour}:00:00")
        flat = {"dp.clipping": "server", "dp.noise-multiplier": noise, "test_prior": "uniform"}
        config = consortium.settings(**flat)
        ledger.ask(config, node, {})
        digests.append(digest_of(describe_run(config, node, {})))
    of.decide(digests[0], "approved")
    assert any("PROTECTS LESS" in line for line in shown(of, digests[2]))  # not the second
    of.decide(digests[1], "approved")
    assert not any("PROTECTS LESS" in line for line in shown(of, digests[2]))  # not the first


def test_a_decision_is_about_one_run(consortium: Consortium) -> None:
    of = consortium.approvals(0)
    one, other = ("ab" + digit * 62 for digit in "01")
    for digest in (one, other):
        of.note(digest, {})
    assert of.find("AB1") == other
    for text in ("", "ab", "b"):
        with refuses("unknown-name"):
            list(decide(of, text, "approved"))
    assert [of.standing(digest).state for digest in (one, other)] == ["waiting", "waiting"]


def test_a_run_that_sends_more_protects_less(consortium: Consortium) -> None:
    node = consortium.node(0)
    then, now = (
        describe_run(consortium.settings(selection=selection), node, {})
        for selection in ("last", "heldout")
    )
    more = {*now["sent"]} - {*then["sent"]}
    assert more
    assert {*protects_less(then, now)} == more
    assert not protects_less(now, then)


def test_a_run_of_a_module_that_is_gone_may_protect_less(consortium: Consortium) -> None:
    then = describe_run(consortium.settings(), consortium.node(0), {})
    gone = {**then, "settings": {**then["settings"], "method": "module_that_is_gone:METHOD"}}
    assert not protects_less(then, then)
    assert protects_less(gone, then)
    assert protects_less(then, gone)


def test_decisions_by_command(consortium: Consortium) -> None:
    def runs(*words: str) -> str:
        done = CliRunner().invoke(app, ["deploy", "runs", *words])
        assert done.exit_code == 0, done.output
        return done.output

    own, node = str(consortium.own(0)), consortium.node(0)
    refused = CliRunner().invoke(app, ["deploy", "runs", "list", own])
    assert code_of(refused.output) == "folder-missing"
    limits = "LIMITS='approve=\"each-run\"'\n"
    text = f"DATA='{node.data}'\nLOG='{node.log}'\nLEDGER=''\n{limits}"
    (consortium.own(0) / "node.env").write_text(text)
    refused = CliRunner().invoke(app, ["deploy", "runs", "list", own])
    assert code_of(refused.output) == "folder-missing"  # no ledger yet
    ledger.ask(consortium.settings(), node, {})
    ledger.ask(consortium.settings(l1=0.5), node, {})
    of = Ledger(consortium.approvals(0).file)
    assert not of.others(b"question", "Heads", [0, 1, 2], fixed=True, note=True)
    assert "owners 0, 1, 2 until now" in runs("regroup", own)
    assert "Nothing" in runs("regroup", own)
    first, second = consortium.approvals(0).runs()
    (consortium.own(0) / "log.csv").touch()
    assert "waiting" in runs("list", own)
    assert "approved until 2999-01-31" in runs("approve", own, first[:9], "--until", "2999-01-31")
    with closing(sqlite3.connect(of.file)) as entries:
        assert [*entries.execute("SELECT until FROM decided")] == [("2999-01-31",)]
    shown = runs("show", own, second)
    assert "l1: 0.0 before, 0.5 now" in shown or "l1: 0.5 before, 0.0 now" in shown
    whole = runs("show", own, second, "--all")
    assert "  learning-rate = " in whole
    assert "  learning-rate = " not in shown
    runs("refuse", own, second, "--because", "no penalty")
    assert "refused: no penalty" in runs("list", own)
    config = consortium.own(0) / "node.toml"
    config.write_text(f"data = '{node.data}'\nidentity = '{own}'\n")
    assert runs("list", str(config)) == runs("list", own)
    runs("withdraw", own, first)
    assert "withdrawn" in runs("list", own)
    assert "refused: no penalty" in (consortium.own(0) / "log.csv").read_text()
    unknown = CliRunner().invoke(app, ["deploy", "runs", "show", own, "xyz"])
    assert code_of(unknown.output) == "unknown-name"
