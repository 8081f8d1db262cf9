"""Runs with heads in closed form: the sums, what they give, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.messages import HEAD, OF, PRIOR, SUMS
from fedul_flwr.federated.stages import heads
from fedul_flwr.federated.stages.heads import HeadNoise, RecentArrays, check_sums
from fedul_flwr.learning.closed_form import SoftSums, soft_sums
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.strategies.closed_form import LabelsClient, SetsClient
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.lying_server import Owners
from tests.support.refusals import refuses
from tests.support.runs import (
    assert_same_run,
    cut_off,
    last_model,
    metrics,
    resume,
    summary,
    train,
)
from tests.support.settings import AT_SERVER, QUICK, Settings
from tests.support.simulated_clients import simulated_client

CLOSED: dict[str, Any] = {"method": "closed-form", "points_per_client": 150}
OF_LABELS: dict[str, Any] = {
    **{"method": "closed-form-labels", "labels.total": 90, "points_per_client": 0},
    **{"partition": "pathological", "pathological.classes-per-client": 4},
}
HEADED: dict[str, Any] = {
    **QUICK,
    **{"points_per_client": 0, "num_rounds": 4, "local_epochs": 2, "learning_rate": 0.01},
    **{"head": "closed-form", "fedul.num-sets": 10},
    **{"partition": "pathological", "pathological.classes-per-client": 2},
}


def errors(directory: Path) -> list[float]:
    return [line["test_error"] for line in metrics(directory)]


@pytest.mark.parametrize("options", [CLOSED, OF_LABELS], ids=["sets", "labels"])
def test_a_model_follows_from_one_message_and_a_refinement(
    options: dict[str, Any], settings: Settings
) -> None:
    run = train(settings(**options), 6)
    first, refined = errors(run)  # guessing errs on 90
    assert first < 30
    assert refined < 12
    assert metrics(run)[0]["clients"] == 6


def test_given_masks_then_the_head_is_the_same_but_for_fixed_point(settings: Settings) -> None:
    masked, plain = (
        train(settings(**CLOSED, **{"closed-form.sum": kind}), 3)
        for kind in ("masked", "plaintext")
    )
    for name, array in last_model(masked).items():
        np.testing.assert_allclose(array, last_model(plain)[name], rtol=1e-3, atol=1e-3)
    assert errors(masked) == errors(plain)


def stored(folder: Path, x: NDArray[Any]) -> str:
    """A data set of vectors of three classes in turn, the last 120 of them for tests."""
    folder.mkdir()
    y = np.arange(len(x)) % 3
    for name, rows in (("train", slice(0, -120)), ("test", slice(-120, None))):
        np.savez(folder / f"{name}.npz", vectors=x[rows].astype(np.float32), labels=y[rows])
    return str(folder)


VECTORS = np.random.default_rng(0).normal(size=(600, 4)) + 2 * np.eye(3, 4)[np.arange(600) % 3]


FEW: dict[str, Any] = {
    **{"method": "closed-form-labels", "labels.total": 90, "points_per_client": 0},
    **{"model": "linear", "standardize": "none"},
}


@pytest.mark.parametrize("kind", ["masked", "plaintext"])
@pytest.mark.parametrize(("scale", "offset"), [(1, 20_000), (1e-4, 0), (1e3, 1e7)])
def test_vectors_in_another_unit_from_another_zero_give_the_same_predictions(
    scale: float, offset: float, kind: str, settings: Settings, tmp_path: Path
) -> None:
    before, after = (
        errors(train(settings(**FEW, dataset=data, **{"closed-form.sum": kind}), 4))
        for data in (
            stored(tmp_path / "near", VECTORS),
            stored(tmp_path / "far", scale * VECTORS + offset),
        )
    )
    assert max(before) < 20
    assert after == pytest.approx(before, abs=1)  # of 120 points in float32 one may be another


def test_given_vectors_that_hardly_differ_then_a_masked_sum_is_refused(
    settings: Settings, tmp_path: Path
) -> None:
    options = {**FEW, "dataset": stored(tmp_path / "x", 1e-9 * VECTORS)}
    with refuses("message-out-of-range"):
        train(settings(**options), 4)
    assert errors(train(settings(**options, **{"closed-form.sum": "plaintext"}), 4))[-1] < 20


def shifted(shape: tuple[int, ...], num_classes: int) -> Any:
    """A network whose features are some thousand deviations from 0."""
    from torch import nn

    class Shift(nn.Module):
        def forward(self, inputs: Any) -> Any:
            return inputs + 3000

    body = nn.Linear(int(np.prod(shape)), 16)
    return nn.Sequential(nn.Flatten(), body, nn.Tanh(), Shift(), nn.Linear(16, num_classes))


def test_a_head_behind_features_far_from_0_is_as_good_as_near_it(settings: Settings) -> None:
    options = {**HEADED, "model": "tests.federated.test_heads:shifted", "num_rounds": 2}
    options |= {"learning_rate": 1e-9}  # the body stays; behind it training would not converge
    assert errors(train(settings(**options), 5))[-1] < 45  # guessing errs on 90


def test_clients_may_have_points_of_classes_that_no_label_of_theirs_has(
    settings: Settings,
) -> None:
    options = {**OF_LABELS, "labels.total": 150, "labels.classes-per-client": 5}
    del options["partition"], options["pathological.classes-per-client"]
    first, refined = errors(train(settings(**options), 5))
    assert refined < first + 1  # if points counted for the classes of labels alone: 12 to 16


def test_clients_of_few_classes_say_so_of_points_without_a_label(settings: Settings) -> None:
    two = {"pathological.classes-per-client": 2, "labels.total": 60, "model": "whitened-filters"}
    first, refined = errors(train(settings(**{**OF_LABELS, **two}), 5))
    assert refined < first - 3


def test_given_clients_that_lack_classes_then_the_last_round_mends_the_mean_of_heads(
    settings: Settings,
) -> None:
    *_, before, after = errors(train(settings(**HEADED), 5))
    assert after < before - 10


def test_given_heads_before_rounds_then_training_begins_with_one(settings: Settings) -> None:
    run = train(settings(**HEADED, **{"closed-form.every": 2}), 5)
    assert ["head_points" in line for line in metrics(run)] == [False, False, True, True]
    assert all(line["surrogate_loss"] for line in metrics(run)[:3])


@pytest.mark.parametrize("options", [CLOSED, HEADED], ids=["closed-form", "fedul"])
@pytest.mark.parametrize("call", [2, 5])
def test_given_a_run_that_was_cut_off_then_it_ends_with_the_same_bits(
    options: dict[str, Any], call: int, settings: Settings
) -> None:
    plain = {**options, "closed-form.sum": "plaintext"}
    whole = train(settings(**plain), 5)
    cut = cut_off(settings(**plain), 5, min(call, 3 if options is CLOSED else call))
    assert_same_run(whole, resume(cut, 5))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "fedmatch", "labels.total": 90},
        {"method": "xclp", "labels.total": 90, "semi.labels-only-rounds": 1, "xclp.num-bits": 256},
        {"method": "fedsiam", "labels.total": 90, "model": "mlp+head"},
        {"method": "fixmatch", **AT_SERVER},
        {"method": "given-labels", **AT_SERVER},
        {"method": "fedul-mix", "server_fraction": 0.1},
        {"method": "server-only", "server_fraction": 0.1},
        {"method": "supervised", "base": "scaffold", "optimizer": "sgd"},
        {"method": "fedul", "secure_sum": "on"},
    ],
    ids=lambda options: options["method"],
)
def test_every_method_takes_a_head(options: dict[str, Any], settings: Settings) -> None:
    run = train(settings(**{**QUICK, "num_rounds": 3, "head": "closed-form", **options}), 3)
    last = metrics(run)[-1]
    assert last["round"] == 3
    assert last["head_points"] > 0


def test_given_class_shares_of_sets_then_they_are_the_priors_of_the_head(
    settings: Settings,
) -> None:
    run = train(settings(**CLOSED, test_prior="sets"), 4)
    assert metrics(run)[-1]["validation_prior_error"] < 15


def test_noise_is_that_of_the_analytic_gaussian_mechanism(settings: Settings) -> None:
    # sigma of one release of a value that changes by 1, at epsilon 1 and delta 1e-5, is 3.73; here
    # it changes by √3, in two releases.
    noise = HeadNoise(settings(**CLOSED, **{"closed-form.epsilon": 1.0}))
    assert noise.sigma == pytest.approx(3.7304 * 6**0.5, rel=1e-3)
    nothing = np.zeros((0, 30)), np.zeros((0, 10))
    drawn = noise.add(*nothing, stated=True)  # a third of the variance: three clients add theirs
    assert drawn.std() == pytest.approx(noise.sigma / 3**0.5, rel=0.2)
    assert not np.array_equal(drawn, noise.add(*nothing, stated=True))


def test_given_noise_then_one_point_changes_the_sums_by_the_sensitivity_at_most() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, r = rng.normal(size=(1, 2, 6)), rng.dirichlet(np.full(4, 0.2), 1)  # of two views
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
        for stated in (True, False):
            change = np.linalg.norm(soft_sums(x, r, stated=stated).flat())
            assert change <= HeadNoise.SENSITIVITY + 1e-12


def test_given_noise_then_features_are_cut_to_the_norm(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "fresh_gaussians", np.zeros)
    options = {"closed-form.epsilon": 1.0, "closed-form.feature-norm": 5.0}
    noise = HeadNoise(settings(**CLOSED, **options))
    x, r = np.array([[30.0, 40.0], [0.3, 0.4]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    cut = np.array([[3.0, 4.0], [0.3, 0.4]])  # 50 is ten times the norm
    expected = soft_sums(cut, r, stated=True).flat()
    np.testing.assert_allclose(noise.add(x, r, stated=True), expected, rtol=1e-12)


def test_given_much_privacy_budget_then_digits_are_still_learned(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Noise is not repeatable, and one draw of many is above the bound.
    seeded = np.random.default_rng(0)
    monkeypatch.setattr(heads, "fresh_gaussians", seeded.standard_normal)
    options = {"closed-form.epsilon": 1e5, "closed-form.feature-norm": 15.0}
    run = train(settings(**{**CLOSED, "points_per_client": 0}, **options), 3)
    assert errors(run)[-1] < 20  # 2.5 without noise, 90 by chance
    assert summary(run)["epsilon"] == 1e5
    assert summary(run)["releases"] == 2


@pytest.mark.parametrize(
    ("augment", "differs"), [("none", False), ("affine", True), ("rotate", True)]
)
def test_views_by_augment_stand_beside_the_points(
    augment: str, differs: bool, settings: Settings
) -> None:
    options = {**CLOSED, "augment": augment, "model": "whitened-filters"}
    plain, masked, viewed = (
        train(settings(**{**options, **more}), 3)
        for more in ({"augment": "none"}, {}, {"closed-form.sum": "plaintext"})
    )
    assert errors(masked) == errors(viewed)
    weights = [last_model(run)["1.weight"] for run in (plain, masked)]
    assert np.allclose(*weights, rtol=1e-3, atol=1e-3) != differs
    about = summary(masked)  # its points are taken out with their views
    assert about["known_error"] > metrics(masked)[-1]["test_error"] - 5


# What is refused


@pytest.mark.parametrize(
    ("options", "clients", "code"),
    [
        ({**CLOSED}, 2, "too-few-clients"),
        ({**CLOSED, "fedul.num-sets": 2}, 3, "priors-rank"),
        ({**CLOSED, "num_rounds": 7}, 3, "setting-without-effect"),
        ({**HEADED, "num_rounds": 1}, 3, "settings-contradict"),
        ({**HEADED, "model": "mlp", "model_width": 5000}, 3, "model-unfit"),
        ({**HEADED, "dp.clipping": "client"}, 3, "setting-breaks-privacy"),
        ({**HEADED, "secure_sum": "on", "closed-form.sum": "plaintext"}, 3, "settings-contradict"),
        ({**HEADED, "closed-form.epsilon": 1.0}, 3, "setting-without-effect"),
        (
            {**CLOSED, "closed-form.epsilon": 1.0, "closed-form.sum": "plaintext"},
            3,
            "setting-without-effect",
        ),
        ({**QUICK, "closed-form.every": 1}, 3, "setting-without-effect"),
        (
            {**CLOSED, "closed-form.epsilon": 1.0, "augment": f"{__name__}:shifted"},
            3,
            "setting-breaks-privacy",
        ),
        ({**HEADED, "base": "local", "evaluate": "local"}, 3, "setting-without-effect"),
        (
            {**QUICK, "method": "fedmatch", "head": "closed-form", "closed-form.every": 1},
            3,
            "method-mismatch",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(
    options: dict[str, Any], clients: int, code: str, settings: Settings
) -> None:
    with refuses(code):
        train(settings(**options), clients)


@pytest.mark.parametrize(("apart", "warns"), [(3e-4, None), (0.02, True), (None, False)])
def test_class_shares_that_are_nearly_alike_are_refused_or_named(
    apart: float | None,
    warns: bool | None,
    settings: Settings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def write_alike(folder: Path, seed: int) -> None:
        write_sets(folder, seed)
        if apart is None:
            return
        shares = 1 / 3 + apart * (np.eye(3)[np.arange(4) % 3] - 1 / 3)
        rows = [f"month-{m}," + ",".join(map(repr, row.tolist())) for m, row in enumerate(shares)]
        (folder / "priors.csv").write_text("\n".join(["set,first,second,third", *rows]))

    owners = Owners(tmp_path, 3, write_alike)
    options = {**NO_DATA, "method": "closed-form", "model": "linear", "test_prior": "uniform"}
    run = settings(**options, selection="last")
    if warns is None:
        with refuses("priors-rank"):
            train(run, 3, client_app=owners.app)
    else:
        train(run, 3, client_app=owners.app)
        assert (heads._HARDLY_APART in {record.msg for record in caplog.records}) == warns


def part_of(client: Any, of: str, content: Content) -> Any:
    parts = (stage.part(of, content) for stage in client.stages)
    return next((part for part in parts if part is not None), None)


def asked(client: Any, of: str = "head") -> Content:
    prior = [0.1] * 10
    return Content(dump_arrays(client.model), {OF: of, PRIOR: prior, "server-round": 1})


def test_given_a_run_with_masks_then_a_client_answers_for_itself_alone_to_nobody(
    settings: Settings,
) -> None:
    client = simulated_client(SetsClient, settings(**CLOSED, model="linear"))
    with refuses("server-asks-too-much"):
        client.on_phase(HEAD, asked(client))


def test_given_sums_of_another_round_then_a_client_refuses_them(settings: Settings) -> None:
    client = simulated_client(SetsClient, settings(**CLOSED, model="linear"))
    assert len(part_of(client, "head", asked(client)))
    with refuses("server-asks-too-much"):  # a second release of round 1
        part_of(client, "refined-head", asked(client, "refined-head"))


@pytest.mark.parametrize("epsilon", [1.0, 0.0])
def test_with_noise_the_soft_label_of_a_point_depends_on_no_other_point(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, epsilon: float
) -> None:
    labels: list[Any] = []

    def watched(features: Any, soft: Any, **_: Any) -> Any:
        labels.append(soft)
        return SoftSums(*(np.zeros((1, 1)),) * 3)

    monkeypatch.setattr(heads, "soft_sums", watched)
    monkeypatch.setattr(
        HeadNoise, "add", lambda _, features, soft, **options: watched(features, soft).flat()
    )
    options = {**OF_LABELS, "model": "linear", "closed-form.epsilon": epsilon}
    client = simulated_client(LabelsClient, settings(**options))
    points = client.point_shares()
    assert 0 < points.stated.sum() < len(points.stated)
    shares = points.shares.copy()
    shares[0] = np.roll(shares[0], 1)  # another label of the first point
    refined = asked(client, "refined-head")
    refined = replace(refined, values={**refined.values, "server-round": 2})
    for said in (points, points._replace(shares=shares)):
        monkeypatch.setattr(client, "point_shares", lambda said=said: said)
        part_of(client, "refined-head", refined)
    one, other = (soft[1:] for soft in labels)
    assert np.array_equal(one, other) is (epsilon > 0)


def test_given_a_run_without_heads_then_a_client_sums_nothing(settings: Settings) -> None:
    client = simulated_client(FedULClient, settings(**QUICK))
    with refuses("server-asks-too-much"):
        client.on_phase(HEAD, asked(client))
    assert part_of(client, "head", asked(client)) is None


def test_given_an_owner_who_requires_secure_sums_then_plaintext_is_refused(
    settings: Settings,
) -> None:
    owner = NodeConfig(data="/nowhere", require_secure_sum=True)
    owner.check_run(settings(**CLOSED))
    counting = NodeConfig(data="/nowhere", max_epsilon=2.0)
    counting.check_run(settings(**CLOSED, **{"closed-form.epsilon": 1.0}))
    with refuses("owner-does-not-allow", limit="max-epsilon"):
        counting.check_run(settings(**CLOSED))
    with refuses("owner-does-not-allow", limit="require-secure-sum"):
        owner.check_run(settings(**CLOSED, **{"closed-form.sum": "plaintext"}))


def test_given_sums_that_no_points_have_then_they_are_refused() -> None:
    rng = np.random.default_rng(0)
    right = soft_sums(rng.normal(size=(8, 4)), np.eye(3)[rng.integers(3, size=8)], stated=True)
    check_sums("client 0", {SUMS: right.flat()}, 3, 4, 8)
    many, negative, endless, owing = (right.flat() for _ in range(4))
    many[0] += 2  # more points than it has announced
    owing[1] = -20.0  # the product of two classes: each has fewer points than none
    negative[-1] = -1.0  # a square
    endless[7] = np.nan
    for flat, code in (
        (right.flat()[1:], "message-form"),
        (many, "message-contradicts"),
        (owing, "message-contradicts"),
        (negative, "message-out-of-range"),
        (endless, "message-out-of-range"),
    ):
        with refuses(code, BadMessageError):
            check_sums("client 0", {SUMS: flat}, 3, 4, 8)


@pytest.mark.parametrize("prior", [[0.5, 0.5], [0.4, -0.3, *[0.1125] * 8]])
def test_given_numbers_that_are_no_class_priors_then_there_are_no_sums(
    settings: Settings, prior: list[float]
) -> None:
    client = simulated_client(SetsClient, settings(**CLOSED, **{"closed-form.sum": "plaintext"}))
    content = asked(client)
    with refuses("message-form"):
        client.on_phase(HEAD, replace(content, values={**content.values, PRIOR: prior}))


def test_given_features_without_end_then_the_client_says_so(settings: Settings) -> None:
    client = simulated_client(SetsClient, settings(**CLOSED, **{"closed-form.sum": "plaintext"}))
    content = asked(client)
    content.arrays = {name: np.full_like(a, np.inf) for name, a in content.arrays.items()}
    with refuses("model-not-finite", UserError):
        client.on_phase(HEAD, content)


def test_results_are_computed_once_for_the_same_parts() -> None:
    recent, calls = RecentArrays(100), []

    def compute() -> Floats:
        calls.append(1)
        return np.full(6, len(calls), float)  # 48 bytes

    def asked(*parts: str | Floats) -> float:
        return float(recent.of(compute, *parts)[0])

    one = np.arange(4.0)
    assert asked("a", one) == asked("a", one.copy()) == 1
    # Another word, other bytes, the same bytes as another array.
    assert [asked("b", one), asked("a", one + 1), asked("a", one.reshape(2, 2))] == [2, 3, 4]
    assert asked("a", one.reshape(2, 2)) == 4
    assert asked("a", one) == 5  # two fit
