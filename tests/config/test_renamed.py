"""Settings and methods under the names of the version before."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.renamed import RENAMED_KEYS, RENAMED_METHODS
from fedul_flwr.config.run_config import parse_flat, resolve
from fedul_flwr.data.run_files.records import read_config
from fedul_flwr.errors import UserError

VALUES: dict[str, tuple[Any, str]] = {
    "image-shape": ("8x8x1", "fedul"),
    "semi.surest": (0.5, "xclp"),
    "ssl.least-magnitude": (1, "fedmatch"),
    "ssl.most-magnitude": (7, "fedmatch"),
    "xclp.fewest-labeled": (4, "xclp"),
}


@pytest.mark.parametrize("old", RENAMED_KEYS)
def test_given_an_old_key_its_value_is_that_of_the_new_key(old: str) -> None:
    value, method = VALUES[old]
    data = {"dataset": "none", "class-names": "a,b"} if old == "image-shape" else {}
    config = parse_flat({"method": method, old: value, **data})
    assert config.to_flat()[RENAMED_KEYS[old]] == value


@pytest.mark.parametrize("old", RENAMED_METHODS)
def test_given_an_old_method_the_new_one_runs(old: str) -> None:
    assert parse_flat({"method": old}).method == RENAMED_METHODS[old]
    assert RENAMED_METHODS[old] in METHODS
    assert old not in METHODS


def test_given_old_names_on_the_command_line_a_warning_names_the_new_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        found = parse_overrides(['method="perclient-lp" semi.surest=0.5'])
    assert found == {"method": "local-lp", "semi.top-fraction": 0.5}
    assert [record.getMessage() for record in caplog.records] == [
        "Setting semi.surest is called semi.top-fraction now; the next version will not know the "
        "old name.",
        "Method 'perclient-lp' is called 'local-lp' now; the next version will not know the old "
        "name.",
    ]


def test_given_both_names_the_old_one_is_refused() -> None:
    with pytest.raises(UserError) as error:
        parse_overrides(["semi.surest=0.5 semi.top-fraction=0.5"])
    assert str(error.value) == (
        "Setting semi.surest is the old name of semi.top-fraction: leave it out."
    )


def test_given_an_interrupted_run_of_the_version_before_it_resumes(tmp_path: Path) -> None:
    saved = {"method": "network-labels", "semi.surest": 0.5, "num-rounds": 3, "model": "mlp"}
    (tmp_path / "config.json").write_text(json.dumps({"settings": saved}))
    config = resolve({"resume": str(tmp_path)}, Path.cwd())
    assert config.method == "pseudo-label"
    assert config.to_flat()["semi.top-fraction"] == 0.5


def test_given_a_stored_run_with_old_names_it_opens_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = {"image-shape": "8x8x1", "model": "mlp"}
    data = {"image_shape": [8, 8, 1], "num_classes": 2, "class_names": ["a", "b"]}
    (tmp_path / "config.json").write_text(json.dumps({"settings": saved, "data": data}))
    with caplog.at_level(logging.WARNING, "flwr"):
        settings, described = read_config(tmp_path)
    assert settings == {"input-shape": "8x8x1", "model": "mlp"}
    assert described["input_shape"] == [8, 8, 1]
    assert not caplog.records


def test_given_current_names_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        parse_overrides(['method="local-lp" semi.top-fraction=0.5'])
    assert not caplog.records


def test_given_flowers_name_of_the_rounds_then_it_is_num_rounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert parse_overrides(["num-server-rounds=7"]) == {"num-rounds": 7}
    assert parse_flat({"num-server-rounds": 7}).num_rounds == 7
    # Flower passes the defaults of both names.
    assert parse_flat({"num-rounds": 30, "num-server-rounds": 7}).num_rounds == 7
    assert parse_flat({"num-rounds": 9, "num-server-rounds": 0}).num_rounds == 9
    assert caplog.records == []  # not an old name


def test_given_two_numbers_of_rounds_then_they_are_refused() -> None:
    with pytest.raises(UserError, match="are two names of one: leave one of them out"):
        parse_overrides(["num-server-rounds=7 num-rounds=9"])


def test_given_no_number_under_flowers_name_then_it_is_refused_as_num_rounds() -> None:
    for wrong in (-1, "ten", False):
        with pytest.raises(UserError, match="Setting num-rounds = "):
            parse_flat({"num-server-rounds": wrong})
