"""What the guides show works as shown."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedul_flwr.config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.models import MODELS, build_model
from fedul_flwr.reproduction.render import render
from tests.runs import summary, train

ROOT = Path(__file__).parents[1]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def test_the_method_of_ones_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: Callable[..., RunConfig],
) -> None:
    (tmp_path / "my_methods.py").write_text(blocks("docs/own-method.md", "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = settings(
        method="my_methods:CALM", method_options="weight=0.2", num_rounds=1, local_epochs=1
    )
    assert summary(train(config, 2))["method"] == "my_methods:CALM"
    assert "2 clients take part" in capsys.readouterr().out


def test_the_example_of_label_propagation(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("docs/propagation.md", "python")[0], {})
    printed = capsys.readouterr().out.strip()
    assert f"`{printed}`" in (ROOT / "docs/propagation.md").read_text()


@pytest.mark.parametrize(
    "page",
    [
        "CONTRIBUTING.md",
        "README.md",
        "docs/compare.md",
        "docs/faults.md",
        "docs/fedul.md",
        "docs/methods.md",
        "docs/own-data.md",
        "docs/own-method.md",
        "docs/performance.md",
        "docs/propagation.md",
        "docs/reproduce.md",
        "docs/tracking.md",
        "docs/xclp.md",
        "experiments/README.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


def test_the_table_of_models() -> None:
    cells = r"^\| `([\w-]+)`(?: \(default\))? \| ([\d,]+) \| (\d+) \|"
    text = (ROOT / "docs/methods.md").read_text()
    rows = re.findall(cells, text, flags=re.MULTILINE)
    assert {name for name, _, _ in rows} == set(MODELS)
    for name, weights, least in rows:
        model = build_model(name, (32, 32, 3), 10)
        assert f"{sum(weight.numel() for weight in model.parameters()):,}" == weights, name
        if (side := int(least)) > 1:
            build_model(name, (side, side, 3), 10)
            with pytest.raises(UserError, match=f"at least {side} x {side} pixels"):
                build_model(name, (side - 1, side, 3), 10)


def test_the_runs_of_a_comparison(tmp_path: Path) -> None:
    from fedul_flwr.comparison.plan import make_plan, read_runs

    (tmp_path / "runs.toml").write_text(blocks("docs/compare.md", "toml")[0])
    runs = read_runs(tmp_path / "runs.toml")
    plan = make_plan(runs, {"fedul.num-sets": 20}, (0,), 10, tmp_path)
    assert [cell.run for cell in plan.cells] == ["FedUL", "All labels", "FedUL, FedProx"]
    assert plan.split_warnings == ()


def test_the_papers_tables_are_those_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "results.md"
    page.write_text((ROOT / "docs/results.md").read_text())
    monkeypatch.chdir(ROOT)
    render(Path("experiments"), Path("results"), page)
    assert page.read_text() == (ROOT / "docs/results.md").read_text(), "make docs"
