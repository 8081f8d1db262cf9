"""The clock of tests that wait for real programs."""

import os
from collections.abc import Callable

from tests.support.patience import quiet_seconds

CORES = os.cpu_count() or 1


def looks(
    seconds: float,
    progress: Callable[[float], int] = lambda now: 0,
    *,
    load: float = 0.0,
    stopped_at: float = -1.0,
) -> int:
    """How often is looked, once a second; at one of them the machine stops for 1,000 seconds."""
    now = [0.0]

    def sleep(_: float) -> None:
        now[0] += 1000.0 if now[0] == stopped_at else 1.0

    clock = {"clock": lambda: now[0], "sleep": sleep, "load": lambda: load * CORES}
    return len([*quiet_seconds(seconds, lambda: progress(now[0]), **clock)])  # type: ignore[arg-type]


def test_given_load_progress_or_a_stop_of_the_machine_then_seconds_count_as_by_hand() -> None:
    assert [looks(10.0, load=load) for load in (0.0, 1.0, 4.0)] == [10, 10, 40]
    assert looks(4.0, lambda now: int(min(now, 6.0)) // 3) == 6 + 4  # it changes at 3 and at 6
    assert looks(10.0, stopped_at=2.0) == 2 + 1 + 3
