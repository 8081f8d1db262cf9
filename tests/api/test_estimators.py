"""The estimators obey scikit-learn's rules, and compute what runs of the methods compute."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedul_flwr as ff
from fedul_flwr.engine.in_process import run_in_process
from fedul_flwr.propagation.central import label_propagation

X, Y = load_wine(return_X_y=True)
X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
GIVEN = np.where(np.arange(len(Y)) % 6 == 0, Y, -1)
PRIORS = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])


def expected_failures(estimator: Any) -> dict[str, str]:
    return {
        "check_classifiers_classes": "-1 is an unlabeled point and no class, as in scikit-learn's "
        "own LabelPropagation"
    }


@parametrize_with_checks(
    [ff.FedULClassifier(rounds=5), ff.ClosedFormClassifier(), ff.GraphLabelClassifier()],
    expected_failed_checks=expected_failures,
)
def test_estimators_obey_scikit_learns_rules(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def drawn_sets(sizes: int = 40, seed: int = 0) -> list[Any]:
    """Three sets whose classes are drawn by ``PRIORS``."""
    rng = np.random.default_rng(seed)
    classes = [rng.choice(3, sizes, p=p) for p in PRIORS]
    return [X[[rng.choice(np.flatnonzero(k == Y)) for k in drawn]] for drawn in classes]


@pytest.mark.parametrize("kind", [ff.FedULClassifier(rounds=10), ff.ClosedFormClassifier()])
def test_given_sets_and_their_class_priors_then_classes_are_learned(kind: Any) -> None:
    found = kind.fit(drawn_sets(100), PRIORS)
    assert found.classes_.tolist() == [0, 1, 2]
    assert found.score(X, Y) > 0.9
    np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1)


def test_given_refinements_and_shrinkage_then_the_closed_form_is_another() -> None:
    found, once, spherical = (
        ff.ClosedFormClassifier(**options).fit(drawn_sets(100), PRIORS).predict_proba(X)
        for options in ({}, {"refinements": 0}, {"shrinkage": 1.0})
    )
    assert not np.allclose(spherical, found)
    assert not np.allclose(once, found)


def test_given_labels_then_it_is_a_linear_discriminant() -> None:
    found = ff.ClosedFormClassifier(shrinkage=1e-9, standardize=False).fit(X, Y)
    peer = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3).fit(X, Y)
    assert (found.predict(X) == peer.predict(X)).mean() > 0.97


def test_given_rare_positives_then_they_stay_rare_in_predictions() -> None:
    rng = np.random.default_rng(0)
    y = (np.arange(2000) % 20 == 0).astype(int)
    x = rng.normal(size=(2000, 2)) + 1.8 * y[:, None] * [1, 0]

    def right(kind: Any) -> float:
        return float(kind.fit(x[:1000], y[:1000]).score(x[1000:], y[1000:]))

    peer = right(LinearDiscriminantAnalysis(solver="lsqr"))
    for kind in (ff.ClosedFormClassifier(), ff.FedULClassifier(rounds=5)):
        assert right(kind) > peer - 0.01
    assert right(ff.ClosedFormClassifier(test_prior=[0.5, 0.5])) < peer - 0.05
    # Of sets their priors say how many are positive: (0.09 + 0.01) / 2.
    sets = np.where(rng.random(2000) < np.where(y, 0.9, 0.479), 0, 1)
    shares = [[1 - y[sets == m].mean(), y[sets == m].mean()] for m in (0, 1)]
    of_sets = ff.ClosedFormClassifier().fit(x, sets, shares)
    assert (of_sets.predict(x) == y).mean() > peer - 0.02


@pytest.mark.parametrize("missing", [-1, None, np.nan])
@pytest.mark.parametrize("names", [[0, 1, 2], ["a", "b", "c"]])
def test_points_without_a_label_are_of_no_class(names: list[Any], missing: Any) -> None:
    given = np.array([names[y] if n % 3 else missing for n, y in enumerate(Y)], dtype=object)
    true = np.array(names)[Y]
    has = np.arange(len(Y)) % 3 > 0
    for kind in (ff.ClosedFormClassifier(), ff.FedULClassifier(rounds=5)):
        found = kind.fit(X, given)
        assert found.classes_.tolist() == names
        assert (found.predict(X) == true).mean() > 0.95
        assert found.score(X, given) == (found.predict(X) == true)[has].mean()
    # The first message is of labels alone.
    once: Any = ff.ClosedFormClassifier(refinements=0, standardize=False)
    alike = once.fit(X, given).predict_proba(X)
    np.testing.assert_allclose(alike, once.fit(X[has], true[has]).predict_proba(X))


def test_given_sets_then_a_point_of_none_is_left_out() -> None:
    sets, points = np.repeat([0, 1, 2, -1], 40), np.concatenate([*drawn_sets(), 100 + X[:40]])
    options: Any = {"standardize": False}
    one = ff.ClosedFormClassifier(**options).fit(points, sets, PRIORS).predict_proba(X)
    other = ff.ClosedFormClassifier(**options).fit(drawn_sets(), PRIORS).predict_proba(X)
    np.testing.assert_array_equal(one, other)


def test_given_labels_of_minus_one_and_one_then_one_class_is_too_few() -> None:
    for kind in (ff.ClosedFormClassifier(), ff.FedULClassifier(rounds=1)):
        with pytest.raises(ValueError, match=r"1 class.*-1"):
            kind.fit(X, np.where(Y == 0, -1, 1))


TWO = np.array([[0.1, 0.9], [0.9, 0.1]])


def two_sets() -> tuple[Any, Any, Any]:
    """Points of two classes in two sets, their sets and their classes."""
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 300)
    y = np.array([rng.choice(2, p=TWO[m]) for m in sets])
    return np.where(y[:, None] == 1, 1.0, -1.0) + rng.normal(size=(600, 4)), sets, y


@pytest.mark.parametrize(
    ("kind", "grid"),
    [
        (ff.FedULClassifier(rounds=3), {"learning_rate": [1e-9, 3e-3]}),
        (ff.ClosedFormClassifier(), {"shrinkage": [1.0, 0.1]}),
    ],
)
@pytest.mark.parametrize("clients", [None, [0, 1]])
def test_searches_over_sets_choose_the_better_model(kind: Any, grid: Any, clients: Any) -> None:
    x, sets, y = two_sets()
    if isinstance(kind, ff.ClosedFormClassifier):
        x = x @ np.diag([1, 1, 1, 30]) + 5 * x[:, :1]  # spherical classes are wrong
    if clients:  # each has both kinds of sets
        sets, priors, clients = sets + 2 * (np.arange(600) % 2), np.r_[TWO, TWO], [0, 0, 1, 1]
    else:
        priors = TWO
    search = GridSearchCV(kind, grid, cv=3).fit(x, sets, priors=priors, clients=clients)
    ((name, values),) = grid.items()
    errors = [
        (clone(kind).set_params(**{name: v}).fit(x, sets, priors).predict(x) != y).mean()
        for v in values
    ]
    assert errors[1] < errors[0]
    assert search.best_params_ == {name: values[1]}


def test_scores_of_sets_are_minus_the_surrogate_loss() -> None:
    x, sets, y = two_sets()
    found = ff.FedULClassifier(rounds=3).fit(x, sets, TWO)
    loss = ff.SurrogateLoss(
        torch.tensor(TWO), torch.tensor([300, 300]), torch.from_numpy(TWO.mean(axis=0))
    )
    logits = torch.from_numpy(np.log(found.predict_proba(x)))
    assert found.score(x, sets) == pytest.approx(-float(loss(logits, torch.from_numpy(sets))))
    # Two equal posteriors: each set is as probable as its size, log 2; and a point that surely is
    # of class 1 is of set 0 with 0.9.
    assert found.score(x, sets) > -np.log(2)
    with pytest.raises(ValueError, match="set of each point"):
        found.score(x, y + 5)
    # After a list of sets y is the class of each point, and a list is of sets that were held out.
    of_list = ff.FedULClassifier(rounds=3).fit([x[:300], x[300:]], TWO)
    assert of_list.score(x, y) == (of_list.predict(x) == y).mean()
    assert of_list.score([x[:150], x[300:]], TWO) > of_list.score([x[:150], x[300:]], TWO[::-1])


def test_given_images_then_random_features_tell_them_apart() -> None:
    digits = load_digits()
    images, labels = (15 * digits.images).astype(np.uint8)[..., None], digits.target
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:900], order[900:]
    found = ff.ClosedFormClassifier().fit(images[train], labels[train])
    assert found.score(images[test], labels[test]) > 0.93


def test_given_all_points_and_their_sets_then_it_is_the_same_as_a_list_of_sets() -> None:
    sets = drawn_sets()
    numbers = np.repeat([7, 8, 9], 40)
    one = ff.FedULClassifier(rounds=3).fit(sets, PRIORS)
    other = ff.FedULClassifier(rounds=3).fit(np.concatenate(sets), numbers, PRIORS)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_given_no_priors_then_each_set_is_a_class_and_training_is_supervised() -> None:
    """With Pi = I and equal sizes, Q is the identity: the loss is cross-entropy of the classes."""
    names = np.array(["barolo", "grignolino", "barbera"])[Y]
    found = ff.FedULClassifier(rounds=10).fit(X, names)
    assert found.classes_.tolist() == ["barbera", "barolo", "grignolino"]
    assert found.score(X, names) > 0.97


def write_owners(folder: Path, owners: list[list[Any]]) -> None:
    for client, sets in enumerate(owners):
        own = folder / str(client)
        own.mkdir(parents=True)
        rows = ["set,a,b,c"]
        for number, points in enumerate(sets):
            np.savez(own / f"s{number}.npz", vectors=points)
            rows.append(f"s{number}.npz,{','.join(map(str, PRIORS[number]))}")
        (own / "priors.csv").write_text("\n".join(rows) + "\n")


def test_given_two_clients_then_a_runs_bits(settings: Callable[..., Any], tmp_path: Path) -> None:
    owners = [drawn_sets(20, seed=1), drawn_sets(20, seed=2)]
    write_owners(tmp_path / "owners", owners)
    config = settings(
        **{"dataset": "none", "class-names": "a,b,c", "input-shape": "13"},
        **{"client-data": str(tmp_path / "owners"), "standardize": "none", "model": "mlp"},
        **{"num-rounds": 3, "selection": "last", "output": str(tmp_path / "run")},
    )
    run_in_process(config, 2)
    found = ff.FedULClassifier(rounds=3, standardize=False).fit(
        [*owners[0], *owners[1]], np.concatenate([PRIORS, PRIORS]), clients=[0, 0, 0, 1, 1, 1]
    )
    for name, array in ff.load(tmp_path / "run").model.state_dict().items():
        assert torch.equal(array, found.model_.state_dict()[name]), name


def test_given_images_then_a_model_for_images_learns_them() -> None:
    images = np.zeros((60, 8, 8, 1), dtype=np.uint8)
    images[:30, :4] = 255
    sets = [np.r_[images[:20], images[30:40]], np.r_[images[20:30], images[40:]]]
    found = ff.FedULClassifier("cnn-small", rounds=3).fit(sets, [[2 / 3, 1 / 3], [1 / 3, 2 / 3]])
    assert found.predict(images).tolist() == [0] * 30 + [1] * 30
    with pytest.raises(ValueError, match="trained"):
        found.predict(np.zeros((2, 4, 4, 1), dtype=np.uint8))


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda e: e.fit(drawn_sets(), PRIORS[:2]), "must be \\(3, classes\\)"),
        (lambda e: e.fit(drawn_sets()[:2], PRIORS[:2]), "determine 1 of the 2 ratios"),
        (lambda e: e.fit(drawn_sets(), [1, 2, 3]), r"must be \(3, classes\)"),
        (lambda e: e.fit(drawn_sets(), PRIORS, clients=[0]), "name a client for each"),
    ],
)
def test_priors_that_do_not_fit_are_refused(fit: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(ff.FedULClassifier(rounds=1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "mpl"),
        *(("rounds", value) for value in (0, 2.5, True, "3")),
        *((name, 0) for name in ("local_epochs", "batch_size", "learning_rate")),
        *(("learning_rate", value) for value in (float("nan"), float("inf"), "auto")),
        ("optimizer", "lbfgs"),
        ("weight_decay", -1.0),
        *(("test_prior", value) for value in ([0.5, 0.5], [0.5, 0.5, 0.5], [float("nan")] * 3)),
        ("random_state", -1),
    ],
)
def test_given_a_parameter_that_makes_no_sense_then_fit_refuses_it(name: str, value: Any) -> None:
    estimator = ff.FedULClassifier(**{"rounds": 1, name: value})
    clone(estimator)  # only fit checks parameters
    with pytest.raises(ValueError, match=r"seed|non-negative" if name == "random_state" else name):
        estimator.fit(drawn_sets(), PRIORS)


@pytest.mark.parametrize("loss", ["nll", "release"])
def test_given_a_fit_then_nothing_is_printed_and_no_file_is_written(
    loss: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options: dict[str, Any] = {"rounds": np.int64(2), "batch_size": np.int32(8)}
    wrong = PRIORS[:, [1, 2, 0]]  # a run's clients would say so
    found = ff.FedULClassifier(surrogate_loss=loss, **options).fit(drawn_sets(), wrong)
    assert len(found.losses_) == 2
    assert capfd.readouterr() == ("", "")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("clients", [[0, 0, 0, 1], [0, 0, 1, 1]])
def test_given_a_client_of_fewer_sets_than_classes_then_it_takes_part(clients: list[int]) -> None:
    sets, priors = [*drawn_sets(), X[::3]], np.r_[PRIORS, [np.bincount(Y[::3]) / len(Y[::3])]]
    found = ff.FedULClassifier(rounds=5).fit(sets, priors, clients=clients)
    assert found.score(X, Y) > 0.8


def test_given_training_that_diverges_then_the_error_is_about_it_alone() -> None:
    with pytest.raises(ValueError, match=r"^The local loss is no longer finite"):
        ff.FedULClassifier(optimizer="sgd", learning_rate=1e30).fit(drawn_sets(), PRIORS)


FRAME = pd.DataFrame(X, columns=[f"c{column}" for column in range(13)])


def test_given_frames_then_columns_of_sets_are_matched_by_name_and_checked_at_predict() -> None:
    sets = [FRAME[k == Y] for k in range(3)]
    reordered = [sets[0], sets[1][FRAME.columns[::-1]], sets[2]]
    one, other = (ff.FedULClassifier(rounds=1).fit(each, PRIORS) for each in (sets, reordered))
    assert one.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert one.n_features_in_ == 13
    np.testing.assert_array_equal(one.predict_proba(FRAME), other.predict_proba(FRAME))
    with pytest.raises(ValueError, match="order"):
        one.predict(FRAME[FRAME.columns[::-1]])
    for odd in (sets[1].rename(columns={"c0": "z"}), sets[1].to_numpy()):
        with pytest.raises(ValueError, match=r"set 1 |DataFrames"):
            one.fit([sets[0], odd, sets[2]], PRIORS)


def test_given_several_threads_then_each_has_the_numbers_of_one_alone(tmp_path: Path) -> None:
    def weights(model: Any) -> list[Any]:
        return [weight.tolist() for weight in model.state_dict().values()]

    def run(name: str) -> list[Any]:
        found = ff.simulate(
            "supervised", data=(X, Y), clients=2, rounds=2, model="mlp", model_dropout=0.5,
            local_epochs=1, engine="in-process", output=tmp_path / name,
        )  # fmt: skip
        return weights(found.model)

    def fit(_: str) -> list[Any]:
        return weights(ff.FedULClassifier(rounds=3).fit(X, Y).model_)

    state = torch.get_rng_state()
    alone = {job: job("alone") for job in (run, fit)}
    assert torch.equal(torch.get_rng_state(), state)
    with ThreadPoolExecutor(4) as pool:
        started = [(job, pool.submit(job, f"t{n}")) for n, job in enumerate((run, fit, run, fit))]
        for job, found in started:
            assert found.result() == alone[job]


def test_given_names_of_sets_and_classes_then_their_order_does_not_matter() -> None:
    sets = np.where(Y == 0, "march", np.where(Y == 1, "april", "may"))
    months, order = ["march", "april", "may"], [2, 0, 1]
    frame = pd.DataFrame(PRIORS, index=months, columns=["barolo", "barbera", "grignolino"])
    categories = pd.Series(pd.Categorical(sets, months, ordered=True))
    test = pd.Series([0.2, 0.5, 0.3], index=frame.columns)
    arguments: list[tuple[Any, Any, Any]] = [
        (sets, frame, test),
        (sets, frame.iloc[order], test.iloc[order]),
        (categories, frame.to_numpy(), test.to_numpy()),
    ]
    fitted = [ff.FedULClassifier(rounds=2, test_prior=p).fit(X, y, t) for y, t, p in arguments]
    assert fitted[0].classes_.tolist() == frame.columns.tolist()
    for other in fitted[1:]:
        np.testing.assert_array_equal(other.predict_proba(X), fitted[0].predict_proba(X))
    with pytest.raises(ValueError, match="april"):
        ff.FedULClassifier(rounds=2).fit(X, sets, frame.rename(index={"march": "june"}))


def test_given_some_labels_then_transduction_is_label_propagation() -> None:
    given = np.where(GIVEN >= 0, GIVEN + 5, -1)
    found = ff.GraphLabelClassifier(similarity="cosine", standardize=False).fit(X, given)
    expected = label_propagation(X.astype(np.float64), GIVEN, similarity="cosine")
    np.testing.assert_array_equal(found.transduction_, expected.labels + 5)
    np.testing.assert_array_equal(found.confidence_, expected.confidence)
    assert (found.transduction_ == Y + 5).mean() > 0.8
    assert found.score(X, Y + 5) > 0.8


def test_given_points_of_several_clients_then_their_labels_are_those_of_one_party() -> None:
    """Clients compare under encryption; with 8,184 bits most codes' order is that of cosines.

    The codes are drawn anew in every run.
    """
    clients = np.arange(len(Y)) % 5 % 3
    among = ff.GraphLabelClassifier(num_bits=8184).fit(X, GIVEN, clients=clients)
    alone = ff.GraphLabelClassifier(similarity="cosine").fit(X, GIVEN)
    assert (among.transduction_ == alone.transduction_).mean() > 0.9
    np.testing.assert_array_equal(among.transduction_[GIVEN >= 0], GIVEN[GIVEN >= 0])


def test_given_a_point_between_two_neighbors_then_votes_are_by_hand() -> None:
    """Points at 0, 60 and 180 degrees, all labeled; the new one at 30 degrees.

    Its cosines are cos 30, cos 30 and cos 150 < 0: equal votes for two, none for the last.
    """
    angles = np.radians([0, 60, 180])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    found = ff.GraphLabelClassifier(standardize=False).fit(points, [4, 5, 6])
    new = [[np.cos(np.pi / 6), np.sin(np.pi / 6)], [0.0, 0.0]]
    np.testing.assert_allclose(found.predict_proba(new), [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]])


def test_given_an_import_then_nothing_heavy_is_imported_and_all_exports_exist() -> None:
    program = (
        "import sys, fedul_flwr as ff\n"
        "heavy = {'torch', 'numpy', 'flwr', 'pandas', 'sklearn', 'importlib.metadata'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert set(ff.__all__) <= set(dir(ff))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert all(getattr(ff, name) for name in ff.__all__)
    assert ff.__version__
    with pytest.raises(AttributeError, match="nothing"):
        _ = ff.nothing  # type: ignore[attr-defined]
