"""Three hospitals whose data differ: each reads what is odd in its own log before round 1.

With a SuperLink and SuperNodes: one counts leukocytes in another unit, one has swapped the names of
a category, one has pictures that the run would squeeze.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.end_to_end.test_ray import text
from tests.federated.test_agreement import write_images
from tests.support.deployment import Deployment

pytestmark = pytest.mark.slow

COMMON: dict[str, Any] = {
    **{"dataset": "none", "class-names": "first,second", "test-prior": "uniform"},
    **{"selection": "last", "connect-timeout": 400.0},
}
COLUMNS = [
    {"name": "leukocytes", "unit": "G/l", "units": {"/µl": 0.001}, "called": ["Leukozyten"]},
    {"name": "sex", "categories": ["f", "m"]},
]


def write_table(folder: Path, owner: int) -> None:
    """Two months of 40 patients, four of five of them women; the second owner has it reversed.

    The first one and the third count leukocytes in 1/µl, and the third one says so.
    """
    rng = np.random.default_rng(owner)
    folder.mkdir(parents=True)
    header = "Leukozyten [/µl]" if owner == 2 else "leukocytes"
    for month in ("jan", "feb"):
        sex = np.array(["m", "f"] if owner == 1 else ["f", "m"])[(np.arange(40) % 5 == 0) * 1]
        count = rng.lognormal(2, 0.3, 40) * (1 if owner == 1 else 1000)
        pd.DataFrame({header: count.round(3), "sex": sex}).to_csv(
            folder / f"{month}.csv", index=False
        )
    (folder / "priors.csv").write_text("set,first,second\njan,0.7,0.3\nfeb,0.2,0.8\n")


def warned(there: Deployment, settings: dict[str, Any], write: Callable[[Path, int], Any]) -> Any:
    """What each owner's log warns of, after a run among them all."""
    for owner in range(3):
        folder = there.place / f"{settings['output'].name}-{owner}"
        write(folder, owner)
        there.start_node(owner, folder)
    for owner in range(3):
        there.node_id(owner)
    said = there.wait(there.submit(text({**COMMON, **settings, "output": str(settings["output"])})))
    assert (settings["output"] / "summary.json").exists(), said
    assert "all other owners" not in said + there.said("superlink")
    lines = [there.said(f"node-{owner}").splitlines() for owner in range(3)]
    there.stop_nodes()
    return [[line for line in log if "of all other owners" in line] for log in lines]


def test_each_owner_reads_of_its_own_data_before_round_1(
    deployment: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "columns.json").write_text(json.dumps({"columns": COLUMNS}))
    tables: dict[str, Any] = {
        **{"method": "fedul", "model": "linear", "num-rounds": 1, "secure-sum": "on"},
        **{"columns": str(tmp_path / "columns.json"), "local-epochs": 1},
    }
    unit, swapped, right = warned(
        deployment, {**tables, "output": tmp_path / "tables"}, write_table
    )
    assert right == []
    assert len(unit) == 1
    assert "'leukocytes'" in unit[0]
    assert len(swapped) == 2  # both categories
    assert all("'sex'" in line for line in swapped)
    before = messages(deployment, 0)
    assert before.index("columns") < before.index("train")

    images = {"method": "closed-form", "model": "random-features", "input-shape": "16x16x1"}
    one, two, squeezed = warned(
        deployment,
        {**images, "output": tmp_path / "images"},
        lambda folder, owner: write_images(folder, owner, (64, 32) if owner == 2 else (32, 32)),
    )
    assert (one, two) == ([], [])
    assert any("squeezed?" in line for line in squeezed)
    before = messages(deployment, 2)
    assert before.index("agreement") < len(before) - 1 - before[::-1].index("sum-part")


def messages(there: Deployment, owner: int) -> list[str]:
    """What an owner has been asked, in order."""
    with (there.owner(owner) / "log" / "messages.csv").open() as rows:
        return [row["message"] for row in csv.DictReader(rows)]
