"""Bad input: one clear sentence, a non-zero exit code, earlier results untouched."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from tests.support.error_line import error_line
from tests.support.runs import summary

QUICK = "model='mlp' num-rounds=1 local-epochs=1"


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and what was said, without Ray: what is tested is the same code."""
    result = CliRunner().invoke(
        app, ["run", "--engine", "in-process", "--num-supernodes", "2", *arguments]
    )
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("num-round=3", "did you mean 'num-rounds'?"),
        ("num-rounds=0", "Setting num-rounds = 0: must be at least 1."),
        ("base='fedadam' fedadam.eta=-1", "Setting fedadam.eta = -1: must be greater than 0."),
        ("fedadam.eta=0.5", "has no effect with base = 'fedavg'"),
        ("dataset='/no/such/place'", "/no/such/place"),
        ("model='lenett'", "Setting model = 'lenett': must be one of alexnet-like, cnn2, cnn4"),
        ("model='lenet'", "needs images of at least 12 x 12 pixels"),
        ("model='no_such_module:f'", "Setting model = 'no_such_module:f': cannot import it"),
        ("method='fedull'", "Setting method = 'fedull': must be one of fedul, fedul-finetune"),
        ("test-prior='0.5,0.5'", "test-prior has 2 entries; the data set has 10 classes"),
        ("partition='natural'", "natural.column"),
    ],
)
def test_bad_settings(tmp_path: Path, setting: str, said: str) -> None:
    code, output = run("-c", f"num-rounds=1 local-epochs=1 {setting}", "--output", str(tmp_path))
    assert code == 1
    assert said in error_line(output)


def write_npz(folder: Path, images: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    labels = np.arange(len(images)) % 10
    for name in ("train", "test"):
        np.savez(folder / f"{name}.npz", images=images, labels=labels)


def test_not_a_number_in_the_images(tmp_path: Path) -> None:
    images = np.zeros((200, 8, 8), np.float32)
    images[3, 2, 1] = np.nan
    write_npz(tmp_path / "data", images)
    code, output = run("-c", QUICK, "-c", f"dataset='{tmp_path / 'data'}'")
    assert code == 1
    assert "train.npz" in error_line(output)


def test_a_corrupt_parquet(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.parquet").write_bytes(b"PAR1 this is none")
    code, output = run("-c", QUICK, "-c", f"dataset='{tmp_path}'")
    assert code == 1
    assert "parquet" in error_line(output)


def test_an_unreadable_image(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for k in range(2):
            (tmp_path / split / str(k)).mkdir(parents=True)
            for index in range(3):
                buffer = io.BytesIO()
                Image.new("L", (8, 8)).save(buffer, "PNG")
                (tmp_path / split / str(k) / f"{index}.png").write_bytes(buffer.getvalue())
    (tmp_path / "train" / "1" / "2.png").write_bytes(b"not a picture")
    code, output = run("-c", QUICK, "-c", f"dataset='{tmp_path}'")
    assert code == 1
    assert "2.png" in error_line(output)


def test_earlier_results_stay(tmp_path: Path) -> None:
    output = tmp_path / "result"
    code, said = run("-c", QUICK, "--output", str(output))
    assert code == 0, said
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    for more in ("", "dataset='/no/such/place'", "num-rounds=0"):
        code, said = run("-c", QUICK, "-c", more or "seed=1", "--output", str(output))
        assert code == 1
        error_line(said)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before
    assert summary(output)["rounds"] == 1


def test_a_run_that_failed_early_can_be_repeated_in_place(tmp_path: Path) -> None:
    output = tmp_path / "result"
    code, said = run("-c", QUICK, "-c", "fedul.num-sets=5", "--output", str(output))
    assert code == 1
    assert "fewer than the 10 classes" in error_line(said)
    code, said = run("-c", QUICK, "--output", str(output))
    assert code == 0, said
    assert not (output / "error.txt").exists()
