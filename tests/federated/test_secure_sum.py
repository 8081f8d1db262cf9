"""Runs with ``secure-sum = "on"``: the model of a plain run, and nothing of one client's update."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.types import Content
from fedul_flwr.errors import NoUpdateError, UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    KEYS,
    MASKED,
    METRICS,
    SHARES,
    UNMASK,
    PlainArray,
    phase_of,
)
from fedul_flwr.federated.stages.dp import add_noise
from fedul_flwr.federated.sums.client import BEGUN, SumMember
from fedul_flwr.federated.sums.vector import BOUND, NUMBERS, SLOTS, Layout, write_numbers
from fedul_flwr.learning.variates import CONTROL, USED_ROUND
from fedul_flwr.secure.session import NONCE, Session
from fedul_flwr.secure.sharing import SEALED
from fedul_flwr.secure.sum_client import Masked, Member, Offered, Terms
from fedul_flwr.secure.words import add_vectors, quantize, step_numbers, step_size
from tests.strategies.test_fedul_priors import THREE, owners_of_two_sets
from tests.support.fake_fleet import OWNERS as OWNERS_THAT_COME
from tests.support.fake_fleet import run_fleet, write_owners
from tests.support.fedmatch_exchanges import LC, LS, TINY
from tests.support.identities import identities, write_identity
from tests.support.learnable_owners import NO_DATA, write_labeled
from tests.support.message_log import TO_SERVER, read_message_log
from tests.support.refusals import refuses
from tests.support.runs import (
    MeddlingGrid,
    assert_same_arrays,
    cut_off,
    is_train,
    last_model,
    metrics,
    own_data_app,
    resume,
    summary,
    train,
)
from tests.support.settings import Settings

QUICK: dict[str, Any] = {
    **{"method": "supervised", "model": "mlp", "num_rounds": 2, "points_per_client": 60},
    **{"precision": "float32", "selection": "last", "learning_rate": 0.05},
}
LC_ALONE, LS_ALONE = (
    {key: value for key, value in scenario.items() if key != "fedmatch.helper-interval"}
    for scenario in (LC, LS)
)
SUM: dict[str, Any] = {**QUICK, "secure_sum": "on"}
CONTINUE = {"on_client_failure": "continue"}


def close(one: Path, other: Path, tolerance: float = 1e-5) -> None:
    """Both runs have the same rounds and, but for rounding, the same losses and last model."""
    for some, others in zip(metrics(one), metrics(other), strict=True):
        for key in ("round", "clients", "failures"):
            assert some[key] == others[key]
        for key in {"loss", "confident-share"} & others.keys():
            assert some[key] == pytest.approx(others[key], abs=1e-3)
    for name, array in last_model(one).items():
        np.testing.assert_allclose(array, last_model(other)[name], atol=tolerance)


def test_given_updates_when_words_are_added_then_the_sum_is_that_of_the_rounded_values() -> None:
    rng = np.random.default_rng(0)
    sent = {ARRAYS: {"w": np.zeros((3, 2), np.float32), "count": np.array(7)}}
    layout = Layout.of(sent, (), 0.0)
    assert list(layout.shapes) == [(ARRAYS, "w")]  # a counter is no part of a sum
    changes = [rng.normal(size=(3, 2)) for _ in range(5)]
    words = [
        layout.words({(ARRAYS, "w"): change}, [1.0, float(at)], 5, np.random.default_rng(at))
        for at, change in enumerate(changes)
    ]
    total, numbers = layout.read(add_vectors(words, NUMBERS), 5)
    rounded = [
        quantize(change.ravel(), BOUND, 5, np.random.default_rng(at)).view(np.int32)
        for at, change in enumerate(changes)
    ]
    exact = np.sum(rounded, axis=0, dtype=np.int64).reshape(3, 2) * step_size(BOUND, 5)
    np.testing.assert_array_equal(total[ARRAYS, "w"], exact)
    np.testing.assert_allclose(total[ARRAYS, "w"], np.sum(changes, axis=0), atol=1e-7)
    assert numbers[:2].tolist() == [5.0, 10.0]  # 0 + 1 + 2 + 3 + 4


def test_given_many_clients_and_large_numbers_when_added_then_the_sum_is_exact() -> None:
    largest = 2.0**43 - 2.0**-9  # 53 binary digits
    one = write_numbers([largest, -largest, 0.1, -1.5])
    numbers = step_numbers(add_vectors([one] * 1000, NUMBERS))
    assert numbers[:2].tolist() == [1000 * largest, -1000 * largest]
    # 0.1 is a multiple of 2^-55 in floating point, so nothing of it is lost.
    assert numbers[2:5].tolist() == [float(1000 * Fraction(0.1)), -1500.0, 0.0]


def test_given_a_value_out_of_range_when_written_then_it_is_refused_and_not_clipped() -> None:
    for numbers in ([np.inf], [np.nan], [2.0**43], [0.0] * (SLOTS + 1)):
        with pytest.raises(UserError):
            write_numbers(numbers)
    layout = Layout.of({ARRAYS: {"w": np.zeros(2)}}, (), 0.0)
    for value in (8.5, np.nan, -np.inf):
        with pytest.raises(UserError, match="max-update-norm"):
            layout.words({(ARRAYS, "w"): np.array([0.0, value])}, [], 3, np.random.default_rng(0))


def test_given_another_model_or_value_when_digested_then_the_digest_differs() -> None:
    model = {ARRAYS: {"w": np.zeros(2, np.float32)}}
    same = Asked(model, {"server-round": 1, USED_ROUND: 4}).digest
    assert same == Asked(model, {USED_ROUND: 2, "server-round": 1}).digest  # a client's own value
    others = [
        Asked(model, {"server-round": 2}),
        Asked({ARRAYS: {"w": np.array([0, 1], np.float32)}}, {"server-round": 1}),
        Asked({ARRAYS: {"v": np.zeros(2, np.float32)}}, {"server-round": 1}),
        Asked({ARRAYS: {"w": np.zeros((2, 1), np.float32)}}, {"server-round": 1}),
        Asked({ARRAYS: {"w": np.zeros(2)}}, {"server-round": 1}),
        Asked({**model, CONTROL: {"w": np.zeros(2)}}, {"server-round": 1}),
    ]
    assert len({same, *(other.digest for other in others)}) == 7
    own = Asked({**model, "rows": {"w": np.zeros(2)}}, {"server-round": 1}, frozenset({"rows"}))
    assert own.digest == same  # declared as for this client alone


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 1e-4),
        ({"client_weights": "examples", "partition": "dirichlet"}, 1e-4),
        ({"base": "fedavgm"}, 1e-4),
        ({"base": "fedadam"}, 1e-3),  # divides by the root of small squares
        # In round 3 the clients also use a sum of variates that is not the first.
        ({"base": "scaffold", "optimizer": "sgd", "num_rounds": 3, "partition": "dirichlet"}, 1e-4),
        ({"base": "fednova", "optimizer": "sgd", "partition": "dirichlet"}, 1e-4),
        # With batch norm. By Adam a bias before it, without a gradient, would follow the rounding.
        ({"model": TINY, "optimizer": "sgd"}, 1e-4),
        ({"fraction_train": 0.75, "max_update_norm": 100.0}, 1e-4),  # no update is as large
        ({**LS_ALONE, "fedmatch.helpers": 0}, 1e-4),
        ({**LC_ALONE, "fedmatch.helpers": 0, "fedmatch.decomposition": False, "model": TINY}, 1e-4),
    ],
    ids=str,
)  # fmt: skip
def test_given_any_base_when_updates_are_summed_then_the_run_is_the_plain_one(
    settings: Settings, options: dict[str, Any], tolerance: float
) -> None:
    # Plain FedMatch leaves out small changes, which a sum has.
    whole = {"fedmatch.difference-threshold": 0} if "fedmatch.helpers" in options else {}
    plain = train(settings(**{**QUICK, **options, **whole}), 4)
    summed = train(settings(**{**SUM, **options}), 4)
    close(summed, plain, tolerance)


def test_given_a_run_that_was_cut_off_when_it_resumes_then_the_bits_are_the_same(
    settings: Settings,
) -> None:
    whole = train(settings(**SUM), 3)
    # Calls: describe, setup; keys, peers, shares, train, unmask; shares of round 2, train.
    cut = cut_off(settings(**SUM), 3, call=8)
    resumed = resume(cut, 3)
    assert_same_arrays(last_model(resumed), last_model(whole))
    assert [line["loss"] for line in metrics(resumed)] == [line["loss"] for line in metrics(whole)]


def test_given_a_norm_when_updates_are_larger_then_clients_clip_them(settings: Settings) -> None:
    options = {**SUM, "num_rounds": 1, "max_update_norm": 0.01}
    started = train(settings(**{**options, "max_update_norm": 1e-9}), 3)
    ended = train(settings(**options), 3)
    change = sum(
        float(np.sum((array - last_model(started)[name]) ** 2))
        for name, array in last_model(ended).items()
    )
    assert 0.001 < np.sqrt(change) <= 0.01


# What the server gets


class Watching(MeddlingGrid):
    """Keeps all replies to training messages, and may lose some of any message."""

    def __init__(self, grid: Grid, lose: Callable[[str, int], bool] = lambda *_: False) -> None:
        super().__init__(grid, lambda _, replies: replies)
        self.trained: list[dict[str, Any]] = []
        self._lose = lose

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        if not sent:
            return []
        name = phase_of(sent[0]) or sent[0].metadata.message_type
        replies = list(super().send_and_receive(sent, timeout=timeout))
        nodes = sorted(reply.metadata.src_node_id for reply in replies)
        kept = [r for r in replies if not self._lose(name, nodes.index(r.metadata.src_node_id))]
        if is_train(replies):
            self.trained += [dict(reply.content) for reply in replies if reply.has_content()]
        return kept


def watched(config: RunConfig, clients: int, **options: Any) -> tuple[Path, list[dict[str, Any]]]:
    grids: list[Watching] = []

    def wrap(grid: Grid) -> Grid:
        grids.append(Watching(grid, **options))
        return grids[0]

    return train(config, clients, wrap_grid=wrap), grids[0].trained


def test_given_equal_runs_when_replies_are_read_then_they_have_nothing_in_common(
    settings: Settings,
) -> None:
    runs = [watched(settings(**{**SUM, "num_rounds": 1}), 3)[1] for _ in range(2)]
    words = []
    for replies in runs:
        for reply in replies:
            assert set(reply) == {ARRAYS, METRICS, DIAGNOSTICS}
            arrays = cast(ArrayRecord, reply[ARRAYS])
            assert list(arrays) == [MASKED]
            numbers = cast(MetricRecord, reply[METRICS])
            assert set(numbers.values()) == {1}  # names alone: the values are in the sum
            words.append(arrays[MASKED].numpy())
    for masked in words:
        # Uniform words: the mean of n is within 5 standard deviations, (2^32)/sqrt(12 n).
        spread = 5 * 2**32 / np.sqrt(12 * len(masked))
        assert abs(masked.mean() - 2**31) < spread
        assert len(np.unique(masked)) > 0.99 * len(masked)
    # The same updates in both runs, under other masks.
    for one, other in zip(words[:3], words[3:], strict=True):
        assert (one == other).mean() < 1e-3


def test_given_a_client_that_drops_out_when_training_then_the_mean_is_that_of_the_others(
    settings: Settings,
) -> None:
    def lose(name: str, client: int) -> bool:
        return name == "train" and client == 3

    plain, summed = (
        watched(settings(**kind, **CONTINUE), 4, lose=lose)[0] for kind in (QUICK, SUM)
    )
    close(summed, plain)


def test_given_a_client_that_drops_out_before_training_then_the_others_go_on_without_it(
    settings: Settings,
) -> None:
    config = settings(**SUM, **CONTINUE)
    run, replies = watched(config, 5, lose=lambda name, client: (name, client) == ("sum-peers", 4))
    assert [line["clients"] for line in metrics(run)] == [4, 4]
    assert len(replies) == 8


def test_given_a_client_that_drops_out_after_training_then_its_update_is_in_the_sum(
    settings: Settings,
) -> None:
    plain = train(settings(**{**QUICK, "num_rounds": 1}), 4)
    config = settings(**{**SUM, "num_rounds": 1}, **CONTINUE)
    run, _ = watched(config, 4, lose=lambda name, client: name == UNMASK and client == 2)
    for name, array in last_model(plain).items():
        np.testing.assert_allclose(last_model(run)[name], array, atol=1e-5)


def test_given_fewer_clients_than_open_a_sum_then_the_round_fails_and_nothing_is_read(
    settings: Settings,
) -> None:
    config = settings(**SUM, **CONTINUE)
    with pytest.raises(NoUpdateError, match=r"^Round 1: "):
        watched(config, 4, lose=lambda name, client: name == UNMASK and client > 1)


@pytest.mark.parametrize(("weights", "failed"), [("uniform", 0), ("examples", 1)])
def test_given_a_client_that_claims_a_huge_number_of_points_then_the_others_go_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, weights: str, failed: int
) -> None:
    register = Client.register

    def claim(client: Client[Any]) -> dict[str, Any]:
        is_liar = client.node.partition_id == 3
        return {**register(client), **({"num-points": 10**12} if is_liar else {})}

    monkeypatch.setattr(Client, "register", claim)
    run = train(settings(**{**SUM, "num_rounds": 1, "client_weights": weights}, **CONTINUE), 5)
    assert [line["failures"] for line in metrics(run)] == [failed]


def test_given_two_clients_when_a_sum_is_asked_for_then_the_run_is_refused(
    settings: Settings,
) -> None:
    with refuses("no-update", NoUpdateError, match="secure .* 3 "):
        train(settings(**SUM), 2)


def test_given_a_share_that_does_not_open_when_the_next_sum_begins_then_nobody_leaves(
    settings: Settings,
) -> None:
    """The reader drops out of round 1, and says in round 2 why: the two share no masks then."""

    class Garbling(Watching):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            sent = list(messages)
            replies = list(super().send_and_receive(sent, timeout=timeout))
            if sent and phase_of(sent[0]) == SHARES and not self.trained:
                first = min(replies, key=lambda reply: reply.metadata.src_node_id)
                (record,) = first.content.array_records.values()
                sealed = record[SEALED].numpy().copy()
                sealed[0, -1] ^= 1
                record[SEALED] = PlainArray.of(sealed)
            return replies

    first, second = metrics(train(settings(**SUM, **CONTINUE), 6, wrap_grid=Garbling))
    assert (first["clients"], len(first["failed"])) == (5, 1)
    assert (second["clients"], second.get("failed")) == (6, None)


def test_given_clients_that_join_or_lose_their_keys_then_keys_are_exchanged_anew(
    settings: Settings, tmp_path: Path
) -> None:
    """Owner 5 joins in round 2; in round 3 owner 4 has lost its memory and cannot share masks."""
    write_owners(tmp_path / "owners", 6)
    there = lambda number: range(6 if number > 1 else 5)  # noqa: E731
    fleet: dict[str, Any] = {"partitions": range(6), "forgets": {(3, 4)}, "there": there}
    options = {**OWNERS_THAT_COME, **CONTINUE, "secure_sum": "on", "selection": "last"}
    run, flock = run_fleet(settings(**options), tmp_path / "owners", **fleet)
    assert [line["clients"] for line in metrics(run)] == [5, 6, 5, 6]
    assert [len(flock.asked(number, KEYS)) for number in (1, 2, 3, 4)] == [5, 6, 0, 6]


@pytest.mark.parametrize(("sent", "last"), [(False, 4), (True, 5)])
def test_given_new_keys_when_a_client_has_sent_its_vector_then_no_other_sum_of_the_round_follows(
    settings: Settings, sent: bool, last: int
) -> None:
    state = ClientState(RecordDict())
    node = NodeConfig.parse({"partition-id": 0})
    sums = SumMember(SimpleNamespace(settings=settings(**SUM), node=node, state=state))
    member = Member(Session(0, b"", {}, {}, b"", 1), False, frozenset(), {})
    terms = Terms((0, 1, 2), (0, 1, 2), 3, b"")
    before = Masked(5, member, terms, {}) if sent else Offered(5, member, terms, b"", b"", b"")
    stored = {f"stage/{name}": array for name, array in before.to_arrays().items()}
    state.set_ephemeral("secure-sum", stored)
    arrays = {NONCE: np.zeros(32, np.uint8)}
    sums.answer(KEYS, Content(arrays=arrays, values={BEGUN: 1}))
    assert state.ephemeral("secure-sum")["stage/last"] == last


@pytest.mark.parametrize(("step", "deviation"), [(1e-6, 0.50006), (5e-4, 0.5306)])
def test_given_an_update_when_noise_is_added_then_it_has_its_deviation_in_whole_steps(
    step: float, deviation: float
) -> None:
    privacy, least = DPSettings(clipping="client", norm=2.0, noise_multiplier=0.5), 4
    zeros = {(ARRAYS, "w"): np.zeros((300, 200))}
    (noise,) = add_noise(zeros, privacy, step, least).values()
    # z (C + step √d) / √least = 0.5 (2 + step · 244.9) / 2; 60,000 numbers: ± 1.5 %.
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(deviation, rel=0.015)
    np.testing.assert_allclose(noise / step, np.rint(noise / step), atol=1e-6)
    # 0.5 + 61.2 · step is below 1,024 steps.
    with refuses("setting-breaks-privacy", setting="dp.noise-multiplier"):
        add_noise(zeros, privacy, 5.4e-4, least)


PRIVATE_SUM: dict[str, Any] = {
    **{"dp.clipping": "client", "dp.norm": 0.5, "client_weights": "uniform", "num_rounds": 1}
}


def test_given_clipped_updates_when_they_are_summed_then_clients_add_the_noise(
    settings: Settings,
) -> None:
    noiseless = {**SUM, "max_update_norm": 0.5, "client_weights": "uniform", "num_rounds": 1}
    plain = train(settings(**noiseless), 4)
    options = {**SUM, **PRIVATE_SUM, "dp.noise_multiplier": 2.0}
    private = train(settings(**options), 4)
    noise = np.concatenate(
        [(array - last_model(plain)[name]).ravel() for name, array in last_model(private).items()]
    )
    # Of 4 clients without identities 3 open a sum. Each adds z·C/√3 = 0.577; the mean of four has
    # 0.577 / √4 = 0.289. A mean with the server's noise would have z·C/4 = 0.25.
    assert np.std(noise) == pytest.approx(0.2887, rel=0.05)
    apart = train(settings(**{**options, "secure_sum": "off"}), 4)
    spent = [summary(directory)["epsilon"] for directory in (private, apart)]
    assert spent[0] == spent[1]


# Sums of numbers alone

FEDUL: dict[str, Any] = {
    **{"method": "fedul", "fedul.num-sets": 10, "model": "mlp", "num_rounds": 2},
    **{"local_epochs": 1, "points_per_client": 150, "precision": "float32", "optimizer": "sgd"},
}


def test_given_held_out_losses_when_they_are_summed_then_the_mean_is_that_of_the_plain_run(
    settings: Settings, tmp_path: Path
) -> None:
    options = {**FEDUL, "selection": "heldout"}
    plain = train(settings(**options), 4)
    config = settings(**options, secure_sum="on")
    summed = train(config, 4, message_log=tmp_path / "log")
    close(summed, plain, 1e-4)
    for line, other in zip(metrics(summed), metrics(plain), strict=True):
        mean = np.mean([loss for _, loss in other["heldout_losses"]])
        assert line["heldout_loss"] == pytest.approx(mean, rel=1e-3)
        assert "heldout_losses" not in line
    assert summary(summed)["best_round"] == summary(plain)["best_round"]
    assert "evaluate" not in {message.type for message in read_message_log(tmp_path / "log")}


@pytest.mark.parametrize("few", [False, True])
def test_given_class_masses_when_they_are_summed_then_pi_is_that_of_the_plain_run(
    settings: Settings, tmp_path: Path, few: bool
) -> None:
    """Also where clients have fewer sets than classes, and the server checks all sets together."""
    sets = {"fedul.num-sets": 6, "fedul.fewer-sets": True} if few else {}
    options = {**FEDUL, **sets, "partition": "dirichlet", "test_prior": "sets"}
    options["selection"] = "last"
    plain = train(settings(**options), 4)
    config = settings(**options, secure_sum="on")
    summed = train(config, 4, message_log=tmp_path / "log")
    close(summed, plain, 1e-4)
    np.testing.assert_allclose(summary(summed)["test_prior"], summary(plain)["test_prior"])
    replies = [m for m in read_message_log(tmp_path / "log") if "class-masses" in str(m.values)]
    assert not replies
    for call in (7, 12):  # in round 1 after the sum, and in round 2
        begun = cut_off(settings(**options, secure_sum="on"), 4, call=call)
        config = resolve({"resume": str(begun)}, Path.cwd())
        log = tmp_path / f"log-{call}"
        assert_same_arrays(last_model(train(config, 4, message_log=log)), last_model(summed))
        # A second sum of sets would tell parts.
        assert "sum-part" not in {message.phase for message in read_message_log(log)}


def test_given_sets_that_leave_classes_alike_when_they_are_summed_then_the_run_is_refused(
    settings: Settings, tmp_path: Path
) -> None:
    folders = owners_of_two_sets(tmp_path / "alike", [(0, 1), (1, 0)])
    folders.append(Path(copytree(folders[0], tmp_path / "alike" / "owner2")))
    chosen = {**THREE, "num_rounds": 1, "fedul.fewer-sets": True, "secure_sum": "on"}
    with refuses("priors-rank", match="1 of the 2 "):
        train(settings(**chosen), 3, client_app=own_data_app(folders))


@pytest.mark.parametrize(
    "options",
    [
        {"base": "krum"},
        {"evaluate": "local"},
        {"dp.clipping": "server"},
        {"method": "fedmatch", "fedmatch.helpers": 2},
        {"method": "xclp-predict"},
    ],
    ids=lambda options: ", ".join(map(str, options.values())),
)
def test_given_what_a_sum_cannot_give_when_a_run_starts_then_it_is_refused(
    settings: Settings, options: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="secure-sum"):
        train(settings(**{**SUM, **options}), 3)


@pytest.fixture
def owners(tmp_path: Path) -> list[Path]:
    """Folders of three owners, with identities of their own."""
    folders = []
    for number, one in identities(range(3)).items():
        write_identity(tmp_path / "keys" / f"{number}", one)
        folder = tmp_path / "owners" / f"{number}"
        write_labeled(folder, seed=number, points=12)
        folders.append(folder)
    return folders


OWNERS: dict[str, Any] = {
    **{"method": "labels-only", "model": "mlp", "num_rounds": 2, "precision": "float32"},
    **{"selection": "last", "secure_sum": "on", **NO_DATA},
}


def test_given_owners_with_identities_when_they_sum_then_who_is_in_the_sum_is_signed(
    settings: Settings, tmp_path: Path, owners: list[Path]
) -> None:
    app = own_data_app(owners, identity=str(tmp_path / "keys" / "{client}"))
    config = settings(**OWNERS)
    run = train(config, 3, client_app=app, message_log=tmp_path / "log")
    assert [line["clients"] for line in metrics(run)] == [3, 3]
    phases = [m.phase for m in read_message_log(tmp_path / "log") if m.direction == TO_SERVER]
    assert phases.count("sum-keys") == 3  # each client once a run
    assert phases.count("sum-confirm") == phases.count("sum-unmask") == 6


def test_given_an_owner_that_requires_sums_when_a_run_has_none_then_it_refuses(
    settings: Settings, owners: list[Path]
) -> None:
    app = own_data_app(owners, **{"require-secure-sum": True})
    config = settings(**{**OWNERS, "secure_sum": "off"})
    with pytest.raises(UserError, match="require-secure-sum"):
        train(config, 3, client_app=app)
    train(settings(**OWNERS), 3, client_app=app)


def test_given_too_few_for_a_sum_then_the_run_says_who_is_missing_and_why(
    settings: Settings, owners: list[Path]
) -> None:
    (owners[1] / "labels.csv").write_text("no,header\n")
    config = settings(**OWNERS, on_client_failure="continue")
    with pytest.raises(UserError) as caught:
        train(config, 3, client_app=own_data_app(owners))
    (here, *gone) = str(caught.value).split("; ")
    assert here.endswith("3 clients or more")
    assert len(gone) >= 2
    assert gone[1].startswith("Client 1: it says ")
    assert str(owners[1]) not in str(caught.value)
