"""Settings and methods under the names of the version before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.renamed import RENAMED_KEYS, RENAMED_METHODS, current_names
from fedul_flwr.config.run_config import default_flat, parse_flat, resolve
from fedul_flwr.data.run_files.records import read_config
from fedul_flwr.errors import UserError


@pytest.mark.parametrize("old", [*RENAMED_KEYS, *RENAMED_METHODS])
def test_given_an_old_name_in_a_stored_run_then_its_value_is_that_of_the_new_one(old: str) -> None:
    if old in RENAMED_METHODS:
        assert RENAMED_METHODS[old] in METHODS
        assert current_names({"method": old}) == {"method": RENAMED_METHODS[old]}
    else:
        assert RENAMED_KEYS[old] in default_flat()
        assert current_names({old: 3, "seed": 1}) == {RENAMED_KEYS[old]: 3, "seed": 1}


def test_given_an_old_name_from_a_user_then_it_is_unknown() -> None:
    with pytest.raises(UserError, match=r"semi\.surest"):
        parse_flat({"method": "xclp", "semi.surest": 0.5})
    with pytest.raises(UserError, match="perclient-lp"):
        parse_flat({"method": "perclient-lp"})


def test_given_an_interrupted_run_of_the_version_before_then_it_resumes(tmp_path: Path) -> None:
    saved = {"method": "network-labels", "semi.surest": 0.5, "num-rounds": 3, "model": "mlp"}
    (tmp_path / "config.json").write_text(json.dumps({"settings": saved}))
    config = resolve({"resume": str(tmp_path)}, Path.cwd())
    assert config.method == "pseudo-label"
    assert config.to_flat()["semi.top-fraction"] == 0.5


def test_given_a_stored_run_with_old_names_then_it_opens(tmp_path: Path) -> None:
    saved = {"image-shape": "8x8x1", "model": "mlp"}
    data = {"image_shape": [8, 8, 1], "num_classes": 2, "class_names": ["a", "b"]}
    (tmp_path / "config.json").write_text(json.dumps({"settings": saved, "data": data}))
    settings, described = read_config(tmp_path)
    assert settings == {"input-shape": "8x8x1", "model": "mlp"}
    assert described["input_shape"] == [8, 8, 1]


def test_given_flowers_name_of_the_rounds_then_it_is_num_rounds() -> None:
    assert parse_overrides(["num-server-rounds=7"]) == {"num-rounds": 7}
    assert parse_flat({"num-server-rounds": 7}).num_rounds == 7
    # Flower passes the defaults of both names.
    assert parse_flat({"num-rounds": 30, "num-server-rounds": 7}).num_rounds == 7
    assert parse_flat({"num-rounds": 9, "num-server-rounds": 0}).num_rounds == 9


def test_given_two_numbers_of_rounds_then_they_are_refused() -> None:
    with pytest.raises(UserError, match="are two names of one: leave one of them out"):
        parse_overrides(["num-server-rounds=7 num-rounds=9"])


def test_given_no_number_under_flowers_name_then_it_is_refused_as_num_rounds() -> None:
    for wrong in (-1, "ten", False):
        with pytest.raises(UserError, match="Setting num-rounds = "):
            parse_flat({"num-server-rounds": wrong})
