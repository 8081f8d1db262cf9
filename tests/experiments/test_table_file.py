"""What a table's file may hold, and the tables of the four texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.matrix import SIZES
from fedul_flwr.experiments.paper_table import Value, lines
from fedul_flwr.experiments.result_file import digest
from fedul_flwr.experiments.table_file import pick, read_table, table_names
from fedul_flwr.experiments.table_plan import Machine, plan_columns
from fedul_flwr.experiments.tables_page import _long, _not_run, markdown
from tests.support.digits_table import FILE, TABLE

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
            # At the hospitals rows with all labels have a folder of their own.
            assert not plan.plan.split_warnings or name.startswith("recipes/covid")


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


def test_figures_of_the_fedul_paper() -> None:
    table = read_table(ROOT / EXPERIMENTS, "fedul/table-1")
    of_row = {row: table.paper("test-error", "MNIST Non-IID M=10", row) for row in table.rows()}
    assert (of_row["FedUL"], of_row["FedLLP-VAT"]) == ([2.98, 1.72], [23.39, 15.34])
    assert of_row["FedAvg 100 %"] is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("clients = 3", "client = 3", "Unknown key 'client'; did you mean 'clients'?"),
        ("clients = 3", "", "Key clients is missing, and column 'M=10' has none of its own."),
        ("clients = 3", "clients = -3", "Key clients = -3: must be at least 0."),
        ('["test-error"]', '["error"]', "Unknown measure 'error'; there are test-error,"),
        ("methods.toml", "rows.toml", f"{FILE.parent}/rows.toml cannot be read: No such file"),
        ('rows = "methods.toml"', "", "It needs one of the keys rows and benchmark."),
        ("rows", 'benchmark = "x"\nrows', "It needs one of the keys rows and benchmark."),
        (
            'rows = "methods.toml"',
            'benchmark = "x"',
            "Key clients has no effect with benchmark: leave it out.",
        ),
        ('"M=12"', '"M, 12"', "Column 'M, 12': a comma separates columns"),
        ('"M=12"', '"m 10"', "Column 'm 10': its runs would share the directory of 'M=10'."),
        ("{ FedUL", "{ FedLU", "Key paper.test-error.'M=10'.FedLU: there is no such row."),
        (
            '"M=10" = { FedUL',
            '"M=11" = { FedUL',
            "Key paper.test-error.'M=11': there is no such column.",
        ),
        ("paper.test-error", "paper.accuracy", "Key paper.accuracy: not a measure of the table."),
        ("[settings]", "[start]", "Key start has no effect: no column has a start-from"),
        (
            'dataset = "digits"',
            'start-from = "runs/x-{model}"',
            "Key start-from: {model} is no number among the settings.",
        ),
    ],
)
def test_refusals_name_file_and_key(digits_table: Path, old: str, new: str, words: str) -> None:
    assert TABLE.count(old) == 1
    FILE.write_text(TABLE.replace(old, new))
    with pytest.raises(UserError) as refused:
        read_table(EXPERIMENTS, "mini/table-1")
    where = "" if words.startswith(str(FILE.parent)) else f"{FILE}: "
    assert str(refused.value).startswith(where + words)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ('method = "supervised"\nmodel = "mlp"', "Key start: model is that of the columns: leave"),
        (
            'method = "supervised"\n[quick.start]\nmethod = "supervised"',
            "Key quick.start: method is that of start: leave it out.",
        ),
        ("model = 3\n[quick]\nstart = 3", "Key quick.start = 3 must be a table."),
        ("", "Key start is missing: columns start from a run of this table."),
    ],
)
def test_refusals_of_the_run_that_columns_start_from(
    digits_table: Path, start: str, words: str
) -> None:
    own = '{ fedul.num-sets = 10, start-from = "runs/mini/table-1/base" }'
    text = TABLE.replace("{ fedul.num-sets = 10 }", own)
    FILE.write_text(f"{text}\n[start]\n{start}\n")
    with pytest.raises(UserError) as refused:
        read_table(EXPERIMENTS, "mini/table-1")
    assert str(refused.value).startswith(f"{FILE}: {words}")


def test_given_another_file_in_the_folder_when_tables_are_listed_then_it_is_none(
    digits_table: Path,
) -> None:
    assert table_names(EXPERIMENTS) == ["mini/table-1"]
    with pytest.raises(UserError, match="Unknown table 'mini/methods'; there are mini/table-1"):
        read_table(EXPERIMENTS, "mini/methods")


def test_picked_names_keep_the_tables_order() -> None:
    assert pick("c, a", ["a", "b", "c"], "row") == ["a", "c"]
    assert pick(None, ["a", "b"], "row") == ["a", "b"]


def test_mean_and_deviation_over_seeds(digits_table: Path) -> None:
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


def test_a_table_without_runs_shows_the_papers_figures_alone(digits_table: Path) -> None:
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


def test_a_table_with_runs_shows_these_and_counts_the_others(digits_table: Path) -> None:
    table = read_table(EXPERIMENTS, "mini/table-1")
    results = {("FedUL", "M=10", 0): {"figures": {"test_error": 2.0}}}
    shown = list(lines(table, {"full": {}, "quick": results}, table.rows(), list(table.columns)))
    assert _long(table, shown, []) == [
        "In test error (%).",
        "",
        "| column | row | paper | quick | difference |",
        "| --- | --- | ---: | ---: | ---: |",
        "| M=10 | FedUL | 2.50 (0.50) | 2.00, 1 seed | -0.50 |",
    ]
    # Two methods at M=10 and M=12 are four cells.
    assert _not_run(table, shown) == [
        "",
        "Not run: 3 of 4 cells; the paper's figures of these are in "
        "`experiments/mini/table-1.toml`.",
    ]


def test_the_hash_knows_no_order() -> None:
    # printf '{"a":1,"b":"x"}' | sha256sum
    expected = "ecf9e98ec0641e23113ff3ce8bdc78d0ddd249886517fd4a7f68cc83d4e65667"
    assert digest({"b": "x", "a": 1}) == digest({"a": 1, "b": "x"}) == expected
