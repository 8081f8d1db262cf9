"""Runs with personal models: what is trained on, compared, sent, written, and resumed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.safe_files import load_arrays_of
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.types import ASIDE
from fedul_flwr.errors import UserError
from fedul_flwr.results.facts import summary_rows
from fedul_flwr.results.predict import load_model, predict
from fedul_flwr.results.report import report
from tests.support.fedmatch_exchanges import TINY
from tests.support.message_log import TO_SERVER, read_message_log
from tests.support.refusals import refuses
from tests.support.runs import cut_off, own_data_app, resume, summary, train
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 2, "points_per_client": 120},
    **{"precision": "float32", "selection": "last", "learning_rate": 3e-3},
}
HEAD = {**QUICK, "method": "labels-only", "labels.total": 120, "personal": "head"}


def rows(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((directory / "personal.json").read_text())["clients"]
    return found


def test_a_run_with_labels(settings: Settings, tmp_path: Path) -> None:
    out = train(settings(**HEAD), 3, message_log=tmp_path / "log")
    found, known = rows(out), summary(out)
    assert [row["client"] for row in found] == [0, 1, 2]
    for row in found:
        assert row["labels_aside"] == 40 // ASIDE
        assert (row["steps"] > 0) == row["differs"]
        own, about = load_arrays_of(out / "clients" / str(row["client"]) / "personal.safetensors")
        assert about["round"] == 2
        if row["differs"]:
            assert len(own) == 2  # weights and bias of the last layer, and nothing else
        else:
            assert row["test_error"] == row["global_test_error"]
            assert row["error"] == row["global_error"]
    told = json.loads((out / "federation.json").read_text())["clients"]
    assert [client["num_labeled"] for client in told] == [32, 32, 32]  # of 40 labels each
    mean = np.mean([row["test_error"] for row in found])
    assert known["personal"]["error"] == pytest.approx(mean)
    assert "better at" in summary_rows(Run.read(out))["personal"]
    assert "Personal models" in report([out]).read_text()
    # Nothing of it is sent: the answers are empty.
    log = read_message_log(tmp_path / "log")
    sent = [m for m in log if m.direction == TO_SERVER and m.phase == "personal"]
    assert len(sent) == 3
    assert all(not message.arrays and not any(message.values.values()) for message in sent)


def test_points_set_aside_are_trained_on_in_no_way(settings: Settings) -> None:
    chosen = {"method": "pseudo-label", "semi.labels-only-rounds": 1, "labels.total": 120}
    out = train(settings(**{**QUICK, **chosen, "personal": "head"}), 3)
    split = np.load(out / "split.npz")
    for client, row in enumerate(rows(out)):
        part = slice(split["bounds"][client], split["bounds"][client + 1])
        labeled = int((split["labels"][part] >= 0).sum())
        pseudo = load_file(out / "clients" / str(client) / "pseudo-labels-2.safetensors")
        given = set(split["points"][part][split["labels"][part] >= 0].tolist())
        assert not given & set(pseudo["points"].tolist())
        assert row["labels_aside"] == labeled // ASIDE


def test_a_run_that_ends_before_makes_the_same(settings: Settings, tmp_path: Path) -> None:
    chosen = {**HEAD, "output": str(tmp_path / "whole")}
    whole = train(settings(**chosen), 3)
    # Calls: setup, two rounds of training, personal models.
    cut = cut_off(settings(**{**chosen, "output": str(tmp_path / "cut")}), 3, 4)
    assert not (cut / "personal.json").exists()
    resume(cut, 3)
    assert rows(cut) == rows(whole)


def test_sets_and_statistics(settings: Settings) -> None:
    sets = {**QUICK, "fedul.num-sets": 10, "points_per_client": 200, "personal": "head"}
    for row in rows(train(settings(**sets), 2)):
        assert (row["labels_aside"], row["error"], row["missing"]) == (0, None, "")
        assert row["loss"] <= row["global_loss"]
        assert row["test_error"] is not None
    at_server = {
        **{**QUICK, "method": "fixmatch", "scenario.labels-at": "server"},
        **{"server_fraction": 0.05, "model": TINY, "personal": "norm"},
    }
    out = train(settings(**at_server), 2)
    for row in rows(out):
        assert row["differs"]
        assert row["loss"] is None
        own = load_file(out / "clients" / str(row["client"]) / "personal.safetensors")
        assert {name.rpartition(".")[2] for name in own} == {"running_mean", "running_var"}


def test_refused_before_the_first_round(settings: Settings) -> None:
    for more in ({"method": "server-only"}, {"method": "xclp-predict"}, {"evaluate": "local"}):
        with refuses("setting-without-effect", setting="personal"):
            parse_flat({"personal": "head", **more})
    at_server = {"method": "fixmatch", "scenario.labels-at": "server", "server_fraction": 0.05}
    for chosen, said in (
        ({"method": "labels-only", "personal": "norm"}, "'norm': needs batch norm, and model"),
        ({**at_server, "personal": "head"}, "only the server has labels"),
    ):
        with pytest.raises(UserError, match=said):
            train(settings(**{**QUICK, **chosen}), 2)


def test_an_owner_gets_a_file_and_is_told_where(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = load_source("digits")
    folders = []
    for client in range(2):
        rows_of = np.arange(client, 160, 2)
        folder = tmp_path / f"ward{client}"
        folder.mkdir()
        np.savez(folder / "points.npz", images=np.asarray(source.train.inputs[rows_of]))
        lines = [f"{at},{source.train.labels[row]}" for at, row in enumerate(rows_of[:40])]
        (folder / "labels.csv").write_text("name,label\n" + "\n".join(lines) + "\n")
        folders.append(folder)
    chosen = {key: HEAD[key] for key in HEAD if key not in ("points_per_client", "labels.total")}
    out = train(settings(**chosen), 2, client_app=own_data_app(folders))
    assert not (out / "personal.json").exists()
    assert summary_rows(Run.read(out))["personal"] == "head: where each client runs"
    said = capfd.readouterr().out
    for client in range(2):
        file = tmp_path / f"ward{client}-personal.safetensors"
        assert f"Client {client}: On 8 labels set aside the personal model errs on" in said
        assert f" {file}." in said
        own, about = load_arrays_of(file)
        assert own.keys() == load_file(out / "model.safetensors").keys()
        # It predicts as it did at the client, and other files are refused.
        predictor = load_model(out, file)
        assert predictor.priors is None
        assert about["labels_aside"] == 8
    with refuses("model-file-wrong", match="personal"):
        predict(out, folders[0], tmp_path / "p", personal=out / "model.safetensors")
