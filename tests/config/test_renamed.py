"""Settings and methods under the names of the version before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.renamed import (
    MERGED_KEYS,
    REMOVED_KEYS,
    RENAMED_KEYS,
    RENAMED_METHODS,
    current_names,
)
from fedul_flwr.config.run_config import default_flat, parse_flat, resolve
from fedul_flwr.data.run_files.records import read_config
from fedul_flwr.errors import UserError
from tests.support.refusals import refuses


@pytest.mark.parametrize("old", [*RENAMED_KEYS, *RENAMED_METHODS])
def test_given_an_old_name_in_a_stored_run_then_its_value_is_that_of_the_new_one(old: str) -> None:
    if old in RENAMED_METHODS:
        assert RENAMED_METHODS[old] in METHODS
        assert current_names({"method": old}) == {"method": RENAMED_METHODS[old]}
    else:
        assert RENAMED_KEYS[old] in default_flat()
        assert current_names({old: 3, "seed": 1}) == {RENAMED_KEYS[old]: 3, "seed": 1}


@pytest.mark.parametrize(("old", "new"), MERGED_KEYS)
def test_given_settings_that_were_merged_then_their_values_are_those_of_the_new_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert set(new) <= set(default_flat())
    assert current_names({**old, "seed": 1}) == {**new, "seed": 1}


def test_given_shared_priors_of_a_stored_run_then_it_has_as_many_draws() -> None:
    for draws, rest in ((5, {"fedul.prior-draws": 5}), (1, {})):
        then = {"fedul.same-priors": True, **rest}
        assert current_names(then) == {"fedul.shared-prior-draws": draws}
    own = {"fedul.same-priors": False, "fedul.prior-draws": 1}
    assert current_names(own) == {"fedul.shared-prior-draws": 0}


def test_given_a_stored_setting_that_is_gone_then_it_is_left_out_if_it_changes_nothing() -> None:
    assert not REMOVED_KEYS.keys() & default_flat().keys()
    assert current_names(REMOVED_KEYS) == {}
    assert current_names({"fedpl.mix-weight": 0.5}) == {"fedpl.mix-weight": 0.5}


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("fedadam.eta", "its name is fedopt.eta now"),
        ("majority.mild", "partition = 'majority-mild' takes its place"),
        ("fedpl.mix-weight", "it is always 0.3 now"),
        ("fedul.check-priors", "it is always true now"),
    ],
)
def test_given_an_old_name_from_a_user_then_the_refusal_says_what_is_now(
    old: str, now: str, tmp_path: Path
) -> None:
    for refused in (lambda: parse_flat({old: 1}), lambda: resolve({old: 1}, tmp_path)):
        with pytest.raises(UserError) as error:
            refused()
        assert str(error.value).startswith(f"Unknown setting {old!r}: {now}")


def test_given_an_interrupted_run_of_the_version_before_then_it_resumes(tmp_path: Path) -> None:
    saved = {"method": "network-labels", "semi.surest": 1.0, "num-rounds": 3, "model": "mlp"}
    (tmp_path / "config.json").write_text(json.dumps({"settings": saved}))
    config = resolve({"resume": str(tmp_path)}, Path.cwd())
    assert config.method == "pseudo-label"
    assert config.num_rounds == 3


def test_given_an_interrupted_run_with_a_value_that_is_gone_then_it_is_refused(
    tmp_path: Path,
) -> None:
    saved = {"method": "pseudo-label", "semi.top-fraction": 0.5, "model": "mlp"}
    (tmp_path / "config.json").write_text(json.dumps({"settings": saved}))
    with refuses("setting-removed"):
        resolve({"resume": str(tmp_path)}, Path.cwd())


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
