"""The file of a table: its content, and refusals that name file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import read_table
from tests.support.digits_table import FILE, TABLE

ROOT = Path(__file__).parents[2]
EXPERIMENTS = Path("experiments")


def test_given_table_1_of_fedul_then_it_has_the_papers_figures() -> None:
    table = read_table(ROOT / EXPERIMENTS, "fedul/table-1")
    of_row = {row: table.paper("test-error", "MNIST Non-IID M=10", row) for row in table.rows()}
    assert (of_row["FedUL"], of_row["FedLLP-VAT"]) == ([2.98, 1.72], [23.39, 15.34])
    assert of_row["FedAvg 100 %"] == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("clients = 3", "client = 3", "Unknown key 'client'; did you mean 'clients'?"),
        ('["test-error"]', '["error"]', "Unknown measure 'error'; there are test-error,"),
        ('rows = "methods.toml"', "", "The file needs one of the keys rows and benchmark."),
        ("{ FedUL", "{ FedLU", "Key paper.test-error.'M=10'.FedLU: there is no such row."),
        ("paper.test-error", "paper.accuracy", "Key paper.accuracy: measures does not have it."),
        ("[settings]", "[start]", "Key start has no effect: no column has a start-from"),
    ],
)
def test_given_a_wrong_key_then_the_refusal_names_file_and_key(
    digits_table: Path, old: str, new: str, words: str
) -> None:
    assert TABLE.count(old) == 1
    FILE.write_text(TABLE.replace(old, new))
    with pytest.raises(UserError) as refused:
        read_table(EXPERIMENTS, "mini/table-1")
    where = "" if words.startswith(str(FILE.parent)) else f"{FILE}: "
    assert str(refused.value).startswith(where + words)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (
            'method = "supervised"\nmodel = "mlp"',
            "Key start: the columns have the same model: leave it out.",
        ),
        ("", "Key start is missing: columns start from a run of this table."),
    ],
)
def test_given_a_wrong_start_then_the_refusal_names_its_key(
    digits_table: Path, start: str, words: str
) -> None:
    own = '{ fedul.num-sets = 10, start-from = "runs/mini/table-1/base" }'
    text = TABLE.replace("{ fedul.num-sets = 10 }", own)
    FILE.write_text(f"{text}\n[start]\n{start}\n")
    with pytest.raises(UserError) as refused:
        read_table(EXPERIMENTS, "mini/table-1")
    assert str(refused.value).startswith(f"{FILE}: {words}")
