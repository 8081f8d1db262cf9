"""``stop-after``: a run that ends early is the longer one up to that round, bit for bit."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.run_files.run import BEST_MODEL
from fedul_flwr.federated.stage import Finished, ServerStage, Stage
from tests.support.refusals import refuses
from tests.support.runs import cut_off, last_model, metrics, resume, same, train

# A large step: errors on validation points soon go up and down.
FLAT = {
    "method": "supervised",
    "model": "mlp",
    "num-rounds": 12,
    "learning-rate": 0.1,
    "points-per-client": 60,
}
CLIENTS = 2


def settings_of(flat: dict[str, Any]) -> RunConfig:
    return resolve(flat, Path.cwd())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("stop") / "whole"
    return train(settings_of({**FLAT, "output": str(output)}), CLIENTS)


def expected_end(whole: Path, after: int, least: int = 0) -> int:
    """The first round that is ``after`` rounds behind the best one so far."""
    errors = [line["validation_error"] for line in metrics(whole)]
    for number in range(1, len(errors) + 1):
        best = errors[:number].index(min(errors[:number])) + 1
        if number - best >= after and number >= least:
            return number
    raise AssertionError("the run never waits that long")


@pytest.mark.parametrize("least", [0, 7])
def test_the_run_ends_where_it_no_longer_gets_better(
    whole: Path, tmp_path: Path, least: int
) -> None:
    end = expected_end(whole, 2, least)
    assert end < 12
    flat = {**FLAT, "stop-after": 2, "stop-least": least, "output": str(tmp_path / "run")}
    stopped = train(settings_of(flat), CLIENTS)
    assert metrics(stopped) == metrics(whole)[:end]
    summary = json.loads((stopped / "summary.json").read_text())
    assert (summary["status"], summary["rounds"], summary["stopped_early"]) == (
        "completed",
        end,
        True,
    )
    assert (stopped / BEST_MODEL).exists()
    with refuses("run-exists"):
        resume(stopped, CLIENTS)


def test_a_run_that_resumes_ends_in_the_same_round(whole: Path, tmp_path: Path) -> None:
    end = expected_end(whole, 2)
    flat = {**FLAT, "stop-after": 2, "output": str(tmp_path / "run")}
    straight = train(settings_of({**flat, "output": str(tmp_path / "straight")}), CLIENTS)
    cut = cut_off(settings_of(flat), CLIENTS, call=end)  # one call sets clients up
    resume(cut, CLIENTS)
    assert metrics(cut) == metrics(straight)
    assert same(cut, straight)
    assert last_model(cut).keys() == last_model(whole).keys()


class AtServer(ServerStage):
    follows = True

    def follow(self, lines: Sequence[Mapping[str, Any]]) -> str | None:
        return "three rounds are enough" if len(lines) >= 3 else None

    def finish(self, run: Finished) -> Mapping[str, Any]:
        return {"chosen": run.round}


class Impatient(Stage):
    server = AtServer


def test_any_stage_can_end_a_run_and_do_what_comes_after_it(whole: Path, tmp_path: Path) -> None:
    flat = {**FLAT, "stage": f"{__name__}:Impatient", "output": str(tmp_path / "run")}
    stopped = train(settings_of(flat), CLIENTS)
    assert metrics(stopped) == metrics(whole)[:3]
    rounds = [line["validation_error"] for line in metrics(whole)[:3]]
    summary = json.loads((stopped / "summary.json").read_text())
    assert summary["chosen"] == 1 + rounds.index(min(rounds))
    assert "stopped_early" not in summary
    with refuses("run-exists"):
        resume(stopped, CLIENTS)


def test_without_a_criterion_there_is_nothing_to_stop_by() -> None:
    with refuses("setting-needs-labels", setting="stop-after"):
        train(settings_of({**FLAT, "stop-after": 2, "validation-fraction": 0.0}), CLIENTS)
    # The owners' held-out points would say it, if selection = "heldout" let them.
    summed = {"method": "fedul", "secure-sum": "on", "stop-after": 2, "validation-fraction": 0.0}
    with refuses("setting-needs-labels", setting="stop-after", match="heldout"):
        train(settings_of({**FLAT, **summed}), CLIENTS)
    with refuses("setting-without-effect", setting="stop-after"):
        settings_of({**FLAT, "stop-after": 2, "selection": "last"})
    with refuses("setting-without-effect", setting="stop-least"):
        settings_of({**FLAT, "stop-least": 2})
