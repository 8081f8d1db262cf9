"""What README.md says is so: its commands, its Python, its figures, and its steps on machines."""

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.cli.simulated_run import _DEMO_SELECTION
from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.options import Clients
from fedul_flwr.config.run_config import resolve
from fedul_flwr.config.user_files import parse_overrides
from fedul_flwr.data.run_files.run import CONFIG, SUMMARY
from fedul_flwr.engine.flower_simulation import MARK, PREFIX, end_marked
from fedul_flwr.results.facts import print_comparison
from tests.support.deployment import PROGRAMS, free_ports, write_settings
from tests.support.patience import PATIENCE, wait_for_end, wait_until

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.DOTALL | re.MULTILINE)


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)
    return [text for of, text in fenced if of == language]


MAKE, MACHINES = (
    [line.partition(" #")[0].strip() for line in block.splitlines()] for block in blocks("bash")
)
[COMPARE] = re.findall(r"`(fedul-flwr compare [^`]+)`", PROSE)


def test_given_the_page_then_it_has_two_screens() -> None:
    assert len(TEXT.splitlines()) <= 105
    assert [line for line in TEXT.splitlines() if len(line) > 120] == []


# Its first commands


def test_given_its_targets_of_make_then_the_makefile_has_them() -> None:
    assert MAKE == ["make demo", "make test"]
    for command in MAKE:
        done = subprocess.run(
            [*shlex.split(command), "--dry-run"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"Python {python.removeprefix('>=')} or newer" in PROSE


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[┃│]", line)[1:-1]]


def test_given_a_demo_when_it_ends_then_its_table_is_that_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = {method: tmp_path / method for method in _DEMO_SELECTION}
    for method, selection in _DEMO_SELECTION.items():
        outputs[method].mkdir()
        rounds = resolve({"method": method}, tmp_path).num_rounds
        summary = f'"best_round": 9, "rounds": {rounds}, "selection": "{selection}"'
        (outputs[method] / SUMMARY).write_text(f'{{"test_error": 1.5, {summary}}}')
        (outputs[method] / CONFIG).write_text('{"settings": {"method": "x"}, "data": {}}')
    print_comparison(outputs, 30)
    printed = [cells(line) for line in capsys.readouterr().out.splitlines() if line[:1] in "┃│"]
    shown = [cells(line) for line in blocks("")[0].splitlines()]
    figures = re.compile(r"\d+\.\d\d %|\d+ (?=of \d+)")
    for table in (printed, shown):
        table[:] = [[figures.sub("", cell) for cell in row] for row in table]
    assert [row for row in printed if row != [""]] == shown
    assert _DEMO_SELECTION["fedul"] == "heldout"  # no label chooses its round
    assert Clients().number == 10
    assert "at 10 clients" in TEXT


# Its figures


def test_given_its_sentences_with_figures_then_they_are_those_of_the_page_of_results() -> None:
    said = section("What it reaches").split("\n- ")[1:]
    said[-1] = said[-1].partition("\n\n")[0]
    sentences = [" ".join(one.split()) for one in said]
    results = " ".join((ROOT / "docs/results.md").read_text().split())
    assert 0 < len(sentences) <= 5
    for sentence in sentences:
        assert f"**{sentence}**" in results


# Methods, and the commands that a shell gets


def test_given_a_method_in_code_then_there_is_one() -> None:
    advice = section("Which method, when").partition("\nClass shares help")[0]
    named = set(re.findall(r"`([\w-]+)`", advice))
    assert named <= set(METHODS)
    assert len(named) > 5


@pytest.fixture
def parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Fails with a command of ours that has a wrong option, or settings that are refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    command: typer.core.TyperGroup = typer.main.get_command(app)  # type: ignore[assignment]

    def parse(line: str) -> None:
        program, *words = shlex.split(line)
        assert program == "fedul-flwr"
        leaf, context = command, None
        while isinstance(leaf, typer.core.TyperGroup):
            context = typer.Context(leaf, info_name=program, parent=context)
            _, next_leaf, words = leaf.resolve_command(context, words)
            assert next_leaf is not None
            leaf = next_leaf  # type: ignore[assignment]
        parsed = leaf.make_context(leaf.name, words, parent=context)
        overrides = parse_overrides(parsed.params.get("run_config") or [])
        resolve(overrides, tmp_path)

    return parse


def run_settings() -> dict[str, str]:
    """What the page says of ``run.toml``."""
    pairs = re.findall(r'`([\w-]+ = "[^"]*")`', section("On real machines"))
    assert len(pairs) == 4
    return tomllib.loads("\n".join(pairs))


def write_run_toml(folder: Path, more: str = "") -> None:
    lines = [f'{key} = "{value}"\n' for key, value in run_settings().items()]
    (folder / "run.toml").write_text("".join(lines) + more)


def test_given_its_commands_then_options_and_settings_are_accepted(
    tmp_path: Path, parses: Callable[[str], None]
) -> None:
    write_run_toml(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    ours = [line for line in (COMPARE, *MACHINES) if line.startswith("fedul-flwr")]
    assert len(ours) == 6
    CliRunner().invoke(app, shlex.split(MACHINES[0])[1:], catch_exceptions=False)
    for line in ours:
        parses(line)
    scripts = re.findall(r"\S+\.sh\b", "\n".join(MACHINES))
    assert len(scripts) == 4
    for script in scripts:
        file = tmp_path / in_consortium(script)
        assert os.access(file, os.X_OK), script


def test_given_the_commands_of_the_next_page_then_options_and_settings_are_accepted(
    tmp_path: Path, parses: Callable[[str], None]
) -> None:
    for folder in ("runs/adam", "runs/demo/fedul", "my_images"):
        (tmp_path / folder).mkdir(parents=True)
    text = (ROOT / "docs" / "running.md").read_text()
    lines = re.findall(r"^fedul-flwr .+?(?=  +#|$)", text, flags=re.MULTILINE)
    assert len(lines) == 8
    for line in lines:
        parses(line)


def in_consortium(line: str) -> str:
    """The line with an owner's folder where it lies before it is sent to its owner."""
    return re.sub(r"^owners/", "consortium/owners/", line)


@pytest.mark.slow
def test_given_its_comparison_when_it_runs_then_there_is_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["-c", "model=mlp points-per-client=60 num-rounds=2", "--engine", "in-process"]
    done = CliRunner().invoke(app, [*shlex.split(COMPARE)[1:], *small])
    assert done.exit_code == 0, done.output
    [table] = (tmp_path / "runs").glob("*/comparison.csv")
    assert len(pd.read_csv(table)) == 3


# Python


@pytest.mark.slow
def test_given_its_python_when_it_runs_then_models_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [code] = blocks("python")
    assert len(code.splitlines()) <= 10
    names: dict[str, object] = {}
    exec(code, names)
    assert names["result"].summary["test_error"] < 50  # type: ignore[attr-defined]
    printed = capsys.readouterr().out.rpartition("[")[2]
    predicted = np.array(re.findall(r"[01]", printed), int)
    assert len(predicted) > 50
    assert predicted.mean() > 0.75


# Real machines


def write_months(folder: Path, seed: int) -> None:
    """Two sets of bright and dark images, 80 % and 20 % of them bright (ill)."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for month, ill in {"january": 24, "february": 6}.items():
        images = rng.integers(0, 150, (30, 64, 64))
        images[:ill] += 100
        np.savez(folder / f"{month}.npz", images=images.astype(np.uint8))
    (folder / "priors.csv").write_text("set,ill,healthy\njanuary,0.8,0.2\nfebruary,0.2,0.8\n")


@pytest.mark.slow
def test_given_its_lines_for_real_machines_when_they_run_then_owners_get_a_model(
    tmp_path: Path,
) -> None:
    owners = 3
    address, *ports = (f"127.0.0.1:{port}" for port in free_ports(1 + owners))
    files, home = tmp_path / "consortium", tmp_path / f"{PREFIX}home"
    home.mkdir()
    write_run_toml(tmp_path, 'num-rounds = 1\nmodel = "mlp"\n')
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FLWR_")},
        **{MARK: str(home), "HOME": str(home), "NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1"},
        **{"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
        "PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]),
    }

    def start(line: str, log: str) -> subprocess.Popen[bytes]:
        with (tmp_path / log).open("wb") as said:
            return subprocess.Popen(
                ["bash", "-c", line],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def run_to_the_end(line: str) -> str:
        done, log = start(line, "done.log"), tmp_path / "done.log"
        code = wait_for_end(done, progress=lambda: log.stat().st_size)
        assert code == 0, f"{line}: {log.read_text()}"
        return log.read_text()

    def start_and_wait(line: str, log: str, until: str) -> None:
        program, file = start(line, log), tmp_path / log
        wait_until(lambda: until in file.read_text() or program.poll() is not None, PATIENCE, until)
        assert until in file.read_text(), file.read_text()

    with ExitStack() as stack:
        stack.callback(end_marked, home)
        for line in MACHINES:
            if "deploy init" in line:
                run_to_the_end(line.replace("fl.example.org:8000", address))
                write_settings(files / "server" / "server.env", {"VENV": PROGRAMS.parent})
                for owner in range(owners):
                    write_months(tmp_path / f"ward-{owner}", owner)
                    values = {"DATA": tmp_path / f"ward-{owner}", "VENV": PROGRAMS.parent}
                    port = ports[owner].partition(":")[2]
                    env = files / "owners" / f"owner-{owner}" / "node.env"
                    write_settings(env, {**values, "PORT": port})
            elif "start-superlink.sh" in line:
                start_and_wait(line, "superlink.log", "Uvicorn running on https")
            elif line.startswith("owners/"):
                for owner in range(owners):
                    of_owner = in_consortium(line.replace("owner-0", f"owner-{owner}"))
                    if "check-data.sh" in line:
                        assert run_to_the_end(of_owner).endswith("Ready.\n")
                    else:
                        start_and_wait(of_owner, f"node-{owner}.log", "SuperNode ID: ")
            else:
                run_to_the_end(line)
        assert (tmp_path / "runs" / "first" / "report.html").exists()
        assert "owner-2" in (tmp_path / "runs" / "first" / "report.html").read_text()
        run_to_the_end("fedul-flwr predict --model model.zip --input ward-0/january.npz -o out.csv")
        assert len(pd.read_csv(tmp_path / "out.csv")) == 30
