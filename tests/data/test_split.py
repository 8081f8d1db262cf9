"""A simulated federation on disk: dealt, cached, reused, and without labels for clients."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedul_flwr.arrays import Ints
from fedul_flwr.config.method_settings import LabelSettings, UnlabeledSetSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.data import split as split_module
from fedul_flwr.data.safe_files import read_arrays
from fedul_flwr.data.sources import read_source
from fedul_flwr.data.split import (
    Split,
    assign_labels_to_clients,
    build_split,
    client_files,
    generate_sets,
    label_shares,
    open_labeled_points,
    open_partly_labeled_points,
    open_unlabeled_sets,
    read_split,
    save_split,
)
from fedul_flwr.errors import UserError
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.run.server_data import ServerData
from tests.data.conftest import write_source
from tests.support.given_labels_method import GIVEN_METHOD
from tests.support.refusals import refuses

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [160, 120, 80, 40]))


def config(**options: Any) -> RunConfig:
    """Settings; the majority partition needs no library, and so less time."""
    values = {"partition": "majority", "fedul.num-sets": 6, "validation-fraction": 0.25}
    return parse_flat({**default_flat(), **values, **options})


def build(place: Path, num_clients: int = 3, **options: Any) -> Split:
    return build_split(place, num_clients, config(**options))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A decoded data set of 400 points in 4 classes."""
    return write_source(tmp_path / "data", LABELS)


def test_a_federation_is_built_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    write = split_module._write
    monkeypatch.setattr(split_module, "_write", lambda *args: (built.append(args[0]), write(*args)))
    first, second = build(place), build(place)
    assert len(built) == 1
    assert first.directory == second.directory
    assert build(place, seed=1).directory != first.directory
    assert len(built) == 2


def test_the_servers_labeled_points_are_nobody_elses(place: Path) -> None:
    without = build(place)
    split = build(place, **{"server-fraction": 0.25})
    # A quarter of 160, 120, 80 and 40 each.
    for points in (split.server, split.validation):
        np.testing.assert_array_equal(np.bincount(LABELS[points]), [40, 30, 20, 10])
    np.testing.assert_array_equal(split.validation, without.validation)
    assert (np.diff(split.validation) > 0).all()
    assert len(split.clients) == 3
    held = [np.unique(client.points) for client in split.clients]
    everything = np.concatenate([split.validation, split.server, *held])
    assert len(np.unique(everything)) == len(everything)
    assert len(without.server) == 0
    assert len(np.concatenate(held)) < sum(len(np.unique(c.points)) for c in without.clients)


@pytest.mark.parametrize("fraction", [0.001, 0.999])
@pytest.mark.parametrize("key", ["validation-fraction", "server-fraction"])
def test_a_fraction_too_small_or_large_is_refused(place: Path, key: str, fraction: float) -> None:
    with refuses("setting-unfit-for-data", setting=key):
        build(place, **{"validation-fraction": 0.0, key: fraction})


def test_unlabeled_training_points_are_refused(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[[3, 5, 8]] = -1
    with refuses("labels-missing"):
        build_split(write_source(tmp_path / "gaps", labels), 3, config())


def test_what_is_read_is_what_was_generated(place: Path) -> None:
    settings = config(**{"fedul.prior-noise": 0.5, "seed": 3})
    split = build_split(place, 3, settings)
    table = settings[UnlabeledSetSettings]
    for client, truth in enumerate(split.clients):
        # Every point of a client is in one of its sets: its points are known from them.
        expected = generate_sets(LABELS, np.unique(truth.points), 4, client, table, seed=3)
        opened = open_unlabeled_sets(client_files(place, split.directory), client)
        for found in (truth, opened):
            for name in ("points", "sets", "priors"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        np.testing.assert_array_equal(truth.true_priors, expected.true_priors)
        np.testing.assert_array_equal(opened.drawn_priors, expected.drawn_priors)
        assert not np.array_equal(truth.priors, truth.true_priors)


def test_unlabeled_sets_need_no_file_that_holds_a_label(place: Path) -> None:
    split = build(place)
    expected = open_unlabeled_sets(client_files(place, split.directory), 1)
    read_arrays.cache_clear()
    kept = {"train_inputs.npy", "sets.npz"}
    for file in [*place.iterdir(), *split.directory.iterdir()]:
        if file.name not in kept:
            file.unlink()
    found = open_unlabeled_sets(client_files(place, split.directory), 1)
    for name in ("points", "sets", "priors", "inputs"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.inputs.shape == (400, 4, 4, 1)
    with pytest.raises(FileNotFoundError):
        open_labeled_points(client_files(place, split.directory, "labels"), 1)


def test_the_file_for_clients_holds_no_labels(place: Path) -> None:
    split = build(place)
    with np.load(split.directory / "sets.npz") as archive:
        assert set(archive.files) == {
            *("points", "sets", "priors", "drawn_priors", "posterior_means", "concentrations"),
            *("point_bounds", "set_bounds"),
        }


KIND = "partly-labeled"
REUSED = {
    "labels.total": "auto",
    "validation-fraction": 0.2,
}  # the defaults, as `labels.split` needs


def labeled(**options: Any) -> RunConfig:
    values = {"method": GIVEN_METHOD, "labels.total": 60, "validation-fraction": 0.25}
    return parse_flat({**default_flat(), **values, **options})


def opened(place: Path, split: Split) -> list[Any]:
    files = client_files(place, split.directory, KIND)
    return [open_partly_labeled_points(files, client) for client in range(len(split.clients))]


def same(one: Split, other: Split) -> bool:
    pairs = [(one.validation, other.validation), (one.server, other.server)]
    for a, b in zip(one.label_truths, other.label_truths, strict=True):
        names = ("points", "labels", "observed", "new")
        pairs += [(getattr(a, name), getattr(b, name)) for name in names]
    return all(np.array_equal(a, b) for a, b in pairs)


def test_what_clients_open_is_what_was_dealt(place: Path) -> None:
    split = build_split(place, 3, labeled(**{"labels.new-fraction": 0.2, "server-fraction": 0.1}))
    everything = [split.validation, split.server]
    for points, truth in zip(opened(place, split), split.label_truths, strict=True):
        np.testing.assert_array_equal(points.points, truth.points)
        np.testing.assert_array_equal(points.labels, truth.observed)
        np.testing.assert_array_equal(points.new, truth.new)
        np.testing.assert_array_equal(truth.labels, LABELS[truth.points])
        assert points.inputs.shape == (400, 4, 4, 1)
        assert points.names == ()
        assert (points.labels >= 0).sum() == 20
        assert points.new.sum() == round(0.2 * len(points.points))
        everything.append(points.points)
    # 100 points for validation, 40 for the server, the other 260 with the clients.
    np.testing.assert_array_equal(np.sort(np.concatenate(everything)), np.arange(400))
    assert [len(split.validation), len(split.server)] == [100, 40]
    assert same(split, read_split(split.directory))


def test_a_clients_labels_can_be_withheld(place: Path) -> None:
    whole = opened(place, build_split(place, 3, labeled()))
    left = opened(place, build_split(place, 3, labeled(**{"labels.without-client": 1})))
    for client, (before, after) in enumerate(zip(whole, left, strict=True)):
        np.testing.assert_array_equal(before.points, after.points)
        np.testing.assert_array_equal(after.labels, -1 if client == 1 else before.labels)
    with refuses("setting-out-of-range", setting="labels.without-client"):
        build_split(place, 3, labeled(**{"labels.without-client": 3}))


def test_points_without_label_in_the_source_stay_so(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[::2] = -1
    place = write_source(tmp_path / "gaps", labels)
    options = {"labels.total": 30, "server-fraction": 0.1}
    split = build_split(place, 3, labeled(**options))
    # A quarter and a tenth of the 200 that have a label.
    assert [len(split.validation), len(split.server)] == [50, 20]
    assert (labels[np.concatenate([split.validation, split.server])] >= 0).all()
    assert sum(len(truth.points) for truth in split.clients) == 330
    for truth in split.label_truths:
        np.testing.assert_array_equal(truth.labels, labels[truth.points])
        assert (truth.observed >= 0).sum() == 10
        assert (truth.observed[truth.labels < 0] == -1).all()
    nothing = write_source(tmp_path / "nothing", np.full(400, -1))
    empty = build_split(nothing, 3, labeled(**{"labels.total": 0}))
    assert len(empty.validation) == 0
    with refuses("too-few-points"):
        build_split(nothing, 3, labeled())
    with refuses("labels-missing", setting="partition"):
        build_split(place, 3, labeled(partition="majority"))


@pytest.mark.parametrize(
    ("known", "total", "used"), [(400, "auto", 100), (200, "auto", 150), (200, 30, 30)]
)
def test_given_points_without_labels_then_all_labels_are_used_or_the_number_that_is_asked_for(
    known: int, total: int | str, used: int, tmp_path: Path
) -> None:
    """A quarter of the labels is for validation: of 200 labels 50, and 150 are at clients."""
    place = write_source(tmp_path / "data", np.where(np.arange(400) < known, LABELS, -1))
    chosen = labeled(**{"labels.total": total, "partition": "iid"})
    split = build_split(place, 3, chosen)
    assert sum((truth.observed >= 0).sum() for truth in split.label_truths) == used
    source = read_source(place)
    shape = DataShape(source.input_shape, source.class_names)
    said = ServerData(shape, place, source).split_over(3, chosen).labels_in_words
    assert re.findall(r"\d+", said) == [str(used), str(known * 3 // 4)]


def test_given_points_without_labels_then_methods_of_all_labels_say_who_needs_them(
    tmp_path: Path,
) -> None:
    partly = write_source(tmp_path / "data", np.where(np.arange(400) < 200, LABELS, -1))
    for method in ("fedul", "supervised", "fedllp-fc"):
        with refuses("labels-missing", match="labels-only"):
            build_split(partly, 3, parse_flat(default_flat() | {"method": method}))


def test_the_file_for_clients_holds_no_label_that_was_not_given(place: Path) -> None:
    split = build_split(place, 3, labeled(**{"labels.new-fraction": 0.2}))
    files = client_files(place, split.directory, KIND)
    assert {Path(file).name for file in files.values()} == {"train_inputs.npy", "given.npz"}
    with np.load(files["given"]) as archive:
        assert set(archive.files) == {"points", "labels", "new", "bounds"}
        assert (archive["labels"] == -1).sum() == 300 - 60
        assert (archive["labels"][archive["new"]] == -1).all()


@pytest.fixture
def saved(place: Path, tmp_path: Path) -> tuple[Split, Path]:
    options = {"labels.new-fraction": 0.2, "partition": "majority", "server-fraction": 0.1}
    split = build_split(place, 3, labeled(**options, seed=5))
    save_split(tmp_path / "split.npz", split, LABELS)
    return split, tmp_path / "split.npz"


@pytest.mark.parametrize("content", [None, b"x", b"PK\x03\x04cut off"], ids=["none", "text", "cut"])
def test_a_file_that_is_no_saved_split_is_refused(
    place: Path, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    with refuses("split-file-unfit", setting="labels.split"):
        build_split(place, 3, labeled(**REUSED, **{"labels.split": str(tmp_path / "x.npz")}))


def test_a_saved_split_that_does_not_fit_is_refused(
    place: Path, saved: tuple[Split, Path], tmp_path: Path
) -> None:
    options = {**REUSED, "labels.split": str(saved[1])}
    with refuses("split-file-unfit", match="3 clients"):
        build_split(place, 4, labeled(**options))
    other = write_source(tmp_path / "other", LABELS[::-1])
    with refuses("split-file-unfit", match="other training labels"):
        build_split(other, 3, labeled(**options))


NAMES = ("oak", "fir", "elm", "ash")


def released_line(row: int, owner: object, labeled: int, label: int | None = None) -> str:
    name = NAMES[LABELS[row] if label is None else label]
    return f"{row}_{name}.png {name} {owner} {labeled}\n"


@pytest.fixture
def released(tmp_path: Path) -> tuple[Path, Path]:
    """A data set, and a file as the authors write them: rows by class, not in order; validation
    points are in no line, and the server has labels."""
    place = write_source(tmp_path / "trees", LABELS, class_names=list(NAMES))
    file = tmp_path / "6_labels_3_clients_0_labelledclients_noniid_5_split_0.txt"
    rows = [row for row in np.argsort(LABELS, kind="stable")[::-1] if row >= 100]
    file.write_text(
        "".join(
            released_line(row, "server", 1)
            if row >= 390
            else released_line(row, row % 3, int(row % 10 == 0))
            for row in rows
        )
    )
    return place, file


def test_given_a_split_file_of_the_authors_then_clients_have_its_points_and_labels(
    released: tuple[Path, Path],
) -> None:
    place, file = released
    options = {"labels.split": str(file)}
    split = build_split(place, 3, labeled(**REUSED, **options))
    np.testing.assert_array_equal(split.validation, np.arange(100))
    np.testing.assert_array_equal(split.server, np.arange(390, 400))
    for number, client in enumerate(split.label_truths):
        expected = np.array([row for row in range(100, 390) if row % 3 == number])
        np.testing.assert_array_equal(client.points, expected)
        np.testing.assert_array_equal(client.labels, LABELS[expected])
        given = np.where(expected % 10 == 0, LABELS[expected], -1)
        np.testing.assert_array_equal(client.observed, given)
        assert not client.new.any()
    changed = file.read_text().replace(" 2 0\n", " 1 0\n", 1)
    file.write_text(changed)
    other = build_split(place, 3, labeled(**REUSED, **options))
    assert len(other.clients[1].points) == len(split.clients[1].points) + 1


@pytest.mark.parametrize(
    "line",
    [
        "7_oak.png oak 2\n",
        "7_oak.png oak -2 0\n",
        "7_oak.png oak 2 2\n",
        "400_oak.png oak 2 0\n",  # of 400 rows
        released_line(7, 0, 0, (LABELS[7] + 1) % 4),
        "7_yew.png yew 2 0\n",
        released_line(200, 0, 0),  # for the second time
        released_line(7, 3, 0),  # a fourth client
    ],
)
def test_given_a_split_file_of_the_authors_that_does_not_fit_then_it_is_refused(
    released: tuple[Path, Path], line: str
) -> None:
    place, file = released
    file.write_text(file.read_text() + line)
    with refuses("split-file-unfit", setting="labels.split"):
        build_split(place, 3, labeled(**REUSED, **{"labels.split": str(file)}))


AT_SERVER = {"scenario.labels-at": "server"}
ALL_GIVEN = Method("all-given", "m:S", "m:C", (LabelSettings,), data="fully-labeled")
"""A method of one's own that learns from all labels and has settings of new points."""
ALL_GIVEN_METHOD = f"{__name__}:ALL_GIVEN"


def config_scenarios(method: str, **options: Any) -> RunConfig:
    return parse_flat({**default_flat(), "method": method, **options})


def test_new_points_have_no_label_and_are_the_same_ones(place: Path) -> None:
    options = {"labels.new-fraction": 0.2}
    runs = [config_scenarios("uda", **options), config_scenarios("uda", **options, **AT_SERVER)]
    runs.append(config_scenarios(ALL_GIVEN_METHOD, **options))
    some, none, every = (build_split(place, 3, run).label_truths for run in runs)
    for clients in zip(some, none, every, strict=True):
        new = clients[0].new
        assert new.sum() == round(0.2 * len(new))
        for client in clients:
            np.testing.assert_array_equal(client.new, new)
            assert (client.observed[new] == -1).all()
        assert (clients[2].observed[~new] == clients[2].labels[~new]).all()


def options(**values: Any) -> LabelSettings:
    return LabelSettings.parse({key.replace("_", "-"): value for key, value in values.items()})


def counts(labels: Ints, num_classes: int) -> Any:
    return np.bincount(labels[labels >= 0], minlength=num_classes).tolist()


def test_who_has_labels_is_drawn() -> None:
    half = options(total=50, labeled_clients=0.5)
    found = np.stack([label_shares(10, half, seed) > 0 for seed in range(400)])
    # Each client in half of the draws; 0.1 is four deviations.
    np.testing.assert_allclose(found.mean(axis=0), 0.5, atol=0.1)
    fewer = label_shares(10, options(total=50, labeled_clients=0.3), seed=7) > 0
    assert (fewer <= found[7]).all()


def test_given_classes_per_client_then_labels_alone_are_of_so_many_classes() -> None:
    """XCLP's Non-IID: each class is at k of K clients, as often in each, and points stay."""
    truth = [np.repeat(np.arange(10), 12)] * 20
    found, _ = assign_labels_to_clients(truth, options(total=200, classes_per_client=5), seed=3)
    table = np.array([counts(labels, 10) for labels in found])
    assert set(table.ravel()) == {0, 2}  # ten labels a client: two of each of five classes
    assert ((table > 0).sum(axis=1) == 5).all()
    assert (table.sum(axis=0) == 20).all()
    # Half of the clients have labels: again each class equally often.
    half, _ = assign_labels_to_clients(
        truth, options(total=200, classes_per_client=5, labeled_clients=0.5), seed=3
    )
    of_half = np.array([counts(labels, 10) for labels in half])
    assert sorted(of_half.sum(axis=1)) == [0] * 10 + [20] * 10
    assert (of_half.sum(axis=0) == 20).all()
    # Rotations: one client's classes are another's, moved by one.
    kinds = {tuple(np.flatnonzero(row)) for row in table}
    assert {tuple(np.sort((np.array(kind) + 1) % 10)) for kind in kinds} == kinds
    other, _ = assign_labels_to_clients(truth, options(total=200, classes_per_client=5), seed=4)
    assert [counts(labels, 10) for labels in other] != table.tolist()


def test_given_more_classes_or_labels_than_there_are_then_the_split_is_refused() -> None:
    truth = [np.repeat(np.arange(4), 5)] * 4
    with refuses("setting-unfit-for-data", setting="labels.classes-per-client"):
        assign_labels_to_clients(truth, options(total=4, classes_per_client=5), seed=0)
    with refuses("too-few-points"):
        assign_labels_to_clients(truth, options(total=44, classes_per_client=2), seed=0)
    with refuses("too-few-points"):
        assign_labels_to_clients(truth, options(fraction=0.6, classes_per_client=2), seed=0)


TRUTH = st.lists(
    st.lists(st.integers(-1, 3), min_size=12, max_size=30).map(np.array), min_size=1, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(
    truth=TRUTH,
    total=st.integers(0, 12),
    part=st.sampled_from([0.3, 0.7, 1.0]),
    new_fraction=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 9),
)
def test_what_always_holds(
    truth: list[Ints], total: int, part: float, new_fraction: float, seed: int
) -> None:
    table: dict[str, Any] = {"labeled_clients": part, "new_fraction": new_fraction}
    try:
        found, new = assign_labels_to_clients(truth, options(total=total, **table), seed)
    except UserError:  # shares of `total` labels that some client cannot have
        shares = label_shares(len(truth), options(total=total, **table), seed)
        held = [(labels >= 0).sum() for labels in truth]
        most_new = [round(new_fraction * len(labels)) for labels in truth]
        assert (shares > np.array(held) - most_new).any()
        return
    shares = label_shares(len(truth), options(total=total, **table), seed)
    assert shares.sum() == total
    for labels, known, share, kept in zip(found, truth, shares, new, strict=True):
        shown = labels != -1
        assert shown.sum() == share
        np.testing.assert_array_equal(labels[shown], known[shown])
        assert not (shown & kept).any()
        able = np.array(counts(known[~kept], 4))
        dealt = np.array(counts(labels, 4))
        assert ((dealt == able) | (dealt >= dealt.max() - 1)).all()
    if total:
        fewer, _ = assign_labels_to_clients(truth, options(total=total - 1, **table), seed)
        for less, more in zip(fewer, found, strict=True):
            assert ((less == more) | (less == -1)).all()
