"""What the guides show works as shown."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from docs.hooks import coverage, results
from docs.hooks.tables import rendered
from fedul_flwr.config.methods import METHODS
from fedul_flwr.models import MODELS, build_model
from tests.support.refusals import refuses
from tests.support.runs import summary, train
from tests.support.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [
    *("README.md", "CONTRIBUTING.md", "experiments/README.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")),
]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), flags=re.DOTALL)


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def anchors(text: str) -> list[str]:
    """Anchors of the headings of a page, as repository hosts and the site make them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = sum(re.sub(r"-\d+$", "", other) == anchor for other in found)
        found.append(f"{anchor}-{again}" if again else anchor)
    return found


def test_the_method_of_ones_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: Settings,
) -> None:
    code, *others = blocks("docs/own-method.md", "python")
    assert code == text_of("tests/method/flexfed.py")
    assert {text_of(f"tests/method/{name}.py") for name in ("fedproto", "noisy")} <= {*others}
    (tmp_path / "my_methods.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = settings(
        method="my_methods:METHOD", method_options="threshold=0.2", num_rounds=1, local_epochs=1
    )
    assert summary(train(config, 2))["method"] == "my_methods:METHOD"


@pytest.mark.slow
def test_the_page_on_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("docs/python.md", "python"):
        exec(block, names)
    assert names["result"].summary["test_error"] < 50  # type: ignore[attr-defined]


def test_the_example_of_label_propagation(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("docs/propagation.md", "python")[0], {})
    printed = capsys.readouterr().out.strip()
    assert f"`{printed}`" in text_of("docs/propagation.md")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text_of(page)):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_files_of_the_code_that_a_page_names_exist(page: str) -> None:
    packages = (path.parent.name for path in (ROOT / "fedul_flwr").glob("*/__init__.py"))
    folders = "|".join(["fedul_flwr", "tests", *packages])
    for name in re.findall(rf"`((?:{folders})/[a-z_0-9/]+\.py)`", text_of(page)):
        assert (ROOT / name).exists() or (ROOT / "fedul_flwr" / name).exists(), name


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    fetched = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=\"?https?://")
    pages = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*.html")}
    assert {"index.html", "choose.html", "experiments.html", "api/python.html"} <= set(pages)
    assert [name for name, path in pages.items() if fetched.search(path.read_text())] == []


def test_the_table_of_models() -> None:
    cells = r"^\| `([\w-]+)`(?: \(default\))? \| ([\d,]+) \| (\d+) \|"
    text = (ROOT / "docs/methods.md").read_text()
    rows = re.findall(cells, text, flags=re.MULTILINE)
    assert {name for name, _, _ in rows} == set(MODELS)
    with torch.device("meta"):  # shapes without numbers
        for name, weights, least in rows:
            model = build_model(name, (32, 32, 3), 10)
            assert f"{sum(weight.numel() for weight in model.parameters()):,}" == weights, name
            if (side := int(least)) > 1:
                build_model(name, (side, side, 3), 10)
                with refuses("image-size", match=f"{side} x {side}"):
                    build_model(name, (side - 1, side, 3), 10)


def test_stored_runs_are_those_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a run of other settings than its table has now is refused
    text = rendered(Path("experiments"), Path("results"))
    assert [line for line in text.splitlines() if line.startswith("### ")]


def test_the_page_of_results_is_that_of_the_stored_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert text_of("docs/results.md") == results.page(), "make docs"
    said = [*results.claims()]
    assert len(said) <= 15
    assert all(claim.holds() for claim in said)


def test_the_page_of_coverage_is_that_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert text_of("docs/coverage.md") == coverage.page(), "make docs"
    lines = [line for table in coverage.tables() for line in coverage.lines(table)]
    assert len(lines) == sum(len(table.names) for table in coverage.tables())
    states = {line["state"].split(",")[0] for line in lines}
    assert states <= {"full", "quick", "not run", "a benchmark"}


@pytest.mark.parametrize("more", [0.0, 100.0])
def test_a_sentence_that_the_runs_contradict_is_refused(
    monkeypatch: pytest.MonkeyPatch, more: float
) -> None:
    monkeypatch.chdir(ROOT)
    claim = next(results.claims())
    errors = claim.cells.errors(claim.cells.columns[0])
    errors.loc["FedUL"] += more
    monkeypatch.setattr(results.Cells, "errors", lambda *_: errors)
    assert claim.holds() is not bool(more)


def test_given_the_decision_tree_then_picture_and_text_have_a_method_at_the_same_step() -> None:
    svg = "{http://www.w3.org/2000/svg}"
    pictured: dict[str, set[str]] = {}
    for group in ElementTree.parse(ROOT / "docs/choose.svg").iter(f"{svg}g"):
        words = " ".join("".join(text.itertext()) for text in group.iter(f"{svg}text"))
        step = pictured.setdefault(group.attrib["class"].removeprefix("step-"), set())
        step |= set(re.findall(r"[\w-]+", words))
    section = text_of("docs/choose.md").partition("The same in words")[2].partition("\n## ")[0]
    steps = re.findall(r"^(\d)\. (.+?)(?=^\d\. |\Z)", section, re.DOTALL | re.MULTILINE)
    named = {step: set(re.findall(r"`([\w-]+)`", text)) & set(METHODS) for step, text in steps}
    assert {step: of for step, of in named.items() if of} == pictured
    # docs/settings.md lists every method.
    assert {"fedul", "xclp", "fedmatch"} <= set().union(*pictured.values()) <= set(METHODS)
