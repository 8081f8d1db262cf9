"""Differential privacy where a client has failed, or its update goes nowhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.run_config import resolve
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import ARRAYS
from fedul_flwr.learning.task import Round, Task
from tests.federated.test_private_mean import (
    QUICK,
    SERVER,
    length,
)
from tests.support.fedmatch_exchanges import Exchange, watched
from tests.support.refusals import refuses
from tests.support.runs import metrics, summary, train
from tests.support.settings import Settings

pytestmark = pytest.mark.usefixtures("identity")


# Whole runs


def test_a_round_with_a_failure_leaves_the_model(settings: Settings) -> None:
    exchanges: list[Exchange] = []
    lossy = watched(exchanges, fate=lambda at, who: "lost" if (at, who) == (2, 1) else "answers")
    config = settings(**QUICK, **SERVER, on_client_failure="continue")
    directory = train(config, 3, **lossy)
    models = [e.down[ARRAYS] for e in exchanges if e.client == 0]
    assert length(models[2], models[1]) == 0 < length(models[1], models[0])
    assert [line["failures"] for line in metrics(directory)] == [0, 1, 0]
    found = summary(directory)
    assert (found["rounds"], found["releases"]) == (3, 2)
    with refuses("client-failed", match=r"round 2: Client 1: .*connection"):
        train(settings(**QUICK, **SERVER), 3, **lossy)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Rounds in which client 1 has nothing to learn from."""
    rounds: set[int] = set()
    own = FedULClient.task

    def task(client: FedULClient, round: Round) -> Task:
        task = own(client, round)
        nothing = client.node.partition_id == 1 and round.number in rounds
        return replace(task, batches=replace(task.batches, num_points=0)) if nothing else task

    monkeypatch.setattr(FedULClient, "task", task)
    return rounds


@pytest.mark.parametrize("clipping", ["server", "client"])
def test_a_client_with_nothing_to_learn_from_has_failed(
    settings: Settings, idle: set[int], caplog: pytest.LogCaptureFixture, clipping: str
) -> None:
    idle.add(2)
    caplog.set_level("WARNING", logger="flwr")
    private = {**QUICK, "dp.clipping": clipping}
    directory = train(settings(**private, on_client_failure="continue"), 3)
    assert [line["failures"] for line in metrics(directory)] == [0, 1, 0]
    assert summary(directory)["releases"] == 2
    assert "1 client(s) failed in round 2: Client 1: it had nothing to learn from" in caplog.text
    with refuses("client-failed", match=f"round 2: Client 1: .*{clipping}"):
        train(settings(**private), 3)


def test_a_run_without_any_release_does_not_end_well(settings: Settings, idle: set[int]) -> None:
    idle.update((1, 2))
    config = settings(**{**QUICK, **SERVER, "num_rounds": 2, "on_client_failure": "continue"})
    with pytest.raises(UserError, match="has never changed"):
        train(config, 3)
    with pytest.raises(UserError, match="has never changed"):
        train(resolve({"resume": config.output}, Path.cwd()), 3)
    directory = Path(config.output)
    assert [line["failures"] for line in metrics(directory)] == [1, 1]
    assert not (directory / "summary.json").exists()
    train(resolve({"resume": config.output, "num-rounds": 3}, Path.cwd()), 3)
    assert summary(directory)["releases"] == 1
