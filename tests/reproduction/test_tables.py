"""What ``table.toml`` may hold, and the tables of the four texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.reproduction.plan import Machine, plan_columns
from fedul_flwr.reproduction.render import SIZES, markdown
from fedul_flwr.reproduction.results import digest
from fedul_flwr.reproduction.side_by_side import Value, lines
from fedul_flwr.reproduction.tables import pick, read_table, table_names
from tests.reproduction.conftest import TABLE

ROOT = Path(__file__).parents[2]
EXPERIMENTS = Path("experiments")


RUN = [
    name
    for name in table_names(ROOT / EXPERIMENTS)
    if not read_table(ROOT / EXPERIMENTS, name).settings.benchmark
]


@pytest.mark.parametrize("name", RUN)
def test_every_run_of_every_table_resolves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    table = read_table(EXPERIMENTS, name)
    for size in SIZES:
        plans = plan_columns(table, list(table.columns), size, (0,), Machine(EXPERIMENTS))
        rows = [cell.run for plan in plans for cell in plan.plan.cells]
        assert rows == [row for column in table.columns for row in table.rows_of(column, size)]
        for plan in plans:
            starts = {str(flat["start-from"]) for flat in plan.named.values()}
            assert (plan.start is not None) == any(start.startswith("runs/") for start in starts)
            assert not any(str(ROOT) in str(flat.values()) for flat in plan.named.values())


def test_a_run_that_starts_from_another_has_that_ones_settings_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    table = read_table(EXPERIMENTS, "xclp/table-3")
    plan, *_ = plan_columns(table, ["finetuned 10 %"], "quick", (4,), Machine(EXPERIMENTS))
    named = plan.named["XCLP", 4]
    assert (named["method"], named["start-from:method"]) == ("xclp-predict", "labels-only")
    assert named["start-from:seed"] == 4
    assert plan.start is not None
    assert plan.plan.cells[0].config.start_from == str(plan.start.plan.cells[0].directory)


def test_every_folder_of_a_paper_is_a_table() -> None:
    place = ROOT / EXPERIMENTS
    folders = {
        file.parent.relative_to(place).as_posix()
        for file in place.glob("*/*/*.toml")
        if file.parent.name != "quick"
    }
    assert folders == set(table_names(place))


def test_figures_of_the_fedul_paper() -> None:
    table = read_table(ROOT / EXPERIMENTS, "fedul/table-1")
    paper = table.columns["MNIST Non-IID M=10"].paper["test-error"]
    assert (paper["FedUL"], paper["FedLLP-VAT"]) == ([2.98, 1.72], [23.39, 15.34])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("clients = 3", "client = 3", "Unknown key 'client'; did you mean 'clients'?"),
        ("clients = 3", "", "Key columns.'M=10'.clients is missing, and so is the table's."),
        ("clients = 3", "clients = -3", "Key clients = -3: must be at least 0."),
        ('["test-error"]', '["error"]', "Unknown measure 'error'; there are test-error,"),
        ("m12.toml", "m13.toml", "Key columns.'M=12'.file: "),
        (
            'runs = "',
            'row = "FedUL"\nruns = "',
            "It needs one of the keys runs, row and benchmark.",
        ),
        ('"M=12"', '"M, 12"', "Key columns.'M, 12': a comma separates columns"),
        ('"M=12"', '"m 10"', "Key columns.'m 10': its runs would share the directory of 'M=10'."),
        ("{ FedUL", "{ FedLU", "Key columns.'M=10'.paper.test-error.FedLU: there is no such row."),
        ("paper.test-error", "paper.accuracy", "Key columns.'M=10'.paper.accuracy: not a measure"),
    ],
)
def test_refusals_name_file_and_key(place: Path, old: str, new: str, words: str) -> None:
    file = Path("experiments/mini/table-1/table.toml")
    assert old in TABLE
    file.write_text(TABLE.replace(old, new))
    with pytest.raises(UserError) as refused:
        read_table(EXPERIMENTS, "mini/table-1")
    assert str(refused.value).startswith(f"{file}: {words}")


def test_picked_names_keep_the_tables_order() -> None:
    assert pick("c, a", ["a", "b", "c"], "row") == ["a", "c"]
    assert pick(None, ["a", "b"], "row") == ["a", "b"]


def test_mean_and_deviation_over_seeds(place: Path) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
    errors = {0: 2.0, 1: 4.0, 2: 6.0}
    results = {
        ("FedUL", "M=10", seed): {"figures": {"test_error": error}}
        for seed, error in errors.items()
    }
    line, other = lines(table, {"full": results}, ["FedUL", "all labels"], ["M=10"])
    # Mean 4, sample variance (4 + 0 + 4) / 2 = 4. The 0.975 quantile of t with 2 degrees of freedom
    # is 4.3027: half of the interval is 4.3027 * 2 / sqrt(3) = 4.968.
    assert line.ours["full"] == Value(4.0, 2.0, 3, pytest.approx(4.9683, abs=1e-4))
    assert line.texts("full") == ("4.00 ± 4.97 (2.00), 3 seeds", "+1.50")
    assert (other.paper_text(), *other.texts("full")) == ("–", "not run", "–")


def test_a_table_without_runs_shows_the_papers_figures_alone(place: Path) -> None:
    assert markdown(EXPERIMENTS, Path("results")).splitlines() == [
        "### mini/table-1",
        "",
        "Digits. A paper, table 1.",
        "Not run: `fedul-flwr reproduce mini/table-1`, or with `--quick`.",
        "",
        "| paper, test error (%) | FedUL |",
        "| --- | ---: |",
        "| M=10 | 2.50 (0.50) |",
    ]


def test_the_hash_knows_no_order() -> None:
    # printf '{"a":1,"b":"x"}' | sha256sum
    expected = "ecf9e98ec0641e23113ff3ce8bdc78d0ddd249886517fd4a7f68cc83d4e65667"
    assert digest({"b": "x", "a": 1}) == digest({"a": 1, "b": "x"}) == expected
