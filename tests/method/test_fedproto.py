"""Matrices that clients report, and that the server keeps and sends back: FedProto."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.run_files.run import Run
from fedul_flwr.federated.payload import UNDER_MASKS
from tests.method import fedproto
from tests.support.deploy_checks import WHERE, ready, refused
from tests.support.owner_files import write_points
from tests.support.runs import metrics, train

FEDPROTO: dict[str, Any] = {
    "method": "tests.method.fedproto:METHOD",
    "model": "mlp",
    "num_rounds": 2,
    "points_per_client": 60,
    "learning_rate": 0.003,
    "labels.total": 90,
}


def prototypes(directory: Path) -> Any:
    return Run(path=directory).load_state(2)["prototypes"]


def test_given_matrices_then_they_are_kept_in_their_shape_and_not_in_the_lines(
    settings: Any,
) -> None:
    run = train(settings(**FEDPROTO), 3)
    found = prototypes(run)
    assert found.shape[0] == 10
    assert found.shape[1] > 1
    assert found.any()
    [first, second] = metrics(run)
    assert 0 < second["prototype_shift"] < first["prototype_shift"]
    assert {"sums", "counts"}.isdisjoint(first)


def test_given_a_secure_sum_then_the_prototypes_are_those_of_the_plain_run(settings: Any) -> None:
    plain, masked = (
        prototypes(train(settings(**FEDPROTO, secure_sum=s), 3)) for s in ("off", "on")
    )
    # In round 1 the models of both are equal; later their means differ by rounding.
    np.testing.assert_allclose(masked, plain, rtol=1e-3, atol=1e-4)


def test_given_an_owner_then_the_check_shows_what_leaves_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "cache"))
    write_points(tmp_path / "ward")
    method = "tests.method.fedproto:METHOD"
    allowed = f'{WHERE} allow-methods="{method}"'
    assert refused(method) == "owner-does-not-allow"
    lines = ready(method, allowed)
    for words in ("sums of features by class", "points of these by class"):
        [line] = [line for line in lines if line.startswith(words)]
        assert "to the server; every round" in line
    lines = ready(method, allowed, **{"secure-sum": "on"})
    [line] = [line for line in lines if "sums of features by class" in line]
    assert UNDER_MASKS in line
    assert "points of these by class" in line
    assert "as a sum over all clients" in line


def test_the_method_is_as_short_as_its_page_says() -> None:
    assert len(Path(str(fedproto.__file__)).read_text().splitlines()) <= 55
