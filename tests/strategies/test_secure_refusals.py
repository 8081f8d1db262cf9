"""What a client of a secure propagation does not do for its server."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.types import Content
from fedul_flwr.federated.members import CheckAnswer
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.propagation.client import OWN_SHARE, STORED
from fedul_flwr.propagation.phases import (
    ATTEMPT,
    COLUMNS,
    COMPARE,
    PARTICIPANTS,
    ROWS,
    SUM,
    UNLABELED_POINTS,
    WITHHELD,
)
from tests.support.refusals import refuses
from tests.support.secure_parties import parties
from tests.support.xclp_parties import Parties

Change = Callable[[Content], None]


class Meddled(Parties):
    """Client 0 is asked for something else than what the server meant."""

    change: Change
    at: str = SUM

    def ask(
        self, phase: str, contents: Mapping[ClientRef, Content], check: CheckAnswer
    ) -> dict[ClientRef, Content]:
        for member, content in contents.items():
            if phase == self.at and member.partition_id == 0:
                self.change(content)
        return super().ask(phase, contents, check)


def values(**told: Any) -> Change:
    return lambda content: content.values.update(told)


def arrays(**told: Any) -> Change:
    return lambda content: content.arrays.update(told)


def shown_labeled(content: Content) -> None:
    """One row more of client 0, which has 13 unlabeled points with a direction and 3 labeled."""
    counts = list(content.values[UNLABELED_POINTS])  # type: ignore[arg-type]
    content.values[UNLABELED_POINTS] = [counts[0] + 1, *counts[1:]]
    rows = np.vstack([content.arrays[COLUMNS], content.arrays[COLUMNS][:1]])
    content.arrays[COLUMNS] = rows


REFUSED: dict[str, tuple[Change, str]] = {
    "rows of its labeled points": (shown_labeled, "server-asks-too-much"),
    "rows of all its points": (values(**{WITHHELD: True}), "server-asks-too-much"),
    "fewer rows": (values(**{UNLABELED_POINTS: [0, 9, 9, 8]}), "server-asks-too-much"),
    "two participants": (
        values(**{PARTICIPANTS: [0, 1], UNLABELED_POINTS: [13, 9]}),
        "too-few-clients",
    ),
    "strangers": (values(**{PARTICIPANTS: [0, 1, 2, 7]}), "server-names-others"),
    "somebody twice": (values(**{PARTICIPANTS: [0, 1, 1, 3]}), "server-names-others"),
    "not itself": (values(**{PARTICIPANTS: [1, 2, 3, 4]}), "server-names-others"),
    "a count too few": (values(**{UNLABELED_POINTS: [13, 9, 10]}), "server-names-others"),
    "negative counts": (values(**{UNLABELED_POINTS: [13, -9, 10, 8]}), "message-form"),
    "an attempt that is none": (values(**{ATTEMPT: -1}), "server-out-of-turn"),
    "other columns": (arrays(**{COLUMNS: np.zeros((3, 2), np.float32)}), "message-form"),
}


@pytest.mark.parametrize(("change", "code"), REFUSED.values(), ids=REFUSED)
def test_other_sums_are_refused(toy: str, change: Change, code: str) -> None:
    played = meddled(toy, change)
    with refuses(code):
        played.propagate()
    # Nothing of it is remembered: not even that there was an attempt.
    stored = played.state(0).ephemeral(STORED)
    assert OWN_SHARE not in stored
    assert stored["backend/attempt"] == -1


def meddled(secure: str, change: Change) -> Meddled:
    found = parties(secure)
    played = Meddled(found.features, found.labels, found.options)
    played.change = change
    return played


def test_a_server_that_withholds_a_clients_labels_is_refused(toy: str) -> None:
    with refuses("server-asks-too-much"):
        parties(toy).propagate(withheld=0)
    # In the clear it is not: a server that sees codes is trusted.
    assert (parties("plaintext").propagate(withheld=0)[0].labels >= 0).any()


def test_the_same_attempt_twice_is_refused(toy: str) -> None:
    played = parties(toy)
    played.propagate()
    *_, (_, client, again, _) = played.heard
    with refuses("server-out-of-turn", match="labels"):
        played.client(client).on_phase(SUM, again)


def test_rows_without_a_sum_are_refused(toy: str) -> None:
    played = parties(toy)
    propagation = played.propagation()
    left, joint = propagation.join(played.members, {})
    with refuses("server-out-of-turn"):
        played.client(0).propagation.open({ROWS: np.zeros((14, 5), np.uint64)})
    rows = propagation.sum_labels(left, joint)
    with refuses("server-out-of-turn"):
        played.client(0).propagation.open({})
    # Rows that are somebody else's do not fit; rows that are random show that they are.
    with refuses("message-form", match="Rows"):
        played.client(0).propagation.open(rows[left[1]].arrays)
    random = np.random.default_rng(0).integers(0, 2**64, (14, 5), np.uint64)
    with refuses("sum-wrong", match="large"):
        played.client(0).propagation.open({ROWS: random})


@pytest.mark.parametrize("phase", [COMPARE, SUM])
def test_who_is_prepared_anew_has_left_what_was_under_way(toy: str, phase: str) -> None:
    """Its keys are gone: neither their masks nor anything under them can be asked for again."""
    played = parties(toy)
    propagation = played.propagation()
    left, joint = propagation.join(played.members, {})
    propagation.sum_labels(left, joint)
    assert played.state(0).ephemeral(STORED)
    later = [content for name, client, content, _ in played.heard if (name, client) == (phase, 0)]
    played.client(0).on_phase("setup", Content(values={"class-names": ["a", "b"]}))
    assert not played.state(0).ephemeral(STORED)
    with refuses("server-out-of-turn", match="propagation"):
        played.client(0).on_phase(phase, later[-1])
