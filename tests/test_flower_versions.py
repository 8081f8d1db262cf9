"""The choice of what runs with other versions of Flower and of all dependencies."""

import pytest

from tests import flower_versions, lowest_versions


@pytest.mark.parametrize("test", flower_versions.TESTS)
def test_given_a_test_of_the_short_set_then_it_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}" in (flower_versions.ROOT / file).read_text()


def test_given_a_file_of_the_set_for_the_lowest_versions_then_it_exists() -> None:
    assert all((lowest_versions.ROOT / file).is_file() for file in lowest_versions.TESTS)
