"""Errors of the models that clients return: means by hand, what is kept, resumed runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from safetensors.numpy import load_file

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.sources import load_source
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import ARRAYS
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model
from fedul_flwr.results.facts import summary_rows
from fedul_flwr.run.evaluation import Errors, Evaluator
from tests.support.runs import (
    Cut,
    MeddlingGrid,
    assert_same_run,
    is_train,
    metrics,
    resume,
    summary,
    train,
)
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "method": "supervised", "num_rounds": 1, "local_epochs": 1},
    **{"precision": "float32", "learning_rate": 3e-3},
}
LOCAL = {**QUICK, "evaluate": "local"}
SOURCE = load_source("digits")
TEST = np.asarray(SOURCE.test.labels)


def always(label: int) -> dict[str, Any]:
    """Arrays of a model whose logits are log 11 for one class and 0 for the nine others."""
    model = build_model("mlp", SOURCE.input_shape, 10)
    arrays = {name: np.zeros_like(array) for name, array in dump_arrays(model).items()}
    bias = [name for name, array in arrays.items() if array.shape == (10,)]
    arrays[bias[-1]][label] = np.log(11)
    return arrays


def wrong(label: int) -> float:
    """Percent of test points of another class than ``label``."""
    return 100 * float(np.mean(label != TEST))


def answering(*labels: int) -> Callable[[int, list[Message]], list[Message]]:
    """Clients whose models always say the same, each its own."""

    def meddle(_: int, replies: list[Message]) -> list[Message]:
        for reply, label in zip(replies, labels, strict=True) if is_train(replies) else ():
            record = {name: Array(array) for name, array in always(label).items()}
            reply.content[ARRAYS] = ArrayRecord(record)
        return replies

    return meddle


def run(config: RunConfig, *labels: int) -> Path:
    meddle = answering(*labels)
    return train(config, len(labels), wrap_grid=lambda grid: MeddlingGrid(grid, meddle))


def test_mean_errors_by_hand(settings: Settings) -> None:
    rows = np.flatnonzero(np.isin(np.asarray(SOURCE.train.labels), [3, 5]))[:40]
    fives = float(np.mean(np.asarray(SOURCE.train.labels)[rows] == 5))
    evaluator = Evaluator(settings(**QUICK), SOURCE, rows)
    found = evaluator.errors([always(3), always(5)])
    assert found["test_error"] == pytest.approx((wrong(3) + wrong(5)) / 2)
    assert found["validation_error"] == pytest.approx(50)  # what one has right the other has wrong
    # -log softmax is log(11 + 9) - log 11 for the class that is said, and log(11 + 9) for others.
    assert found["validation_loss"] == pytest.approx(np.log(20) - np.log(11) / 2)
    alone = evaluator.errors([always(5)])
    assert alone["test_error"] == pytest.approx(wrong(5))
    assert alone["validation_error"] == pytest.approx(100 * (1 - fives))
    assert alone["validation_loss"] == pytest.approx(np.log(20) - fives * np.log(11))
    assert evaluator.errors([]) == {}


def test_a_round_has_the_mean_error_of_what_its_clients_return(settings: Settings) -> None:
    local, combined = (run(settings(**options), 3, 5) for options in (LOCAL, QUICK))
    assert metrics(local)[0]["test_error"] == pytest.approx((wrong(3) + wrong(5)) / 2)
    # The combined model cannot tell 3 from 5, and says the first.
    assert metrics(combined)[0]["test_error"] == pytest.approx(wrong(3))
    expected = {name: (array + always(5)[name]) / 2 for name, array in always(3).items()}
    for directory in (local, combined):
        for file in ("last.safetensors", "model.safetensors"):
            for name, array in load_file(directory / file).items():
                np.testing.assert_allclose(array, expected[name], atol=1e-7)
    assert summary(local)["evaluate"] == "local"
    assert "mean over the clients' models" in summary_rows(Run.read(local))["test error"]
    assert "clients' models" not in summary_rows(Run.read(combined))["test error"]


def test_a_model_that_cannot_be_used_does_not_count(settings: Settings) -> None:
    def meddle(call: int, replies: list[Message]) -> list[Message]:
        replies = answering(3, 5)(call, replies)
        if is_train(replies):
            record = replies[0].content[ARRAYS]
            replies[0].content[ARRAYS] = ArrayRecord(
                {name: Array(array.numpy() * np.nan) for name, array in record.items()}
            )
        return replies

    config = settings(**LOCAL, on_client_failure="continue")
    directory = train(config, 2, wrap_grid=lambda grid: MeddlingGrid(grid, meddle))
    assert metrics(directory)[0]["test_error"] == pytest.approx(wrong(5))


def test_a_run_cut_off_ends_alike(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {**LOCAL, "num_rounds": 5, "evaluate_every": 2, "base": "scaffold"}
    plan |= {"optimizer": "sgd", "learning_rate": 0.1}
    whole = train(settings(**plan), 2)
    known = [line["round"] for line in metrics(whole) if line["test_error"] is not None]
    assert known == [2, 4, 5]

    config = settings(**plan)
    with monkeypatch.context() as patch:

        def cut(evaluator: Evaluator, models: Any, prior: Any) -> Errors:
            raise Cut

        patch.setattr(Evaluator, "errors", cut)
        with pytest.raises(Cut):
            train(config, 2)
    directory = Path(config.output)
    assert [line["round"] for line in metrics(directory)] == [1]
    assert_same_run(resume(directory, 2), whole)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "server-only", "server_fraction": 0.2},
        {"method": "fedul", "selection": "heldout"},
    ],
)
def test_what_has_no_models_is_refused(settings: Settings, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="evaluate"):
        train(settings(**{**LOCAL, **options}), 2)
