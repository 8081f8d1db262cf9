"""A model in one file predicts as its run does, names no place, and is read safely."""

import csv
import getpass
import io
import json
import socket
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.config.run_config import resolve
from fedul_flwr.results import model_file
from fedul_flwr.results.model_file import pack
from fedul_flwr.results.predict import load_model, predict
from tests.support.refusals import refuses
from tests.support.runs import train

COLUMNS = ["age", "sex", "lactate"]


def patients(seed: int, count: int) -> pd.DataFrame:
    """Patients whose lactate is above 2 if they are ill."""
    rng = np.random.default_rng(seed)
    ill = rng.random(count) < 0.4
    found = pd.DataFrame({"patient": [f"00{number}" for number in range(count)]})
    found["age"] = rng.normal(60, 12, count).round(1)
    found["sex"] = rng.choice(["f", "m"], count)
    found["lactate"] = np.where(ill, rng.normal(4, 0.5, count), rng.normal(1, 0.3, count)).round(2)
    return found.assign(ward=np.where(ill, "ill", "well"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("secret-hospital")
    (place / "ward").mkdir()
    for part, seed in (("train", 0), ("test", 10)):
        frame = patients(seed, 300).drop(columns="patient")
        frame.to_csv(place / "ward" / f"{part}.csv", index=False)
    settings = {
        **{"method": "supervised", "dataset": str(place / "ward"), "label-column": "ward"},
        **{"model": "linear", "num-rounds": 3, "local-epochs": 2, "learning-rate": 0.05},
        "output": str(place / "run"),
    }
    return train(resolve(settings, place), 2)


@pytest.fixture
def packed(run: Path, tmp_path: Path) -> Path:
    return pack(run, tmp_path / "model.zip")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_given_a_packed_model_then_it_predicts(run: Path, packed: Path, tmp_path: Path) -> None:
    patients(1, 40)[COLUMNS].to_csv(tmp_path / "new.csv", index=False)
    predict(run, tmp_path / "new.csv", tmp_path / "by-run.csv")
    predict(packed, tmp_path / "new.csv", tmp_path / "by-file.csv")
    assert (tmp_path / "by-file.csv").read_bytes() == (tmp_path / "by-run.csv").read_bytes()
    right = [row["class"] for row in rows(tmp_path / "by-file.csv")] == patients(1, 40)["ward"]
    assert right.mean() > 0.9


def test_given_an_id_column_then_ids_are_copied_as_written(packed: Path, tmp_path: Path) -> None:
    frame = patients(3, 12)
    frame[["lactate", "patient", "age", "sex"]].to_csv(tmp_path / "ids.csv", index=False)
    frame[COLUMNS].to_csv(tmp_path / "none.csv", index=False)
    found = rows(predict(packed, tmp_path / "ids.csv", tmp_path / "a.csv", id_column="patient"))
    plain = rows(predict(packed, tmp_path / "none.csv", tmp_path / "b.csv"))
    assert list(found[0]) == ["patient", "label", "class", "confidence", "p_ill", "p_well"]
    assert [row.pop("patient") for row in found] == [f"00{number}" for number in range(12)]
    assert [row.pop("name") for row in plain] == [str(number) for number in range(12)]
    assert found == plain
    frame[:2].assign(patient=["NA", "null"]).to_csv(tmp_path / "ids.csv", index=False)
    predict(packed, tmp_path / "ids.csv", tmp_path / "c.csv", id_column="patient")
    assert [row["patient"] for row in rows(tmp_path / "c.csv")] == ["NA", "null"]


@pytest.mark.parametrize(
    ("column", "code"), [("lactate", "option-not-allowed"), ("pateint", "column-missing")]
)
def test_id_columns_that_are_refused(packed: Path, tmp_path: Path, column: str, code: str) -> None:
    patients(6, 3).to_csv(tmp_path / "in.csv", index=False)
    with refuses(code):
        predict(packed, tmp_path / "in.csv", tmp_path / "out.csv", id_column=column)
    assert not (tmp_path / "out.csv").exists()


def test_given_a_packed_model_then_it_names_no_folder(run: Path, packed: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        assert sorted(archive.namelist()) == [
            *("columns.json", "config.json", "model-card.md", "model.safetensors")
        ]
        content = b"\n".join(archive.read(name) for name in archive.namelist())
        settings = json.loads(archive.read("config.json"))["settings"]
    for text in ("secret-hospital", str(run), socket.gethostname(), f"/{getpass.getuser()}/"):
        assert text.encode() not in content, text
    assert settings["dataset"] == "ward"
    assert not {"output", "resume", "tracking"} & settings.keys()


def test_commands_predict(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    patients(7, 5).to_csv("patients.csv", index=False)
    packed = CliRunner().invoke(app, ["pack", str(run), "-o", "model.zip"])
    assert packed.output == "Packed: model.zip\n"
    assert Path("model.zip").read_bytes() == pack(run, tmp_path / "again.zip").read_bytes()
    options = ["--input", "patients.csv", "--id-column", "patient", "-o", "out.csv"]
    done = CliRunner().invoke(app, ["predict", "--model", "model.zip", *options])
    assert (done.exit_code, done.output) == (0, "Predictions: out.csv\n")
    assert len(rows(Path("out.csv"))) == 5


def test_given_no_summary_or_odd_features_then_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    with refuses("run-not-finished"):
        pack(tmp_path)
    for name in ("config.json", "summary.json", "model.safetensors"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    content = json.loads((tmp_path / "config.json").read_text())
    content["settings"]["features"] = "run:/srv/runs/first"
    (tmp_path / "config.json").write_text(json.dumps(content))
    with refuses("setting-of-one-machine"):
        pack(tmp_path)


def altered(packed: Path, change: Any) -> Path:
    """The file with entries changed: ``change`` gets names and contents, and returns them."""
    with zipfile.ZipFile(packed) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in change(entries):
            archive.writestr(name, content)
    return packed


Entries = list[tuple[str, bytes]]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda found: [*found, ("../evil.txt", b"x")], "model-file-wrong"),
        (lambda found: [*found, ("model.pkl", b"x")], "model-file-wrong"),
        (lambda found: [*found, found[0]], "model-file-wrong"),
        (lambda found: found[1:], "model-file-wrong"),
        (lambda found: [*found[:-1], (found[-1][0], b"no weights")], "model-file-wrong"),
        (lambda found: [("config.json", b"{"), *found[1:]], "file-syntax"),
    ],
)
def test_given_another_archive_then_it_is_refused_and_nothing_is_written_beside_it(
    packed: Path, tmp_path: Path, change: Any, code: str
) -> None:
    altered(packed, change)
    before = {path: path.stat().st_mtime for path in tmp_path.rglob("*")}
    with refuses(code) as refused:
        load_model(packed)
    assert "fedul-model-" not in str(refused.value)
    assert {path: path.stat().st_mtime for path in tmp_path.rglob("*")} == before


def test_an_entry_too_large_is_not_read(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "LARGEST_TEXT", 1000)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("feature-columns.json", b" " * 1001)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with refuses("file-too-large"):
        load_model(packed)


def test_given_a_damaged_byte_then_the_model_is_refused(packed: Path) -> None:
    content = bytearray(packed.read_bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        entry = archive.getinfo("model.safetensors")
    start = entry.header_offset + 30 + len(entry.filename)  # 30 bytes of a header without extras
    content[start + entry.compress_size // 2] ^= 1
    packed.write_bytes(content)
    with refuses("model-file-wrong"):
        load_model(packed)


def test_modules_need_trust(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strangers_model.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(tmp_path))

    def change(found: Entries) -> Entries:
        config = json.loads(dict(found)["config.json"])
        config["settings"]["model"] = "strangers_model:build"
        return [("config.json", json.dumps(config).encode()), *found[1:]]

    altered(packed, change)
    with refuses("module-not-trusted"):
        load_model(packed)
    with refuses("own-code-failed"):
        load_model(packed, trust_modules=True)
