"""FedUL with class priors as they come in practice: uncertain, learned, checked, too few sets."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedul_flwr.client_apps import fedul
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.safe_files import read_arrays
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.results.predict import load_model
from tests.support.refusals import refuses
from tests.support.runs import metrics, own_data_app, same, summary, train
from tests.support.settings import Settings

QUICK = {"model": "mlp", "num_rounds": 2, "local_epochs": 1}


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class priors are learned from the second round on."""
    monkeypatch.setattr(fedul, "LEARN_AFTER", 1)


LEARNS = {"fedul.learn-priors": True}
LEARNING = {**QUICK, "num_rounds": 8, "local_epochs": 2}


def kept_priors(directory: Path, client: int) -> np.ndarray:
    (file,) = (directory / "clients" / str(client)).glob("learned-priors-*.safetensors")
    return load_file(file)["priors"]


@pytest.mark.usefixtures("early")
def test_learning_exact_priors_is_plain_fedul_bit_for_bit(settings: Settings) -> None:
    plain = train(settings(**QUICK), 2)
    learned = train(settings(**QUICK, **LEARNS), 2)
    assert same(plain, learned)


def test_until_they_learn_clients_train_with_the_means_of_what_they_were_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {**QUICK, "num_rounds": 3, "fedul.prior-counts": 5}
    plain = train(settings(**counts), 2)
    for after, is_plain in ((3, True), (2, False)):
        monkeypatch.setattr(fedul, "LEARN_AFTER", after)
        learned = train(settings(**counts, **LEARNS), 2)
        kept = list((learned / "clients" / "0").glob("learned-priors-*"))
        assert bool(kept) != is_plain
        assert same(plain, learned) == is_plain


def test_learned_priors_are_kept_are_better_than_told_ones_and_give_a_better_model(
    settings: Settings,
) -> None:
    noisy = {**LEARNING, "fedul.prior-noise": 1.6, "selection": "heldout"}
    plain = train(settings(**noisy), 5)
    config = settings(**noisy, **LEARNS)
    directory = train(config, 5)
    split = build_split(source_directory("digits"), 5, config)
    for client, truth in enumerate(split.clients):
        told, learned = truth.priors, kept_priors(directory, client)
        np.testing.assert_allclose(learned.sum(axis=1), 1)
        before, after = (
            np.abs(found - truth.true_priors).sum(axis=1).mean() / 2 for found in (told, learned)
        )
        assert after < 0.75 * before
    found = summary(directory)["prior_fit"]
    assert found["sets"] == 50
    assert found["found_distance"] < found["told_distance"]
    assert summary(directory)["final_test_error"] < summary(plain)["final_test_error"] - 5
    assert metrics(directory)[-1]["heldout_loss"] < metrics(plain)[-1]["heldout_loss"]


@pytest.mark.usefixtures("early")
def test_a_run_that_resumes_goes_on_with_the_learned_priors(settings: Settings) -> None:
    chosen = {**QUICK, "fedul.prior-counts": 5, **LEARNS}
    through = train(settings(**{**chosen, "num_rounds": 4}), 2)
    begun = train(settings(**{**chosen, "num_rounds": 2}), 2)
    resumed = train(resolve({"resume": str(begun), "num-rounds": 4}, begun), 2)
    for client in range(2):
        assert kept_priors(through, client).tobytes() == kept_priors(resumed, client).tobytes()
    assert same(through, resumed)


def owners_of_two_sets(root: Path, pairs: list[tuple[int, ...]]) -> list[Path]:
    """Owners of two sets of 66 digits each, of which 50 are of the class that ``pairs`` names."""
    source = load_source("digits")
    labels, folders = np.asarray(source.train.labels), []
    pool = {k: list(np.flatnonzero(labels == k)) for k in range(3)}
    for owner, pair in enumerate(pairs):
        folder = root / f"owner{owner}"
        folder.mkdir(parents=True)
        rows = ["set,0,1,2"]
        for m, dominant in enumerate(pair):
            counts = [50 if k == dominant else 8 for k in range(3)]
            rows_of_set = [pool[k].pop() for k, count in enumerate(counts) for _ in range(count)]
            np.savez(folder / f"set{m}.npz", images=np.asarray(source.train.inputs[rows_of_set]))
            rows.append(f"set{m}," + ",".join(str(count / 66) for count in counts))
        (folder / "priors.csv").write_text("\n".join(rows) + "\n")
        folders.append(folder)
    return folders


THREE = {
    "model": "linear",
    "num_rounds": 20,
    "local_epochs": 1,
    "learning_rate": 0.003,
    "dataset": "none",
    "class_names": "0,1,2",
    "input_shape": "8x8x1",
    "selection": "last",
}


def error_on_three_digits(directory: Path) -> float:
    test = load_source("digits").test
    labels = np.asarray(test.labels)
    chosen = labels < 3
    found = load_model(directory).predict(np.asarray(test.inputs)[chosen])
    return float(100 * (found != labels[chosen]).mean())


def test_two_sets_for_each_client_are_enough_if_they_differ_between_clients(
    settings: Settings, tmp_path: Path
) -> None:
    folders = owners_of_two_sets(tmp_path / "apart", [(0, 1), (1, 2), (2, 0)])
    allowed = {**THREE, "fedul.fewer-sets": True, "fedul.share-priors": True}
    shared = train(settings(**allowed), 3, client_app=own_data_app(folders))
    assert error_on_three_digits(shared) < 4
    one = own_data_app(folders[:1])
    alone = train(settings(**THREE, **{"fedul.fewer-sets": True}), 1, client_app=one)
    assert error_on_three_digits(alone) > 20


def test_one_set_alone_is_refused_although_fewer_sets_are_allowed(
    settings: Settings, tmp_path: Path
) -> None:
    folders = owners_of_two_sets(tmp_path, [(0,), (1, 2)])
    chosen = {**THREE, "num_rounds": 1, "fedul.fewer-sets": True}
    with refuses("client-refused", match="Client 0 .*one"):
        train(settings(**chosen), 2, client_app=own_data_app(folders))


def test_the_set_that_is_told_wrong_is_found_and_no_other(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {**LEARNING, "num_rounds": 15, "seed": 23}  # a split of its own, which it changes
    right = summary(train(settings(**chosen), 5))["prior_fit"]
    assert (right["sets"], right["misfits"], right["told_distance"]) == (50, 0, 0)
    assert right["found_distance"] < 0.1
    assert "do not fit" not in capsys.readouterr().out
    split = build_split(source_directory("digits"), 5, settings(**chosen))
    with np.load(split.directory / "sets.npz") as archive:
        arrays = dict(archive)
    row = arrays["set_bounds"][2] + 3
    for name in ("priors", "posterior_means"):
        arrays[name][row] = np.roll(arrays[name][row], 4)
    np.savez(split.directory / "sets.npz", **arrays)
    read_arrays.cache_clear()
    wrong = summary(train(settings(**chosen), 5))["prior_fit"]
    assert (wrong["sets"], wrong["misfits"]) == (50, 1)
    assert wrong["misfit_distance"] == pytest.approx(50 * wrong["told_distance"])
    out = capsys.readouterr().out
    said = "Client 2: warning: the class shares of set '3' do not fit the model's predictions (p = "
    assert out.count("do not fit") == 1
    assert said in out
