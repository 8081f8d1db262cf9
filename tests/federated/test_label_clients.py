"""Clients with labels: how many they say they have, and who is sampled in each stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content
from fedul_flwr.data.seeds import stream
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.client_policy import (
    AssignedLabelClients,
    ClientPolicy,
    LabeledClients,
    LabelStages,
)
from fedul_flwr.federated.nodes import ClientRef, ClientReport
from tests.support.fake_registry import registry_of
from tests.support.refusals import refuses

Settings = Callable[..., RunConfig]


# Labels


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("labels-only", ""),
        ("fixmatch", " (with scenario.labels-at = 'server' the server learns them)"),
    ],
)
def test_given_no_label_at_all_then_the_run_ends(
    settings: Settings, method: str, advice: str
) -> None:
    config = settings(method=method)
    policy = LabeledClients(config, registry_of(config, 2), 10)
    none = Content(values={"num-labeled": 0})
    with pytest.raises(UserError) as error:
        policy.changed({0: none, 1: none})
    text = "No client has a label: there is nothing to learn classes from"
    assert str(error.value) == f"{text}{advice}."
    policy.changed({0: none, 1: Content(values={"num-labeled": 1})})
    assert (policy.labeled, policy.unlabeled) == ([ClientRef(1, 101)], [ClientRef(0, 100)])


def test_given_more_labels_than_points_then_the_client_is_refused(settings: Settings) -> None:
    config = settings(method="labels-only")
    policy = LabeledClients(config, registry_of(config, 1), 10)
    with refuses("message-contradicts", BadMessageError, match="labels"):
        policy.accept(ClientReport(0, num_points=5), Content(values={"num-labeled": 6}))


# Samples


def policy_of(kind: type[ClientPolicy], config: RunConfig, labeled: int, unlabeled: int) -> Any:
    policy: Any = kind(config, registry_of(config, labeled + unlabeled), 10)
    answers = {
        number: Content(values={"num-labeled": int(number < labeled)})
        for number in range(labeled + unlabeled)
    }
    policy.changed(answers)
    return policy


def drawn(config: RunConfig, purpose: str, number: int, count: int, size: int) -> set[int]:
    """Positions of a sample among ``count`` clients, by the run's seed."""
    rng = stream(config.seed, purpose, number)
    return set(rng.choice(count, size, replace=False).tolist())


def test_given_labels_at_some_then_only_these_are_sampled(settings: Settings) -> None:
    config = settings(method="labels-only", fraction_train=0.3)
    policy = policy_of(AssignedLabelClients, config, labeled=8, unlabeled=12)
    for number in (1, 2, 3):
        found = [client.partition_id for client in policy.sample(number)]
        assert found == sorted(drawn(config, "sample", number, 8, 6))  # 0.3 of all 20
    assert policy.stage_start(3) == 1


def stages(settings: Settings, labels_only_rounds: int = 2, **more: Any) -> RunConfig:
    options = {"semi.labels-only-rounds": labels_only_rounds}
    return settings(method="pseudo-label", **options, **more)


def test_given_the_second_stage_then_each_kind_is_drawn_by_its_own_stream(
    settings: Settings,
) -> None:
    config = stages(settings, fraction_train=0.5)
    policy = policy_of(LabelStages, config, labeled=30, unlabeled=20)
    for number in (1, 3, 4):
        found = {client.partition_id for client in policy.sample(number)}
        if number == 1:  # labels alone
            assert found == drawn(config, "sample", number, 30, 25)
            continue
        # 0.6 * 25; the other 10 have no labels.
        labeled = drawn(config, "sample", number, 30, 15)
        unlabeled = {30 + at for at in drawn(config, "sample unlabeled", number, 20, 10)}
        assert found == labeled | unlabeled
