"""The file of a table: its content, and refusals that name file and key."""

from pathlib import Path

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import pick, read_table, table_names
from tests.support.digits_table import FILE, TABLE
from tests.support.refusals import refuses

ROOT = Path(__file__).parents[2]
EXPERIMENTS = Path("experiments")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("clients = 3", "client = 3", "Unknown key 'client'; did you mean 'clients'?"),
        ("rows", 'benchmark = "x"\nrows', "The file needs one of the keys rows and benchmark."),
        ('"M=12"', '"M, 12"', "The column 'M, 12': a comma separates columns"),
        ('"M=12"', '"m 10"', "Columns 'M=10' and 'm 10' would share the directory"),
        ("{ FedUL", "{ FedLU", "Key paper.test-error.'M=10': there is no row 'FedLU'."),
        ("[settings]", "[start]", "Key start has no effect: no column has a start-from"),
        ('dataset = "digits"', 'start-from = "runs/x-{model}"', "Key start-from: {model} is not a"),
    ],
)
def test_a_wrong_key_is_named(digits_table: Path, old: str, new: str, words: str) -> None:
    assert TABLE.count(old) == 1
    FILE.write_text(TABLE.replace(old, new))
    with pytest.raises(UserError) as refused:
        read_table(EXPERIMENTS, "mini/table-1")
    assert str(refused.value).startswith(f"{FILE}: {words}")


def test_a_wrong_start_is_named(digits_table: Path) -> None:
    from_base = '{ fedul.num-sets = 10, start-from = "runs/mini/table-1/base" }'
    text = TABLE.replace("{ fedul.num-sets = 10 }", from_base)
    for start, words in (
        ('method = "supervised"\nmodel = "mlp"', "Key start: the columns have the same model"),
        ("model = 3\n[quick]\nstart = 3", "Key quick.start = 3 must be a table."),
        ("", "Key start is missing: columns start from a run of this table."),
    ):
        FILE.write_text(f"{text}\n[start]\n{start}\n")
        with pytest.raises(UserError) as refused:
            read_table(EXPERIMENTS, "mini/table-1")
        assert str(refused.value).startswith(f"{FILE}: {words}")


def test_given_a_file_without_a_title_then_it_is_not_a_table(digits_table: Path) -> None:
    assert table_names(EXPERIMENTS) == ["mini/table-1"]
    with refuses("unknown-name"):
        read_table(EXPERIMENTS, "mini/methods")


def test_picked_names_have_the_order_of_the_table() -> None:
    assert pick("c, a", ["a", "b", "c"], "row") == ["a", "c"]
    assert pick(None, ["a", "b"], "row") == ["a", "b"]
