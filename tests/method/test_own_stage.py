"""A feature of somebody's own beside the method (setting `stage`)."""

from typing import Any

import numpy as np

from fedul_flwr.errors import UserError
from fedul_flwr.federated.declared import disclosures
from tests.support.refusals import refuses
from tests.support.runs import cut_off, last_model, resume, summary, train

QUICK: dict[str, Any] = {
    "method": "supervised",
    "model": "linear",
    "num_rounds": 1,
    "local_epochs": 1,
    "points_per_client": 60,
}


def test_given_a_stage_then_both_of_its_sides_take_part(settings: Any) -> None:
    plain = train(settings(**QUICK), 2)
    noisy = train(settings(**QUICK, stage="tests.method.noisy:Noisy"), 2)
    assert summary(noisy)["noise"] == 1e-3
    assert "noise" not in summary(plain)
    # The mean of two clients' noise of deviation 1e-3 has 1e-3 / √2 = 7.1e-4, over 650 weights.
    apart = [last_model(noisy)[name] - array for name, array in last_model(plain).items()]
    assert 6e-4 < np.concatenate([array.ravel() for array in apart]).std() < 8e-4


def test_given_a_run_that_was_cut_off_then_its_state_goes_on(settings: Any) -> None:
    config = settings(**{**QUICK, "num_rounds": 3}, stage="tests.method.noisy:Noisy")
    # Calls: registration, then one a round; the third round is lost.
    again = resume(cut_off(config, 2, 3), 2)
    assert summary(again)["rounds_with_noise"] == 3


def test_given_a_sum_that_a_stage_declares_then_the_server_reads_it_alone(settings: Any) -> None:
    options = {**QUICK, "num_rounds": 2, "secure_sum": "on"}
    run = train(settings(**options, stage="tests.method.summed:Summed"), 3)
    assert (summary(run)["points"], summary(run)["halves"]) == (180.0, 1.5)  # 3 clients of 60
    (said,) = [
        one
        for one in disclosures(settings(**options, stage="tests.method.summed:Summed"))
        if one.names == ("points-together",)
    ]
    assert "under masks" in str(said)


def test_given_something_else_then_it_is_refused(settings: Any) -> None:
    with refuses("own-method-wrong", UserError):
        train(settings(**QUICK, stage="tests.method.noisy:AtServer"), 2)
