"""A few of the faults of ``robustness.process_faults``, with the whole program in one process."""

import random

import pytest

from robustness.bad_files import warm_up
from robustness.process_faults import Fault, fail_here, workplace


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads
def test_given_a_program_killed_at_a_random_moment_then_the_resumed_run_has_the_same_bits() -> None:
    found: list[Fault] = []
    warm_up()
    with workplace() as place:
        fail_here("in-process", 3, random.Random(0), place, found.append)
    assert [fault.signal for fault in found] == ["SIGKILL", "SIGKILL", "SIGINT"]
    for fault in found:
        assert fault.same, fault.said
        assert fault.left == [], fault.said
