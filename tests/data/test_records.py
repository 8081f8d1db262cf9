from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedul_flwr.data.run_files.records import distinct_labels, read_run
from fedul_flwr.data.safe_files import write_atomically
from tests.support.refusals import refuses
from tests.support.synthetic_results import write_json, write_run


def test_reads_what_was_written(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", rounds=4, seed=7)
    run = read_run(directory)
    assert run.finished
    assert run.settings["seed"] == 7
    assert run.data["input_shape"] == [8, 8, 1]
    assert [row["round"] for row in run.metrics] == [0, 1, 2, 3, 4]
    assert run.summary is not None
    assert run.best_round() == run.summary["best_round"]
    assert run.environment is not None
    assert run.federation is not None
    assert [client.id for client in run.federation.clients] == [0, 1, 2, 3, 4]
    assert run.federation.clients[3].status == "dropped"
    assert run.federation.clients[3].priors is None
    assert run.label == "fedul · digits · seed 7"


def test_series_leaves_out_null_and_nan(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    rows = [
        {"round": 1, "test_error": 5.0},
        {"round": 2, "test_error": None},
        {"round": 3, "test_error": float("nan")},
        {"round": 4},
        {"round": 5, "test_error": 2},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "metrics.jsonl").write_text(lines)
    assert read_run(directory).series("test_error") == ([1, 5], [5.0, 2.0])


def test_round_written_twice_counts_once(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    lines = '{"round": 1, "a": 1}\n{"round": 2, "a": 2}\n{"round": 2, "a": 3}\n'
    (directory / "metrics.jsonl").write_text(lines)
    assert read_run(directory).metrics == [{"round": 1, "a": 1}, {"round": 2, "a": 3}]


def test_unfinished_run_with_line_in_the_writing(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", rounds=3, finished=False)
    with (directory / "metrics.jsonl").open("ab") as file:
        # Cut within the two bytes of a character.
        file.write('{"round": 4, "note": "ä'.encode()[:-1])
    run = read_run(directory)
    assert not run.finished
    assert [row["round"] for row in run.metrics] == [0, 1, 2, 3]
    rounds, errors = run.series("validation_error")
    assert run.best_round() == rounds[errors.index(min(errors))]


@pytest.mark.parametrize(
    ("selection", "best"), [("auto", 2), ("validation", 2), ("heldout", 1), ("last", 3)]
)
def test_best_so_far_follows_the_selection(tmp_path: Path, selection: str, best: int) -> None:
    directory = write_run(tmp_path / "run", finished=False, selection=selection)
    rows = [(1, 9.0, 1.0), (2, 7.0, 2.0), (3, 8.0, 3.0)]
    lines = (
        json.dumps({"round": step, "validation_error": error, "heldout_loss": loss})
        for step, error, loss in rows
    )
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert read_run(directory).best_round() == best


def test_test_error_never_chooses_the_best_round(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", finished=False)
    (directory / "metrics.jsonl").write_text('{"round": 1, "test_error": 5.0}\n')
    assert read_run(directory).best_round() is None


def test_only_config_is_needed(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"settings": {}, "data": {}})
    run = read_run(tmp_path)
    assert run.metrics == []
    assert [run.summary, run.federation, run.environment, run.error] == [None] * 4
    assert run.label == "run"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("config.json", "{", "file-syntax"),
        ("config.json", '{"settings": 1, "data": {}}', "run-file-wrong"),
        ("summary.json", '{\n"status":\n}', "file-syntax"),
        ("metrics.jsonl", '{"round": 1}\n{"rou\n{"round": 3}\n', "file-syntax"),
        ("metrics.jsonl", '{"round": "x"}\n', "run-file-wrong"),
        ("federation.json", '{"clients": [{"id": "a"}]}', "run-file-wrong"),
        (
            "federation.json",
            '{"clients": [{"id": 4, "priors": [[0.5, 0.5]], "set_sizes": [1, 2]}]}',
            "run-file-wrong",
        ),
    ],
)
def test_corrupt_files_are_named(tmp_path: Path, name: str, content: str, code: str) -> None:
    directory = write_run(tmp_path / "run")
    (directory / name).write_text(content)
    with refuses(code):
        read_run(directory)


def test_directory_that_is_no_run(tmp_path: Path) -> None:
    with refuses("run-missing"):
        read_run(tmp_path)
    with refuses("folder-missing"):
        read_run(tmp_path / "missing")


def test_labels_of_several_runs_differ(tmp_path: Path) -> None:
    runs = [
        read_run(write_run(tmp_path / "a")),
        read_run(write_run(tmp_path / "b")),
        read_run(write_run(tmp_path / "c", seed=1)),
        read_run(write_run(tmp_path / "other" / "b")),
    ]
    assert distinct_labels(runs) == [
        "fedul · digits · seed 0 · a",
        "fedul · digits · seed 0 · b · 2",
        "fedul · digits · seed 1",
        "fedul · digits · seed 0 · b · 4",
    ]


def test_failed_write_leaves_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    target.mkdir()
    with refuses("file-not-writable"):
        write_atomically(target, "text")
    assert list(tmp_path.iterdir()) == [target]
    write_atomically(tmp_path / "file", "old")
    write_atomically(tmp_path / "file", "new ä")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new ä"
