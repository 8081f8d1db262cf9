"""``fedul-flwr deploy check``: settings and node configs that it refuses."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.deploy_checks import WHERE, ready, refused
from tests.support.owner_files import write_points, write_sets


@pytest.mark.parametrize(
    ("node_config", "settings", "code"),
    [
        ('data=ward"', {}, "node-config-wrong"),
        ('dta="ward"', {}, "unknown-name"),
        ('data="ward" known-labels="x.csv"', {}, "setting-without-effect"),
        (WHERE, {"test-prior": "0.2,0.3,0.5"}, "class-priors-wrong"),
        (WHERE, {"client-data": "ward"}, "setting-for-simulations"),
    ],
)
def test_given_a_wrong_node_config_or_setting_then_it_is_refused(
    here: Path, node_config: str, settings: dict[str, Any], code: str
) -> None:
    write_sets(here / "ward")
    assert refused("fedul", node_config, **settings) == code


def test_shape_and_classes_of_a_data_set_elsewhere(here: Path) -> None:
    write_sets(here / "ward")
    settings = {"dataset": "far/away", "class-names": "", "input-shape": ""}
    assert refused("fedul", **settings) == "option-missing"
    options = ("--class-names", "sound,ill", "--input-shape", "8x8x1")
    assert "30 points in 2 sets, 2 classes" in ready("fedul", WHERE, *options, **settings)
    wrong = ("--class-names", "sound,ill", "--input-shape", "8x8")
    assert refused("fedul", WHERE, *wrong, **settings) == "setting-not-allowed"
    assert refused("fedul", WHERE, *options) == "option-without-effect"
    assert refused("fedul", **{**settings, "dataset": "digits"}) == "priors-header"


def test_a_table_of_the_server_elsewhere_is_described_by_its_columns(here: Path) -> None:
    folder = here / "ward"
    folder.mkdir()
    (folder / "points.csv").write_text("sex,age\nf,61\nm,40\nm,35\n")
    columns = '{"columns": [{"name": "age"}, {"name": "sex", "categories": ["f", "m"]}]}'
    (here / "columns.json").write_text(columns)
    base = {"dataset": "far/away", "class-names": "", "input-shape": "", "model": "linear"}
    options = ("--class-names", "sound,ill")
    assert refused("fedmatch", WHERE, *options, **base) == "option-missing"
    allowed = f"{WHERE} allow-column-means=true"
    told = ready("fedmatch", allowed, *options, **base, columns="columns.json")
    assert "3 points, 0 with a label" in told
    # Three features: age, and two of the category, of which 2 of 3 are m.
    assert any("column-means = [45.33" in line for line in told)
    (folder / "points.csv").write_text("sex\nf\n")
    lacks = refused("fedmatch", allowed, *options, **base, columns="columns.json")
    assert lacks == "column-missing"


def test_where_labels_cannot_be_written(here: Path) -> None:
    write_points(here / "ward")
    told = refused("xclp-predict", WHERE + ' labels="none/labels.csv"')
    assert told == "file-not-writable"
    ready("xclp-predict", WHERE + ' labels="labels.csv"')
