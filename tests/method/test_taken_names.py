"""Names that the framework uses, and figures of a method's own beside its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.run_files.records import Figures
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client import Client
from fedul_flwr.method import Part, Settings, Stage, Strategy
from fedul_flwr.strategies.fedul import FedULStrategy
from tests.support.refusals import refuses
from tests.support.runs import metrics, metrics_and_times, train

QUICK: dict[str, Any] = {
    "model": "linear",
    "num_rounds": 1,
    "local_epochs": 1,
    "points_per_client": 60,
}

OWN: dict[str, Any] = {**QUICK, "labels.total": 60}


@pytest.mark.parametrize(
    "name",
    [
        *("clients", "seconds", "loss", "round", "num-examples", "test_error", "test-error"),
        *("bytes_up_mine", "arrays", "metrics", "phases", "heldout-loss", "failed", "process"),
    ],
)
def test_given_a_report_with_a_name_of_the_framework_then_its_class_is_refused(name: str) -> None:
    free = f"my-{name.replace('_', '-')}"
    with refuses("own-method-wrong", UserError, match=f"'{name}'.*'{free}' is free"):
        type("Clashing", (Client,), {"reports": {name: Part()}})
    type("Right", (Client,), {"reports": {free: Part()}})
    with refuses("own-method-wrong", UserError, match=f"'{free}' is free"):
        type("ClashingStage", (Stage,), {"sent": {"train": {name: Part()}}})


def test_given_other_names_of_the_framework_then_a_class_is_refused() -> None:
    for attributes in (
        {"reports": {"my-sum": Part(), "my_sum": Part()}},  # one key in metrics.jsonl
        {"answers": {"setup": {"partition-id": Part()}}},
        {"answers": {"sum-part": {"mine": Part()}}},
    ):
        with refuses("own-method-wrong", UserError):
            type("Clashing", (Client,), attributes)
    type("Right", (Client,), {"answers": {"setup": {"mine": Part()}, "my-phase": {"loss": Part()}}})
    for name in ("base", "stage", "base/w"):
        with refuses("own-method-wrong", UserError):
            type("Clashing", (Strategy,), {"state": {name: 0.0}})
    type("Right", (FedULStrategy,), {"state": {**FedULStrategy.state, "based": 0.0}})


def test_given_a_client_built_on_one_of_ours_then_what_that_sends_stays() -> None:
    from fedul_flwr.client_apps.fedmatch import FedMatchClient
    from fedul_flwr.client_apps.fedul import FedULClient

    for parent in (FedULClient, FedMatchClient):
        kind = type("Built", (parent,), {"reports": {**parent.reports, "mine": Part()}})
        assert "mine" in kind.reports  # type: ignore[attr-defined]
        with refuses("own-method-wrong", UserError):
            type("Built", (parent,), {"reports": {**parent.reports, "loss": Part.count()}})


SOURCE = """
from torch.nn import functional
import numpy as np, torch
from fedul_flwr.method import MATCHING, Client, Method, Part, ServerStage, Settings, Stage
from fedul_flwr.method import Strategy, Task

class OwnSettings(Settings):
    table = "own"

class Own(Strategy):
    def client_config(self):
        return {CONFIG}
    def after_round(self, reports):
        FIGURE

class OwnClient(Client):
    reports = {"mine": Part(), "vector": Part("classes", combine="sum")}
    def register(self):
        return {**super().register(), REGISTERED}
    def task(self, round):
        def loss(network, batch):
            return functional.cross_entropy(network(batch.labeled), batch.labels)
        sent = {"mine": 2.0, "vector": torch.ones(self.num_classes, dtype=torch.float64)}
        return Task(self.data.labeled_and_unlabeled(round), loss, sent)

class AtServer(ServerStage):
    def line(self):
        return {LINE}
    def about(self):
        return {ABOUT}

class OwnStage(Stage):
    server = AtServer

METHOD = Method("own", Own, OwnClient, (*MATCHING, OwnSettings), "partly-labeled")
"""


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Callable[..., Path]:
    """Runs a method with given lines, in a module of this name."""
    monkeypatch.chdir(tmp_path)

    def run(module: str, figure: str = "pass", **parts: str) -> Path:
        text = SOURCE.replace("FIGURE", figure)
        for key in ("CONFIG", "REGISTERED", "LINE", "ABOUT"):
            text = text.replace(key, parts.get(key.lower(), ""))
        Path(f"{module}.py").write_text(text)
        return train(settings(method=f"{module}:METHOD", stage=f"{module}:OwnStage", **OWN), 2)

    return run


def test_given_figures_of_reports_of_the_server_and_of_a_stage_then_a_line_has_them(
    run_of: Callable[..., Path],
) -> None:
    figure = 'self.record.metrics["my-shift"] = np.float32(0.5)'
    run = run_of("figures_right", figure, line='"my_count": 3', about='"my_total": 4')
    [line] = metrics(run)
    assert (line["mine"], line["my_shift"], line["my_count"]) == (2.0, 0.5, 3)
    assert "vector" not in line
    assert line["clients"] == 2


@pytest.mark.parametrize(
    ("name", "lines", "match"),
    [
        ("figure_clients", {"figure": 'self.record.metrics["clients"] = 9'}, "'clients'"),
        ("figure_joined", {"figure": 'self.record.metrics |= {"loss": 0.0}'}, "'loss'"),
        ("figure_vector", {"figure": 'self.record.metrics["v"] = np.zeros(3)'}, "ndarray"),
        ("figure_matrix", {"figure": 'self.record.metrics["v"] = torch.ones(1, 1)'}, "Tensor"),
        ("figure_text", {"figure": 'self.record.metrics["v"] = "high"'}, "str"),
        ("figure_twice", {"figure": 'self.record.metrics["mine"] = 1.0'}, "'mine'.*two values"),
        ("line_of_stage", {"line": '"seconds": 0.0'}, "'seconds'"),
        ("line_vector", {"line": '"mean": [1.0, 2.0]'}, "list"),
        ("about_of_stage", {"about": '"rounds": 0'}, "'rounds'"),
        ("config_round", {"config": '"server-round": 7'}, "'server-round'"),
        ("config_mu", {"config": '"proximal-mu": 7.0'}, "'proximal-mu'"),
        ("config_model", {"config": '"arrays": {"w": np.ones(1)}'}, "'arrays'"),
    ],
)
def test_given_a_name_or_a_value_that_a_run_cannot_show_then_it_ends_with_a_sentence(
    run_of: Callable[..., Path], name: str, lines: dict[str, str], match: str
) -> None:
    with refuses("own-method-wrong", UserError, match=match):
        run_of(name, **lines)


def test_given_a_value_of_registration_that_says_who_one_is_then_it_is_refused(
    run_of: Callable[..., Path],
) -> None:
    with refuses("client-failed", UserError, match="'partition-id'"):
        run_of("registers_other", registered='"partition-id": 0')


def test_each_key_that_the_framework_writes_is_refused_as_a_figure(settings: Any) -> None:
    for more in (
        {"method": "fedul", "selection": "heldout", "fedul.heldout_fraction": 0.2},
        {"method": "fedul-heads", "closed_form.sum": "plaintext"},
        {"method": "fixmatch", "scenario.labels_at": "server", "server_fraction": 0.1},
    ):
        [line] = metrics_and_times(train(settings(**QUICK, **more), 2))
        written = line.keys() - {"confident_share"}  # which a method reports, or not
        for key in written:
            with refuses("own-method-wrong", UserError):
                Figures()[key] = 0.0


def test_a_setting_outside_of_its_bounds_is_refused() -> None:
    from typing import Annotated

    from pydantic import Field

    class Bounded(Settings):
        table = "bounded"
        weight: Annotated[float, Field(ge=0, le=1)] = 0.5

    assert Bounded.parse({"weight": 1}).weight == 1
    with refuses("setting-out-of-range", UserError):
        Bounded.parse({"weight": np.nextafter(1, 2).item()})
