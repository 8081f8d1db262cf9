"""A product of axes with overrides, and what is refused in it."""

import tomllib
from typing import Any

import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import Column, expand
from tests.support.refusals import refuses

CONTENT = """
clients = 5

[settings]
model = "cnn6"
l1 = 1e-5

[matrix.data]
MNIST = { augment = "rotate" }
CIFAR-10 = { augment = "flip", model = "resnet18" }

[matrix.sets]
"M=10" = { fedul.num-sets = 10 }
"M=20" = { fedul.num-sets = 20, clients = 7 }

[when]
"CIFAR-10 M=20" = { l1 = 2e-5 }
"CIFAR-10 FedPL" = { l1 = 0.5 }

[quick]
model = "mlp"
clients = 2

[quick.when]
"M=10" = { num-rounds = 3 }
FedPL = { evaluate-every = 2 }
"""
ROWS = {"FedUL": {"method": "fedul"}, "FedPL": {"method": "fedpl", "model": "cnn-small"}}


def columns(text: str = CONTENT) -> dict[str, Column]:
    empty: dict[str, Any] = {"clients": 0, "only": [], "settings": {}, "when": {}, "quick": {}}
    return expand({**empty, **tomllib.loads(text)}, ROWS)


def test_given_two_axes_then_columns_are_their_product_with_the_last_axis_fastest() -> None:
    assert list(columns()) == ["MNIST M=10", "MNIST M=20", "CIFAR-10 M=10", "CIFAR-10 M=20"]


def test_given_overrides_then_later_ones_win() -> None:
    found = columns()
    assert found["MNIST M=10"].settings["full"] == {
        "model": "cnn6", "l1": 1e-5, "augment": "rotate", "fedul.num-sets": 10,
    }  # fmt: skip
    # The value's model wins over the table's, and the pair's L1 weight over both.
    assert found["CIFAR-10 M=20"].settings["full"] == {
        "model": "resnet18", "l1": 2e-5, "augment": "flip", "fedul.num-sets": 20,
    }  # fmt: skip
    # The quick model wins over the value's; only M=10 has other rounds.
    assert found["CIFAR-10 M=20"].settings["quick"] == {
        "model": "mlp", "l1": 2e-5, "augment": "flip", "fedul.num-sets": 20,
    }  # fmt: skip
    assert found["CIFAR-10 M=10"].settings["quick"] == {
        "model": "mlp", "l1": 1e-5, "augment": "flip", "fedul.num-sets": 10, "num-rounds": 3,
    }  # fmt: skip


def test_given_overrides_that_name_a_row_then_they_are_settings_of_the_row() -> None:
    found = columns()
    fedpl = ROWS["FedPL"]
    assert found["MNIST M=10"].rows["full"] == ROWS
    assert found["CIFAR-10 M=10"].rows["full"] == {**ROWS, "FedPL": {**fedpl, "l1": 0.5}}
    assert found["CIFAR-10 M=10"].rows["quick"]["FedPL"] == {
        **fedpl, "l1": 0.5, "evaluate-every": 2,
    }  # fmt: skip


def test_given_rows_of_a_value_then_its_columns_have_no_others() -> None:
    text = CONTENT.replace("clients = 7", 'only = ["FedPL"]').replace("clients = 2\n", "")
    found = columns(text)
    assert {label: list(cells.rows["full"]) for label, cells in found.items()} == {
        "MNIST M=10": ["FedUL", "FedPL"],
        "MNIST M=20": ["FedPL"],
        "CIFAR-10 M=10": ["FedUL", "FedPL"],
        "CIFAR-10 M=20": ["FedPL"],
    }
    assert list(found["MNIST M=20"].rows["quick"]) == ["FedPL"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("l1 = 1e-5", "l1x = 1e-5", "Key settings: Unknown setting 'l1x'; did you mean 'l1'?"),
        ("l1 = 1e-5", "clients = 3", "Key settings.clients: write it above the first table"),
        ('"CIFAR-10 M=20"', '"M=20 CIFAR-10"', "Key when.'M=20 CIFAR-10' names no values"),
        ("{ l1 = 2e-5 }", "{ l1 = 1e-5 }", "Key when.'CIFAR-10 M=20': l1 changes no column"),
        ("{ l1 = 0.5 }", "{ clients = 3 }", "Key when.'CIFAR-10 FedPL'.clients: columns have it"),
        ("clients = 7", 'only = ["FedPL", "FedUL"]', "Key matrix.sets.'M=20': only changes no"),
        ("clients = 5", "clients = 7", "Key matrix.sets.'M=20': clients changes no column"),
        ("clients = 5", "", "Key clients is missing, and column 'MNIST M=10' has none of its own."),
        ("clients = 7", 'only = ["FedLU"]', "Key matrix.sets.'M=20'.only: there is no row 'FedLU'"),
    ],
)
def test_given_a_wrong_key_then_the_refusal_names_its_place(old: str, new: str, words: str) -> None:
    assert CONTENT.count(old) == 1
    with pytest.raises(UserError) as refused:
        columns(CONTENT.replace(old, new))
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        # Every value of the axis replaces the table's model.
        (CONTENT.replace('augment = "rotate"', 'model = "cnn-small"'), "key-without-effect"),
        # Two columns have the name x y z.
        (
            'clients = 1\n[matrix.a]\nx = {}\n"x y" = {}\n[matrix.b]\n"y z" = {}\nz = {}\n',
            "name-twice",
        ),
        # The override x can be read in two ways.
        (
            "clients = 1\n[matrix.a]\nx = {}\n[matrix.b]\nx = {}\ny = {}\n[when]\nx = { l1 = 1.0 }",
            "table-file-wrong",
        ),
    ],
)
def test_given_columns_that_contradict_then_they_are_refused(text: str, code: str) -> None:
    with refuses(code):
        columns(text)
