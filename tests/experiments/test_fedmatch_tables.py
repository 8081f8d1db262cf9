"""The tables of FedMatch have the settings of the paper, and their rows can be compared."""

from __future__ import annotations

import pytest

from fedul_flwr.config.base import Scalar
from fedul_flwr.experiments.table_file import Size
from tests.support.paper_tables import ROOT, column_settings, columns, table

SIZES: tuple[Size, ...] = ("full", "quick")
ALL = columns("fedmatch/")
FEW_CLIENTS = {"fedmatch/figure-6c": 1, "fedmatch/figure-9": 10, "fedmatch/table-2": 10}


def num_clients(name: str, size: Size) -> int:
    """Clients in the paper, or in quick runs."""
    many = FEW_CLIENTS.get(name, 100)
    return 20 if size == "quick" and many == 100 else many


def settings_in_name(name: str, column: str, size: Size) -> dict[str, Scalar]:
    """Settings that the names of a table and a column state."""
    streams, covid = "Streaming" in column, name == "fedmatch/figure-9"
    at_server = "at server" in column
    found: dict[str, Scalar] = {
        "method": "fedmatch",
        "dataset": str(ROOT / "covid-radiography")
        if covid
        else "zalando-datasets/fashion_mnist"
        if streams
        else "uoft-cs/cifar10",
        "partition": "imbalanced" if "NonIID" in column else "iid",
        "scenario.labels-at": "server" if at_server else "clients",
        "scenario.streaming-steps": 10 if streams else 1,
        "evaluate": "local" if name == "fedmatch/table-2" else "global",
        "measure-forgetting": name == "fedmatch/figure-6c",
    }
    per_class = int(column.split()[0]) if name == "fedmatch/table-5" else 5
    if not at_server:
        found["labels.total"] = per_class * (3 if covid else 10) * num_clients(name, size)
    part = float(column.partition("F=")[2] or 0.05)
    if streams or name in ("fedmatch/figure-6c", "fedmatch/figure-9"):
        part = 1.0
    # 0.25 of 20 clients are five, as 0.05 of 100 are.
    found["fraction-train"] = part if size == "full" else min(5 * part, 1.0)
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "column"), ALL)
def test_given_a_column_then_it_is_as_in_its_name(name: str, column: str, size: Size) -> None:
    flat, expected = column_settings(name, column, size), settings_in_name(name, column, size)
    assert {key: flat[key] for key in expected} == expected
    assert table(name).num_clients(column, size) == num_clients(name, size)
