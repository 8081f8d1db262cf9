"""Matrices that clients report, and that the server keeps and sends back: FedProto."""

from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.data.run_files.store import RunDirectory
from tests.method import fedproto
from tests.support.runs import assert_same_run, cut_off, metrics, resume, train

FEDPROTO: dict[str, Any] = {
    "method": "tests.method.fedproto:METHOD",
    "model": "mlp",
    "num_rounds": 2,
    "points_per_client": 60,
    "learning_rate": 0.003,
    "labels.total": 90,
}


def prototypes(directory: Path) -> Any:
    return RunDirectory(directory).load_state(2)["prototypes"]


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


def test_given_a_run_that_was_cut_off_then_it_resumes_bit_for_bit(settings: Any) -> None:
    whole = train(settings(**FEDPROTO), 3)
    assert_same_run(whole, resume(cut_off(settings(**FEDPROTO), 3, 3), 3))


def test_the_method_is_as_short_as_its_page_says() -> None:
    assert len(Path(str(fedproto.__file__)).read_text().splitlines()) <= 55
