"""A comparison through the command line and Ray: three methods' runs."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.experiments.trial_plan import make_plan, read_runs
from tests.end_to_end.test_ray import ALL_CPUS, fedul, text
from tests.end_to_end.test_ray_xclp import CLIENTS, SHARED, in_process, on_ray
from tests.support.fedmatch_exchanges import LC, LS, assert_in_step
from tests.support.runs import assert_same_arrays, assert_same_run, last_model, metrics

pytestmark = [pytest.mark.ray, pytest.mark.slow]

AT_CLIENTS, AT_SERVER = (
    {key.replace("_", "-"): value for key, value in options.items()}
    | {"fraction-train": 0.5, "points-per-client": 40}
    for options in (LC, LS)
)
FEDMATCH = {**AT_CLIENTS, "labels.total": 100}
IN_THE_CLEAR = {
    **{**SHARED, "method": "xclp", "model": "mlp", "local-epochs": 1, "num-rounds": 3},
    **{"semi.labels-only-rounds": 1, "fraction-train": 0.25},
}
IN_SECRET = {**IN_THE_CLEAR, "xclp.secure": "rlwe", "xclp.codes-seed": "run"}
ROWS = {"five sets": {"fedul.num-sets": 5}, "FedMatch": FEDMATCH, "XCLP": IN_SECRET}


def test_a_failing_run_costs_no_other_and_the_others_have_our_numbers(tmp_path: Path) -> None:
    rows = [f'["{name}"]\n' + text(own).replace(" ", "\n") for name, own in ROWS.items()]
    (tmp_path / "runs.toml").write_text("\n".join(rows) + "\n")
    arguments = ("--runs", "runs.toml", "--seeds", "0", "--num-supernodes", str(CLIENTS))
    arguments += ("--output", "out", "--client-cpus", ALL_CPUS)
    done = fedul("compare", "--engine", "ray", *arguments, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    warned = "Note: The runs do not share their data splits, points-per-client differs"
    assert warned in done.stderr
    refused = 'Client 0 cannot take part: it says "it has 5 sets, fewer than the 10 classes".'
    assert f"Failed: five sets, seed 0: {refused}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    plan = make_plan(read_runs(tmp_path / "runs.toml"), {}, (0,), CLIENTS, tmp_path / "here")
    failed, fedmatch, xclp = (
        tmp_path / "out" / trial.directory.relative_to(plan.output) for trial in plan.trials
    )
    assert not (failed / "summary.json").exists()
    (tmp_path / "fedmatch").mkdir()
    assert_same_exchanges(fedmatch, in_process(FEDMATCH, tmp_path / "fedmatch"), FEDMATCH)
    assert_as_in_the_clear(xclp, in_process(IN_THE_CLEAR, tmp_path))


def assert_same_exchanges(there: Path, here: Path, settings: dict[str, Any]) -> None:
    assert [line["clients"] for line in metrics(there)] == [CLIENTS // 2] * settings["num-rounds"]
    assert_same_run(there, here)
    assert metrics(there)[1]["num_helpers"] > 0
    assert assert_in_step(there, settings["num-rounds"])


def test_fedmatch_with_labels_at_the_server(tmp_path: Path) -> None:
    assert_same_exchanges(on_ray(AT_SERVER, tmp_path), in_process(AT_SERVER, tmp_path), AT_SERVER)


def assert_as_in_the_clear(there: Path, here: Path) -> None:
    """The run in secret, bit by bit."""
    assert [line["clients"] for line in metrics(there)] == [5, 5, 5]
    assert but_for_traffic(there) == but_for_traffic(here)
    assert_same_arrays(last_model(here), last_model(there))
    assert sum(name.endswith("-3.safetensors") for name in pseudo_labels(there)) == 5
    assert pseudo_labels(there) == pseudo_labels(here)
    # Of a session no more is left behind than without one.
    left = [{file.name for file in (run / "clients").glob("*/*")} for run in (there, here)]
    assert left[0] == left[1]


def but_for_traffic(directory: Path) -> list[dict[str, Any]]:
    """Figures of all rounds; secrecy costs bytes."""
    return [
        {key: line[key] for key in line if not key.startswith(("bytes", "percent"))}
        for line in metrics(directory)
    ]


def pseudo_labels(directory: Path) -> dict[str, bytes]:
    files = (directory / "clients").glob("*/pseudo-labels-*")
    return {str(file.relative_to(directory)): file.read_bytes() for file in files}
