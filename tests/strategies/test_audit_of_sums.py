"""A sum of labels with a wrong part: whose it was is found out, and the others sum without it."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.propagation.phases import AUDIT, CHECKS, COMPARE, LABELED, SENT, SUM
from tests.support.refusals import refuses
from tests.support.secure_parties import assert_same, parties
from tests.support.xclp_parties import Parties

LIAR = 2
Lie = Callable[[Content], object]


class Lying(Parties):
    """The answers of client 2 are changed, by phase."""

    lies: Mapping[str, Lie]

    def meddled(self, phase: str, member: ClientRef, answer: Content) -> Content:
        if member.partition_id == LIAR and phase in self.lies:
            self.lies[phase](answer)
        return answer


def lying(secure: str, **lies: Lie) -> Lying:
    played = parties(secure, Lying)
    played.lies = {{"sum": SUM, "audit": AUDIT}[phase]: lie for phase, lie in lies.items()}
    return played


def raised_by_one(content: Content) -> None:
    content.arrays[SENT] = content.arrays[SENT].copy()
    content.arrays[SENT][0, 0] += np.uint64(1)


def without_last_row(content: Content) -> None:
    content.arrays[CHECKS] = np.ones((max(len(content.arrays[CHECKS]) - 1, 1), 5), np.uint64)


def without_last_class(content: Content) -> None:
    content.arrays[CHECKS] = content.arrays[CHECKS][:, :4]


def signed(content: Content) -> None:
    content.arrays[CHECKS] = content.arrays[CHECKS].astype(np.int64)


@pytest.fixture(params=["plaintext", "toy"])
def any_form(request: pytest.FixtureRequest) -> str:
    """A value of ``xclp.secure``: in the clear, and masked."""
    name: str = request.param
    return name if name == "plaintext" else str(request.getfixturevalue(name))


def test_given_a_wrong_check_row_then_its_client_alone_leaves(any_form: str) -> None:
    played = lying(any_form, sum=raised_by_one)
    found = played.propagate()
    assert played.asked[-3:] == [SUM, AUDIT, SUM]
    assert list(played.failed) == [LIAR]
    without = parties("plaintext", lost=lambda phase, _, client: (phase, client) == (SUM, LIAR))
    assert_same(found, without.propagate())


@pytest.mark.parametrize("answer", [without_last_row, without_last_class, signed])
def test_given_other_words_than_asked_for_then_they_are_refused(any_form: str, answer: Lie) -> None:
    played = lying(any_form, sum=raised_by_one, audit=answer)
    with refuses("message-form", BadMessageError, match="Client 2 .*'checks'"):
        played.propagate()


def test_given_no_answer_about_the_sum_then_the_others_sum_without_its_client(toy: str) -> None:
    played = lying(toy, sum=raised_by_one)
    played.lost = lambda phase, _, client: (phase, client) == (AUDIT, LIAR)
    found = played.propagate()
    assert (list(found), played.failed) == ([0, 1, 3], {})


def test_given_no_list_of_labeled_points_then_it_is_refused() -> None:
    # Client 2 has 14 points, one of them without a direction.
    played = lying("plaintext")
    played.lies = {COMPARE: lambda content: content.arrays.pop(LABELED)}
    with refuses("message-form", BadMessageError, match="13"):
        played.propagate()
