"""Propagations over secure backends: equal to those in the clear, and nothing is left."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

import fedul_flwr.propagation.client
import tests.support.xclp_parties
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.propagation.client import STORED
from fedul_flwr.propagation.phases import COMPARE, ROWS, SUM
from fedul_flwr.propagation.server import LARGEST, LONGEST, refuse_unfit_sizes
from fedul_flwr.secure.encrypted_distances import BACKENDS, STEPS
from fedul_flwr.secure.similarity import Cost, TooFewClientsError
from tests.support.recorded_calls import recorded
from tests.support.refusals import refuses
from tests.support.secure_parties import assert_same, parties
from tests.support.settings import Settings

# Equal to the clear


@pytest.mark.parametrize(
    "options",
    [{}, {"xclp.reweigh": True}, {"xclp.recipe": "paper", "xclp.k": 100}],
    ids=["defaults", "reweighed", "all are neighbors"],
)
def test_labels_and_confidences_are_those_in_the_clear(
    secure: str, options: dict[str, Any]
) -> None:
    played = parties(secure, options=options)
    found = played.propagate()
    assert_same(found, parties("plaintext", options=options).propagate())
    assert played.asked == [COMPARE] * len(STEPS) + [SUM]
    assert (found[1].labels >= 0).all()  # those of the client without labels
    assert found[0].labels[[0, 4]].tolist() == [-1, -1]  # points without a direction


def test_with_a_secret_seed_they_are_those_in_the_clear_with_that_seed(
    secure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = recorded(monkeypatch, fedul_flwr.propagation.client, "encode", 1)
    played = parties(secure, options={"xclp.codes-seed": "secret"})
    found = played.propagate()
    (seed,) = {*seeds}
    monkeypatch.setattr(tests.support.xclp_parties, "SEED", seed)
    assert_same(found, parties("plaintext").propagate())
    for *_, message, answer in played.heard:
        for content in (message, answer):
            assert all(seed not in array.tobytes() for array in content.arrays.values())


def test_given_the_same_features_in_several_rounds_then_their_codes_are_the_same(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With new projections in each round the server would know angles better and better."""
    seeds = recorded(monkeypatch, fedul_flwr.propagation.client, "encode", 1)
    played = parties(toy, options={"xclp.codes-seed": "secret"})
    graphs = []
    for number in range(4):
        gone = number - 1  # nobody, then one after the other
        played.lost = lambda *asked, gone=gone: asked[2] == gone
        left, joint = played.propagation(number + 1).join(played.members, {})
        assert len(left) == 4 - (gone >= 0)
        graphs.append(joint.graph)
    assert len({*seeds}) == 1
    played.lost = lambda *asked: False
    _, joint = played.propagation(9).join(played.members, {})
    assert (joint.graph != graphs[0]).nnz == 0


# Losses

LOST = 2


@pytest.mark.parametrize("number", range(len(STEPS)), ids=STEPS)
def test_who_is_lost_while_points_are_compared_was_never_there(secure: str, number: int) -> None:
    found = parties(secure, lost=lambda *asked: asked == (COMPARE, number, LOST)).propagate()
    clear = parties("plaintext", lost=lambda *asked: asked == (COMPARE, 0, LOST)).propagate()
    assert_same(found, clear)
    assert list(found) == [0, 1, 3]


@pytest.mark.parametrize("lost", [0, 1])
def test_who_is_lost_in_the_sum_leaves_its_points(secure: str, lost: int) -> None:
    def gone(*asked: Any) -> bool:
        return asked == (SUM, 0, lost)

    played = parties(secure, lost=gone)
    assert_same(played.propagate(), parties("plaintext", lost=gone).propagate())
    assert played.asked[-2:] == [SUM, SUM]


@pytest.mark.parametrize("phase", [COMPARE, SUM])
def test_fewer_than_three_are_too_few(secure: str, phase: str) -> None:
    played = parties(secure, lost=lambda *asked: asked[0] == phase and asked[2] in (0, 3))
    with pytest.raises(TooFewClientsError, match=r"^2 client"):
        played.propagate()


# What is left


def test_a_client_remembers_nothing_of_a_propagation_that_has_ended(secure: str) -> None:
    played = parties(secure)
    propagation = played.propagation()
    left, joint = propagation.join(played.members, {})
    for member, content in propagation.sum_labels(left, joint).items():
        client = played.client(member.partition_id)
        assert client.state.ephemeral(STORED)
        client._pseudo_labels(client.round({"server-round": 1}, {ROWS: content.arrays}))
        assert len(played.states[member.partition_id]) == 0


def test_a_new_propagation_begins_with_nothing_of_the_one_before(secure: str) -> None:
    # The first one ends in the middle: nobody is told so.
    played = parties(secure)
    played.lost = lambda phase, number, client: phase == SUM
    with pytest.raises(TooFewClientsError):
        played.propagate()
    before = [played.state(client).ephemeral(STORED) for client in range(4)]
    played.lost = lambda phase, number, client: False
    assert_same(played.propagate(), parties("plaintext").propagate())
    keys = "backend/roots"
    for client, memory in enumerate(before):
        assert memory[keys].tobytes() != played.state(client).ephemeral(STORED)[keys].tobytes()


# Limits


def test_a_propagation_may_be_as_large_as_the_limits(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = settings(method="xclp", **{"xclp.secure": "rlwe"})[XCLPSettings]
    for seconds, traffic in ((0, 0), (1, 0), (0, 1)):
        cost = Cost(LONGEST + seconds, LARGEST + traffic)
        of_this_size = replace(BACKENDS["rlwe"], cost=lambda *_, cost=cost: cost)
        monkeypatch.setitem(BACKENDS, "rlwe", of_this_size)  # type: ignore[arg-type]
        refused = refuses("too-expensive", setting="xclp.secure")
        with refused if seconds or traffic else nullcontext():
            refuse_unfit_sizes(options, [10, 10, 10], 3)
