"""Unlabeled sets in memory, with their class priors, as clients' own data of a simulation."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedul_flwr as ff
from fedul_flwr.api.arguments import settings_of_call
from fedul_flwr.errors import UserError
from tests.support.refusals import refuses

RNG = np.random.default_rng(0)
CENTERS = np.array([[2.0, 0.0], [-2.0, 0.0]])


def points_of(shares: Any, size: int = 60) -> Any:
    """Vectors about two centers, of which class 0 has its share."""
    classes = (np.arange(size) >= round(shares[0] * size)).astype(int)
    return (CENTERS[classes] + RNG.normal(size=(size, 2))).astype(np.float32)


PRIORS = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
SETS = [points_of(row) for row in PRIORS]
LABELS = np.repeat([0, 1], 50)
TEST = (points_of([0.5, 0.5], 100), LABELS)


def call(**more: Any) -> tuple[dict[str, Any], int | None]:
    options: dict[str, Any] = {"sets": SETS, "priors": PRIORS, "data": None, "test": None}
    options |= {"rounds": None, "clients": None, **more}
    settings = options.pop("settings", {})
    return settings_of_call(settings, **options)


def lines(folder: Path) -> list[str]:
    return (folder / "priors.csv").read_text().splitlines()


def test_sets_are_dealt_in_their_order() -> None:
    settings, count = call(clients=4)  # 6 = 2 + 2 + 1 + 1
    folders = sorted(Path(str(settings["client-data"])).iterdir())
    assert (count, [len(lines(one)) - 1 for one in folders]) == (4, [2, 2, 1, 1])
    assert lines(folders[1]) == ["set,0,1", "000002.npz,0.7,0.3", "000003.npz,0.1,0.9"]
    with np.load(folders[1] / "000003.npz") as file:
        np.testing.assert_array_equal(file["vectors"], SETS[3])
    assert settings["dataset"] == "none"
    assert settings["input-shape"] == "2"
    assert call()[1] == 6  # not more clients than sets


def test_names_of_clients_sets_and_classes_count_by_name() -> None:
    names = list("abcdef")
    frame = pd.DataFrame(PRIORS[:, ::-1], index=names, columns=["1", "0"]).sample(
        frac=1, random_state=0
    )
    settings, count = call(
        sets=dict(zip(names, SETS, strict=True)),
        priors=frame,
        clients=["west", "east", "west", "east", "east", "west"],
        test=TEST,
    )
    root = Path(str(settings["client-data"]))
    assert (count, sorted(one.name for one in root.iterdir())) == (2, ["east", "west"])
    assert lines(root / "west") == [
        *("set,0,1", "000000.npz,0.9,0.1", "000002.npz,0.7,0.3", "000005.npz,0.3,0.7"),
    ]
    assert settings["validation-fraction"] == 0


@pytest.mark.parametrize("engine", ["in-process", "processes"])
def test_a_run_learns_from_them_and_is_tested_on_labels(engine: Any, tmp_path: Path) -> None:
    result = ff.simulate(
        "fedul",
        sets=SETS,
        priors=PRIORS,
        clients=2,
        test=TEST,
        rounds=3,
        model="linear",
        learning_rate=0.05,
        engine=engine,
        output=tmp_path / "run",
    )
    assert result.summary["test_error"] < 8  # 2.3 % is the least
    assert result.metrics["validation_error"].isna().all()


def test_methods_are_compared_on_them(tmp_path: Path) -> None:
    comparison = ff.compare(
        ["fedul", "fedllp"],
        sets=SETS,
        priors=PRIORS,
        clients=2,
        data=(np.concatenate(SETS), np.concatenate([np.argmax(one, axis=1) for one in SETS])),
        test=TEST,
        rounds=1,
        seeds=1,
        model="linear",
        engine="in-process",
        output=tmp_path / "compared",
    )
    assert comparison.table["mean"].notna().all()


def test_without_a_label_methods_are_ranked_by_errors_known_from_class_shares(
    tmp_path: Path,
) -> None:
    compared = ff.compare(
        {
            "round": {"method": "closed-form", "closed_form": {"shrinkage": 1.0}},
            "as it is": {"method": "closed-form", "closed_form": {"shrinkage": 0.01}},
        },
        sets=SETS,
        priors=PRIORS,
        clients=3,
        seeds=1,
        engine="in-process",
        output=tmp_path / "compared",
    )
    known = {row: runs[0].summary["known_error"] for row, runs in compared.results.items()}
    assert compared.table["mean"].to_dict() == known
    assert compared.plot().axes[-1].get_xlabel().startswith("known error")
    assert compared.table["known_error"].to_dict() == known


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("argument-missing", {"priors": None}),
        ("argument-without-effect", {"sets": None}),
        ("class-priors-wrong", {"priors": PRIORS[:5]}),
        ("too-few-sets", {"sets": [], "priors": np.zeros((0, 2))}),
        ("number-of-clients", {"clients": 7}),
        ("clients-of-points", {"clients": ["west", "east"]}),
        ("clients-of-points", {"clients": ["../west", *"abcde"]}),
        ("class-names-wrong", {"priors": pd.DataFrame(PRIORS, columns=list("xy")), "test": TEST}),
        ("argument-missing", {"test": TEST, "settings": {"server_fraction": 0.1}}),
        ("argument-not-allowed", {"settings": {"client_data": "folder"}}),
        ("argument-not-allowed", {"data": "digits"}),
        ("argument-missing", {"sets": [pd.DataFrame(one, columns=["a", "b"]) for one in SETS]}),
    ],
)
def test_what_cannot_be_right_is_refused(code: str, options: dict[str, Any]) -> None:
    with refuses(code, UserError):
        call(**options)
