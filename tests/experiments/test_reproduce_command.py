"""``fedul-flwr reproduce`` on a miniature table: runs, page, refusals."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import Result

from fedul_flwr.config.run_config import RunConfig
from tests.support.digits_table import (
    RESULTS,
    change_run,
    change_table,
    invoke,
    output_of,
    render,
    stored_runs,
)
from tests.support.refusals import code_of, refuses

MINI = ("mini/table-1", "--device", "cpu")


def reproduce(*arguments: str) -> Result:
    return invoke("reproduce", *arguments)


def named(runs: list[RunConfig]) -> list[str]:
    """Number of sets and method of runs."""
    return [f"{Path(run.output).parent.parent.name} {run.method}" for run in runs]


def test_given_no_results_then_runs_make_and_show_them(
    digits_table: Path, ran: list[RunConfig]
) -> None:
    first = reproduce(*MINI)
    assert first.exit_code == 0, first.output
    assert named(ran) == ["m-10 fedul", "m-10 supervised", "m-12 fedul", "m-12 supervised"]
    assert "--quick" in output_of(first)
    kept = stored_runs()
    assert [(run["column"], run["row"]) for run in kept] == [
        *(("M=10", "FedUL"), ("M=10", "all labels"), ("M=12", "FedUL"), ("M=12", "all labels"))
    ]
    assert kept[0]["rounds"] == [1, 2]
    assert kept[0]["test_error"] in kept[0]["test_errors"]
    assert kept[0]["settings"]["num-supernodes"] == 3
    assert kept[0]["hardware"]["arithmetic"] == "float32"
    assert not {"output", "resume", "device"} & set(kept[0]["settings"])
    assert str(digits_table) not in RESULTS.read_text()

    # Nothing is missing: neither run again nor written again.
    before = RESULTS.read_bytes()
    assert reproduce(*MINI).exit_code == 0
    assert len(ran) == 4
    assert RESULTS.read_bytes() == before

    # One result and its run are gone: one runs. Without its result alone the run left is taken.
    RESULTS.write_text("".join(json.dumps(run) + "\n" for run in kept[1:]))
    shutil.rmtree("runs/reproduce/mini/table-1/full/m-10/fedul")
    assert reproduce(*MINI).exit_code == 0
    assert named(ran[4:]) == ["m-10 fedul"]
    RESULTS.unlink()
    assert reproduce(*MINI).exit_code == 0
    assert len(ran) == 5
    assert [run["test_errors"] for run in stored_runs()] == [run["test_errors"] for run in kept]

    page = render()
    assert page.startswith("### mini/table-1\n")
    error = kept[0]["test_error"]
    far = f"{error - 2.5:+.2f}"
    assert f"| M=10 | FedUL | 2.50 (0.50) | {error:.2f}, 1 seed | {far} |" in page

    # Quick results are shown beside full ones and change nothing about them.
    quick = reproduce(*MINI, "--quick", "--rows", "FedUL", "--columns", "M=12")
    assert quick.exit_code == 0, quick.output
    assert named(ran[5:]) == ["m-12 fedul"]
    assert len(stored_runs("quick")) == 1
    assert [run["test_errors"] for run in stored_runs()] == [run["test_errors"] for run in kept]

    # A run is one of the experiment's settings now.
    change_run(0, settings={**kept[0]["settings"], "learning-rate": 0.5})
    with refuses("result-of-other-settings", match="row 'FedUL', column 'M=10', seed 0") as refused:
        render()
    again = "(learning-rate was 0.5, is 'auto'): run it again: fedul-flwr"
    assert again in str(refused.value)
    change_run(0, settings=kept[0]["settings"], row="FedLU")
    with refuses("result-of-other-settings", match="belongs to no run of the table"):
        render()
    change_run(0, row="FedUL")

    # A setting that is newer than the run had its default's effect; another value has not.
    old = {key: value for key, value in kept[0]["settings"].items() if key != "momentum"}
    change_run(0, settings=old)
    render()
    change_table('"num-rounds": 2', '"num-rounds": 2, "optimizer": "sgd", "momentum": 0.9')
    with refuses("result-of-other-settings", match="momentum was 0.0, is 0.9"):
        render()
    RESULTS.write_text("{}\n")
    with refuses("result-file-wrong"):
        render()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "options-contradict"),
        (["mini/table-2"], "unknown-name"),
        (["mini/table-1", "--dataset", "digits"], "option-not-allowed"),
        (["mini/table-1", "--dataset", "digits=no"], "folder-missing"),
        (["mini/table-1", "--experiments", "docs"], "folder-missing"),
    ],
)
def test_wrong_arguments_are_refused(digits_table: Path, arguments: list[str], code: str) -> None:
    assert code_of(reproduce(*arguments).output) == code


def test_given_list_then_each_table_says_how_many_and_how_old(digits_table: Path) -> None:
    assert output_of(reproduce("--list")) == ("mini/table-1: Digits (4 runs a seed; results: none)")
    assert reproduce(*MINI, "--columns", "M=10").exit_code == 0
    first = stored_runs()[0]
    text = RESULTS.read_text().replace(first["date"], "2025-01-02T03:04:05+00:00", 1)
    RESULTS.write_text(text.replace(str(first["commit"]), "0123456789abcdef"))
    assert output_of(reproduce("--list")).endswith("results: 2 full since 2025-01-02 (01234567))")


def test_given_verify_then_runs_repeat_and_drift_shows(
    digits_table: Path, ran: list[RunConfig]
) -> None:
    none = reproduce(*MINI, "--verify", "2")
    assert none.exit_code == 1
    assert code_of(none.output) == "result-file-wrong"
    assert reproduce(*MINI, "--columns", "M=10").exit_code == 0
    ran.clear()
    before = RESULTS.read_bytes()
    done = reproduce(*MINI, "--verify", "5")
    assert done.exit_code == 0, done.output
    assert len(ran) == 2  # all that are stored
    assert done.output.count(": +0.00\n") == 2  # the same bits
    assert RESULTS.read_bytes() == before
    change_run(0, test_error=stored_runs()[0]["test_error"] - 1.5)
    done = reproduce(*MINI, "--rows", "FedUL", "--verify", "5")
    assert "1.50 percentage" in done.output
    ran.clear()
    done = reproduce(*MINI, "--rows", "all labels", "--verify", "5")
    assert [config.method for config in ran] == ["supervised"]  # of the rows asked for alone
    assert "0.00 percentage" in done.output
    other = {**stored_runs()[1]["settings"], "batch-size": 7}
    change_run(1, settings=other)
    ran.clear()
    assert reproduce(*MINI, "--verify", "5").exit_code == 0
    assert len(ran) == 1  # the other run is not of the table's settings
    change_run(0, settings=other)
    none = reproduce(*MINI, "--verify", "5")
    assert none.exit_code == 1
    assert code_of(none.output) == "result-file-wrong"
