"""What each owner reads of how its data lie among all, before round 1, and nobody else."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedul_flwr.data.agreement import BINS, column_counts, differences
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.image_facts import IMAGES, WORDS, image_counts
from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.stages.agreement import COUNTS, resolve_agreement, tell_owner
from tests.data.test_dicom import RAMP, file_of
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.refusals import refuses
from tests.support.runs import cut_off, own_data_app, resume, same, summary, train
from tests.support.settings import Settings

RUN: dict[str, Any] = {
    **{**NO_DATA, "method": "closed-form", "model": "random-features", "test_prior": "uniform"},
    **{"selection": "last", "agreement": "auto"},
}


def names(lines: list[str]) -> list[str]:
    """What lines are about."""
    return [line.split("images, ")[1].split(":")[0] for line in lines]


def write_images(
    folder: Path, seed: int, size: tuple[int, int] = (32, 32), bright: float = 1.0, mode: str = "L"
) -> Path:
    """Two sets of twelve files."""
    rng = np.random.default_rng(seed)
    for month in ("jan", "feb"):
        (folder / month).mkdir(parents=True)
        for number in range(12):
            pixels = rng.normal(140, 50, (4, 4)).clip(0, 255) * bright
            image = Image.fromarray(pixels.astype(np.uint8)).convert(mode)
            image.resize(size, Image.Resampling.NEAREST).save(folder / month / f"{number}.png")
    (folder / "priors.csv").write_text("set,first,second\njan,0.6,0.4\nfeb,0.2,0.8\n")
    return folder


ODD: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"size": (64, 32)}, ["width", "width by height"]),
    ({"size": (128, 128)}, ["height", "width"]),
    ({"size": (32, 24)}, ["height", "width by height"]),
    ({"bright": 0.5}, ["brightness", "contrast"]),
    ({"mode": "RGB"}, ["channels", "channels"]),
]


@pytest.mark.parametrize(("odd", "named"), ODD)
def test_one_owner_whose_images_differ_reads_it_and_no_other(
    odd: dict[str, Any],
    named: list[str],
    settings: Settings,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folders = [write_images(tmp_path / str(n), n, **(odd if n == 1 else {})) for n in range(3)]
    flat = {**RUN, "input-shape": "16x16x1", "class-names": "first,second"}
    run = train(settings(**flat), 3, client_app=own_data_app(folders))
    said = [line for line in capfd.readouterr().out.splitlines() if "warning: images" in line]
    assert names(said) == named
    assert all(line.startswith("Client 1: ") for line in said)
    for file in run.rglob("*"):  # not in what the server has
        assert not file.is_file() or b"all other owners" not in file.read_bytes()


def test_counts_of_headers_and_pixels_by_hand(tmp_path: Path) -> None:
    half = np.full((2, 8, 8), 128, np.uint8)
    half[:, :4] = 0  # mean and deviation 64
    np.savez(tmp_path / "a.npz", images=half)
    file_of(RAMP.reshape(4, 16), PixelSpacing=[0.5, 0.25]).save_as(
        tmp_path / "x.dcm", enforce_file_format=True
    )
    counts = image_counts(tmp_path, half[..., None], np.arange(2))
    assert counts.shape == (len(IMAGES.features), BINS)
    by = {name: counts[at] for name, at in IMAGES.feature_slices.items()}
    middle = BINS // 2

    def at(value: float, power: int = 1) -> int:  # eight ranges for each power of ten, from 1e-6
        return middle + 1 + int(np.floor(8 * np.log10(value**power * 1e6) + 1e-9))

    assert by["height"][0, [at(8), at(4)]].tolist() == [2, 1]
    assert by["width by height"][0, [at(1, 4), at(4, 4)]].tolist() == [2, 1]
    assert by["pixel spacing"][0, at(0.5, 2)] == by["pixel spacing"].sum() == 1
    assert by["form"][:, at(1)].tolist() == [2, 0, 0, 1, 0, 0, 0, 0, 0]
    assert by["channels"][:, at(1)].tolist() == [3, 0]
    for name in ("brightness", "contrast"):
        assert by[name][0, at(64, 2)] == by[name].sum() == 2
    alone = image_counts(None, half[..., None], np.arange(1))
    assert alone[:, :].sum() == len(IMAGES.features) - 1  # no spacing


def test_finer_ranges_say_the_numbers_themselves() -> None:
    wide, square = (np.full((20, 1), value) for value in (2.0, 1.0))
    ratio = Columns((Column("width by height"),))
    mine, theirs = (column_counts(rows, ratio, WORDS.finer) for rows in (wide, square))
    [line] = differences(mine, mine + theirs, ratio, WORDS)
    assert "1.9" in line or "2" in line
    assert "squeezed" in line


@pytest.mark.parametrize("call", range(1, 9))
def test_a_run_that_was_cut_off_goes_on(settings: Settings, tmp_path: Path, call: int) -> None:
    for owner in range(3):
        write_sets(tmp_path / f"data/{owner}", owner)
    flat = {**RUN, "client_data": str(tmp_path / "data")}
    whole = train(settings(**flat), 3)
    assert same(whole, resume(cut_off(settings(**flat), 3, call), 3))


def test_tables_that_nothing_else_counts(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for owner in range(3):
        folder = tmp_path / "data" / str(owner)
        folder.mkdir(parents=True)
        for month in ("jan", "feb", "mar"):
            crp = rng.lognormal(3, 0.3, 30) * (10 if owner == 2 else 1)
            pd.DataFrame({"crp": crp, "age": rng.normal(60, 9, 30)}).to_csv(
                folder / f"{month}.csv", index=False
            )
        (folder / "priors.csv").write_text(
            "set,first,second,third\njan,0.6,0.3,0.1\nfeb,0.2,0.3,0.5\nmar,0.1,0.8,0.1\n"
        )
    (tmp_path / "columns.json").write_text('{"columns": [{"name": "crp"}, {"name": "age"}]}')
    flat = {**RUN, "client_data": str(tmp_path / "data"), "standardize": "owner"}
    del flat["input-shape"]
    flat |= {"columns": str(tmp_path / "columns.json"), "model": "linear"}
    train(settings(**flat), 3)
    said = [line for line in capfd.readouterr().out.splitlines() if "warning: column" in line]
    [line] = said
    assert line.startswith("Client 2: ")
    assert "'crp'" in line
    train(settings(**{**flat, "agreement": "off"}), 3)
    assert "another unit" not in capfd.readouterr().out


def test_two_clients_learn_nothing_and_the_run_goes_on(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = [write_images(tmp_path / str(n), n, bright=1 - n / 2) for n in range(2)]
    flat = {**NO_DATA, "method": "fedul", "model": "mlp", "num_rounds": 1, "agreement": "on"}
    flat |= {"input-shape": "16x16x1", "class-names": "first,second", "selection": "last"}
    run = train(settings(**flat), 2, client_app=own_data_app(folders))
    assert summary(run)["rounds"] == 1
    assert "warning: images" not in capfd.readouterr().out


@pytest.mark.parametrize("counts", [np.zeros((2, BINS), np.int64), None])
def test_counts_of_another_form_are_refused(counts: Any) -> None:
    arrays = {} if counts is None else {COUNTS: counts}
    with pytest.raises(BadMessageError):
        tell_owner(None, np.zeros((3, BINS), np.int64), Content(arrays), None)


def test_where_it_is_on(settings: Settings) -> None:
    def chosen(shape: tuple[int, ...] = (8, 8, 1), *, own: bool = True, **more: Any) -> str:
        run = settings(**{**RUN, **more})
        return resolve_agreement(run, shape, own_data=own).agreement

    assert chosen() == "on"
    assert chosen(own=False) == "off"
    assert chosen(agreement="off") == "off"
    assert chosen(**{"closed-form.epsilon": 1.0}) == "off"
    assert chosen(**{"closed-form.sum": "plaintext"}) == "off"
    assert chosen((300,)) == chosen(()) == "off"
    assert chosen((30,), standardize="federation", standardize_sum="masked") == "off"
    assert chosen(own=False, agreement="on") == "on"
    with refuses("setting-breaks-privacy", setting="agreement"):
        chosen(agreement="on", **{"closed-form.epsilon": 1.0})
    with refuses("setting-without-effect", setting="agreement"):
        chosen((), agreement="on")
