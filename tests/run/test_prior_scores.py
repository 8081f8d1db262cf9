"""Scores of the clients' checks of their class priors, beside the truth, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedul_flwr.data.set_split import SetTruth
from fedul_flwr.run.scores import score_priors

TRUE = np.array([[0.5, 0.5], [0.8, 0.2]])
NOTHING = np.empty(0, dtype=np.int64)


def truth(told: list[list[float]]) -> SetTruth:
    return SetTruth(NOTHING, NOTHING, NOTHING, np.array(told), TRUE)


def write_check(folder: Path, client: int, server_round: int, misfits: list[bool]) -> None:
    (folder / str(client)).mkdir(parents=True, exist_ok=True)
    arrays = {"shares": np.array([[0.6, 0.4], [0.8, 0.2]]), "misfits": np.array(misfits)}
    save_file(arrays, folder / str(client) / f"prior-fit-{server_round}.safetensors")


def test_distances_are_means_over_the_sets_of_the_clients_that_checked(tmp_path: Path) -> None:
    write_check(tmp_path, 0, 3, [False, True])
    write_check(tmp_path, 2, 3, [False, False])
    write_check(tmp_path, 1, 2, [True, True])  # an earlier round
    truths = [truth([[0.5, 0.5], [0.2, 0.8]]), truth([[1, 0], [0, 1]]), truth([[0.4, 0.6], [1, 0]])]
    # Told: 0, 0.6, 0.1, 0.2; found: 0.1, 0, 0.1, 0; of the misfit: 0.6.
    assert score_priors(tmp_path, 3, truths)["prior_fit"] == {
        "sets": 4,
        "misfits": 1,
        "told_distance": pytest.approx(0.9 / 4),
        "found_distance": pytest.approx(0.2 / 4),
        "misfit_distance": pytest.approx(0.6),
    }


def test_without_truth_only_the_counts_are_known(tmp_path: Path) -> None:
    write_check(tmp_path, 0, 3, [True, True])
    assert score_priors(tmp_path, 3, []) == {"prior_fit": {"sets": 2, "misfits": 2}}
