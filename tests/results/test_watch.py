"""``fedul-flwr watch``: a run in its directory, while it runs and after."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.results import watch as watching
from fedul_flwr.results.watch import show_run, watch


def line(number: int, **more: Any) -> dict[str, Any]:
    return {
        **{"round": number, "seconds": 2.0, "seconds_fit": 1.0, "bytes_up": 1000},
        **{"bytes_down": 1000, "clients": 2, "failures": 0, "test_error": 50.0 - number},
        **{"validation_error": 40.0 - number, **more},
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of four rounds, two of which are done."""
    settings = {"method": "fedul", "num-rounds": 4, "selection": "validation", "dataset": "none"}
    about = {"settings": settings, "data": {"num_classes": 2}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    clients = [
        {"id": 0, "name": "north", "num_points": 80},
        {"id": 1, "name": "south", "status": "dropped", "reason": "holidays"},
    ]
    (tmp_path / "federation.json").write_text(json.dumps({"clients": clients}))
    sent = [{"what": "the model", "reader": "the server", "often": "every round"}]
    (tmp_path / "disclosures.json").write_text(json.dumps({"sent": sent}))
    lines = [line(1, owners=["north"]), line(2, owners=["north"], failed=["Client 1 (south)"])]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return tmp_path


def text_of(directory: Path) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(show_run(Run.read(directory)))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_shows_owners_rounds_and_what_left(run: Path) -> None:
    rows = [row.split() for row in text_of(run).splitlines()]
    assert "round 3 of 4, about 4 s left" in text_of(run)
    assert next(row for row in rows if row[:2] == ["2", "*"])[:4] == ["2", "*", "2.0", "2"]
    assert "Client 1 (south)" in text_of(run)
    north = next(row for row in rows if "(north)" in row)
    assert north[3:] == ["80", "2", "0", "accepted"]
    south = next(row for row in rows if row[:3] == ["Client", "1", "(south)"])
    assert south[3:] == ["–", "0", "1", "dropped:", "holidays"]
    assert "2 kB" in text_of(run)
    assert "the model: to the server; every round" in text_of(run)


def test_it_follows_until_the_end(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []

    def next_round(_: float) -> None:
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line(len(shown) + 2)) + "\n")
        if len(shown) == 2:
            (run / "summary.json").write_text(json.dumps({"status": "completed", "rounds": 4}))

    monkeypatch.setattr(watching.time, "sleep", next_round)
    watch(run, 1.0, shown.append)
    assert len(shown) == 3
    assert "finished after 4 rounds" in text_of(run)


def test_a_failed_run_says_why_and_ends(run: Path) -> None:
    (run / "error.txt").write_text("No client can take part.\n")
    done = CliRunner().invoke(app, ["watch", str(run)])
    assert done.exit_code == 0
    assert "ended after 2 rounds: No client can take part." in " ".join(done.output.split())


def test_before_the_first_round(run: Path) -> None:
    for name in ("metrics.jsonl", "federation.json", "disclosures.json"):
        (run / name).unlink()
    assert "waiting for its first round" in text_of(run)
