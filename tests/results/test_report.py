import base64
import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.compare_files import compare
from fedul_flwr.experiments.trial_plan import make_plan
from fedul_flwr.results import facts
from fedul_flwr.results.facts import _in_lines
from fedul_flwr.results.report import report
from fedul_flwr.run.measures import measures
from tests.support.refusals import refuses
from tests.support.synthetic_results import write_json, write_run

TEXT = pytest.mark.usefixtures("undrawn")
"""Of tests that look at the page alone: drawing its pictures is most of the time it takes."""
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "{{ 7*7 }}", "a&b")


class _Page(HTMLParser):
    """Tags with their attributes, the text, and the rows of every table."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self._cell = False
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join(" ".join(self.words).split())
        self.facts = {row[0]: row[1] for row in reversed(self.rows)}  # the first table's win

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "wbr":
            return
        if tag == "tr":
            self.rows.append([])
        self._cell = tag in ("td", "th")
        if self._cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = False

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._cell:
            self.rows[-1][-1] += data

    def images(self) -> list[str]:
        return [attrs["src"] or "" for tag, attrs in self.tags if tag == "img"]

    def marked(self) -> list[str]:
        """First cell of the rows that are highlighted."""
        starts = [attrs for tag, attrs in self.tags if tag == "tr"]
        return [
            row[0]
            for row, attrs in zip(self.rows, starts, strict=True)
            if attrs.get("class") == "differs"
        ]


@TEXT
def test_one_run(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    path = report([directory])
    assert path == directory / "report.html"
    page = _Page(path)
    assert len(page.images()) == 4
    assert "fedul · digits · seed 0" in page.text
    found = json.loads((directory / "summary.json").read_text())
    # What matters comes first.
    best = f"{found['test_error']:.2f} % (round {found['best_round']} of 20)"
    assert page.rows[1] == ["test error", best]
    assert page.facts["status"] == "completed"
    assert page.facts["method"] == "fedul, 5 clients"
    assert page.facts["time"] == "4.1 min (12.3 s a round)"
    assert page.facts["traffic"] == "427 MB up, 433 MB down"
    assert ["fedul.num-sets", "10"] in page.rows
    assert ["packages.torch", "2.15.0"] in page.rows
    assert "What differs" not in page.text
    assert "unfinished" not in page.text
    assert "1 of 5 clients dropped" in page.text


def test_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", rounds=3, sets=2, class_names=HOSTILE)
    page = _Page(report([run], tmp_path / "out.html"))
    for source in page.images():
        start = "data:image/svg+xml;base64,"
        assert source.startswith(start)
        picture = base64.b64decode(source[len(start) :]).decode()
        links = re.findall(r'(?:href|src)="([^"]*)"', picture)
        assert links
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
        assert not {"srcset", "action", "data", "poster", "style"} & set(attrs)
        assert (attrs.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attrs)
    style = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style


@TEXT
def test_hostile_names_are_text(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "<b>run", class_names=HOSTILE, dataset=HOSTILE[0])
    (directory / "environment.json").write_text('{"<i>": "<script>x</script>"}')
    page = _Page(report([directory], tmp_path / "out.html"))
    for name in HOSTILE:
        assert name in page.text
    assert "<i>" in page.text
    assert all("onerror" not in attrs for _, attrs in page.tags)
    assert len(page.images()) == 4
    assert not [tag for tag, _ in page.tags if tag in ("script", "b", "i")]


@TEXT
def test_several_runs_and_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [
        write_run(tmp_path / "a", rounds=3, sets=2),
        write_run(tmp_path / "b", rounds=3, sets=2, method="supervised", seed=1, momentum=0.9),
        write_run(tmp_path / "c", rounds=3, sets=2),
    ]
    path = report(runs)
    assert path == tmp_path / "report.html"  # the folder of all three
    page = _Page(path)
    # Error and loss once for all, priors and time for each.
    assert len(page.images()) == 2 + 3 * 2
    assert page.rows[0] == [
        "fact",
        "fedul · digits · seed 0 · a",
        "supervised · digits · seed 1",
        "fedul · digits · seed 0 · c",
    ]
    assert ["momentum", "–", "0.9", "–"] in page.rows
    # Marked in the table of all settings; the dropped client of each run is marked as well.
    assert page.marked() == ["method", "momentum", "seed", "3", "3", "3"]
    assert page.rows.count(["method", "fedul", "supervised", "fedul"]) == 2
    assert [
        "method",
        *(f"{name}, 5 clients" for name in ("fedul", "supervised", "fedul")),
    ] in page.rows
    assert page.rows.count(["model", "mlp", "mlp", "mlp"]) == 1


@TEXT
def test_unfinished_run_says_so(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", rounds=4, finished=False, planned=30)
    (directory / "error.txt").write_text("Client <2> failed.")
    page = _Page(report([directory]))
    assert page.facts["status"] == "failed, 4 of 30 rounds"
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    best = min(lines, key=lambda line: float(line["validation_error"]))
    assert page.facts["test error"] == f"{best['test_error']:.2f} % (round {best['round']} of 4)"
    assert page.facts["last round"] == f"{lines[-1]['test_error']:.2f} %"
    assert page.facts["traffic"] == "85.4 MB up, 86.6 MB down"  # four times one round's
    assert "Client <2> failed." in page.text


def write_comparison(directory: Path, name: str) -> Path:
    """Compare two runs of three rounds, of which one fails with the second seed."""

    def simulate(_: object, config: RunConfig, title: str) -> None:
        if (config.method, config.seed) == ("supervised", 1):
            raise UserError("It <b>failed</b>.")
        error = 1.23456 + config.seed + 4 * (config.method == "supervised")
        more = {"seed": config.seed, "rounds": 3, "outcome": {"test_error": error}}
        write_run(Path(config.output), method=config.method, **more)

    rows = {name: {"method": "fedul"}, "other": {"method": "supervised"}}
    plan = make_plan(rows, {"num-rounds": 3, "dataset": "digits"}, (0, 1), 3, directory)
    compare(plan, simulate, lambda line: None)
    return directory


@TEXT
def test_a_comparison_has_its_table_first(tmp_path: Path) -> None:
    directory = write_comparison(tmp_path / "table", "a | b <i>")
    path = report([directory])
    assert path == directory / "report.html"
    page = _Page(path)
    head, first, other = page.rows[:3]
    assert head[:4] == ["run", "test error (%)", "95 %", "p"]
    assert first[:2] == ["a | b <i>", "1.73 (0.71)"]  # 1.23 and 2.23
    assert (other[0], other[1], other[-1]) == ("other", "5.23", "1 of 2")
    assert page.rows[3:] == [
        ["run", "seed", "status", "error", "best round", "directory"],
        ["a | b <i>", "0", "finished", "1.23 %", "3", "a-b-i/seed-0"],
        ["other", "0", "finished", "5.23 %", "3", "other/seed-0"],
        ["a | b <i>", "1", "finished", "2.23 %", "3", "a-b-i/seed-1"],
        ["other", "1", "failed", "–", "–", "other/seed-1"],
    ]
    assert "num-rounds = 3" in page.text
    assert "Failed: other, seed 1: It <b>failed</b>." in page.text
    assert len(page.images()) == 1
    copy = report([directory], tmp_path / "copy.html")
    assert copy.read_text() == path.read_text()
    with refuses("argument-not-allowed"):
        report([directory, directory])
    path.unlink()
    with refuses("file-missing"):
        report([directory])


def write_measures(directory: Path, classes: int) -> dict[str, Any]:
    """``measures.json`` of a run whose model is better before temperature scaling."""
    labels = np.repeat(np.arange(classes), 4)
    sure = 0.9 * np.eye(classes)[labels] + 0.1 / classes
    sure[3] = sure[4]  # a point of class 0 is named 1
    flat = np.sqrt(sure) / np.sqrt(sure).sum(axis=1, keepdims=True)
    found = {
        "best": {"round": 7, **measures(flat, labels)},
        "unscaled": {"round": 7, **measures(sure, labels)},
        "last": {"round": 20, **measures(sure, labels)},
    }
    write_json(directory / "measures.json", found)
    return found


@TEXT
def test_given_measures_then_the_page_has_them_for_all_and_by_class(tmp_path: Path) -> None:
    said = "Class <shares> differ."
    outcome = {"warnings": [said], "balanced_accuracy": 97.5, "auc": 0.9, "ece": 1.25}
    directory = write_run(tmp_path / "run", sets=2, outcome=outcome)
    found = write_measures(directory, 10)
    page = _Page(report([directory]))
    assert f"Warning: {said}" in page.text
    assert page.facts["measures"] == "balanced accuracy 97.50 %, AUC 0.900, ECE 1.25 %"
    rows = {row[0]: row[1:] for row in page.rows}
    best = found["best"]
    assert rows["best round"][:3] == ["7", "2.50", "97.50"]  # one of 40; (75 + 9 * 100) / 10
    assert rows["best round"][4:6] == [f"{best['ece']:.2f}", f"{best['nll']:.3f}"]
    before = rows["best round, before temperature scaling"]
    assert before[4] == f"{found['unscaled']['ece']:.2f}" != rows["best round"][4]
    assert "last round" in rows
    # Of class 0 three of four are right; five are named 1, of which four are of it.
    assert ["0", "4", "75.00", "100.00"] in page.rows
    assert ["1", "4", "100.00", "80.00"] in page.rows


@TEXT
def test_given_owners_then_the_report_says_what_left_each(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", clients=2, rounds=2)
    federation = json.loads((run / "federation.json").read_text())
    for client, name in zip(federation["clients"], ("north", HOSTILE[0]), strict=True):
        client["name"] = name
    write_json(run / "federation.json", federation)
    sent = [{"what": "the model", "reader": "the server; all clients", "often": "every round"}]
    disclosed = {"settings": "ab" * 32, "sent": sent, "unprotected": ["It sees a <model>."]}
    write_json(run / "disclosures.json", disclosed)
    page = _Page(report([run]))
    assert ["the model", "the server; all clients", "every round"] in page.rows
    names = ["0 (north)", f"1 ({HOSTILE[0]})"]
    assert [row[0] for row in page.rows if row[0] in names] == names
    for text in ("What is not protected", "It sees a <model>.", "ab" * 32):
        assert text in page.text
    assert "FedUL: " in page.text


PATH = "/home/somebody/a/rather/long/folder/of/results/model.safetensors"
ROWS: Mapping[str, str] = {
    "test error": "2.22 % (round 17 of 30, by validation)",
    "of the model": "100.02 % up, 100.00 % down, per client and round; 100 % are one whole model",
    "model": PATH,
}


def lines(monkeypatch: pytest.MonkeyPatch, width: int | None) -> list[str]:
    monkeypatch.setattr(facts.sys.stdout, "isatty", lambda: width is not None)
    monkeypatch.setenv("COLUMNS", str(width or 40))
    return list(_in_lines(ROWS))


def test_given_a_file_then_lines_are_whole_else_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = lines(monkeypatch, 60)
    assert all(len(line) <= 60 for line in wrapped if PATH not in line)
    assert wrapped[0].startswith("  test error      2.22 % (round 17")
    found = lines(monkeypatch, None)
    # "of the model" is the longest name, 12 characters, and 4 spaces follow.
    assert found == [f"  {name:<16}{value}" for name, value in ROWS.items()]
    assert all(line == line.rstrip() for line in found)
