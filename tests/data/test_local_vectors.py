"""A data owner's vectors: sets and partly labeled points as CSV, parquet and .npz files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.local_data import load_partly_labeled, load_unlabeled_sets
from fedul_flwr.data.tables import TableOptions
from fedul_flwr.errors import OwnDataError
from tests.support.refusals import refuses

NAMES = ("well", "ill")
COLUMNS = Columns((Column("age"), Column("sex", ("f", "m"))))
KNOWN = TableOptions(columns=COLUMNS)
CSV = "sex,age,label\nf,30,ill\nm,40,\nf,50,well\n"


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    """Two sets: a CSV file with labels, which nobody reads, and a parquet file."""
    folder = tmp_path / "ward"
    folder.mkdir()
    (folder / "january.csv").write_text(CSV)
    table = pa.table({"age": [20.0, 25.0], "sex": ["m", "f"], "id": [7, 8]})
    pq.write_table(table, folder / "february.parquet")
    (folder / "priors.csv").write_text("set,well,ill\njanuary,0.5,0.5\nfebruary,1,0\n")
    return folder


def refused(
    folder: Path, code: str, match: str, table: TableOptions = KNOWN, width: int = 3
) -> None:
    with refuses(code, OwnDataError, match=match) as caught:
        load_unlabeled_sets(folder, NAMES, 2, (width,), table=table)
    assert "\n" not in str(caught.value)


def test_sets_of_vectors_have_the_columns_of_the_run_in_its_order(ward: Path) -> None:
    sets = load_unlabeled_sets(ward, NAMES, 2, (3,), table=KNOWN)
    assert sets.inputs.tolist() == [[30, 1, 0], [40, 0, 1], [50, 1, 0], [20, 0, 1], [25, 1, 0]]
    assert sets.inputs.dtype == np.float32
    assert sets.sets.tolist() == [0, 0, 0, 1, 1]
    assert not sets.inputs.flags.writeable


def test_missing_values_are_filled_by_all_sets_of_the_owner(ward: Path) -> None:
    (ward / "january.csv").write_text(CSV.replace("40", ""))
    refused(ward, "cell-not-a-number", "'age'")
    table = TableOptions("mean", columns=COLUMNS)
    sets = load_unlabeled_sets(ward, NAMES, 2, (3,), table=table)
    assert sets.inputs[1, 0] == (30 + 50 + 20 + 25) / 4


def test_given_a_fill_in_the_columns_file_then_it_fills_at_every_owner(ward: Path) -> None:
    (ward / "january.csv").write_text(CSV.replace("40", "").replace("m,", "NA,"))
    known = Columns((Column("age", fill=44.0), Column("sex", ("f", "m"), fill="m")))
    for missing in ("refuse", "mean"):
        table = TableOptions(missing, columns=known)  # type: ignore[arg-type]
        sets = load_unlabeled_sets(ward, NAMES, 2, (3,), table=table)
        assert sets.inputs[1].tolist() == [44, 0, 1]


def test_vectors_without_names_need_only_the_length(ward: Path) -> None:
    np.savez(ward / "january.npz", vectors=np.ones((2, 3)), labels=np.array([None, None]))
    (ward / "january.csv").unlink()
    (ward / "february.parquet").unlink()
    np.savez(ward / "february.npz", vectors=np.zeros((1, 3), np.float32))
    sets = load_unlabeled_sets(ward, NAMES, 2, (3,))
    assert sets.inputs.tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    refused(ward, "points-of-another-kind", "january.npz .* 3 .* 4", TableOptions(), 4)


def test_partly_labeled_vectors_have_labels_by_row_in_another_order(tmp_path: Path) -> None:
    folder = tmp_path / "points"
    folder.mkdir()
    (folder / "patients.csv").write_text(CSV)
    (folder / "labels.csv").write_text("name,label\n0,ill\n2,well\n")
    found = load_partly_labeled(folder, NAMES, (3,), table=KNOWN)
    by_age = {
        float(found.inputs[point, 0]): int(label)
        for point, label in zip(found.points, found.labels, strict=True)
    }
    assert by_age == {30.0: 1, 40.0: -1, 50.0: 0}
    assert sorted(found.names) == ["0", "1", "2"]
