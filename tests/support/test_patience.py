"""The clock of tests that wait for real programs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.patience import quiet_seconds, wait_for_end, wait_until

CORES = os.cpu_count() or 1


@pytest.mark.parametrize(("load", "expected"), [(0.0, 10), (1.0, 10), (4.0, 40)])
def test_given_a_load_per_core_then_seconds_count_so_much_less(load: float, expected: int) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        del seconds
        now[0] += 1.0

    looks = list(quiet_seconds(10.0, clock=lambda: now[0], sleep=sleep, load=lambda: load * CORES))
    assert len(looks) == expected


def test_given_progress_then_seconds_count_from_the_last_of_it() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        del seconds
        now[0] += 1.0

    def progress() -> int:
        return int(min(now[0], 6.0)) // 3  # changes at 3 and at 6 seconds

    looks = list(quiet_seconds(4.0, progress, clock=lambda: now[0], sleep=sleep, load=lambda: 0.0))
    assert len(looks) == 6 + 4


def test_given_a_stop_of_the_machine_then_it_hardly_counts() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        del seconds
        now[0] += 1000.0 if now[0] == 2.0 else 1.0

    looks = list(quiet_seconds(10.0, clock=lambda: now[0], sleep=sleep, load=lambda: 0.0))
    assert len(looks) == 2 + 1 + 3


def test_given_a_condition_that_never_holds_then_the_wait_says_what_was_awaited() -> None:
    with pytest.raises(AssertionError, match=r"^rain: .*0\.2 "):
        wait_until(lambda: False, 0.2, "rain")


def test_given_a_process_that_ends_then_its_exit_code_is_known() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        assert wait_for_end(process, 30) == 3
