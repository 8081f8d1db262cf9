"""Recorded steps: the bits of those that are not recorded, for every method whose steps can be."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread, get_ident
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr import learning
from fedul_flwr.engine.in_process import run_in_process
from fedul_flwr.federated.messages import TensorArray
from fedul_flwr.learning import lanes, local
from fedul_flwr.learning.task import Batch
from fedul_flwr.models import build_model
from tests.support import tape
from tests.support.runs import assert_same_run, train
from tests.support.settings import Settings

SMALL: dict[str, Any] = {
    **{
        "model": "mlp",
        "num_rounds": 3,
        "local_epochs": 1,
        "batch_size": 16,
        "precision": "float32",
    },
    **{"learning_rate": 3e-3, "points_per_client": 50, "learning_rate_schedule": "cosine"},
}
LABELS = {**SMALL, "labels.total": 100}
SETS = {**SMALL, "fedul.num-sets": 10}
SERVER = {**SMALL, "scenario.labels-at": "server", "server_fraction": 0.1}
CNN = {"model": "cnn2"}
"""Has batch norm."""
RECORDED: dict[str, dict[str, Any]] = {
    "fedul": {**SETS, "method": "fedul"},
    "fedul-absent": {**SETS, "method": "fedul", "fedul.absent-weight": 0.5, **CNN},
    "supervised": {**SMALL, "method": "supervised", **CNN, "augment": "rotate"},
    "adam": {**SMALL, "method": "supervised", "optimizer": "adam", "l1": 1e-4},
    "proximal": {**SMALL, "method": "supervised", "base": "fedprox"},
    "scaffold": {**SMALL, "method": "supervised", "base": "scaffold", "optimizer": "sgd"},
    "fedmatch": {**LABELS, "method": "fedmatch", "fedmatch.helper-interval": 1},
    "fixmatch": {**LABELS, "method": "fixmatch"},
    "fixmatch-norm": {
        **LABELS,
        "method": "fixmatch",
        **CNN,
        "views.weak": True,
        "augment": "rotate",
    },
    "uda": {**LABELS, "method": "uda"},
    "sage": {**LABELS, "method": "sage", "sage.threshold": 0.2},
    "proxyfl": {**LABELS, "method": "proxyfl", "model": "mlp+projections"},
    "semifl": {
        **{**SERVER, "method": "semifl", "semifl.threshold": 0.3, "optimizer": "sgd", **CNN},
        **{"momentum": 0.9, "augment": "affine", "base": "fedavgm"},
    },
    "xclp": {**LABELS, "method": "xclp", "semi.labels-only-rounds": 1},
    "personal": {**LABELS, "method": "fixmatch", "personal": "head"},
}


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Steps are recorded on tapes, which are listed."""
    made: list[object] = []

    def record(run: Any) -> Any:
        made.append(run)
        return tape.record(run)

    monkeypatch.setattr(lanes, "RECORDERS", {"cpu": record})
    monkeypatch.setattr(lanes, "_said", set())
    return made


@contextmanager
def as_it_is(step: Any, model: Any) -> Iterator[Any]:
    del model
    yield step


def run(settings: Settings, options: dict[str, Any], number: int) -> Path:
    config = settings(**options, lanes=number)
    run_in_process(config, 4)
    return Path(config.output)


@pytest.mark.parametrize("options", RECORDED.values(), ids=RECORDED)
def test_a_recorded_step_serves_all_clients_and_rounds(
    settings: Settings,
    tapes: list[object],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded = run(settings, options, 1)
    assert tapes
    assert "one kernel at a time" not in capsys.readouterr().out
    assert_same_run(recorded, run(settings, options, 16))  # as many as there are clients
    monkeypatch.setattr(lanes, "recorded", as_it_is)
    assert_same_run(run(settings, options, 1), recorded)


@pytest.mark.parametrize("method", ["fedllp", "fedul-consistency"])
def test_what_cannot_be_recorded_runs_as_it_is_and_one_line_says_why(
    settings: Settings, tapes: list[object], method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**SETS, "method": method, "num_rounds": 1}
    one = run(settings, options, 1)
    said = capsys.readouterr().out
    assert said.count(f"Steps of method '{method}' run one kernel at a time: ") == 1
    assert_same_run(one, run(settings, options, 4))
    assert_same_run(one, train(settings(**options), 4))


@pytest.mark.parametrize("base", ["fedavg", "fedavgm", "scaffold", "fedmedian"])
@pytest.mark.parametrize("model", ["mlp", "cnn2"])
def test_means_of_models_on_their_device_have_the_bits_of_flowers(
    settings: Settings, base: str, model: str
) -> None:
    options = {**SMALL, "method": "supervised", "base": base, "model": model, "optimizer": "sgd"}
    assert_same_run(run(settings, options, 3), train(settings(**options), 4))


def tripled(number: float) -> Any:
    factor = torch.tensor(number)
    return lambda x: 3.0 * factor * x


def form(thing: object) -> Any:
    return lanes.Form(thing).key


def test_forms_differ_in_all_but_the_values_of_tensors() -> None:
    assert form(tripled(1.0)) == form(tripled(2.0))
    assert form([torch.zeros(2), {"a": 1}]) == form([torch.ones(2), {"a": 1}])
    for other in (
        [torch.zeros(2), {"a": 2}],
        [torch.zeros(2), {"b": 1}],
        [torch.zeros(3), {"a": 1}],
        [torch.zeros(2, dtype=torch.float64), {"a": 1}],
        [torch.zeros(2, requires_grad=True), {"a": 1}],
        [torch.zeros(2), {"a": 1}, 1],
        [np.zeros(2), {"a": 1}],
    ):
        assert form(other) != form([torch.zeros(2), {"a": 1}])
    same, two = torch.zeros(2), torch.zeros(2)
    assert form([same, same]) != form([same, two])


def test_what_has_no_form() -> None:
    with pytest.raises(lanes.UnrecordableError, match="Generator"):
        form([torch.Generator()])
    with pytest.raises(lanes.UnrecordableError, match="large array"):
        form([np.zeros(10**5)])


def test_changes_of_values_are_undone() -> None:
    thing = SimpleNamespace(seen=[1], names={"a": 1}, steps=0, total=torch.zeros(()))
    undo = lanes.Form(thing).remember()
    thing.seen.append(2)
    thing.names["b"] = 2
    thing.steps += 1
    undo()
    assert (thing.seen, thing.names, thing.steps) == ([1], {"a": 1}, 0)


def test_a_step_takes_values_and_gives_them_back(tapes: list[object]) -> None:
    """w ← w + rate·Σ x, for two clients in a lane: the second one's rate and sum are its own."""

    class Step:
        def __init__(self, rate: float) -> None:
            self.rate, self.total = torch.tensor(rate), torch.zeros(())

        def __call__(self, batch: Batch) -> None:
            self.total += batch.inputs.sum()
            with torch.no_grad():
                model.bias += self.rate * batch.inputs.sum()

    model = nn.Linear(1, 1)
    nn.init.zeros_(model.bias)
    lane = lanes.Lane(torch.device("cpu"), "mine")
    for rate, values in ((1.0, [1.0, 2.0]), (10.0, [3.0, 4.0])):
        step = Step(rate)
        with lane.at_work(), lanes.recorded(step, model) as run:
            for value in values:
                run(Batch(torch.full((1, 1), value), torch.zeros(1)))
        assert float(step.total) == sum(values)
    assert model.bias.tolist() == [1.0 * 3 + 10.0 * 7]
    assert len(tapes) == 1


def test_a_client_that_waits_goes_on_with_its_random_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drawn(seed: int, lane: lanes.Lane) -> list[Any]:
        with lane.at_work():
            torch.manual_seed(seed)
            before = torch.rand(2)
            lanes.wait()
            return [before, torch.rand(2)]

    one, two = (lanes.Lane(torch.device("cpu"), "mine") for _ in range(2))
    alone = drawn(1, one)
    other = Thread(target=drawn, args=(2, two))
    monkeypatch.setattr(one, "_ordered", lambda: lambda: (other.start(), other.join()))
    assert torch.equal(torch.cat(drawn(1, one)), torch.cat(alone))


def test_threads_keep_their_lanes() -> None:
    """So a GPU's libraries have memory for as many pairs of threads and streams as lanes."""
    crowd = lanes.Lanes(3, torch.device("cpu"), "mine")
    at_once = Barrier(3)

    def pair(_: int) -> tuple[int, int]:
        lane = lanes.current()
        assert lane is not None
        lane._ordered = lambda: at_once.wait  # type: ignore[method-assign]
        lanes.wait()
        return get_ident(), id(lane)

    assert list(crowd.map(lambda n: 2 * n, [1, 2])) == [2, 4]
    pairs = {one for _ in range(5) for one in crowd.map(pair, range(3))}
    assert len(pairs) == len({lane for _, lane in pairs}) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda step, batch: setattr(step, "total", step.total + batch.inputs.sum()),
        lambda step, batch: step.total.add_(batch.inputs[batch.inputs > 0].sum()),
        lambda step, batch: step.total.add_(float(batch.inputs.sum())),
        lambda step, batch: step.total.add_(batch.inputs[batch.inputs.nonzero()[:, 0]].sum()),
    ],
    ids=["new tensor", "mask", "value", "positions"],
)
def test_steps_that_a_gpu_could_not_repeat_are_not_recorded(
    change: Any, tapes: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    class Step:
        def __init__(self) -> None:
            self.total = torch.zeros(())

        def __call__(self, batch: Batch) -> None:
            change(self, batch)

    model, step = nn.Linear(1, 1), Step()
    with lanes.Lane(torch.device("cpu"), "mine").at_work(), lanes.recorded(step, model) as run:
        for value in (1.0, 2.0):
            run(Batch(torch.full((1,), value), torch.zeros(1)))
    assert float(step.total) == 3.0
    assert not tapes
    assert "run one kernel at a time" in capsys.readouterr().out


def test_a_mean_on_a_device_stays_there_and_is_read_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds, the second from the tensors of the first; each array is read for one file."""
    loaded: list[int] = []
    read: list[int] = []
    load, plain = local.load_arrays, TensorArray.plain.fget

    def load_arrays(model: nn.Module, arrays: Any) -> None:
        loaded.append(sum(isinstance(array, torch.Tensor) for array in arrays.values()))
        load(model, arrays)

    def of(array: TensorArray) -> Any:
        read.append(array._read is None)
        return plain(array)

    monkeypatch.setattr(learning, "load_arrays", load_arrays)
    monkeypatch.setattr(TensorArray, "plain", property(of))
    run(settings, {**SMALL, "method": "supervised", "num_rounds": 2}, 3)
    weights = len(build_model("mlp", (8, 8, 1), 10).state_dict())
    assert [count for count in loaded if count] == [weights] * 4
    assert sum(read) == 2 * weights


def test_outputs_of_recorded_batches_are_those_of_the_model(tapes: list[object]) -> None:
    """Two models' worth of weights, a last batch of another size; hooks see each batch."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    stored = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    rows = np.arange(300)
    lane = lanes.Lane(torch.device("cpu"), "mine")
    for seed in range(2):
        torch.manual_seed(seed)
        nn.init.normal_(model[0].weight)
        expected, features = local.predict_logits(model, stored, rows), model[:2]
        with lane.at_work():
            assert torch.equal(local.predict_logits(model, stored, rows), expected)
            seen, logits = local.features_and_logits(model, stored, rows)
        assert torch.equal(logits, expected)
        np.testing.assert_allclose(seen, features(torch.from_numpy(stored)).detach(), rtol=1e-5)
    assert len(tapes) == 2  # of 128 points and of 44
