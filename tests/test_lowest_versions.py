"""The choice of what runs with the oldest versions allowed, and what it says."""

from __future__ import annotations

import pytest

from tests import lowest_versions


@pytest.mark.parametrize("test", lowest_versions.TESTS)
def test_given_a_test_of_the_short_set_then_it_exists(test: str) -> None:
    assert (lowest_versions.ROOT / test).is_file()


def test_given_no_index_then_a_line_says_so_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lowest_versions, "oldest", lambda: None)
    assert lowest_versions.main() == 0
    assert "index" in capsys.readouterr().out


def test_given_versions_that_cannot_be_installed_then_it_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lowest_versions, "oldest", lambda: "numpy==0.1\n")
    monkeypatch.setattr(lowest_versions, "install", lambda found: False)
    assert lowest_versions.main() == 1
