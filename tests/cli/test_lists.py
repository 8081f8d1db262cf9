"""What there is to choose from: methods, settings, data sets, and completion of them."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.data.sources import NAMED_DATASETS, NamedDataset, load_source

runner = CliRunner()


def said(*arguments: str, width: int = 80) -> str:
    result = runner.invoke(app, list(arguments), env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_given_a_table_then_all_of_its_settings_are_shown() -> None:
    text = said("settings", "dirichlet")
    assert text.startswith("Class proportions of every client drawn from Dirichlet(alpha).\n")
    assert "dirichlet.alpha\n  Default: 0.5\n  Allowed: number > 0\n" in text
    assert "dirichlet.min-points\n" in text
    assert said("settings", "fedmatch").endswith(
        "Method fedmatch also has the tables labels, scenario, ssl, server, views, dp.\n"
    )


@pytest.mark.parametrize(
    "known", [k for k in NAMED_DATASETS if "/" not in k.name], ids=lambda k: k.name
)
def test_given_a_data_set_that_is_here_then_the_list_is_true(known: NamedDataset) -> None:
    is_described_by(known, known.name)


@pytest.mark.realdata
@pytest.mark.parametrize(
    "folder",
    ["mnist", *(pytest.param(f, marks=pytest.mark.slow) for f in ("fashion_mnist", "cifar10"))],
)
def test_the_list_is_true_of_the_hub(folder: str, real_data: Callable[[str], str]) -> None:
    [known] = [k for k in NAMED_DATASETS if k.name.endswith(f"/{folder}")]
    is_described_by(known, real_data(folder))


def is_described_by(known: NamedDataset, dataset: str) -> None:
    source = load_source(dataset)
    shape = source.train.inputs.shape[1:]
    color = {1: "gray", 3: "color"}
    words = (
        f"vectors of {shape[0]} numbers"
        if len(shape) == 1
        else f"images {shape[0]} x {shape[1]}, {color[shape[2]]}"
    )
    found = (words, len(source.class_names), len(source.train), len(source.test))
    assert found == known[1:5]


@pytest.mark.parametrize("width", [40, 200])
@pytest.mark.parametrize("command", [["methods"], ["settings"], ["settings", "xclp"], ["datasets"]])
def test_given_any_width_then_lists_fit_and_are_readable(command: list[str], width: int) -> None:
    lines = said(*command, width=width).splitlines()
    assert max(map(len, lines)) <= min(width, 100)


@pytest.mark.parametrize("command", [["methods"], ["settings", "seed"], ["datasets"]])
def test_when_a_thing_is_listed_then_pytorch_stays_out(command: list[str]) -> None:
    code = (
        "import sys; from fedul_flwr.cli.main import app\n"
        f"app({command!r}, standalone_mode=False)\n"
        "print([m for m in ('torch', 'sklearn', 'ray', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"[]"
