"""Counts and sizes that clients claim, held against what they announced and what the run allows."""

import re
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord

from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.messages import ARRAYS, CONFIG
from fedul_flwr.federated.replies import check_normalizer, normalizer_of
from fedul_flwr.learning.local import local_normalizer
from fedul_flwr.learning.plan import LocalPlan
from tests.federated.test_update_validator import BAD_CLIENT, LENIENT, changing, telling
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, last_model, metrics, train
from tests.support.settings import QUICK, Settings

# FedNova's normalizers


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("steps", [1, 2, 7, 400])
def test_given_steps_then_their_normalizer_is_the_one_that_clients_add_up(
    momentum: float, steps: int
) -> None:
    added = local_normalizer(steps, LocalPlan(momentum=momentum))
    assert normalizer_of(steps, momentum) == pytest.approx(added, rel=1e-9)


def figures(**told: Any) -> MetricRecord:
    return MetricRecord({"num-examples": 5, "loss": 1.0, "steps": 2, "normalizer": 2.5} | told)


@pytest.mark.parametrize(
    "told",
    [
        {"normalizer": 1e-300},
        {"normalizer": [2.5]},
        {"steps": 1e9, "normalizer": 2e9},
        {"steps": 0},
    ],
)
def test_given_another_normalizer_then_it_is_refused(told: dict[str, Any]) -> None:
    check_normalizer(figures(), 0.5, most_steps=10)
    with pytest.raises(BadMessageError, match="steps"):
        check_normalizer(figures(**told), 0.5, most_steps=10)


@pytest.mark.parametrize("lie", [{"normalizer": 1e-300}, {"normalizer": 1e9, "steps": 10**9}])
def test_given_a_false_normalizer_then_fednova_goes_on_without_its_client(
    settings: Settings, caplog: pytest.LogCaptureFixture, lie: dict[str, Any]
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    plan = {**LENIENT, "base": "fednova", "optimizer": "sgd", "momentum": 0.5}
    directory = train(settings(**plan), 3, **changing(telling(**lie)))
    assert [line.get("failed") for line in metrics(directory)] == [["Client 1"], None]
    assert all(np.abs(array).max() < 10 for array in last_model(directory).values())


# Points


@pytest.mark.parametrize("phase", ["xclp", "xclp-predict"])
def test_given_more_codes_than_points_announced_then_plaintext_refuses_them(
    settings: Settings, caplog: pytest.LogCaptureFixture, phase: str
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    plan = {"method": phase, "labels.total": 60, "points_per_client": 40, "model": "mlp"}
    plan |= {"on_client_failure": "continue"}
    if phase == "xclp":
        plan |= {"num_rounds": 1, "local_epochs": 1, "semi.labels-only-rounds": 0}

    def more(call: int, replies: list[Message]) -> list[Message]:
        del call
        for reply in replies:
            arrays = reply.content.array_records.get(ARRAYS, ArrayRecord())
            if "codes" in arrays and reply.metadata.src_node_id == FIRST_NODE_ID + BAD_CLIENT:
                for name in ("codes", "labeled"):
                    arrays[name] = Array(np.concatenate([arrays[name].numpy()] * 3))
        return replies

    train(settings(**plan), 3, wrap_grid=lambda grid: MeddlingGrid(grid, more))
    assert re.search("Client 1 .*points", caplog.text)


# Clipping by clients


def test_given_an_update_that_was_not_clipped_then_its_client_has_failed(
    settings: Settings,
) -> None:
    plan = {**QUICK, "dp.clipping": "client", "dp.norm": 0.5, "dp.noise-multiplier": 0.1}
    train(settings(**plan), 3)  # honest clients clip

    def far(reply: Message) -> None:
        arrays = reply.content[ARRAYS]
        arrays["1.bias"] = Array(arrays["1.bias"].numpy() + np.float32(1.0))

    # 128 values are moved by 1 each: by sqrt(128) = 11.3 and what it had learned.
    with refuses("client-failed", match=r"Client 1: .*norm 11\.\d+"):
        train(settings(**plan), 3, **changing(far))


# Numbers of clients


def claiming(key: str, value: Any, client: int = 0) -> dict[str, Any]:
    """Options of a run in which ``client`` says of the run that ``key`` is ``value``."""

    def meddle(call: int, replies: list[Message]) -> list[Message]:
        del call
        for reply in replies:
            told = reply.content.config_records.get(CONFIG, {})
            if reply.metadata.src_node_id == FIRST_NODE_ID + client and key in told:
                told[key] = value
        return replies

    return {"wrap_grid": lambda grid: MeddlingGrid(grid, meddle)}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("num-partitions", 10**6, "num-partitions = 1000000, and most say 3"),
        ("own-data", True, "own-data = true, and most say false"),
    ],
)
def test_given_a_first_node_that_lies_about_the_run_then_it_is_named_and_decides_nothing(
    settings: Settings, caplog: pytest.LogCaptureFixture, key: str, value: Any, said: str
) -> None:
    caplog.set_level("WARNING", logger="flwr")
    lie = claiming(key, value)
    directory = train(settings(**LENIENT), 3, **lie)
    assert [line["clients"] for line in metrics(directory)] == [2, 2]
    assert f"1 client(s) failed in round 1: Client 0: it says {said}" in caplog.text
    with refuses("client-failed", match=f"Client 0: .*{said}"):
        train(settings(**QUICK), 3, **lie)
