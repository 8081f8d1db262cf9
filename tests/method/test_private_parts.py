"""Differential privacy of methods that report more than their model."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.errors import UserError
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import ARRAYS, SUM_PHASES
from fedul_flwr.federated.payload import OF_ALL, TRAIN
from fedul_flwr.federated.stages.dp import AtClient, without_noise
from fedul_flwr.method import Client, Method, Part, Stage, Strategy
from tests.method.fedproto import TABLES, FedProto, FedProtoClient
from tests.support.refusals import refuses
from tests.support.runs import train

PRIVATE: dict[str, Any] = {
    "dp.clipping": "client",
    "model": "linear",
    "num_rounds": 1,
    "points_per_client": 60,
}
HERE = "tests.method.test_private_parts"
NOISED = Method("fedproto", FedProto, FedProtoClient, (*TABLES, DPSettings), "partly-labeled")


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


PLAIN = Method("fedproto", Plain, PlainClient, (*TABLES, DPSettings), "partly-labeled")


class AsksClient(PlainClient):
    answers = {"my-phase": {"mean-age": Part()}}


ASKS = Method("fedproto", Plain, AsksClient, (*TABLES, DPSettings), "partly-labeled")


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
    stage = f"{HERE}:Counting"
    with refuses("setting-breaks-privacy", UserError, match="'points' without noise"):
        train(settings(method=f"{HERE}:PLAIN", stage=stage, **private), 3)


def test_given_a_method_without_a_table_of_privacy_then_it_is_refused(settings: Any) -> None:
    with refuses("setting-without-effect", UserError):
        settings(method="tests.method.fedproto:METHOD", **PRIVATE)


def test_given_the_model_alone_then_a_private_run_trains(settings: Any, tmp_path: Path) -> None:
    config = settings(method=f"{HERE}:PLAIN", **{**PRIVATE, "labels.total": 90})
    assert (train(config, 3) / "summary.json").is_file()


def config_of(settings: Any, name: str, **more: Any) -> RunConfig | None:
    try:
        config: RunConfig = settings(method=name, **PRIVATE, **more)
    except UserError:
        return None
    return config


def test_built_in_methods_send_the_model_and_single_numbers_in_private_runs(settings: Any) -> None:
    private = {name: config_of(settings, name) for name in METHODS}
    assert {name for name, config in private.items() if config} == {
        name for name, method in METHODS.items() if DPSettings in method.tables.values()
    }
    for config in filter(None, private.values()):
        assert not [*without_noise(config)]
        sent = declared(config)
        assert {*sent} <= {"describe", "setup", TRAIN, *SUM_PHASES}
        more = {name: part for name, part in sent[TRAIN].items() if name not in OF_ALL}
        assert [name for name, part in more.items() if part.shape] == [ARRAYS]
