"""Methods in a Flower app of somebody's own: a strategy and clients with data in memory."""

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    QFedAvg,
)
from flwr.serverapp.strategy import (
    Strategy as FlowerStrategy,
)

import fedul_flwr as ff
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.data.local_data import load_partly_labeled
from fedul_flwr.engine.in_process import InProcessGrid, task_identity
from fedul_flwr.errors import NoUpdateError, OwnDataError
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import SETUP
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.models import build_model
from fedul_flwr.strategies.scaffold import Scaffold
from tests.support.learnable_owners import NAMES, NO_DATA, write_labeled, write_sets
from tests.support.refusals import refuses
from tests.support.runs import last_model, train
from tests.support.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-app.md").read_text()
APPS = dict(
    zip(
        ("fedul", "fedmatch", "xclp", "closed_form"),
        re.findall(r"```python\n(.*?)```", PAGE, re.S),
        strict=True,
    )
)
CONTEXT = Context(0, 0, {}, RecordDict(), {})
PRIORS = np.array([[0.8, 0.2], [0.2, 0.8]])


def points(seed: int, share: float, count: int = 20) -> Any:
    """Points of two classes around -1 and 1, of which ``share`` are of the first."""
    rng = np.random.default_rng(seed)
    first = int(share * count)
    found = np.r_[rng.normal(-1, 0.5, (first, 4)), rng.normal(1, 0.5, (count - first, 4))]
    return found.astype(np.float32)


def sets_of(client: int) -> list[Any]:
    return [points(2 * client, 0.8), points(2 * client + 1, 0.2)]


def run(strategy: Any, app: ClientApp, clients: int = 2, rounds: int = 2, **options: Any) -> Any:
    with task_identity():
        return strategy.start(InProcessGrid(app, clients, {}), num_rounds=rounds, **options)


def fedul_client(context: Context) -> ff.FedULClient:
    return ff.FedULClient(sets_of(int(context.node_config["partition-id"])), PRIORS)


def fedul(**options: Any) -> Strategy:
    return ff.FedUL(**{"input_shape": (4,), "classes": 2, **options})


FRAME = pd.DataFrame({"a": np.arange(20.0), "b": -np.arange(20.0)})
TEXTS = pd.DataFrame({"red": ["yes", "no"]})


def data_of(client: Any, classes: Sequence[str], shape: tuple[int, ...]) -> Any:
    """The client's data after the setup of a run with these classes."""
    content = setup_content(
        parse_flat({**default_flat(), "method": client.method, "standardize": "none"}),
        DataShape(shape, (*classes,)),
    )
    context = Context(0, 0, {}, RecordDict(), {})
    ClientState(context.state).set_values(SETUP, content.values)
    return client.bind(context).data


@pytest.mark.parametrize("columns", [["b", "a"], ["a", "b"]])
def test_columns_and_class_shares_are_taken_by_their_names(columns: list[str]) -> None:
    priors = pd.DataFrame({"sound": [0.2, 0.9], "ill": [0.8, 0.1]}, index=["south", "north"])
    sets = {"north": FRAME[["b", "a"]], "south": FRAME}
    client = ff.FedULClient(sets, priors, columns=columns)
    found = data_of(client, ("ill", "sound"), (2,)).sets
    assert found.inputs.tolist() == [*FRAME[columns].to_numpy().tolist()] * 2
    assert found.priors.tolist() == [[0.1, 0.9], [0.8, 0.2]]  # north first, as in `sets`
    with refuses("class-priors-wrong", OwnDataError):
        _ = data_of(client, ("healthy", "ill"), (2,)).sets


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ([1, 0, -1], ("ill", "sound"), [1, 0, -1]),  # numbers are positions
        (["sound", "ill", None], ("ill", "sound"), [1, 0, -1]),
        ([7, 3, -1], ("3", "7"), [1, 0, -1]),  # but where numbers are the classes' names
        ([1, 2, -1], ("2", "1"), [1, 0, -1]),
    ],
)
def test_labels_are_classes_by_name(labels: Any, classes: Any, expected: list[int]) -> None:
    client = ff.FedMatchClient(np.zeros((3, 2)), labels)
    assert data_of(client, classes, (2,)).examples.labels.tolist() == expected
    with refuses("label-unknown", OwnDataError):
        _ = data_of(client, ("8", "9"), (2,)).examples


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports an app of the page."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(method: str) -> Any:
        (tmp_path / f"my_app_{method}.py").write_text(APPS[method])
        return importlib.import_module(f"my_app_{method}")

    return load


@pytest.mark.parametrize("method", list(APPS))
def test_given_an_app_of_the_page_then_it_learns(method: str, module: Callable[[str], Any]) -> None:
    app = module(method)
    with task_identity():
        result = app.main(InProcessGrid(app.client_app, 3, {}), CONTEXT)
    if method in ("fedul", "closed_form"):
        errors = [float(found["error"]) for found in result.evaluate_metrics_serverapp.values()]
        assert errors[-1] < 0.1 < errors[0]
    else:
        losses = [float(found["loss"]) for found in result.train_metrics_clientapp.values()]
        assert losses[-1] < losses[0]
    assert len(APPS[method].splitlines()) <= 50


def test_given_fedul_around_fedavg_then_the_model_is_the_estimators_bit_for_bit() -> None:
    result = run(fedul(base=FedAvg()), ff.make_client_app(fedul_client))
    estimator = ff.FedULClassifier(rounds=2, standardize=False).fit(
        [*sets_of(0), *sets_of(1)], np.r_[PRIORS, PRIORS], clients=[0, 0, 1, 1]
    )
    for name, array in estimator.model_.state_dict().items():
        assert torch.equal(array, result.arrays.to_torch_state_dict()[name]), name


TRAINED: dict[str, Any] = {"batch-size": 10, "local-epochs": 1, "learning-rate": 0.01}
OF_LABELS = "closed-form-labels"
RUNS: dict[str, tuple[Any, Any, str, dict[str, Any]]] = {
    "closed-form": (ff.ClosedForm, ff.ClosedFormClient, "whitened-filters", {}),
    OF_LABELS: (ff.strategy_of(OF_LABELS), ff.client_of(OF_LABELS), "random-features", {}),
    "fixmatch": (ff.FixMatch, ff.FixMatchClient, "mlp", TRAINED),
    "supervised": (ff.Supervised, ff.SupervisedClient, "mlp", TRAINED),
    "fedul": (ff.FedUL, ff.FedULClient, "mlp", {**TRAINED, "head": "closed-form"}),
}


@pytest.mark.parametrize("method", RUNS)
def test_given_the_data_of_folders_then_the_model_is_that_of_a_run_bit_for_bit(
    method: str, settings: Settings, tmp_path: Path
) -> None:
    strategy, client, model, options = RUNS[method]
    in_sets = method in ("closed-form", "fedul")
    for number in range(3):
        folder, known = tmp_path / "owners" / f"{number}", 30 if method == "supervised" else 6
        write_sets(folder, number) if in_sets else write_labeled(folder, number, known=known)

    def in_memory(context: Context) -> Any:
        folder = tmp_path / "owners" / str(context.node_config["partition-id"])
        if in_sets:
            shares = pd.read_csv(folder / "priors.csv", index_col=0)
            return client({s: np.load(folder / f"{s}.npz")["images"] for s in shares.index}, shares)
        points = load_partly_labeled(folder, NAMES, (8, 8, 1))  # in the order of a run
        return client(np.asarray(points.inputs[points.points]), points.labels)

    flat = {**NO_DATA, **options, "method": method, "model": model, "selection": "last"}
    flat |= {"num-rounds": 2, "client-data": str(tmp_path / "owners"), "test-prior": "uniform"}
    if options:
        flat |= {"client-weights": "examples", "learning-rate-schedule": "constant"}
    stored = last_model(train(settings(**flat), 3))
    own = strategy(model=model, input_shape=(8, 8, 1), classes=NAMES, settings=options)
    result = run(own, ff.make_client_app(in_memory), clients=3, rounds=2)
    assert result.arrays.keys() == stored.keys()
    for name, array in stored.items():
        np.testing.assert_array_equal(result.arrays[name].numpy(), array, strict=True)


def test_given_another_number_of_rounds_than_sums_then_a_closed_form_is_refused() -> None:
    app = ff.make_client_app(lambda context: ff.ClosedFormClient(sets_of(0), PRIORS))
    settings = {"closed_form": {"sum": "plaintext", "refinements": 0}}
    for rounds in (1, 2):
        strategy = ff.ClosedForm(input_shape=(4,), classes=2, settings=settings)
        with nullcontext() if rounds == 1 else refuses("setting-without-effect"):
            run(strategy, app, clients=1, rounds=rounds)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_whose_clients_take_part_has_both_sides_or_is_refused(method: str) -> None:
    """Those that are refused need labels of the server, or have no rounds."""
    refused = ("server-only", "xclp-predict")
    with refuses("method-mismatch") if method in refused else nullcontext():
        assert ff.strategy_of(method)
    with nullcontext():
        assert ff.client_of(method).method == method


def test_given_a_base_then_its_share_of_clients_trains_and_it_combines_the_updates() -> None:
    base = FedAvg(fraction_train=0.5, min_train_nodes=2)
    strategy = fedul(base=base)
    assert isinstance(strategy, FlowerStrategy)
    run(strategy, ff.make_client_app(fedul_client), clients=4, rounds=1)
    assert strategy.record.sampled == 2
    assert base.fraction_train == 0.5  # the user's own is as it was
    client = ff.make_client_app(fedul_client)
    mean, median = (
        run(fedul(base=base), client, clients=3, rounds=1).arrays.to_torch_state_dict()
        for base in (FedAvg(), FedMedian())
    )
    assert any(not torch.equal(mean[name], median[name]) for name in mean)
    with refuses("too-few-clients", setting="base"):
        run(fedul(base=FedTrimmedAvg(beta=0.25)), client, clients=3, rounds=1)


def test_given_privacy_of_flowers_around_it_then_noise_is_added_at_the_server_alone() -> None:
    app, first = ff.make_client_app(fedul_client), ArrayRecord(fedul_model().state_dict())
    around = DifferentialPrivacyServerSideFixedClipping(fedul(), 1.0, 1e-9, 2)
    still = run(around, app, rounds=1, initial_arrays=first).arrays.to_torch_state_dict()
    for name, array in fedul_model().state_dict().items():  # so is the noise: 1e-9 / 2
        torch.testing.assert_close(still[name], array, atol=1e-6, rtol=0)
    noisy = DifferentialPrivacyServerSideFixedClipping(fedul(), 10.0, 0.1, 2)
    arrays = run(noisy, app, rounds=2, initial_arrays=first).arrays.to_torch_state_dict()
    noise = arrays["3.weight"] - fedul_model().state_dict()["3.weight"]
    assert float(noise.std()) == pytest.approx(0.5 * 2**0.5, rel=0.2)  # 10 · 0.1 / 2, twice
    with refuses("method-mismatch"):
        around = DifferentialPrivacyClientSideFixedClipping(fedul(), 1.0, 10.0, 2)
        run(around, app, initial_arrays=first)


def fedul_model() -> torch.nn.Module:
    return build_model("mlp", (4,), 2, seed=0)


def test_given_a_second_start_then_clients_know_its_number_of_rounds() -> None:
    strategy, app = fedul(), ff.make_client_app(fedul_client)
    grid = InProcessGrid(app, 2, {})
    with task_identity():
        once = strategy.start(grid, num_rounds=1)
        both = strategy.start(grid, num_rounds=3)  # beyond 1 + 1 rounds clients would refuse
        other = strategy.start(InProcessGrid(app, 3, {}), num_rounds=1)
    assert len(both.train_metrics_clientapp) == 3
    assert strategy.record.sampled == 3
    for result, clients, rounds in ((once, 2, 1), (both, 2, 3), (other, 3, 1)):
        alone = run(fedul(), app, clients, rounds).arrays.to_torch_state_dict()
        for name, array in result.arrays.to_torch_state_dict().items():
            assert torch.equal(array, alone[name]), name


def test_given_first_weights_of_another_model_then_clients_refuse_them() -> None:
    first = ArrayRecord(build_model("linear", (4,), 2, seed=0).state_dict())
    with pytest.raises(ff.UserError, match="server's model and this client's differ"):
        run(fedul(), ff.make_client_app(fedul_client), initial_arrays=first)


class Seen(FedAvg):
    """Remembers the models that it combines."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        listed = list(replies)
        self.models = [one.content["arrays"].to_torch_state_dict() for one in listed]
        return super().aggregate_train(server_round, listed)


@pytest.mark.parametrize(
    ("stated", "shares"),
    [
        ({}, (40 / 120, 80 / 120)),  # as Flower: 2 sets of 20 points, and 2 of 40
        ({"client_weights": "uniform"}, (0.5, 0.5)),
    ],
)
def test_given_clients_of_40_and_80_points_then_they_count_as_the_log_says(
    stated: dict[str, Any], shares: tuple[float, float], caplog: pytest.LogCaptureFixture
) -> None:
    def client(context: Context) -> ff.FedULClient:
        count = 20 * (1 + int(context.node_config["partition-id"]))
        return ff.FedULClient([points(1, 0.8, count), points(2, 0.2, count)], PRIORS)

    strategy = fedul(base=Seen(), settings=stated)
    arrays = run(strategy, ff.make_client_app(client), rounds=1).arrays.to_torch_state_dict()
    small, large = strategy.base.models
    for name, array in arrays.items():
        torch.testing.assert_close(array, shares[0] * small[name] + shares[1] * large[name])
    assert ("by their points" in caplog.text) == (not stated)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": FedAvg(weighted_by_key="loss")}, "weighted_by_key must be 'num-examples'"),
        (
            {"base": FedAvg(evaluate_metrics_aggr_fn=lambda records, key: MetricRecord())},
            "evaluate_metrics_aggr_fn is never called",
        ),
        ({"classes": 1}, "classes is 1; two or more"),
        ({"model": lambda shape, classes: None}, "at the top of no module"),
        ({"settings": {"local_epoch": 1}}, "Unknown setting 'local-epoch'.*'local-epochs'"),
        ({"settings": {"num_rounds": 1}}, "num-rounds has no effect in an app of your own"),
        ({"settings": {"fedmatch": {"helpers": 1}}}, "fedmatch.helpers = 1: it has an effect only"),
    ],
)
def test_options_that_a_strategy_cannot_use(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ff.UserError, match=message):
        fedul(**options)


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: ff.FedULClient(sets_of(0), PRIORS[:1]), "class-priors-wrong"),
        (lambda: ff.FedULClient([points(0, 0.5), points(0, 0.5)[:, :2]], PRIORS), "points-shape"),
        (lambda: ff.FedMatchClient(points(0, 0.5), [0]), "points-and-labels-differ"),
        (lambda: ff.FedULClient([FRAME, FRAME], PRIORS), "columns-file-needed"),
        (lambda: ff.FedULClient([FRAME, FRAME], PRIORS, columns=["a", "z"]), "column-missing"),
        (lambda: ff.XCLPClient(TEXTS, [0, 1], columns=["red"]), "cell-not-a-number"),
        (lambda: ff.FedULClient(sets_of(0), {"x": [1, 0], "y": [0, 1]}), "class-priors-wrong"),
        (lambda: ff.FedULClient(sets_of(0), PRIORS, columns=["a"]), "argument-without-effect"),
    ],
)
def test_given_unusable_data_then_the_error_is_its_own(build: Callable[[], Any], code: str) -> None:
    with refuses(code, OwnDataError):
        build()


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (lambda c: ff.FedULClient(sets_of(0), PRIORS[:, :1]), "priors have 1 columns"),
        (
            lambda c: ff.FedULClient([part[:, :3] for part in sets_of(0)], PRIORS),
            r"\(3,\); the run",
        ),
        (lambda c: ff.XCLPClient(points(0, 0.5), [-1] * 20), "this client is one of 'xclp'"),
    ],
)
def test_clients_that_do_not_fit_the_run(client: Callable[[Context], Any], message: str) -> None:
    with pytest.raises(ff.UserError, match=message):
        run(fedul(), ff.make_client_app(client))


def test_given_a_device_then_errors_about_data_stay(capsys: pytest.CaptureFixture[str]) -> None:
    app = ff.make_client_app(lambda context: ff.FedULClient([], PRIORS))
    grid = InProcessGrid(app, 1, {})
    for context in grid.contexts.values():
        context.node_config["data-folder"] = "/data"
    with task_identity(), pytest.raises(ff.UserError) as error:
        fedul().start(grid, num_rounds=1)
    assert "sets must be" not in str(error.value)
    assert "sets must be" in capsys.readouterr().err


class Plain(FlowerStrategy):
    """A base that passes on what it gets, to the clients that it chooses."""

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, node, "train") for node in [*grid.get_node_ids()][: self.clients]]

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        return next(iter(replies)).content["arrays"], None

    def configure_evaluate(self, *_: Any) -> Any:
        return []

    def aggregate_evaluate(self, *_: Any) -> None: ...

    def summary(self) -> None: ...


def test_given_any_base_then_it_combines_or_is_refused_at_once() -> None:
    app = ff.make_client_app(fedul_client)
    assert run(fedul(base=Plain(2)), app).arrays
    with refuses("no-update", NoUpdateError):
        run(fedul(base=Plain(0)), app)
    for base in (FedAvg(arrayrecord_key="model"), QFedAvg(client_learning_rate=0.1), Scaffold()):
        with refuses("argument-not-allowed"):
            fedul(base=base)


def test_given_an_earlier_app_first_on_the_path_then_the_module_of_the_bundle_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import fedul_flwr as ff\n"
        "import helper_of_two_apps\n"
        "def client(context): ...\n"
        "client_app = ff.make_client_app(client)\n"
        "whose = {name!r}, helper_of_two_apps.whose\n"
    )
    bundle = tmp_path / "home" / "apps" / "me.second.1.0.0.12345678"
    for name, folder in (("first", tmp_path / "first"), ("second", bundle)):
        folder.mkdir(parents=True)
        (folder / "module_of_two_apps.py").write_text(source.format(name=name))
        (folder / "helper_of_two_apps.py").write_text(f"whose = {name!r}\n")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), *sys.path, str(bundle)])
    assert importlib.import_module("module_of_two_apps").whose == ("second", "second")
    for name in ("module_of_two_apps", "helper_of_two_apps"):
        monkeypatch.delitem(sys.modules, name)
    # Without a bundle of the run, as in a program of one's own, it is what Python finds.
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(bundle)])
    importlib.invalidate_caches()
    assert importlib.import_module("module_of_two_apps").whose == ("first", "first")
