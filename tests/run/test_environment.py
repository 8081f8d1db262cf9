"""What the environment of a command must not decide."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.data.safe_files import cache_directory, write_atomically
from fedul_flwr.data.user_content import user_content
from fedul_flwr.errors import in_one_sentence


def test_given_no_home_then_decoded_data_are_in_a_private_folder_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("FEDUL_CACHE", "")
    monkeypatch.setattr(Path, "home", no_home)
    folder = cache_directory()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert str(folder) in capsys.readouterr().err
    assert cache_directory() == folder  # and so in processes that are started
    assert os.environ["FEDUL_CACHE"] == str(folder)
    try:
        no_home()
    except RuntimeError as error:
        sentence = in_one_sentence(error)
    assert sentence is not None
    assert "HOME" in str(sentence)


def test_given_a_style_and_a_backend_that_are_not_there_then_a_run_draws_its_picture(
    tmp_path: Path,
) -> None:
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfigure.figsize: 1, 1\n")
    settings = ["dataset=wine", "method=supervised", "model=linear", "num-rounds=1"]
    command = [sys.executable, "-m", "fedul_flwr.cli.main", "run", "--engine", "in-process"]
    command += [*(word for one in settings for word in ("-c", one)), "--num-supernodes", "2"]
    done = subprocess.run(
        [*command, "--output", "run"],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "NoSuchBackend"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "run" / "plots").iterdir()] == ["summary.png"]


def test_given_names_that_are_no_utf8_then_they_stay_different(tmp_path: Path) -> None:
    names = [os.fsdecode(b"caf\xe9"), os.fsdecode(b"caf\xe8")]
    write_atomically(tmp_path / "names.csv", "\n".join(names))
    assert (tmp_path / "names.csv").read_text(encoding="utf-8") == "caf\\udce9\ncaf\\udce8"


def test_given_a_file_whose_name_is_no_utf8_then_it_counts_in_the_digest_of_data(
    settings: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    config = settings().model_copy(update={"dataset": str(data)})
    digests = []
    for name in (b"caf\xe9", b"caf\xe8"):
        for file in data.iterdir():
            file.unlink()
        (data / os.fsdecode(name)).write_text("1")
        digests.append(user_content(config)["dataset"])
    assert digests[0] != digests[1]


def test_given_a_name_that_is_no_utf8_then_a_sentence_has_the_name_alone() -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        '{"classes": ["ill", "so\udcfcnd"]}'.encode()
    assert str(in_one_sentence(caught.value)).startswith(r"'so\udcfcnd' ")
