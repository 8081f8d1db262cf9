from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.results.report import report
from tests.results.synthetic import label_scores, write_json, write_label_run, write_run

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

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
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


def test_one_run(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    path = report([directory])
    assert path == directory / "report.html"
    assert len(list((directory / "plots").glob("*.png"))) == 4
    page = _Page(path)
    assert len(page.images()) == 4
    assert "fedul · digits · seed 0" in page.text
    head, row = page.rows[:2]
    cells = dict(zip(head, row, strict=True))
    assert cells["status"] == "completed"
    assert cells["clients"] == "5"
    assert cells["time"] == "4.1 min"
    assert cells["up"] == "427 MB"
    assert ["fedul.num-sets", "10"] in page.rows
    assert ["packages.torch", "2.15.0"] in page.rows
    assert "What differs" not in page.text
    assert "unfinished" not in page.text
    assert "1 of 5 clients dropped" in page.text


def test_test_prior_that_is_not_uniform(tmp_path: Path) -> None:
    prior = {"test_prior": [0.25, 0.75], "test_prior_source": "sets"}
    page = _Page(report([write_run(tmp_path / "sets", outcome=prior)]))
    assert "Class priors at test time, sets: 0.25, 0.75" in page.text
    em = {"test_prior_source": "em", "test_prior": [0.5, 0.5], "test_prior_estimate": [0.1, 0.9]}
    found = write_run(tmp_path / "em", outcome={**em, "test_error_reweighed": 1.5})
    page = _Page(report([found]))
    assert "test time, em: 0.1, 0.9; test error re-weighed 1.50 %" in page.text
    uniform = write_run(tmp_path / "uniform", outcome={"test_prior_source": "uniform"})
    assert "Class priors at test time" not in _Page(report([uniform])).text


def test_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", class_names=HOSTILE), write_run(tmp_path / "b", seed=1)]
    page = _Page(report(runs, tmp_path / "out.html"))
    for source in page.images():
        start = "data:image/png;base64,"
        assert source.startswith(start)
        assert base64.b64decode(source[len(start) :]).startswith(b"\x89PNG")
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
        assert not {"href", "srcset", "action", "data", "poster", "style"} & set(attrs)
        assert not any(name.startswith("on") for name in attrs)
    style = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "url(" not in style
    assert "@import" not in style


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


def test_several_runs_and_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [
        write_run(tmp_path / "a", rounds=3, sets=2),
        write_run(tmp_path / "b", rounds=3, sets=2, method="supervised", seed=1, momentum=0.9),
        write_run(tmp_path / "c", rounds=3, sets=2),
    ]
    path = report(runs)
    assert path == Path("report.html")
    page = _Page(path)
    # Error and loss once for all, priors and time for each.
    assert len(page.images()) == 2 + 3 * 2
    assert page.rows[0][0] == "run"
    assert [row[0] for row in page.rows[1:4]] == [
        "fedul · digits · seed 0 · a",
        "supervised · digits · seed 1",
        "fedul · digits · seed 0 · c",
    ]
    assert ["momentum", "–", "0.9", "–"] in page.rows
    # Marked in the table of all settings; the dropped client of each run is marked as well.
    assert page.marked() == ["method", "momentum", "seed", "3", "3", "3"]
    assert page.rows.count(["method", "fedul", "supervised", "fedul"]) == 2
    assert page.rows.count(["model", "mlp", "mlp", "mlp"]) == 1


def test_equal_settings_are_said_to_be_equal(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, rounds=1, sets=1) for name in "ab"]
    assert "Nothing: all settings are equal." in _Page(report(runs, tmp_path / "out.html")).text


def test_unfinished_run_says_so(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", rounds=4, finished=False, planned=30)
    (directory / "error.txt").write_text("Client <2> failed.")
    page = _Page(report([directory]))
    cells = dict(zip(*page.rows[:2], strict=True))
    assert cells["status"] == "unfinished, 4 of 30 rounds"
    assert cells["rounds"] == "4"
    assert cells["error at end (%)"] != "–"
    assert "This run is unfinished" in page.text
    assert "It ended with: Client <2> failed." in page.text


def test_run_that_has_just_begun(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"settings": {"method": "fedul"}, "data": {}})
    page = _Page(report([tmp_path]))
    assert page.images() == []
    cells = dict(zip(*page.rows[:2], strict=True))
    assert cells["best round"] == cells["time"] == cells["up"] == "–"
    assert "No error was measured yet." in page.text
    assert "Nothing was recorded about the clients' points." in page.text


def test_round_zero_can_be_the_best(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", finished=False, sets=1)
    row = '{"round": 0, "test_error": 9.0, "validation_error": 9.5}\n'
    (directory / "metrics.jsonl").write_text(row)
    cells = dict(zip(*_Page(report([directory])).rows[:2], strict=True))
    assert cells["best round"] == "0"
    assert cells["error at best (%)"] == "9.00"


def test_refusals(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", rounds=1, sets=1)
    with pytest.raises(UserError, match="at least one run"):
        report([])
    with pytest.raises(UserError, match="it is a directory"):
        report([directory], tmp_path)
    with pytest.raises(UserError, match="Cannot write"):
        report([directory], tmp_path / "missing" / "out.html")
    with pytest.raises(UserError, match=r"holds no config\.json"):
        report([directory, tmp_path])


def test_a_run_that_labels(tmp_path: Path) -> None:
    page = _Page(report([write_label_run(tmp_path / "run")]))
    assert len(page.images()) == 4  # three of labels, and the clients' points
    assert "over rounds" not in page.text
    assert "the error is that of the labels" in page.text
    cells = dict(zip(*page.rows[:2], strict=True))
    assert cells["status"] == "completed"
    assert cells["rounds"] == cells["best round"] == cells["per round"] == "–"
    scores = label_scores()["sources"]["xclp"]
    assert cells["error at best (%)"] == f"{scores['error']:.2f}"
    right, balanced = 100 - scores["error"], scores["balanced_accuracy"]
    assert ["across clients", "600", f"{right:.2f}", f"{balanced:.2f}", "0.00"] in page.rows
    assert "from others' labels (all points)" in [row[0] for row in page.rows]


def test_labels_that_nobody_could_score(tmp_path: Path) -> None:
    page = _Page(report([write_label_run(tmp_path / "run", scored=False)]))
    assert "Nobody could score the labels" in page.text
    assert len(page.images()) == 1


def test_an_unfinished_run_that_labels(tmp_path: Path) -> None:
    directory = write_label_run(tmp_path / "run", scored=False)
    (directory / "summary.json").unlink()
    page = _Page(report([directory]))
    assert page.rows[1][1] == "unfinished"
    assert "rounds so far" not in page.text


def test_runs_that_train_and_runs_that_label(tmp_path: Path) -> None:
    runs = [
        write_label_run(tmp_path / "labels"),
        write_run(tmp_path / "a", rounds=3),
        write_run(tmp_path / "b", rounds=3, method="supervised"),
    ]
    page = _Page(report(runs, tmp_path / "out.html"))
    # Error and loss once, priors of each, time of two, three of labels.
    assert len(page.images()) == 2 + 3 + 2 + 3
    assert "Error and loss over rounds" in page.text
    assert [row[0] for row in page.rows[1:4]] == [
        "xclp-predict · digits · seed 0",
        "fedul · digits · seed 0",
        "supervised · digits · seed 0",
    ]
