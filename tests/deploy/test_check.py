"""``fedul-flwr deploy check``: what it finds and shows."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.methods import METHODS
from tests.support.deploy_checks import WHERE, ready, refused
from tests.support.own_method import MIRROR
from tests.support.owner_files import PRIORS, write_folders, write_points, write_sets


def test_given_unlabeled_sets_then_points_priors_and_messages_are_shown(here: Path) -> None:
    write_sets(here / "ward")
    lines = ready("fedul", f"{WHERE} allow-priors=true", **{"fedul.share-priors": True})
    # Singular values of [[.7, .3], [.2, .8]]: s1² + s2² = 1.26 and s1·s2 = |det| = 0.5, so
    # (s1/s2)² = (0.63 + √(0.63² − 0.25)) / (0.63 − √(0.63² − 0.25)) = 2.0266².
    assert lines[1:5] == [
        "30 points in 2 sets, 2 classes",
        "set january: 20 points",
        "set february: 10 points",
        "the sets tell all classes apart; how alike their class shares are: 2.03 (1 is as "
        "different as can be, 1,000 and more nearly the same)",
    ]
    assert {*lines} >= {
        "partition-id = 1 (8 bytes)",
        "num-sets = 2 (8 bytes)",
        "priors = [0.7, 0.3, 0.2, 0.8] (32 bytes)",
        "set-sizes = [20, 10] (16 bytes)",
        # 20 · (.7, .3) + 10 · (.2, .8)
        "class-masses = [16.0, 14.0] (16 bytes)",
    }
    # 64·128 + 128, 128·128 + 128 and 128·2 + 2 weights of 4 bytes, and 6 headers of 128.
    assert "arrays: 6 arrays, at most 101,128 bytes" in lines
    assert any(line.endswith("(evaluate)") for line in lines)  # held-out losses: no data at server
    assert not (here / "runs").exists()


def test_a_deficient_rank_is_a_warning_and_strictly_a_refusal(here: Path) -> None:
    folder = write_sets(here / "ward")
    (folder / "priors.csv").write_text("set,sound,ill\njanuary,1,0\nfebruary,1,0\n")
    lines = ready("fedul")
    assert [line for line in lines if "ill" in line and line.startswith("warning")]
    assert "condition-number = infinite (8 bytes)" in lines
    assert refused("fedul", **{"fedul.strict-rank": True}) == "priors-rank"


@pytest.mark.parametrize("write", [write_points, write_folders])
@pytest.mark.parametrize("method", ["xclp", "fedmatch"])
def test_points_with_some_labels(here: Path, method: str, write: Callable[[Path], Path]) -> None:
    write(here / "ward")
    lines = ready(method)
    counts = (12, 2, 1) if write is write_points else (7, 4, 2)
    assert lines[1:4] == [
        f"{counts[0]} points, {counts[1]} with a label",
        f"class sound: {counts[2]} with a label",
        f"class ill: {counts[2]} with a label",
    ]
    assert f"num-labeled = {counts[1]} (8 bytes)" in lines
    assert ("(xclp-compare)" in "\n".join(lines)) == (method == "xclp")
    assert any(line.startswith("psi: 6 arrays") for line in lines) == (method == "fedmatch")


@pytest.mark.parametrize("method", METHODS)
def test_every_method(here: Path, method: str) -> None:
    sets = METHODS[method].data == "unlabeled-sets"
    write_sets(here / "ward") if sets else write_folders(here / "ward")
    if METHODS[method].data == "labels":
        shutil.rmtree(here / "ward" / "unlabeled")
    ready(method, **({"scenario.labels-at": "server"} if method == "semifl" else {}))


def test_what_a_method_does_not_declare_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.own_method import MirrorClient

    def register(self: Any) -> dict[str, Any]:
        return {**super(MirrorClient, self).register(), "mood": "x" * 99}

    monkeypatch.setattr(MirrorClient, "register", register)
    write_sets(here / "ward")
    assert MIRROR.name == "mirror"
    method = "tests.support.own_method:MIRROR"
    assert refused(method) == "owner-does-not-allow"
    assert refused(method, f'{WHERE} allow-methods="{method}"') == "own-method-wrong"


def test_given_limits_when_checked_then_they_are_shown_and_held(here: Path) -> None:
    write_points(here / "ward")
    lines = ready("xclp", f"{WHERE} min-labeled-clients=4", **{"xclp.min-labeled-clients": 4})
    assert {"allow-priors: no", "allow-class-shares: yes", "min-labeled-clients: 4"} <= {*lines}
    assert {"max-epsilon: no limit", "allow-methods: every built-in method"} <= {*lines}
    assert {"share-digits: all", "approved-starts: none", "max-rounds: no limit"} <= {*lines}
    assert refused("xclp", f"{WHERE} min-labeled-clients=4") == "owner-does-not-allow"


def test_given_tables_then_columns_and_filled_cells_are_listed(here: Path) -> None:
    ward = here / "ward"
    ward.mkdir()
    (ward / "patients.csv").write_text(
        "patient,age,sex,diagnosis,Laktat [mg/dl]\n"
        f"007,61,f,x,{1.5 / 0.111}\n008,,m,y,\n009,44,,x,\n010,50,f,y,{2 / 0.111}\n"
    )
    (ward / "LABELS.CSV").write_text("name,label\n0,sound\n3,ill\n")  # as Windows writes it
    (here / "columns.json").write_text(
        '{"columns": [{"name": "age"}, {"name": "sex", "categories": ["f", "m"]},'
        ' {"name": "lactate", "called": ["Laktat"], "unit": "mmol/l",'
        ' "units": {"mg/dl": 0.111}, "bounds": [0.1, 30]}]}'
    )
    where = WHERE + ' allow-column-means=true log="log.csv"'
    settings = {"columns": "columns.json", "input-shape": "", "missing": "mean"}
    lines = ready("labels-only", where, **settings)
    assert "columns used: age, sex, lactate" in lines
    assert any("patient, diagnosis" in line for line in lines)
    # Quartiles of 44, 50, 61 and of 1.5, 2 lie between neighbors.
    assert {*lines} >= {
        "column age: 44 | 47 | 50 | 55.5 | 61; 1 of 4 missing",
        "column sex: f 2, m 1; 1 of 4 missing",
        "column lactate in mmol/l: 1.5 | 1.625 | 1.75 | 1.875 | 2; 2 of 4 missing; "
        "allowed 0.1 to 30; after your numbers times 0.111 plus 0",
    }
    assert any(line.endswith(": log.csv") for line in lines)
    assert not (here / "log.csv").exists()
    (here / "log.csv").mkdir()
    assert refused("labels-only", where, **settings) == "file-not-writable"


def test_labels_of_all_points(here: Path) -> None:
    folder = write_folders(here / "ward")
    assert refused("supervised") == "labels-missing"
    shutil.rmtree(folder / "unlabeled")
    assert "class ill: 2 points" in ready("supervised")


def test_no_folder_another_format_too_few_sets_and_an_empty_one(here: Path) -> None:
    assert refused("fedul") == "folder-missing"
    folder = write_sets(here / "ward")
    assert refused("fedul", WHERE + ' format="files"') == "setting-not-a-choice"
    (folder / "priors.csv").write_text(PRIORS.replace("0.7", "0.6"))
    assert refused("fedul") == "class-priors-wrong"
    (folder / "priors.csv").unlink()
    assert refused("fedul") == "file-missing"
    (folder / "priors.csv").write_text(PRIORS)
    np.savez(folder / "january.npz", images=np.empty((0, 8, 8), np.uint8))
    assert refused("fedul") == "points-missing"
    (folder / "january.npz").unlink()
    (folder / "priors.csv").write_text("set,sound,ill\nfebruary,0.2,0.8\n")
    assert refused("fedul") == "too-few-sets"
    assert "set february: 10 points" in ready("fedllp")  # one is enough
