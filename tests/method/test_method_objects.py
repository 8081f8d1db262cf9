"""A method as an object, wherever a name of one may stand."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.serverapp.strategy import FedAvg

import fedul_flwr as ff
from fedul_flwr.config.methods import METHODS, Method, reference_to
from fedul_flwr.engine.in_process import InProcessGrid, task_identity
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client_data import ClientData
from fedul_flwr.testing import check_method
from tests.method.flexfed import METHOD, FlexFed, FlexFedClient
from tests.support.refusals import refuses

QUICK: dict[str, Any] = {
    "clients": 2,
    "rounds": 1,
    "engine": "in-process",
    "model": "linear",
    "local_epochs": 1,
    "points_per_client": 60,
}


def test_given_a_method_in_a_comparison_then_its_table_reaches_its_run_alone(
    tmp_path: Path,
) -> None:
    rows = [METHOD, "fixmatch"]
    found = ff.compare(rows, output=tmp_path, seeds=1, flexfed={"threshold": 0.8}, **QUICK)
    assert [*found.table.index] == [*found.results] == ["flexfed", "fixmatch"]
    [run], [other] = found.results.values()
    assert run.settings["method"] == "tests.method.flexfed:METHOD"
    assert run.settings["method-options"] == "threshold=0.8"
    assert other.settings["method"] == "fixmatch"
    assert other.settings["method-options"] == ""
    again = ff.load(tmp_path, trust_modules=True)
    assert [*again.results] == ["flexfed", "fixmatch"]


def test_given_the_settings_of_a_row_then_they_win_over_those_of_all(tmp_path: Path) -> None:
    rows = [{"method": METHOD, "name": "low", "method_options": "threshold=0.1"}, METHOD]
    found = ff.compare(rows, output=tmp_path, seeds=1, flexfed={"threshold": 0.8}, **QUICK)
    options = {name: run.settings["method-options"] for name, [run] in found.results.items()}
    assert options == {"low": "threshold=0.1", "flexfed": "threshold=0.8"}


def test_given_a_misspelled_key_of_its_table_then_the_right_one_is_named() -> None:
    with refuses("unknown-name", UserError, match="did you mean 'flexfed.threshold'"):
        ff.compare([METHOD, "fixmatch"], flexfed={"thresholdd": 0.8}, **QUICK)


def test_given_a_method_in_a_simulation_then_it_runs_with_its_table(tmp_path: Path) -> None:
    run = ff.simulate(METHOD, output=tmp_path / "run", flexfed={"threshold": 0.8}, **QUICK)
    assert run.settings["method"] == "tests.method.flexfed:METHOD"
    assert run.settings["method-options"] == "threshold=0.8"


def test_given_a_method_of_no_module_then_it_runs_in_this_process_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loose = Method("flexfed", FlexFed, FlexFedClient, METHOD.settings, "partly-labeled")
    monkeypatch.setattr(sys.modules["__main__"], "LOOSE", loose, raising=False)
    with refuses("own-method-wrong", UserError):  # another process has another __main__
        check_method(loose)
    with refuses("argument-not-allowed", UserError):
        ff.simulate(loose, **{**QUICK, "engine": "processes"})
    runs = [
        ff.simulate(method, output=tmp_path / name, **QUICK)
        for name, method in (("loose", loose), ("named", METHOD))
    ]
    assert runs[0].summary["test_error"] == runs[1].summary["test_error"]
    module = ModuleType("loose_methods")
    vars(module)["LOOSE"] = loose
    monkeypatch.setitem(sys.modules, "loose_methods", module)
    assert reference_to(loose) == "loose_methods:LOOSE"
    assert reference_to(METHODS["fedul"]) == "fedul"


def test_given_a_method_in_an_app_of_ones_own_then_it_trains_there() -> None:
    def client(context: Context) -> Any:
        rng = np.random.default_rng(int(context.node_config["partition-id"]))
        labels = np.arange(40) % 2
        points = rng.normal(2 * labels[:, None] - 1, 0.5, (40, 4)).astype(np.float32)
        return ff.client_of(METHOD)(points, np.where(np.arange(40) < 20, labels, -1))

    strategy: Any = ff.strategy_of(METHOD)(
        FedAvg(),
        model="linear",
        input_shape=(4,),
        classes=2,
        settings={"local_epochs": 1, "flexfed": {"threshold": 0.4}},
    )
    assert strategy.options.threshold == 0.4
    with task_identity():
        grid = InProcessGrid(ff.make_client_app(client), 2, {})
        result = strategy.start(grid, num_rounds=2)
    assert len(result.arrays) == 2
    # Of two classes one has a probability of 1/2 at least: each unlabeled point of both clients
    # is above the highest threshold, 0.4.
    assert strategy.state["confident"].sum() >= 20


class BareClient(FlexFedClient):
    data_class = ClientData


BARE = Method("bare", FlexFed, BareClient, METHOD.settings, "partly-labeled")


def test_given_a_method_without_rounds_then_an_app_of_ones_own_has_no_strategy_of_it() -> None:
    with refuses("method-mismatch", UserError):
        ff.strategy_of("xclp-predict")
    with refuses("method-mismatch", UserError):
        ff.client_of(BARE)  # whose clients have data of their own kind


@pytest.mark.parametrize(
    ("data", "meant"),
    [("partly_labeled", "partly-labeled"), ("unlabeled", "unlabeled-sets"), ("label", "labels")],
)
def test_given_other_data_then_the_right_word_is_named(data: Any, meant: str) -> None:
    with refuses("own-method-wrong", UserError, match=f"did you mean '{meant}'"):
        Method("other", FlexFed, FlexFedClient, METHOD.settings, data)
