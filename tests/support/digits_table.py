"""A miniature table of digits: two methods and two columns."""

from __future__ import annotations

from pathlib import Path

FILE = Path("experiments/mini/table-1.toml")
TABLE = """
title = "Digits"
source = "A paper, table 1"
measures = ["test-error"]
clients = 3
rows = "methods.toml"

[settings]
dataset = "digits"
points-per-client = 150
num-rounds = 2
model = "mlp"

[matrix.sets]
"M=10" = { fedul.num-sets = 10 }
"M=12" = { fedul.num-sets = 12 }

[paper.test-error]
"M=10" = { FedUL = [2.5, 0.5] }
"""
METHODS = '[FedUL]\nmethod = "fedul"\n\n["all labels"]\nmethod = "supervised"\n'


def change_table(old: str, new: str) -> None:
    """Replace a part of the table's file, which must be there once."""
    text = FILE.read_text()
    assert text.count(old) == 1
    FILE.write_text(text.replace(old, new))


def start_from_another(setting: str = "") -> None:
    """Let column M=10 start from the model of a supervised run, with one setting of its own."""
    change_table("{ fedul.num-sets = 10 }", f'{{ fedul.num-sets = 10, start-from = "{START}" }}')
    FILE.write_text(FILE.read_text() + f'\n[start]\nmethod = "supervised"\n{setting}\n')


START = "runs/mini/table-1/base"
SEARCH = """
trials = 3
reduction-factor = 2
rungs = 1

[space]
step = [{ learning-rate = 0.01 }, { learning-rate = 1e-6 }]
decay = [{ weight-decay = 0.0 }, { weight-decay = 1e-3 }]
"""
