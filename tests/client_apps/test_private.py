"""What clients of XCLP show where noise hides it: drawn once, used everywhere, still theirs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from safetensors.numpy import load_file

from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.types import Content
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import SETUP_BEFORE
from fedul_flwr.propagation.codes import encode
from fedul_flwr.propagation.phases import COMPARE, LABELED, SUM
from fedul_flwr.propagation.privacy import (
    FEATURES,
    LABELS,
    NOISY_FEATURES,
    RANDOMIZED_LABELS,
    ClientNoise,
    PrivacyPlan,
)
from fedul_flwr.secure.hamming.pairwise import CODES
from tests.strategies.test_label_propagation import FEATURES as POINTS
from tests.strategies.test_label_propagation import LABELS as GIVEN
from tests.strategies.test_label_propagation import assert_agree, central, together
from tests.support.refusals import refuses
from tests.support.runs import cut_off, metrics, resume, train
from tests.support.settings import Settings
from tests.support.xclp_parties import BITS, SEED, Parties, split

SIZES = [90, 110, 200]
CODES_OF_200 = {"xclp.codes-epsilon": 200.0}
LABELS_OF_2 = {"xclp.labels-epsilon": 2.0}


def parties(**options: Any) -> Parties:
    return Parties(**split(POINTS, GIVEN, SIZES), options=options)


def remembered(built: Parties, name: str, key: str) -> np.ndarray[Any, Any]:
    """What all parties remember, client after client."""
    return np.concatenate([built.state(client).load(name, 99)[key] for client in range(3)])


def answers(built: Parties, phase: str) -> list[dict[str, bytes]]:
    return [
        {name: array.tobytes() for name, array in answer.arrays.items()}
        for what, _, _, answer in built.heard
        if what == phase
    ]


# Off


@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, ("distances", math.inf)), (1.0, "codes")])
def test_what_leaves_is_counted_also_without_noise(epsilon: float, spent: Any) -> None:
    plan = PrivacyPlan(epsilon, delta=1e-5, labels_epsilon=0.0, releases=1, trains=False)
    counted: list[tuple[str, float]] = []
    state = ClientState(RecordDict())
    noise = ClientNoise(
        plan, state, 0, resumed=False, forgetful=False, spend=lambda *one: counted.append(one)
    )
    noise.features(POINTS, 1)
    assert counted == [spent if not epsilon else (spent, (2 / plan.sigma) ** 2)]


def test_without_noise_nothing_changes() -> None:
    built = parties()
    found = built.propagate()
    assert_agree(together(found), central(), GIVEN < 0)
    codes = encode(POINTS, SEED, BITS).tobytes()
    assert b"".join(answer[CODES] for answer in answers(built, COMPARE)) == codes
    client = built.client(0)
    assert client.noise.features(POINTS, 1) is POINTS
    np.testing.assert_array_equal(client.noise.labels(client.labels, 5, 1), client.labels)
    assert not {NOISY_FEATURES, RANDOMIZED_LABELS} & set(built.states[0])


# Codes


def test_codes_are_of_noisy_features() -> None:
    built = parties(**CODES_OF_200)
    found = built.propagate()
    noisy = remembered(built, NOISY_FEATURES, FEATURES)
    assert (noisy != POINTS).all()
    codes = encode(noisy, SEED, BITS).tobytes()
    assert b"".join(answer[CODES] for answer in answers(built, COMPARE)) == codes
    assert_agree(together(found), central(features=noisy), GIVEN < 0)


def test_noise_is_drawn_once_a_round() -> None:
    built = parties(**CODES_OF_200)
    first = [built.client(0).noise.features(POINTS, 1) for _ in range(2)]
    # The features of a model may be others when a round is begun again: what was drawn stays.
    first.append(built.client(0).noise.features(-POINTS, 1))
    assert [(one == first[0]).all() for one in first] == [True] * 3
    later = built.client(0).noise.features(POINTS, 2)
    assert (later != first[0]).all()
    np.testing.assert_array_equal(built.client(0).noise.features(POINTS, 2), later)
    assert (built.client(1).noise.features(POINTS, 1) != first[0]).all()


def test_given_a_run_that_begins_earlier_rounds_again_then_each_has_its_own_noise(
    tmp_path: Path,
) -> None:
    """What was drawn in rounds after the one that is begun again lies in files, too."""
    built = parties(**CODES_OF_200, **{"xclp.labels-epsilon": 1.0})
    client = built.client(0)
    noise = client.noise
    noise._store = ClientState(RecordDict(), tmp_path)
    drawn = {number: noise.features(POINTS, number) for number in (2, 3, 4)}
    for number, expected in drawn.items():
        np.testing.assert_array_equal(noise.features(POINTS, number), expected)
    # Labels are randomized once in a run: in the round of the first draw it is that draw, too.
    labels = noise.labels(client.labels, 5, 4)
    np.testing.assert_array_equal(noise.labels(client.labels, 5, 4), labels)
    np.testing.assert_array_equal(noise.labels(client.labels, 5, 5), labels)


def test_points_without_a_direction_hide_among_others() -> None:
    features = POINTS.copy()
    features[[0, 1, 95]] = 0
    built = Parties(**split(features, GIVEN, SIZES), options=CODES_OF_200)
    found = built.propagate()
    asked = [answer[LABELED] for answer in answers(built, COMPARE)]
    assert [len(flags) for flags in asked] == SIZES
    plain = Parties(**split(features, GIVEN, SIZES))
    plain.propagate()
    assert [len(answer[LABELED]) for answer in answers(plain, COMPARE)] == [88, 109, 200]
    assert_agree(
        together(found), central(features=remembered(built, NOISY_FEATURES, FEATURES)), GIVEN < 0
    )


# Labels


@pytest.mark.parametrize("withheld", [None, 1])
def test_sums_and_counts_are_of_randomized_labels(withheld: int | None) -> None:
    built = parties(**LABELS_OF_2)
    found = built.propagate(withheld=withheld)
    labels = remembered(built, RANDOMIZED_LABELS, LABELS)
    assert ((labels < 0) == (GIVEN < 0)).all()
    assert (labels != GIVEN).any()
    mine = np.repeat([0, 1, 2], SIZES) == withheld
    assert_agree(together(found), central(np.where(mine, -1, labels)), (GIVEN < 0) | mine)


def test_labels_are_randomized_once() -> None:
    built = parties(**LABELS_OF_2)
    propagation = built.propagation(1)
    left, joint = propagation.join(built.members, {})
    propagation.sum_labels(left, joint)
    first = remembered(built, RANDOMIZED_LABELS, LABELS)
    for withheld in (0, 2):
        propagation.sum_labels(left, joint, withheld=withheld)
    propagation.sum_labels(left[:2], joint)
    built.propagation(7).sum_labels(left, joint)
    np.testing.assert_array_equal(remembered(built, RANDOMIZED_LABELS, LABELS), first)
    sums = answers(built, SUM)
    assert sums[:3] == sums[-3:]  # what all three sent in rounds 1 and 7, over the same graph
    for client, labels in enumerate(np.split(first, np.cumsum(SIZES)[:-1])):
        np.testing.assert_array_equal(built.client(client).randomized(9), labels)
    np.testing.assert_array_equal(built.client(0).labels, GIVEN[:90])  # it knows them still


def test_another_run_draws_others() -> None:
    drawn = [parties(**{"xclp.labels-epsilon": 0.1}).client(2).randomized(1) for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()


def small(name: str) -> Parties:
    """Three parties with noise on codes or labels."""
    points = np.random.default_rng(0).normal(size=(10, 4))
    labels = np.array([0] * 5 + [-1] * 5)
    return Parties([points] * 3, [labels] * 3, {f"xclp.{name}-epsilon": 1.0})


@pytest.mark.parametrize("name", ["codes", "labels"])
def test_a_device_draws_no_second_time(name: str) -> None:
    played = small(name)
    played.settings = played.settings.model_copy(update={"resume": "earlier"})
    with refuses("privacy-noise-lost", match="before"):
        played.propagate()


def test_given_a_plan_of_some_draws_then_a_client_refuses_one_more() -> None:
    """Asked again and again, with any numbers of rounds, it shows what it has drawn, or nothing."""
    settings: Any = {"xclp.codes-epsilon": 1.0, "num-rounds": 2, "semi.labels-only-rounds": 0}
    noise = parties(**settings).client(0).noise
    assert noise.plan.releases == 2
    points = np.random.default_rng(0).normal(size=(10, 4))
    first, second = noise.features(points, 7), noise.features(points, 3)
    assert (first != second).any()
    np.testing.assert_array_equal(noise.features(points, 3), second)
    for number in (4, 7, 1, 0, -1, 10**9):
        with refuses("privacy-noise-spent"):
            noise.features(points, number)


def test_given_another_noise_than_was_planned_then_a_client_refuses_it() -> None:
    one, other = (
        parties(**{"xclp.codes-epsilon": epsilon, "num-rounds": 3, "semi.labels-only-rounds": 0})
        for epsilon in (1.0, 2.0)
    )
    points = np.random.default_rng(0).normal(size=(10, 4))
    one.client(0).noise.features(points, 1)
    other.states = one.states
    with refuses("privacy-noise-spent"):
        other.client(0).noise.features(points, 2)


@pytest.mark.parametrize("name", ["codes", "labels"])
def test_a_device_that_has_forgotten_its_noise_draws_none(name: str) -> None:
    """It is told that it was prepared before, and knows nothing of it: it may have drawn noise."""
    played = small(name)
    told = {"class-names": ["a", "b"]}
    again = {**told, SETUP_BEFORE: True}
    played.client(1).on_phase("setup", Content(values=dict(told)))
    played.client(1).on_phase("setup", Content(values=dict(again)))  # it has not forgotten anything
    for _ in range(2):  # nor does it remember what it forgot by being told twice
        played.client(2).on_phase("setup", Content(values=dict(again)))
    with refuses("privacy-noise-lost", match="forgotten"):
        played.propagate()


# In a run


def test_labels_stay_in_a_resumed_run_and_codes_in_a_round(settings: Settings) -> None:
    options: dict[str, Any] = {
        **{"method": "xclp", "model": "mlp", "local_epochs": 1, "precision": "float32"},
        **{"xclp.num-bits": 256, "semi.labels-only-rounds": 1, "num_rounds": 3},
        **{"labels.total": 60, "points_per_client": 60},
        **{"xclp.codes-epsilon": 100.0, "xclp.labels-epsilon": 1.0},
    }

    def kept(client: int) -> dict[str, bytes]:
        folder = directory / "clients" / str(client)
        files = (*folder.glob("noisy-*"), *folder.glob("randomized-*"))
        return {file.name: file.read_bytes() for file in files}

    # Hello, prepare, round 1, three calls of round 2, compare; labels are summed.
    directory = cut_off(settings(**options), 3, call=7)
    before = [kept(client) for client in range(3)]
    names = {f"{NOISY_FEATURES}-{number}.safetensors" for number in (2, 3)}
    assert set(before[0]) == names | {f"{RANDOMIZED_LABELS}-2.safetensors"}

    resume(directory, 3)
    assert [line["round"] for line in metrics(directory)] == [1, 2, 3]
    for client in range(3):
        after = kept(client)
        assert set(after) <= set(before[client])
        assert all(after[name] == before[client][name] for name in after)
        assert f"{RANDOMIZED_LABELS}-2.safetensors" in after
        assert f"{NOISY_FEATURES}-3.safetensors" in after
    labels = load_file(directory / "clients" / "0" / f"{RANDOMIZED_LABELS}-2.safetensors")[LABELS]
    assert (labels >= 0).sum() == 20

    with refuses("client-failed"):
        train(resolve({"resume": str(directory), "num-rounds": 4}, Path.cwd()), 3)


# Refusals


def test_other_points_than_noise_was_drawn_for() -> None:
    built = parties(**CODES_OF_200, **LABELS_OF_2)
    built.client(1).noise.features(POINTS[:110], 1)
    built.client(1).randomized(1)
    with refuses("privacy-noise-spent", match="points have changed"):
        built.client(1).noise.features(POINTS[:109], 1)
    assert len(built.client(1).noise.features(POINTS[:109], 2)) == 109
    own = GIVEN[90:200]
    at = np.flatnonzero(own >= 0)[0]
    for other in (np.delete(own, 0), np.delete(own, -1), np.where(np.arange(110) == at, -1, own)):
        built.labels = [GIVEN[:90], other, GIVEN[200:]]
        with refuses("privacy-noise-spent", match="points have changed"):
            built.client(1).randomized(2)
    # A label that was corrected has no part in what was drawn.
    built.labels = [GIVEN[:90], np.where(np.arange(110) == at, own[at] ^ 1, own), GIVEN[200:]]
    built.client(1).randomized(2)


def test_other_rounds_than_noise_was_made_for() -> None:
    built = parties(**CODES_OF_200)  # rounds 11 to 30 propagate
    built.client(1).noise.features(POINTS, 11)
    for rounds in (31, 29):
        built.settings = built.settings.model_copy(update={"num_rounds": rounds})
        with refuses("privacy-noise-spent", match="num-rounds"):
            built.client(1).noise.features(POINTS, 12)
