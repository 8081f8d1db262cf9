"""Real programs that several tests share."""

from collections.abc import Iterator

import pytest

from tests.support.deployment import Deployment, consortium

OWNERS = 3


@pytest.fixture(scope="session")
def shared_superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A SuperLink at which the keys of three owners are registered."""
    with consortium(tmp_path_factory.mktemp("deployed"), OWNERS) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def superlink_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The same for two owners: every owner is a dozen programs more."""
    with consortium(tmp_path_factory.mktemp("deployed"), 2) as deployment:
        yield deployment


@pytest.fixture
def two_owners(superlink_of_two: Deployment) -> Iterator[Deployment]:
    """That of two owners, without SuperNodes at the beginning and at the end."""
    yield superlink_of_two
    superlink_of_two.stop_nodes()


@pytest.fixture
def deployment(shared_superlink: Deployment) -> Iterator[Deployment]:
    """That of three owners, without SuperNodes at the beginning and at the end."""
    yield shared_superlink
    shared_superlink.stop_nodes()
