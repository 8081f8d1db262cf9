"""Differential privacy of methods that report more than their model."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.arrays import l2_norm
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import ARRAYS, SUM_PHASES
from fedul_flwr.federated.payload import OF_ALL, TRAIN
from fedul_flwr.federated.stages.dp import AtClient, without_noise
from fedul_flwr.federated.strategy import validate
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.method import Client, Method, Part, Stage, Strategy
from fedul_flwr.models.registry import fresh_model
from tests.method.fedproto import TABLES, FedProto, FedProtoClient
from tests.support.refusals import refuses
from tests.support.runs import last_model, train

PRIVATE: dict[str, Any] = {
    "dp.clipping": "client",
    "model": "linear",
    "num_rounds": 1,
    "points_per_client": 60,
}
HERE = "tests.method.test_private_parts"
NOISED = Method("fedproto", FedProto, FedProtoClient, TABLES, "partly-labeled")


class PlainClient(FedProtoClient):
    reports = {}

    def task(self, round: Any) -> Any:
        task = super().task(round)
        task.reports.clear()
        return task


class Plain(Strategy):
    state = FedProto.state

    def client_config(self) -> Any:
        return dict(self.state)


PLAIN = Method("fedproto", Plain, PlainClient, TABLES, "partly-labeled")


class AsksClient(PlainClient):
    answers = {"my-phase": {"mean-age": Part()}}


ASKS = Method("fedproto", Plain, AsksClient, TABLES, "partly-labeled")


class Counting(Stage):
    sent = {"my-phase": {"points": Part.count()}}


@pytest.mark.parametrize("secure_sum", ["off", "on"])
def test_given_parts_without_noise_then_a_private_run_is_refused(
    settings: Any, secure_sum: str
) -> None:
    private = {**PRIVATE, "secure_sum": secure_sum}
    for method, name in (("NOISED", "sums"), ("ASKS", "mean-age")):
        config = settings(method=f"{HERE}:{method}", **private)
        with refuses("setting-breaks-privacy", UserError, match=f"'{name}' without noise"):
            train(config, 3)
        with refuses("setting-breaks-privacy", UserError, match=f"'{name}' without noise"):
            AtClient(Client(config, None, None)).check()  # type: ignore[arg-type]
        with refuses("setting-breaks-privacy"):  # a server that has not looked asks for an update
            AtClient(Client(config, None, None)).before(Asked({}, {}), {})  # type: ignore[arg-type]
    stage = f"{HERE}:Counting"
    with refuses("setting-breaks-privacy", UserError, match="'points' without noise"):
        train(settings(method=f"{HERE}:PLAIN", stage=stage, **private), 3)


@pytest.mark.parametrize("name", ["closed-form", "fedul-heads", "proxyfl", "server-only"])
def test_given_clients_that_send_no_sum_of_models_then_it_is_refused(
    settings: Any, name: str
) -> None:
    with refuses("setting-without-effect", UserError):
        validate(settings(method=name, **PRIVATE))


@pytest.mark.parametrize(("name", "part"), [("xclp", "labeled"), ("fedsiam", "teacher")])
def test_given_a_built_in_method_that_sends_more_then_it_is_refused(
    settings: Any, name: str, part: str
) -> None:
    with refuses("setting-breaks-privacy", UserError, match=f"'{part}' without noise"):
        validate(settings(method=name, **PRIVATE))


@pytest.mark.parametrize("secure_sum", ["off", "on"])
def test_a_matching_method_moves_its_model_by_the_norm_at_most(
    settings: Any, secure_sum: str
) -> None:
    noise = {"dp.norm": 0.01, "dp.noise_multiplier": 0.01, "secure_sum": secure_sum}
    config = settings(method="fixmatch", **{**PRIVATE, **noise, "labels.total": 90})
    moved = last_model(train(config, 3))
    first = dump_arrays(fresh_model(config, (8, 8, 1), 10))
    # A mean of updates of the length 0.01 at most, and noise of deviation 0.01 * 0.01 / 3 (secure
    # sums: somewhat more) on each of 650 numbers.
    assert 0.001 < l2_norm(moved[name] - first[name] for name in first) < 0.012


def test_given_the_model_alone_then_a_private_run_trains(settings: Any, tmp_path: Path) -> None:
    config = settings(method=f"{HERE}:PLAIN", **{**PRIVATE, "labels.total": 90})
    assert (train(config, 3) / "summary.json").is_file()


def config_of(settings: Any, name: str, **more: Any) -> RunConfig | None:
    try:
        config: RunConfig = settings(method=name, **PRIVATE, **more)
        validate(config)
    except UserError:
        return None
    return config


def test_built_in_methods_send_the_model_and_single_numbers_in_private_runs(settings: Any) -> None:
    private = {name: config_of(settings, name) for name in METHODS}
    assert {"fedul", "supervised", "fixmatch"} < {name for name in METHODS if private[name]}
    for config in filter(None, private.values()):
        assert not [*without_noise(config)]
        sent = declared(config)
        assert {*sent} <= {"describe", "setup", TRAIN, *SUM_PHASES}
        more = {name: part for name, part in sent[TRAIN].items() if name not in OF_ALL}
        assert [name for name, part in more.items() if part.shape] == [ARRAYS]
