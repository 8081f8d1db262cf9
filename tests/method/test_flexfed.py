"""A method in one file from one import: what follows from its declarations."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import MetricRecord

from fedul_flwr.data.run_files.run import Run
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.declared import disclosures
from fedul_flwr.federated.messages import METRICS
from fedul_flwr.federated.payload import Sizes, in_record, reports_of
from fedul_flwr.federated.replies import check_reports
from fedul_flwr.federated.sums.vector import SLOTS, Numbers
from fedul_flwr.learning.network import Network
from tests.method import flexfed
from tests.support.local_tasks import task_of
from tests.support.refusals import refuses
from tests.support.runs import train
from tests.support.simulated_clients import simulated_client

FLEXFED: dict[str, Any] = {
    "method": "tests.method.flexfed:METHOD",
    "model": "mlp",
    "num_rounds": 3,
    "points_per_client": 60,
    "learning_rate": 0.003,
    "method_options": "threshold=0.3",
}


def sums(directory: Path, number: int = 3) -> list[float]:
    """How many points of each class were confident in the last round, at all clients."""
    counts: list[float] = Run(path=directory).load_state(number)["confident"].tolist()
    return counts


def test_given_a_secure_sum_then_the_server_reads_the_same_sums(settings: Any) -> None:
    plain, masked = (sums(train(settings(**FLEXFED, secure_sum=kind), 3)) for kind in ("off", "on"))
    assert plain == masked
    assert len(plain) == 10
    first = sums(train(settings(**{**FLEXFED, "num_rounds": 1}), 3), 1)
    assert sum(first) < sum(plain)  # the model learns
    assert all(count == int(count) for count in plain)


def test_given_many_classes_then_a_secure_sum_has_a_number_for_each(settings: Any) -> None:
    config = settings(**FLEXFED, secure_sum="on")
    assert Numbers(config, Sizes(classes=10)).tail.numbers == SLOTS
    # Weight, count and FedNova's a_i; then loss, steps and normalizer, each with a number that says
    # whether it is there; and the classes.
    assert Numbers(config, Sizes(classes=100)).tail.numbers == 3 + 2 * 3 + 100


def test_given_what_the_server_sends_then_each_class_has_its_threshold(settings: Any) -> None:
    client = simulated_client(flexfed.FlexFedClient, settings(**FLEXFED))
    counted = []
    for share in ([0.0] * 10, [0.0] + [4.0] * 9):  # at a threshold above 1 nothing is confident
        task = task_of(client, share=share)
        seen = evaluate(client, task)
        counted.append(task.read_reports()["confident"])
    assert sum(counted[0]) == seen
    assert counted[1][1:] == [0.0] * 9


def evaluate(client: Any, task: Any) -> int:
    """Compute the loss of each batch of an epoch; returns the number of unlabeled points."""
    network, seen = Network(client.model, torch.device("cpu"), "float32"), 0
    for batch in task.batches(np.random.default_rng(0)):
        task.loss(network, batch)
        seen += len(batch.unlabeled)
    return seen


def test_what_a_client_reports_is_told_to_owners_and_checked(settings: Any) -> None:
    config = settings(**FLEXFED)
    assert any(entry.part.says == "confident points by class" for entry in disclosures(config))
    reports, sizes = in_record(reports_of(config), METRICS), Sizes(classes=10)
    right = {"num-examples": 3, "confident": [1.0] * 10}
    check_reports(MetricRecord(right), reports, sizes)
    for wrong, code in (
        ({"confident": [1.0] * 9}, "message-form"),
        ({"confident": [-1.0] * 10}, "message-out-of-range"),
        ({"more": 1.0}, "message-unasked"),
    ):
        with refuses(code, BadMessageError):
            check_reports(MetricRecord({**right, **wrong}), reports, sizes)
    with refuses("message-incomplete", BadMessageError):
        check_reports(MetricRecord({"num-examples": 3}), reports, sizes)


def test_given_a_report_that_is_not_declared_then_the_run_says_so(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flexfed.FlexFedClient, "reports", {})
    with refuses("client-failed", UserError, match="confident.*FlexFedClient.reports"):
        train(settings(**FLEXFED), 2)


def test_the_method_is_as_short_as_its_page_says() -> None:
    text = Path(flexfed.__file__).read_text()
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if str(node.module).startswith("fedul_flwr")]
    assert [node.module for node in ours] == ["fedul_flwr.method"]
    assert len(ours[0].names) <= 10
    assert len(text.splitlines()) <= 50
