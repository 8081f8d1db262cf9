"""Runs that standardize by a masked sum: who learns what, who is lost, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, Context, Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.columns import read_columns
from fedul_flwr.data.exact_sums import DIGITS, exact_sums
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split
from fedul_flwr.data.standardize import MEANS, SCALES, moments
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.messages import KEYS, OF, PART, SHARES, UNMASK, phase_of
from fedul_flwr.federated.owner.door import build_client
from fedul_flwr.federated.stages.columns import received_scaling
from fedul_flwr.secure.words import whole_words
from tests.run.test_vector_runs import QUICK, SETS, write_owners
from tests.support import runs
from tests.support.identities import identities, write_identity
from tests.support.leaks import messages_with
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, as_error, metrics, own_data_app, train
from tests.support.settings import Settings

MASKED = {**QUICK, **SETS, "standardize": "federation", "standardize_sum": "masked"}
LABELS = {
    **{"dataset": "wine", "labels.total": 30, "xclp.num-bits": 256, "xclp.codes-seed": "run"},
    **{"model": "mlp", "model_width": 8, "num_rounds": 2, "local_epochs": 1},
    **{"semi.labels-only-rounds": 1, "xclp.secure": "rlwe"},
}
PREDICT = {**LABELS, "method": "xclp-predict"}
for key in ("num_rounds", "local_epochs", "semi.labels-only-rounds", "model", "model_width"):
    del PREDICT[key]


def held(config: RunConfig, clients: int) -> list[NDArray[np.float32]]:
    """Points of each simulated client."""
    source = load_source("wine")
    split = build_split(source_directory("wine"), clients, config).clients
    return [np.asarray(source.train.inputs[client.points]) for client in split]


def assert_standardized_by(directory: Path, config: RunConfig, *clients: int) -> None:
    """The columns of a run of four are those of these clients' points."""
    points = held(config, 4)
    rows = np.concatenate([points[client] for client in clients]).astype(np.float64)
    columns = read_columns(directory).columns
    assert [column.mean for column in columns] == pytest.approx(rows.mean(axis=0), rel=1e-12)
    assert [column.scale for column in columns] == pytest.approx(rows.std(axis=0), rel=1e-12)


class Watching:
    """Wraps the grid of a run, and keeps its nodes."""

    contexts: dict[int, Context]

    def __call__(self, grid: Grid) -> Grid:
        assert isinstance(grid, InProcessGrid)
        self.contexts = grid.contexts
        return grid


@pytest.mark.parametrize("options", [{**LABELS, "method": "xclp"}, PREDICT])
def test_a_secure_sum_gives_the_same_numbers(options: dict[str, Any], settings: Settings) -> None:
    watching = Watching()
    by_default = train(settings(**options), 3, wrap_grid=watching)
    kept = json.loads((by_default / "config.json").read_text())["settings"]
    assert (kept["standardize"], kept["standardize-sum"]) == ("federation", "masked")
    plain = train(settings(**options, standardize_sum="plaintext"), 3)
    for one, other in zip(
        read_columns(by_default).columns, read_columns(plain).columns, strict=True
    ):
        assert one.mean == pytest.approx(other.mean, rel=1e-12)
        assert one.scale == pytest.approx(other.scale, rel=1e-12)
    if options["method"] == "xclp":
        errors = [[line["test_error"] for line in metrics(run)] for run in (by_default, plain)]
    else:
        found = [json.loads((run / "labels.json").read_text()) for run in (by_default, plain)]
        errors = [each["sources"]["xclp"]["error"] for each in found]
    assert errors[0] == errors[1]


@pytest.mark.parametrize(("how", "shown"), [("masked", 0), ("plaintext", 1)])
def test_no_message_has_one_mean(how: str, shown: int, settings: Settings, tmp_path: Path) -> None:
    config = settings(**{**MASKED, "standardize_sum": how})
    train(config, 3, message_log=tmp_path / "log")
    for points in held(config, 3):
        found = moments(points, np.arange(len(points)))
        sums = whole_words(exact_sums(points, np.arange(len(points))), DIGITS)
        secrets = [
            *(found.means.tobytes(), found.variances.tobytes(), sums[:DIGITS].tobytes()),
            *((len(points) * found.means).tobytes(), sums.tobytes()),
            *(found.means.astype(np.float32).tobytes(), str(found.means[0])[:12].encode()),
        ]
        assert len(messages_with(tmp_path / "log", *secrets)) == shown


def test_given_a_sum_was_answered_then_a_client_sends_no_second_one(settings: Settings) -> None:
    watching = Watching()
    train(settings(**MASKED), 3, wrap_grid=watching)
    for context in watching.contexts.values():
        with refuses("server-out-of-turn"):
            build_client(context).on_phase(PART, Content(values={OF: "columns"}))


def forging(name: str, phase: str, client: int, size: int = 0) -> Callable[[Grid], Grid]:
    """A grid on which a client's arrays are ones in its first answer to one of the phases.

    With ``size`` they are so many ones.
    """
    forged = False

    def forge(reply: Message) -> Message:
        nonlocal forged
        forged = True
        for key, array in (reply.content.array_records.get("arrays") or {}).items():
            if key.startswith(name):
                ones = np.ones_like(array.numpy())
                reply.content["arrays"][key] = Array(ones[:size] if size else ones)
        return reply

    class Forging(GridProxy):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            sent = list(messages)
            now, node = bool(sent) and phase_of(sent[0]) == phase, FIRST_NODE_ID + client
            now = now and not forged
            for reply in super().send_and_receive(sent, timeout=timeout):
                yield forge(reply) if now and reply.metadata.src_node_id == node else reply

    return Forging


@pytest.mark.parametrize(
    ("name", "phase", "size"), [("public-keys", KEYS, 0), ("columns", PART, 20)]
)
def test_given_an_answer_that_is_none_then_its_sender_is_named_and_the_sum_is_without_it(
    settings: Settings, name: str, phase: str, size: int
) -> None:
    config = settings(**MASKED, on_client_failure="continue")
    directory = train(config, 4, wrap_grid=forging(name, phase, 2, size))
    assert metrics(directory)[0]["failed"] == ["Client 2"]
    assert_standardized_by(directory, config, 0, 1, 3)


def test_given_shares_that_nobody_can_open_then_the_run_ends(settings: Settings) -> None:
    with refuses("too-few-clients"):
        config = settings(**MASKED, on_client_failure="continue")
        train(config, 4, wrap_grid=forging("sealed", SHARES, 2))


def test_given_an_identity_that_nobody_knows_then_the_sum_is_without_it(settings: Settings) -> None:
    known = {**identities(range(4)), 2: identities([2])[2]}

    def named(grid: Grid) -> Grid:
        assert isinstance(grid, InProcessGrid)
        for context in grid.contexts.values():
            number = int(context.node_config["partition-id"])
            folder = write_identity(Path(config.output) / "keys" / str(number), known[number])
            context.node_config["identity"] = str(folder)
        return grid

    config = settings(**MASKED, on_client_failure="continue")
    directory = train(config, 4, wrap_grid=named)
    assert metrics(directory)[0]["failed"] == ["Client 2"]
    assert_standardized_by(directory, config, 0, 1, 3)


def losing(phase: str, *clients: int) -> Callable[[Grid], Grid]:
    """A grid on which clients' first answers to one of the phases are lost."""
    state = {"now": False, "over": False}

    class Losing(MeddlingGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            sent = list(messages)
            state["now"] = bool(sent) and phase_of(sent[0]) == phase and not state["over"]
            state["over"] |= state["now"]
            return super().send_and_receive(sent, timeout=timeout)

    def lose(call: int, replies: list[Message]) -> list[Message]:
        del call
        nodes = {FIRST_NODE_ID + client for client in clients}
        lost = [state["now"] and reply.metadata.src_node_id in nodes for reply in replies]
        return [as_error(r, "gone") if gone else r for r, gone in zip(replies, lost, strict=True)]

    return lambda grid: Losing(grid, lose)


@pytest.mark.parametrize("phase", [KEYS, SHARES, PART])
def test_given_a_client_lost_before_then_the_others_count(settings: Settings, phase: str) -> None:
    config = settings(**MASKED, on_client_failure="continue")
    directory = train(config, 4, wrap_grid=losing(phase, 2))
    assert_standardized_by(directory, config, 0, 1, 3)
    # It comes back for the rounds, and gets the scaling.
    assert [(line["clients"], line["failures"]) for line in metrics(directory)] == [(4, 1), (4, 0)]


def test_given_a_client_lost_after_the_sum_then_its_points_count(settings: Settings) -> None:
    config = settings(**MASKED, on_client_failure="continue")
    directory = train(config, 4, wrap_grid=losing(UNMASK, 2))
    assert_standardized_by(directory, config, 0, 1, 2, 3)


@pytest.mark.parametrize("phase", [KEYS, UNMASK])
def test_given_too_few_clients_then_the_sum_stays_closed(settings: Settings, phase: str) -> None:
    """A second sum without those that have sent their parts would tell these."""
    with refuses("too-few-clients", match="standardize = 'owner'"):
        config = settings(**MASKED, on_client_failure="continue")
        train(config, 4, wrap_grid=losing(phase, 1, 2))


@pytest.mark.parametrize(
    ("options", "clients", "lost", "code"),
    [
        (MASKED, 2, (), "too-few-clients"),
        ({**PREDICT, "xclp.min-labeled-clients": 4}, 3, (), "too-few-clients"),
        (MASKED, 4, (2,), "client-failed"),
    ],
)
def test_given_fewer_clients_than_needed_then_the_run_is_refused(
    settings: Settings, options: dict[str, Any], clients: int, lost: tuple[int, ...], code: str
) -> None:
    with refuses(code):
        train(settings(**options), clients, wrap_grid=losing(SHARES, *lost))


@pytest.mark.parametrize(
    ("how", "limit", "code"),
    [
        ("masked", {"allow-column-means": False}, ""),
        ("plaintext", {"allow-column-means": False}, "client-failed"),
        ("masked", {"min-labeled-clients": 4}, "client-failed"),
    ],
)
def test_an_owner_who_keeps_means_to_itself_takes_part_in_a_masked_sum_of_enough(
    how: str,
    limit: dict[str, Any],
    code: str,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key, value in limit.items():
        monkeypatch.setitem(runs.EVERYTHING_ALLOWED, key, value)
    place, _, alone = write_owners(tmp_path)
    folders = [place / f"owner{owner}" for owner in range(3)]
    config = settings(**{**alone, "num_rounds": 1}, standardize_sum=how)
    if code:
        with refuses(code):
            train(config, 3, client_app=own_data_app(folders))
    else:
        assert len(metrics(train(config, 3, client_app=own_data_app(folders)))) == 1


def test_a_client_answers_no_sum_of_a_run_without_one(settings: Settings) -> None:
    watching = Watching()
    train(settings(**{**MASKED, "standardize_sum": "plaintext"}), 3, wrap_grid=watching)
    with refuses("server-asks-too-much"):
        build_client(watching.contexts[FIRST_NODE_ID]).on_phase(KEYS, Content())


@pytest.mark.parametrize(
    ("means", "scales"),
    [([0.0, 1.0], [1.0, 0.0]), ([0.0], [1.0, 1.0]), ([0.0, float("nan")], [1.0, 1.0])],
)
def test_given_no_positive_scale_then_refused(means: list[float], scales: list[float]) -> None:
    with pytest.raises(BadMessageError):
        received_scaling(Content(values={MEANS: means, SCALES: scales}), {"model-shape": [2]})


def test_given_a_scaling_then_a_client_keeps_means_and_scales_alone() -> None:
    values = {MEANS: [0.0, 1.0], SCALES: [2.0, 0.5], "settings": "{}"}
    kept = received_scaling(Content(values=values), {"model-shape": [2]})
    assert kept == {MEANS: [0.0, 1.0], SCALES: [2.0, 0.5]}


def test_given_an_owner_with_another_unit_then_it_alone_reads_so_before_round_1(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, columns, alone = write_owners(tmp_path, 4)
    name = columns.names[-1]
    for file in (place / "owner2").glob("month*.csv"):
        rows = pd.read_csv(file)
        rows[name] *= 1_000
        rows.to_csv(file, index=False)
    more = {"client_data": str(place), "num_rounds": 1, "standardize_sum": "masked"}
    train(settings(**alone | more, standardize="federation"), 4)
    said = [line for line in capfd.readouterr().out.splitlines() if "another unit" in line]
    assert [line.partition(":")[0] for line in said] == ["Client 2"]
    assert name in said[0]


def test_given_swapped_names_as_frequent_as_each_other_then_their_owner_alone_reads_so(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for owner in range(3):
        folder = tmp_path / "data" / str(owner)
        folder.mkdir(parents=True)
        for month in ("a", "b"):
            is_man = np.arange(40) % 2
            height = rng.normal(165, 7, 40) + 12 * is_man
            height[3] = np.nan  # filled
            sex = np.where(is_man == (owner != 1), "m", "f")
            rows = pd.DataFrame({"height": height, "sex": sex})
            rows.to_csv(folder / f"{month}.csv", index=False)
        (folder / "priors.csv").write_text("set,x,y\na,0.7,0.3\nb,0.2,0.8\n")
    listed = [{"name": "sex", "categories": ["f", "m"]}, {"name": "height"}]
    (tmp_path / "columns.json").write_text(json.dumps({"columns": listed}))
    flat = {"dataset": "none", "class-names": "x,y", "columns": str(tmp_path / "columns.json")}
    flat |= {"client_data": str(tmp_path / "data"), "missing": "median", "model": "linear"}
    flat |= {"standardize_sum": "masked", "num_rounds": 1, "selection": "last"}
    run = train(settings(**flat), 3)
    said = [line for line in capfd.readouterr().out.splitlines() if "all other owners" in line]
    assert [line.partition(":")[0] for line in said] == ["Client 1"]
    assert "'sex'" in said[0]
    height = read_columns(run).columns[1]
    assert height.fill == pytest.approx(171, abs=4)  # medians stand where they stood
    assert height.mean == pytest.approx(171, abs=2)
