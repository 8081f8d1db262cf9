"""Environment variables of a SuperLink's processes."""

import importlib.util
import os
import tomllib
from pathlib import Path

import pytest

from fedul_flwr.config.base import USER_PATH
from fedul_flwr.config.overrides import flatten
from fedul_flwr.engine.flower_run import as_toml
from fedul_flwr.engine.superlink import superlink_environment, without_proxy


def test_this_machine_is_reached_without_a_proxy() -> None:
    given = {"http_proxy": "http://p:1", "NO_PROXY": "a.example", "no_grpc_proxy": "b.example"}
    assert without_proxy(given) == {
        "http_proxy": "http://p:1",
        "NO_PROXY": "a.example,127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "no_grpc_proxy": "b.example,127.0.0.1,localhost",
    }


@pytest.mark.parametrize("usable", [False, True])
def test_a_socks_proxy_may_be_left_out(usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if usable else None)
    found = without_proxy({"ALL_PROXY": "socks5://p:1", "all_proxy": "SOCKS5H://p:1"})
    assert ("ALL_PROXY" in found, "all_proxy" in found) == (usable, usable)


def test_relative_folders_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "/lib"]))
    monkeypatch.delenv(USER_PATH, raising=False)
    found = superlink_environment(tmp_path / "home", "")
    assert found["PYTHONPATH"] == os.pathsep.join([str(tmp_path / "src"), "/lib"])
    assert found[USER_PATH] == str(tmp_path)


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ("cache", "HERE/cache"),
        ("sqlite:///runs.db", "sqlite:///HERE/runs.db"),
        *((same, same) for same in ("/cache", "~/cache", "https://a.b/c", "databricks", "")),
    ],
)
def test_given_a_path_in_a_variable_then_it_does_not_depend_on_the_superlinks_folder(
    cache: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDUL_CACHE", cache)
    variables = superlink_environment(tmp_path, "")
    assert variables["FEDUL_CACHE"] == expected.replace("HERE", str(tmp_path))


def test_settings_reach_flower_as_they_are() -> None:
    """As a TOML file, which ``flwr run --run-config`` reads."""
    settings = {
        **{"text": 'it\'s "ü"\\ \n\t\x01\x7f 😀', "empty": "", "on": True, "off": False},
        **{"whole": -3, "part": 1e-05, "much": float("inf"), "table.of-one": 0.1},
    }
    assert flatten(tomllib.loads(as_toml(settings))) == settings
