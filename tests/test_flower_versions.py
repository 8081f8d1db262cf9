"""The choice of what runs with other versions of Flower and of all dependencies."""

import pytest

from tests import flower_versions, lowest_versions


@pytest.mark.parametrize("test", flower_versions.TESTS)
def test_given_a_test_of_the_short_set_then_it_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}" in (flower_versions.ROOT / file).read_text()


def test_given_a_file_of_the_set_for_the_lowest_versions_then_it_exists() -> None:
    assert all((lowest_versions.ROOT / file).is_file() for file in lowest_versions.TESTS)


@pytest.mark.parametrize(
    ("installed", "newest", "tried"),
    [
        ("1.41.0", "1.42.0", ["==1.42.0"]),
        ("1.41.3", "1.41.3", []),
        ("1.42.0", "1.42.0", ["==1.41.*"]),
        ("1.42.0", "1.43.1", ["==1.41.*", "==1.43.1"]),
        ("1.42.0", None, []),
    ],
)
def test_the_oldest_and_the_flower_versions_are_tried_but_not_the_installed_one(
    installed: str, newest: str | None, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(flower_versions, "version", lambda name: installed)
    monkeypatch.setattr(flower_versions, "newest_version", lambda: newest)
    monkeypatch.setattr(flower_versions, "oldest", lambda: "1.41")
    monkeypatch.setattr(flower_versions, "run_with", lambda wanted: found.append(wanted) or 0)
    assert flower_versions.main() == 0
    assert found == tried
