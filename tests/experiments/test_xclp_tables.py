"""The tables of the paper on cross-client label propagation have its settings."""

from __future__ import annotations

import pytest

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.split import split_settings
from fedul_flwr.experiments.table_file import Size
from fedul_flwr.experiments.table_plan import start_settings
from tests.support.paper_tables import (
    EXPERIMENTS,
    ROOT,
    column_settings,
    columns,
    table,
)

SIZES: tuple[Size, ...] = ("full", "quick")
ALL = columns("xclp/")
TRAINED = columns("xclp/table-4", "xclp/table-5")
CLIENTS = {"xclp/table-4": 100, "xclp/table-6": 3597}
QUICK_CLIENTS = {"xclp/table-4": 20, "xclp/table-5": 20, "xclp/table-6": 100}
DATASETS = {
    "CIFAR-100": "uoft-cs/cifar100",
    "Mini-ImageNet": str(ROOT / "mini-imagenet"),
}


def settings_in_name(name: str, column: str) -> dict[str, Scalar]:
    """Settings that the names of a table and a column state."""
    words = column.split()
    if name == "xclp/table-4":  # as IID 1000 labels at 100 clients
        split, labels, _, _, many, _ = words
        return {
            "dataset": "uoft-cs/cifar10",
            # Non-IID clients have labels "according to their own distribution": the labels alone.
            "partition": "iid",
            "labels.classes-per-client": {"IID": 0, "Non-IID": 5}[split],
            "labels.total": int(labels),
            "labels.labeled-clients": int(many) / 100,
        }
    if name == "xclp/table-5":  # as CIFAR-100 5000 labels 50 clients
        return {
            "dataset": DATASETS[words[0]],
            "partition": "iid",
            "labels.total": int(words[1]),
            "labels.labeled-clients": 1.0,
        }
    kind, without = words[0], column.partition("hospital ")[2]
    return {
        "labels.fraction": 1.0 if name == "xclp/table-2" else int(words[1]) / 100,
        "labels.new-fraction": 0.0 if name == "xclp/table-2" else 0.2,
        "labels.without-client": int(without) if without else -1,
        "partition": "natural",
        "natural.column": "writer_id" if name == "xclp/table-6" else "center",
        "xclp-predict.features": "pixels" if kind == "identity" else "model",
        "xclp-predict.use-unlabeled": name != "xclp/table-1",
        "xclp-predict.leave-one-out": (name, kind) == ("xclp/table-2", "pretrained"),
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "column"), ALL)
def test_given_a_column_then_its_settings_are_those_in_its_name(
    name: str, column: str, size: Size
) -> None:
    flat, expected = column_settings(name, column, size), settings_in_name(name, column)
    expected["method"] = "xclp" if (name, column) in TRAINED else "xclp-predict"
    assert {key: flat[key] for key in expected} == expected
    many = int(column.split()[-2]) if name == "xclp/table-5" else CLIENTS.get(name, 6)
    clients = many if size == "full" else QUICK_CLIENTS.get(name, many)
    assert table(name).num_clients(column, size) == clients
    # The paper's figures are lost; none may be made up.
    assert not table(name).settings.paper


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "column"), [cell for cell in ALL if cell[1].startswith(("finetuned", "linear"))]
)
def test_given_a_column_that_starts_from_a_run_then_that_has_the_same_points_and_labels(
    name: str, column: str, size: Size
) -> None:
    own = table(name).settings_of(column, size)
    first = start_settings(str(own["start-from"]), EXPERIMENTS)
    one, other = resolve(own, ROOT), resolve(first, ROOT)
    assert other.method == "labels-only"
    assert split_settings(one) == split_settings(other)
    same = ("dataset", "image_size", "model", "seed")
    assert {key: getattr(one, key) for key in same} == {key: getattr(other, key) for key in same}
