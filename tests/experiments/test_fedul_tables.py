"""The tables of FedUL and of the bi-objective report have the settings of the papers."""

import re

import pytest

from fedul_flwr.config.auto_settings import AUTO_KEYS
from fedul_flwr.config.base import AUTO, Scalar
from fedul_flwr.config.methods import METHODS
from fedul_flwr.experiments.table import SIZES, table_names
from tests.support.paper_tables import EXPERIMENTS, column_settings, columns, row_settings, table

FEDUL = columns("fedul/", "bi-objective/")
MNIST_L1 = {10: 1e-5, 20: 5e-6, 40: 2e-6}
CIFAR_L1 = {10: 2e-5, 20: 1e-5, 40: 4e-6}
HOSPITAL_L1 = {12: 2e-6, 24: 8e-7, 48: 4e-7}
"""The paper's weights of the L1 penalty by the number of sets M."""


def test_given_all_tables_then_each_is_in_the_guide() -> None:
    names = table_names(EXPERIMENTS)
    guide = (EXPERIMENTS / "README.md").read_text()
    named = {*re.findall(r"^\| `([\w-]+/[\w-]+)` \|", guide, flags=re.MULTILINE)}
    assert named == {name for name in names if not name.startswith("recipes/")}
    for file in EXPERIMENTS.rglob("*.toml"):
        place = file.relative_to(EXPERIMENTS)
        assert "overview" in place.parts or f"`{place.as_posix()}`" in guide


def test_given_a_table_that_trains_then_no_setting_is_left_to_the_data() -> None:
    for name, column in columns(""):
        for size in SIZES:
            for row in table(name).column(column, size).rows:
                found = row_settings(name, column, row, size)
                if METHODS[str(found["method"])].trains:
                    idle = METHODS[str(found["method"])].idle
                    left = {key for key in AUTO_KEYS if found[key] == AUTO} - idle
                    assert left <= {"local-epochs"}, (name, column, row)
                    by_data = found["local-steps"] or name == "recipes/texts"  # two epochs there
                    assert not left or by_data, (name, column, row)


OF_TABLES: dict[str, dict[str, Scalar]] = {
    "fedul/table-2": {"partition": "iid"},
    "fedul/table-e10": {"points-per-client": 500},
    "fedul/table-e12": {"fedul.num-sets-max": 50},
    "bi-objective/table-1": {"batch-size": 100, "server-fraction": 0.2},
}
WHOLE_NUMBERS = {"M": "fedul.num-sets", "E": "local-epochs", "B": "batch-size"}


def settings_in_name(name: str, column: str) -> dict[str, Scalar]:
    """Settings that the names of a table and a column state."""
    found: dict[str, Scalar] = {"fedul.num-sets": 10, "partition": "majority"}
    for word in column.split():
        sign, _, value = word.partition("=")
        if word in ("IID", "Non-IID"):
            found["partition"] = "majority" if word == "Non-IID" else "iid"
        elif sign in WHOLE_NUMBERS:
            found[WHOLE_NUMBERS[sign]] = 0 if value == "all" else int(value)
        elif sign == "epsilon":
            found["fedul.prior-noise"] = float(value)
    return found | OF_TABLES.get(name, {})


def num_clients(name: str, column: str) -> int:
    """Clients of a column in the paper."""
    if name == "fedul/table-e10":  # of 500 points each
        return int(column.partition("k")[0]) * 1000 // 500
    return 10 if name == "fedul/table-e13" else 5


@pytest.mark.parametrize(("name", "column"), FEDUL)
def test_given_a_column_of_fedul_then_it_has_the_papers_settings(name: str, column: str) -> None:
    flat = column_settings(name, column)
    expected: dict[str, Scalar] = {
        **{"batch-size": 128, "local-epochs": 1, "fedul.prior-noise": 0.0, "points-per-client": 0},
        **{"server-fraction": 0.0, "fedul.num-sets-max": 0, "num-rounds": 100, "optimizer": "adam"},
        **{"learning-rate": 1e-4, "fedul.overlap": "shared", "validation-fraction": 0.2},
        **settings_in_name(name, column),
    }
    assert {key: flat[key] for key in expected} == expected
    assert table(name).column(column).clients == num_clients(name, column)
    # Table E.12 has no weights of its own; it takes those of M = 20.
    sets = flat["fedul.num-sets"] if name != "fedul/table-e12" else 20
    form = (flat["model"], flat["augment"], flat["fedul.priors"], flat["image-size"])
    assert isinstance(sets, int)
    if name == "fedul/table-2":
        assert (*form, flat["l1"]) == ("resnet18-fedul", "none", "uniform", 224, HOSPITAL_L1[sets])
    elif column.startswith("CIFAR-10"):
        assert (*form, flat["l1"]) == ("resnet18-fedul", "flip", "dominant", 0, CIFAR_L1[sets])
    else:
        assert (*form, flat["l1"]) == ("cnn6", "rotate", "dominant", 0, MNIST_L1[sets])
    assert flat["start-from"] == ("torchvision" if form[0] == "resnet18-fedul" else "")
    # The authors' code shares one matrix of priors among the clients of MNIST, IID: the sum of a
    # draw for each client.
    is_shared = str(flat["dataset"]).endswith("mnist") and flat["partition"] == "iid"
    draws = num_clients(name, column) if is_shared else 0
    assert flat["fedul.shared-prior-draws"] == draws
