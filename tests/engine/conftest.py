"""What tests of engines share."""

import contextlib
import uuid
from collections.abc import Callable, Iterator

import psutil
import pytest


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], set[int]]]:
    """Ids of all live processes that a test started, which must be none at its end."""
    token = uuid.uuid4().hex  # inherited by whatever is started, and by nobody else's processes
    monkeypatch.setenv("FEDUL_TEST", token)

    def ids() -> set[int]:
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get("FEDUL_TEST") == token:
                    found.add(process.pid)
        return found

    yield ids
    assert ids() == set()
