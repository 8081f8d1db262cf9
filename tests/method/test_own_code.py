"""Code of somebody's own that would change a run without a word."""

import importlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import fedul_flwr as ff
from fedul_flwr.cli.main import app
from fedul_flwr.config.methods import find_method
from fedul_flwr.engine.processes import run_in_processes
from fedul_flwr.errors import UserError
from tests.support.refusals import code_of, refuses
from tests.support.runs import assert_same_run, cut_off, metrics, resume, train

DRAWING: dict[str, Any] = {
    "method": "tests.support.drawing_method:METHOD",
    "model": "mlp",
    "num_rounds": 3,
    "points_per_client": 60,
    "labels.total": 60,
    "local_epochs": 1,
}


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002


def test_given_draws_from_global_generators_then_a_run_resumes_bit_for_bit(
    settings: Any, tmp_path: Path
) -> None:
    seed_all(1)
    whole = train(settings(**DRAWING, output=str(tmp_path / "whole")), 2)
    seed_all(2)
    # Calls: registration, setup, rounds 1 and 2; the third round is lost.
    part = cut_off(settings(**DRAWING, output=str(tmp_path / "part")), 2, 3)
    assert len(metrics(part)) < 3
    seed_all(3)
    assert_same_run(whole, resume(part, 2))


def test_given_draws_then_clients_and_rounds_draw_different_numbers(settings: Any) -> None:
    lines = metrics(train(settings(**DRAWING), 2))
    assert len({line["drawn_before"] for line in lines}) == 3
    assert len({line["drawn_after"] for line in lines}) == 3


def test_given_a_pool_of_processes_then_the_numbers_are_those_of_one_process(
    settings: Any, tmp_path: Path
) -> None:
    one = train(settings(**DRAWING, output=str(tmp_path / "one")), 2)
    other = settings(**DRAWING, output=str(tmp_path / "other"))
    run_in_processes(other, 2)
    assert_same_run(one, Path(other.output))


def test_given_a_run_then_the_generators_of_its_caller_stay_as_they_were(settings: Any) -> None:
    seed_all(5)
    expected = draws()
    seed_all(5)
    train(settings(**DRAWING), 2)
    assert draws() == expected


SOURCE = """
import sys
import numpy as np
from torch.nn import functional
from fedul_flwr.method import MATCHING, Client, ClientPolicy, Method, Part, Settings, Strategy, Task

class OwnSettings(Settings):
    table = "own"

class Own(Strategy):
    state = {"rounds": 0, "seen": []}
    STRATEGY

class OwnClient(Client):
    CLIENT
    def task(self, round):
        def loss(network, batch):
            IN_LOSS
            return functional.cross_entropy(network(batch.labeled), batch.labels)
        return Task(self.data.labeled_and_unlabeled(round), loss, {})

METHOD = Method("own", Own, OwnClient, (*MATCHING, OwnSettings), "partly-labeled", line="Own.")
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a method with given lines; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(module: str, strategy: str = "pass", client: str = "pass", loss: str = "pass") -> str:
        text = SOURCE.replace("STRATEGY", strategy).replace("CLIENT", client)
        Path(f"{module}.py").write_text(text.replace("IN_LOSS", loss))
        return f"{module}:METHOD"

    return write


@pytest.mark.parametrize(
    ("name", "side", "line", "meant"),
    [
        ("typo_after", "strategy", "def after_rounds(self, reports): pass", "after_round"),
        ("typo_camel", "strategy", "def afterRound(self, reports): pass", "after_round"),
        ("typo_config", "strategy", "def client_configs(self): return {}", "client_config"),
        (
            "typo_super",
            "strategy",
            "def after_trains(self, r): super().after_trains(r)",
            "after_train",
        ),
        ("typo_rules", "strategy", "go_with = ()", "goes_with"),
        ("typo_report", "client", "report = {}", "reports"),
        ("typo_register", "client", "def registers(self): return {}", "register"),
    ],
)
def test_given_a_name_like_a_hook_that_nobody_calls_then_it_is_refused(
    settings: Any, written: Any, name: str, side: str, line: str, meant: str
) -> None:
    with refuses("own-method-wrong", UserError, match=f"did you mean '{meant}"):
        run_of(written(name, **{side: line}), settings)


def test_given_a_helper_that_is_used_then_it_may_be_named_like_a_hook(written: Any) -> None:
    line = "def tasks(self): return 1\n    def describe(self): yield str(self.tasks())"
    assert find_method(written("helper_used", client=line)).client_class.tasks


def run_of(name: str, settings: Any, **more: Any) -> Path:
    keys = ("model", "num_rounds", "points_per_client", "labels.total", "local_epochs")
    shared = {key: DRAWING[key] for key in keys} | more
    return train(settings(method=name, **shared), 2)


@pytest.mark.parametrize(
    ("name", "line", "match"),
    [
        ("state_other", 'self.state["round"] = 1', "'round'.*did you mean 'rounds'"),
        ("state_joined", 'self.state |= {"more": 1}', "'more'.*not declared"),
        ("state_text", 'self.state["rounds"] = "two"', "'rounds'.*is a str"),
        ("state_dict", 'self.state["rounds"] = {"a": 1}', "'rounds'.*by name"),
    ],
)
def test_given_state_that_a_resume_would_lose_then_it_is_refused_in_round_1(
    settings: Any, written: Any, name: str, line: str, match: str
) -> None:
    hook = f"def after_round(self, reports): {line}"
    with refuses("own-method-wrong", UserError, match=match):
        run_of(written(name, strategy=hook), settings, num_rounds=1)


def test_given_lists_and_numbers_as_state_then_a_resumed_run_has_them_as_they_were(
    settings: Any, written: Any, tmp_path: Path
) -> None:
    # After k rounds: rounds = k and seen = [1, ..., k], also in the run after this one.
    hook = (
        "def after_round(self, reports):\n"
        '        self.state["rounds"] += 1\n'
        '        self.state["seen"].append(self.state["rounds"])\n'
        '        open("seen", "a").write(f"{type(self.state[\'rounds\']).__name__} "\n'
        "            f\"{self.state['seen']}\\n\")"
    )
    name = written("state_kinds", strategy=hook)
    for folder in ("first", "second"):
        run = run_of(name, settings, num_rounds=1, output=str(tmp_path / folder))
    resume(run, 2, **{"num-rounds": 2})
    assert Path("seen").read_text().splitlines() == ["int [1]", "int [1]", "int [1, 2]"]


@pytest.mark.parametrize(
    ("name", "lines", "code"),
    [
        ("exits_in_loss", {"loss": "sys.exit(0)"}, "client-failed"),
        (
            "exits_at_registration",
            {"client": "def register(self): sys.exit(0)"},
            "client-failed",
        ),
        (
            "exits_after_round",
            {"strategy": "def after_round(self, reports): sys.exit(0)"},
            "own-code-failed",
        ),
        (
            "exits_in_config",
            {"strategy": "def client_config(self): sys.exit()"},
            "own-code-failed",
        ),
    ],
)
def test_given_code_that_exits_then_the_run_ends_with_a_sentence_that_names_its_file(
    settings: Any, written: Any, name: str, lines: dict[str, str], code: str
) -> None:
    with refuses(code, UserError, match=rf"SystemExit.*line \d+ of .*{name}\.py"):
        run_of(written(name, **lines), settings)


MODEL = """
import sys, torch
class Model(torch.nn.Linear):
    exits = False
    def forward(self, x):
        if Model.exits:
            sys.exit(0)
        return super().forward(x)
def build(shape, classes):
    return Model(shape[0], classes)
class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, i):
        if i == 40:
            sys.exit(0)
        return torch.full((3,), float(i)), i % 2
"""


def test_given_a_model_that_exits_when_it_predicts_then_the_callers_script_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exiting_model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    y = np.arange(60) % 2
    options: Any = {"clients": 2, "rounds": 1, "engine": "in-process", "local_epochs": 1}
    result = ff.simulate("supervised", (x, y), model="exiting_model:build", output="run", **options)
    module = importlib.import_module("exiting_model")
    monkeypatch.setattr(module.Model, "exits", True)
    with refuses("own-code-failed", UserError, match=r"line \d+ of .*exiting_model\.py"):
        result.predict(x)
    with refuses("own-code-failed", UserError, match=r"line \d+ of .*exiting_model\.py"):
        ff.simulate("supervised", module.Points(), model="linear", output="other", **options)
    done = CliRunner().invoke(
        app, ["run", "--resume", "run", "-c", "num-rounds=2", "--engine", "in-process"]
    )
    assert done.exit_code == 1
    assert code_of(done.output) == "own-code-failed"
