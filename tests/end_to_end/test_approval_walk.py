"""Three owners with real programs: one approves late, one refuses, one withdraws in round 3."""

import re
import time
from pathlib import Path

import pytest

from fedul_flwr.federated.owner.ledger import LEDGER
from tests.end_to_end.test_ray import text
from tests.support.deployment import Deployment
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.patience import PATIENCE, wait_until
from tests.support.runs import metrics, summary
from tests.support.watched_app import make_app

SETTINGS = {
    **{**NO_DATA, "method": "fedul", "model": "mlp", "local-epochs": 1, "selection": "last"},
    **{"num-rounds": 4, "on-client-failure": "continue", "connect-timeout": 60.0},
}


def asked(deployment: Deployment, client: int, data: Path) -> str:
    """The digest of the latest run that an owner was asked for."""
    folder, ledger = deployment.owner(client), data / f"ward-{client}.ledger" / LEDGER
    wait_until(ledger.exists, PATIENCE, "the server's question")
    listed = deployment.manage("runs", "list", folder)
    return re.findall(r"  ([0-9a-f]{12})  fedul", listed)[-1]


@pytest.mark.slow
def test_one_approves_late_one_refuses_one_withdraws(
    deployment: Deployment, tmp_path: Path
) -> None:
    app = make_app(tmp_path)
    for client in range(3):
        write_sets(tmp_path / f"ward-{client}", seed=client)
        deployment.start_node(client, tmp_path / f"ward-{client}", limits='approve="each-run"')
        deployment.node_id(client)
    output = tmp_path / "there"
    run = deployment.submit(text({**SETTINGS, "output": str(output)}), app)
    deployment.wait_for("run", r"Waiting for Client 0.*approved run")
    digest = asked(deployment, 0, tmp_path)
    assert {asked(deployment, client, tmp_path) for client in (1, 2)} == {digest}
    shown = deployment.manage("runs", "show", deployment.owner(0), digest)
    assert "the model after local training: to the server; all clients get the mean" in shown
    assert "2 owner-2" in shown
    deployment.manage("runs", "approve", deployment.owner(0), digest)
    refusal = ["refuse", deployment.owner(2), digest, "--because", "audit in May"]
    deployment.manage("runs", *refusal)
    time.sleep(6)  # the server has asked again, and still waits
    assert not (output / "metrics.jsonl").exists() or not metrics(output)
    deployment.manage("runs", "approve", deployment.owner(1), digest, "--until", "2999-12-31")
    deployment.wait_for("run", r"\[ROUND 3/4\]")
    withdrawal = ["withdraw", deployment.owner(1), digest, "--because", "new director"]
    deployment.manage("runs", *withdrawal)
    said = deployment.wait(run)
    assert run.returncode == 0, said
    lines = metrics(output)
    assert [line["clients"] for line in lines[:2]] == [2, 2], said
    assert lines[3]["clients"] == 1, said
    assert "Client 2 (owner-2): its owner has not approved" in said
    assert "audit in May" in said
    assert re.search(r"Client 1 \(owner-1\).*withdrawn.*new director", said)
    assert summary(output)["rounds"] == 4
    log = (deployment.owner(1) / "log" / "messages.csv").read_text()
    assert "decision" in log
    assert "approved until 2999-12-31" in log
    assert "train" not in (deployment.owner(2) / "log" / "messages.csv").read_text()

    # Other settings are another run, which nobody has approved.
    changed = {**SETTINGS, "l1": 0.5, "on-client-failure": "stop", "connect-timeout": 60.0}
    again = deployment.submit(text({**changed, "output": str(tmp_path / "other")}), app, "again")
    said = deployment.wait(again, "again")
    assert "(waiting)" in said
    assert not (tmp_path / "other" / "metrics.jsonl").exists() or not metrics(tmp_path / "other")
    other = asked(deployment, 0, tmp_path)
    assert other != digest
    assert "l1: 0.0 before, 0.5 now" in deployment.manage(
        "runs", "show", deployment.owner(0), other
    )
