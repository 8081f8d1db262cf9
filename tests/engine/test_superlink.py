"""Environment variables of a SuperLink's processes."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from fedul_flwr.config.references import USER_PATH
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
def test_a_socks_proxy_that_httpx_cannot_use_is_left_out(
    usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if usable else None)
    found = without_proxy({"ALL_PROXY": "socks5://p:1", "all_proxy": "SOCKS5H://p:1"})
    assert ("ALL_PROXY" in found, "all_proxy" in found) == (usable, usable)


def test_given_relative_folders_of_modules_then_the_superlinks_programs_search_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "/lib"]))
    monkeypatch.delenv(USER_PATH, raising=False)
    found = superlink_environment(tmp_path / "home", "")
    assert found["PYTHONPATH"] == os.pathsep.join([str(tmp_path / "src"), "/lib"])
    assert found[USER_PATH] == str(tmp_path)
