"""Runs, comparisons and labels from Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_wine

import fedul_flwr as ff
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.engine import in_process
from fedul_flwr.results.facts import facts
from fedul_flwr.results.predict import load_model
from tests.support.refusals import refuses

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = IMAGES.reshape(-1, 8, 8) / 16
SMALL: dict[str, Any] = {
    **{"clients": 2, "rounds": 2, "model": "mlp", "local_epochs": 1},
    "engine": "in-process",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ff.Result:
    output = tmp_path_factory.mktemp("runs") / "run"
    return ff.simulate("fedul", (IMAGES, LABELS), output=output, **SMALL)


def test_given_arrays_then_a_run_learns_them_and_its_result_has_all(result: ff.Result) -> None:
    assert result.finished
    assert result.settings["num-rounds"] == 2
    assert result.metrics.index.tolist() == [1, 2]
    assert result.metrics["test_error"].iloc[-1] == result.summary["test_error"]
    assert result.class_names == tuple(map(str, range(10)))
    assert "method fedul" in repr(result)
    assert f"<td>{result.directory}</td>" in result._repr_html_()


def test_given_points_in_another_form_then_predictions_are_the_models(result: ff.Result) -> None:
    stored = np.rint(IMAGES * 255).astype(np.uint8)[..., np.newaxis]
    expected = load_model(result.directory).predict_proba(stored)
    np.testing.assert_array_equal(result.predict_proba(IMAGES), expected)
    tensor = torch.from_numpy(stored).permute(0, 3, 1, 2)
    np.testing.assert_array_equal(result.predict(tensor), expected.argmax(axis=1))
    with torch.no_grad():
        logits = result.model(tensor.float() / 127.5 - 1)
    np.testing.assert_array_equal(logits.argmax(dim=1).numpy(), expected.argmax(axis=1))
    assert not result.model.training
    # Training points are most of these: the error is near that of the test points.
    error = 100 * (result.predict(IMAGES) != LABELS).mean()
    assert error == pytest.approx(result.summary["test_error"], abs=6)


def test_given_a_result_then_its_figures_are_drawn_and_shown(result: ff.Result) -> None:
    assert result.plot().axes[0].get_xlabel() == "round"
    assert result.plot("confusion")._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]
    with refuses("unknown-name", match="eror"):
        result.plot("eror")


def test_given_a_saved_result_then_it_can_be_loaded(result: ff.Result, tmp_path: Path) -> None:
    again = ff.load(result.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict_proba(IMAGES), result.predict_proba(IMAGES))
    with pytest.raises(ff.UserError, match="exists"):
        result.save(tmp_path / "saved")
    with refuses("folder-missing", match="nothing"):
        ff.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (ff.simulate, {"local_epoch": 1}, "Unknown setting 'local-epoch'.*'local-epochs'"),
        (ff.simulate, {"dataset": "wine"}, "dataset is given as data="),
        (ff.simulate, {"engine": "rays"}, "engine = 'rays': must be one of 'processes', 'ray'"),
        (ff.simulate, {"test": (IMAGES, LABELS)}, "belong to data"),
        (ff.compare, {"methods": []}, "methods is empty"),
        (ff.compare, {"methods": ["fedul"], "engine": "rays"}, "did you mean 'ray'"),
        (ff.compare, {"methods": ["fedul"], "seeds": 0}, "Seeds 0 must be whole numbers"),
        (ff.compare, {"methods": ["fedul"], "ray_address": "a:1"}, "needs --engine ray"),
        (ff.compare, {"methods": ["fedul"], "clents": 3}, "did you mean 'clients'"),
        (ff.label, {"clents": 3}, "did you mean 'clients'"),
        (ff.label, {"method": "fedul"}, "trains a model"),
        (ff.label, {"client_cpus": 0}, "client_cpus = 0: must be at least 1"),
        (ff.compare, {"methods": ["fedul"], "measures": ["acc"]}, "Unknown measure 'acc'"),
        (ff.compare, {"methods": ["fedul"], "fedmatch": {"helpers": 1}}, "effect in any of the"),
        (ff.label, {"data": (IMAGES, LABELS[:3]), "clients": [0, 1]}, "3 labels for 1797 points"),
        (ff.label, {"data": "wine", "clients": [0, 1]}, "clients must be a number"),
        (ff.label, {"data": (IMAGES[:5], LABELS[:5]), "clients": [0, 1]}, "each of 5 points"),
    ],
)
def test_arguments_that_are_refused(
    place: Path, call: Callable[..., Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ff.UserError, match=message):
        call(**arguments)
    assert not (place / "runs").exists()


def test_given_a_run_that_is_stopped_when_resumed_then_it_ends_as_one_that_was_not(
    result: ff.Result,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = in_process.run_in_process

    def stop(*arguments: Any, **options: Any) -> None:
        class CtrlC(ff.Callback):
            def recorded(self, lines: Any) -> None:
                if lines[-1]["round"] == 1:
                    raise KeyboardInterrupt

        run(*arguments, **{**options, "callbacks": [CtrlC()]})

    monkeypatch.setattr(in_process, "run_in_process", stop)
    with pytest.raises(KeyboardInterrupt):
        ff.simulate("fedul", (IMAGES, LABELS), output="stopped", **SMALL)
    said = f"fedul_flwr.simulate(resume={str(place / 'stopped')!r}) goes on"
    assert said in capsys.readouterr().err
    stopped = ff.load("stopped")
    assert not stopped.finished
    assert stopped.summary == {}
    assert said in repr(stopped)
    monkeypatch.undo()
    monkeypatch.chdir(place)
    resumed = ff.simulate(resume="stopped", engine="in-process")
    assert resumed.directory == stopped.directory
    assert resumed.summary["test_error"] == result.summary["test_error"]
    for name, array in resumed.model.state_dict().items():
        assert torch.equal(array, result.model.state_dict()[name])


def test_methods_are_compared_and_resume(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def compare() -> ff.Comparison:
        methods = [
            "fedul",
            {"method": "supervised", "name": "tenth", "supervised": {"label_fraction": 0.1}},
        ]
        return ff.compare(
            methods, load_wine(return_X_y=True), seeds=2, fedul={"num_sets": 3}, **SMALL
        )

    found = compare()
    assert found.table.index.tolist() == ["fedul", "tenth"]
    assert found.directory == place / "runs" / "compare-fedul-tenth"
    errors = [run.summary["test_error"] for run in found.results["fedul"]]
    assert found.table.loc["fedul", "mean"] == pytest.approx(np.mean(errors))
    assert found.table.loc["fedul", "std"] == pytest.approx(np.std(errors, ddof=1))
    assert found.results["tenth"][0].settings["supervised.label-fraction"] == 0.1
    assert found.trials[["run", "seed"]].to_numpy().tolist()[:2] == [["fedul", 0], ["tenth", 0]]
    assert "tenth" in repr(found)
    assert "<table" in found._repr_html_()
    assert len(found.plot().axes) == 2
    capsys.readouterr()
    pd.testing.assert_frame_equal(compare().table, found.table)
    assert "4 of 4 " in capsys.readouterr().out


def test_given_points_with_some_labels_then_all_get_one(place: Path) -> None:
    x, y = load_wine(return_X_y=True)
    names = np.array(["a", "b", "c"], dtype=object)[y]
    names[np.arange(len(y)) % 6 > 0] = None
    owners = np.arange(len(y)) % 5 % 3
    found = ff.label(
        (x, names), clients=owners, output="labels", engine="in-process", xclp={"num_bits": 1024}
    )
    assert found.class_names == ("a", "b", "c")
    assert (found.labels == y).mean() > 0.7  # codes are drawn anew by every run
    assert (found.confidence[::6] == 1).all()
    assert (found.labels[::6] == y[::6]).all()
    assert found.rows.tolist() == list(range(len(y)))
    # The same as the files that clients wrote, which number their own points.
    text = (place / "labels" / "clients" / "1" / "labels.csv").read_text().splitlines()[1]
    row, label, *_ = text.split(",")
    assert found.labels[np.flatnonzero(owners == 1)[int(row)]] == int(label)
    assert "points 178" in repr(found)


def test_given_the_client_of_each_point_then_every_client_has_its_own(place: Path) -> None:
    x, y = load_wine(return_X_y=True)
    clients = np.where(np.arange(len(y)) % 5 == 0, "small", "big")
    found = ff.simulate("supervised", (x, y), **{**SMALL, "clients": clients})
    federation = json.loads((found.directory / "federation.json").read_text())["clients"]
    sizes = [sum(client["class_counts"]) for client in federation]
    assert len(sizes) == 2  # in the order of their names
    assert sizes[0] > 3 * sizes[1]
    with refuses("argument-not-allowed", setting="partition"):
        ff.simulate("supervised", (x, y), partition="iid", **{**SMALL, "clients": clients})


def test_a_run_that_trains_nothing_prints_no_setting_of_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    keywords: dict[str, Any] = {"data": "digits", "engine": "in-process", "output": str(out)}
    run = ff.simulate("closed-form-labels", clients=4, **keywords)
    shown, card = "".join(capfd.readouterr()), (out / "model-card.md").read_text()
    assert "learning-rate" not in shown + card
    assert "epochs" not in card
    assert "of the model" not in facts(Run.read(out))  # sums travel, no model
    assert run.summary["warnings"] == []


def tiny(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    """A model of somebody's own."""
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), num_classes)
    )


def test_a_function_stands_for_its_place(tmp_path: Path) -> None:
    short: dict[str, Any] = {"clients": 3, "rounds": 1, "engine": "in-process"}
    runs = [
        ff.simulate("supervised", model=model, output=tmp_path / name, **short)
        for name, model in (("named", f"{__name__}:tiny"), ("object", tiny))
    ]
    assert runs[1].settings["model"] == f"{__name__}:tiny"
    assert runs[0].summary["test_error"] == runs[1].summary["test_error"]


def local_function() -> Callable[..., torch.nn.Module]:
    def build(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        return tiny(shape, num_classes)

    return build


@pytest.mark.parametrize(
    "model", [local_function(), tiny((8, 8, 1), 10)], ids=["function", "module"]
)
def test_an_object_of_no_module_goes_with_runs_in_this_process_alone(
    model: Any, tmp_path: Path
) -> None:
    with refuses("argument-not-allowed", match="my_models:build"):
        ff.simulate("supervised", model=model)
    with refuses("argument-not-allowed", match="my_models:build"):
        ff.compare([{"method": "supervised", "model": model}])
    short: dict[str, Any] = {"clients": 3, "rounds": 1, "engine": "in-process", "seed": 3}
    is_module = isinstance(model, torch.nn.Module)
    before = model[1].weight.detach().clone() if is_module else None
    run = ff.simulate("supervised", model=model, output=tmp_path / "run", **short)
    assert ff.load(run.directory).predict(IMAGES[:3]).shape == (3,)
    if before is None:  # built as by name, with the run's seed
        named = ff.simulate("supervised", model=tiny, output=tmp_path / "named", **short)
        assert run.summary["test_error"] == named.summary["test_error"]
    else:  # copied: training has not changed it
        torch.testing.assert_close(model[1].weight, before, rtol=0, atol=0)


def test_a_module_begins_training_with_its_weights(tmp_path: Path) -> None:
    model = tiny((8, 8, 1), 10)
    keywords: dict[str, Any] = {"clients": 3, "rounds": 1, "engine": "in-process"}
    run = ff.simulate(
        "supervised", model=model, output=tmp_path / "run", learning_rate=1e-12, **keywords
    )
    torch.testing.assert_close(run.model[1].weight, model[1].weight, rtol=0, atol=1e-6)


def test_an_object_of_another_session_is_named() -> None:
    with refuses("reference-wrong"):
        ff.simulate(
            "supervised", model="fedul_flwr.api.in_memory:Net_0a1b2c3d", engine="in-process"
        )


def test_settings_are_searched_and_compared_with_the_best(place: Path) -> None:
    keywords: dict[str, Any] = {"clients": 2, "rounds": 1, "model": "mlp", "local_epochs": 1}
    found = ff.tune("supervised", "digits", trials=2, **keywords)
    assert len(found.trials["supervised"]) == 2
    assert found.file.is_file()
    chosen = found.settings["supervised"]
    compared = ff.compare(
        "supervised", "digits", seeds=[1], tuned=found.file, engine="in-process", **keywords
    )
    settings = compared.results["supervised"][0].settings
    assert {key: settings[key] for key in chosen} == chosen
    with refuses("argument-not-allowed"):
        ff.tune("supervised", trials=0)


def test_files_are_predicted_evaluated_and_reported(place: Path) -> None:
    x, y = load_wine(return_X_y=True, as_frame=True)
    run = ff.simulate("supervised", (x, y), output="run", clients=2, rounds=1, model="mlp")
    x.assign(label=y).to_csv("points.csv", index=False)
    rows = pd.read_csv(ff.predict("run", "points.csv", "out.csv"))
    np.testing.assert_array_equal(rows["label"], run.predict(x))
    lines = ff.evaluate("run", "points.csv", output="page.html", positive="1")
    assert "AUC" in lines[0]
    assert (place / "page.html").is_file()
    assert ff.report("run") == place / "run/report.html"
    with refuses("unknown-name"):
        ff.predict("run", "points.csv", coverages=0.9)


def test_a_misspelled_argument_is_refused_with_the_nearest() -> None:
    with refuses("unknown-name", match="'clients'"):
        ff.simulate("supervised", clents=3)
