"""CBAFed's pseudo labels and its means with past models, by its authors' formulas; runs with it."""

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedul_flwr.arrays import Floats
from fedul_flwr.baselines import cbafed
from fedul_flwr.baselines.cbafed import CBAFed, CBAFedClient, chosen_labels
from fedul_flwr.baselines.class_shares import CLASS_COUNTS, CLASS_SHARES
from fedul_flwr.data.types import CONFIDENT_SHARE
from fedul_flwr.learning.local import dump_arrays, load_arrays, predict_logits
from fedul_flwr.models import build_model
from tests.support.local_tasks import inside, task_of
from tests.support.runs import last_model, metrics, train
from tests.support.settings import Settings
from tests.support.simulated_clients import simulated_client

QUICK: dict[str, Any] = {
    **{"method": "cbafed", "model": "mlp", "num_rounds": 7, "local_epochs": 1},
    **{"points_per_client": 80, "labels.fraction": 1.0, "labels.labeled-clients": 0.6},
    **{"semi.labels-only-rounds": 1, "learning_rate": 0.01, "cbafed.threshold": 0.3},
    **{"precision": "float64"},
}
"""Labels at all points of three of five clients, and pseudo labels from round 2 on."""


def authors_labels(posteriors: Floats, shares: Floats, base: float) -> list[int]:
    """Point by point, with a deviation over K − 1."""
    classes = len(shares)
    scaled = [share * classes / 10 for share in shares]
    mean = sum(scaled) / classes
    deviation = (sum((s - mean) ** 2 for s in scaled) / (classes - 1)) ** 0.5
    found = []
    for p in posteriors.tolist():
        first = max(range(classes), key=lambda k: p[k])
        second = max((k for k in range(classes) if k != first), key=lambda k: p[k])
        if p[first] > min(scaled[first] + base - deviation, 0.95):
            found.append(first)
        else:
            found.append(second if scaled[second] < 0.03 else -1)
    return found


@pytest.mark.parametrize("classes", [3, 10, 40])
def test_given_random_posteriors_then_labels_are_the_authors(classes: int) -> None:
    rng = np.random.default_rng(classes)
    scores = np.exp(rng.normal(0, 3, (300, classes)))
    posteriors = scores / scores.sum(axis=1, keepdims=True)
    shares = rng.random(classes) ** 4
    shares /= shares.sum()
    labels = chosen_labels(posteriors, shares, 0.84)
    assert labels.tolist() == authors_labels(posteriors, shares, 0.84)
    second = np.argsort(-posteriors, axis=1)[:, 1]
    assert {-1} < {*labels.tolist()}
    assert (labels == second).any()  # of rare classes


def test_four_points_by_hand() -> None:
    """Ten classes, of which one has half of the labels, eight 0.06 and one 0.02: the deviation is
    0.141; thresholds are 0.95 (at most), 0.759 and 0.719."""
    shares = np.array([0.5, *[0.06] * 8, 0.02])
    assert shares.std(ddof=1) == pytest.approx(0.1411, abs=1e-4)
    posteriors = np.zeros((6, 10))
    posteriors[:, 0] = 0.94, 0.96, 0.2, 0.2, 0.2, 0.26
    posteriors[:, 1] = 0.03, 0.02, 0.75, 0.77, 0.08, 0.0
    posteriors[:, 9] = 0.02, 0.02, 0.05, 0.03, 0.72, 0.74
    assert chosen_labels(posteriors, shares, 0.84).tolist() == [-1, 0, -1, 1, 9, 9]
    posteriors[0, [1, 9]] = 0.02, 0.03  # the second class of an unsure point is the rare one
    assert chosen_labels(posteriors, shares, 0.84)[0] == 9


def test_a_client_trains_on_labels_and_on_chosen_points_alone(settings: Settings) -> None:
    plan = {**QUICK, "labels.fraction": 0.25, "labels.labeled-clients": 1.0}
    client = simulated_client(CBAFedClient, settings(**plan))
    load_arrays(client.model, dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=3)))
    shares = [0.4, *[0.1] * 5, *[0.025] * 4]
    task = task_of(client, 2, **{CLASS_SHARES: shares})
    trained, own = inside(task.batches), client.data.examples
    rest = client.data.unlabeled
    posteriors = predict_logits(client.model, own.inputs, own.points[rest]).double().softmax(1)
    expected = authors_labels(posteriors.numpy(), np.array(shares), 0.3)
    labels = [*own.labels[client.data.labeled], *(k for k in expected if k >= 0)]
    classes, weights = trained["of_points"].T
    assert 20 < len(labels) < 80
    assert classes.tolist() == labels
    assert weights.tolist() == [1.0] * len(labels)
    reports = task.read_reports()
    assert reports[CLASS_COUNTS] == np.bincount(labels, minlength=10).tolist()
    assert reports[CONFIDENT_SHARE] == pytest.approx((len(labels) - 20) / 60)
    assert client.round({"server-round": 2}).plan.max_gradient_norm == 5


def test_shares_are_those_of_labels_and_pseudo_labels_of_the_last_round(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, after_round = [], CBAFed.after_round

    def watched(self: CBAFed, reports: Any) -> None:
        counts.append(reports[CLASS_COUNTS])
        after_round(self, reports)

    monkeypatch.setattr(CBAFed, "after_round", watched)
    directory = train(settings(**QUICK), 5)
    lines = metrics(directory)
    assert counts[0].sum() == 240  # three clients with labels alone
    assert 240 < counts[-1].sum() <= 400
    state = load_file(directory / "state-7.safetensors")
    assert state[CLASS_SHARES] == pytest.approx(counts[-1] / counts[-1].sum())
    assert "confident_share" not in lines[0]
    assert lines[-1]["confident_share"] > 0


def test_every_fifth_round_is_averaged_with_the_model_before(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pseudo labels begin in round 2 from the model of round 1; round 7 is five rounds later."""
    first = last_model(train(settings(**{**QUICK, "num_rounds": 1, "seed": 0}), 5))
    averaged = last_model(train(settings(**QUICK), 5))
    monkeypatch.setattr(cbafed, "EVERY", 100)
    combined = last_model(train(settings(**QUICK), 5))
    for name, array in averaged.items():
        np.testing.assert_allclose(array, (first[name] + combined[name]) / 2, atol=1e-6)
    assert not np.array_equal(averaged["1.weight"], combined["1.weight"])


def test_every_setting_counts(settings: Settings) -> None:
    plain = {**QUICK, "augment": "rotate"}
    more = {"cbafed.threshold": 0.1}, {"semi.labels-only-rounds": 2}, {"views.weak": True}
    first, *others = (last_model(train(settings(**{**plain, **one}), 5)) for one in ({}, *more))
    for other in others:
        assert not all(np.array_equal(array, other[name]) for name, array in first.items())
