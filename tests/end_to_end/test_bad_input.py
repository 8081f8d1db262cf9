"""Bad input: one clear sentence, a non-zero exit code, earlier results untouched."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from tests.support.error_line import error_line
from tests.support.runs import summary

QUICK = "model='mlp' num-rounds=1 local-epochs=1"


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and what was said, without Ray: what is tested is the same code."""
    result = CliRunner().invoke(
        app, ["run", "--engine", "in-process", "--num-supernodes", "2", *arguments]
    )
    return result.exit_code, result.output


def test_earlier_results_stay(tmp_path: Path) -> None:
    output = tmp_path / "result"
    code, said = run("-c", QUICK, "--output", str(output))
    assert code == 0, said
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    for more in ("", "dataset='/no/such/place'", "num-rounds=0"):
        code, said = run("-c", QUICK, "-c", more or "seed=1", "--output", str(output))
        assert code == 1
        error_line(said)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before
    assert summary(output)["rounds"] == 1


def test_a_run_that_failed_early_can_be_repeated_in_place(tmp_path: Path) -> None:
    output = tmp_path / "result"
    code, said = run("-c", QUICK, "-c", "fedul.num-sets=5", "--output", str(output))
    assert code == 1
    assert "fewer than the 10 classes" in error_line(said)
    code, said = run("-c", QUICK, "--output", str(output))
    assert code == 0, said
    assert not (output / "error.txt").exists()
