"""A server that lies reads sums of honest rounds and nothing else.

Owners have identities, and keep their limits; nobody works with the server. Each attack has its
control beside it: without the one thing that stops it, it succeeds.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedul_flwr.baselines.static_batch_norm import STATISTICS
from fedul_flwr.config.methods import METHODS, Method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import parse_flat, resolve
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid, task_identity
from fedul_flwr.errors import UserError
from fedul_flwr.federated import asked as asked_by
from fedul_flwr.federated.client_data import ClientState, admitted_settings
from fedul_flwr.federated.messages import (
    ARRAYS,
    COLUMNS,
    CONFIG,
    DESCRIBE,
    END,
    HEAD,
    PERSONAL,
    SETTINGS,
    SETUP,
    SUM_PHASES,
    UNMASK,
    from_records,
    phase_messages,
    phase_of,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.owner.door import Door, make_client_app
from fedul_flwr.federated.owner.ledger import LEDGER, Ledger
from fedul_flwr.federated.payload import EVALUATE, TRAIN
from fedul_flwr.federated.stage import RoundAtServer, sums_of
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.federated.sums import client as sum_member
from fedul_flwr.federated.sums.client import LARGEST_WEIGHT
from fedul_flwr.federated.sums.server import SecureSums
from fedul_flwr.models import build_model
from tests.support.learnable_owners import NAMES, NO_DATA, write_sets
from tests.support.lying_server import SUMMED, LyingGrid, Owners, cosine, opened_sums
from tests.support.refusals import refuses
from tests.support.runs import own_data_app, train
from tests.support.settings import Settings

VICTIM = 2


def config_of(message: Message) -> ConfigRecord:
    return cast(ConfigRecord, message.content[CONFIG])


def run(settings: Settings, owners: Owners, change: Any = lambda *_: None, **options: Any) -> None:
    """A run whose server says what ``change`` makes of its messages; its end is no matter."""
    with suppress(UserError):
        train(
            settings(**{**SUMMED, **options}),
            len(owners.folders),
            client_app=owners.app,
            wrap_grid=lambda grid: LyingGrid(grid, change),
        )


def other_settings(kind: str, client: int, message: Message) -> None:
    """All but the victim learn next to nothing."""
    if kind == "setup" and client != VICTIM:
        told = json.loads(str(config_of(message)[SETTINGS]))
        config_of(message)[SETTINGS] = json.dumps({**told, "learning-rate": 1e-30}, sort_keys=True)


def other_weight(kind: str, client: int, message: Message) -> None:
    """The weights of all but the victim round to nothing."""
    if kind == "sum-shares":
        config_of(message)[LARGEST_WEIGHT] = 32.0 if client == VICTIM else 2.0**40


def other_model(kind: str, client: int, message: Message) -> None:
    """All but the victim get a model of zeros."""
    if kind == "train" and client != VICTIM:
        record = message.content.array_records[ARRAYS]
        zeros = to_record({name: 0 * array.numpy() for name, array in record.items()})
        message.content = RecordDict({**message.content, ARRAYS: zeros})


LIES: dict[str, tuple[Callable[[str, int, Message], None], dict[str, Any]]] = {
    "settings": (other_settings, {}),
    "largest weight": (other_weight, {"client_weights": "examples"}),
}
each_lie = pytest.mark.parametrize(("lie", "options"), LIES.values(), ids=LIES)


@each_lie
def test_given_owners_told_different_things_then_nothing_is_read(
    lie: Any,
    options: dict[str, Any],
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners, sums = Owners(tmp_path, 4), opened_sums(monkeypatch)
    run(settings, owners, lie, **options)
    assert owners.updates  # the victim has trained, and its vector is at the server
    assert not sums


def too_small_a_weight(kind: str, _: int, message: Message) -> None:
    """All owners, with four sets of 20 points each, are told that nobody has more than 29."""
    if kind == "sum-shares":
        config_of(message)[LARGEST_WEIGHT] = 29.0


def test_given_a_largest_weight_that_is_not_the_largest_then_nobody_answers(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = opened_sums(monkeypatch)
    weighed = {"method": "fedul", "model": "linear", "test_prior": "uniform"}
    owners = Owners(tmp_path / "sets", 4, write_sets)
    for change, count in ((lambda *_: None, 1), (too_small_a_weight, 0)):
        sums.clear()
        run(settings, owners, change, client_weights="examples", **weighed)
        assert len(sums) == count


@pytest.mark.parametrize("least", [4, 5])
def test_given_a_least_number_of_clients_then_no_sum_is_over_fewer(
    least: int, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, sums = Owners(tmp_path, 4, **{"min-labeled-clients": least}), opened_sums(monkeypatch)
    run(settings, owners)
    assert len(sums) == (1 if least == 4 else 0)
    assert bool(owners.updates) is (least == 4)  # nor does anybody compute its part


def test_given_another_model_than_announced_then_owners_do_not_train_on_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, sums = Owners(tmp_path, 4), opened_sums(monkeypatch)
    run(settings, owners, other_model)
    assert owners.updates.keys() == {(1, VICTIM)}
    assert not sums


@each_lie
def test_given_masks_and_signatures_of_less_then_the_victims_update_is_read(
    lie: Any,
    options: dict[str, Any],
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: the question leaves out what the server says to each owner."""

    def of_less(run: int, _: Any, of: str, server_round: int, __: float, asked: bytes) -> bytes:
        return asked_by.question(run, {}, of, server_round, 0.0, asked)

    monkeypatch.setattr(sum_member, "question", of_less)
    owners, sums = Owners(tmp_path, 4), opened_sums(monkeypatch)
    run(settings, owners, lie, **options)
    [(_, total)] = sums
    assert cosine(total, owners.updates[1, VICTIM][0]) > 0.999999


def test_given_owners_without_identities_told_different_things_then_the_sum_is_no_model(
    settings: Settings, tmp_path: Path
) -> None:
    """The server, which may not know of it, says so in place of a model of noise."""
    owners = Owners(tmp_path, 4)
    with refuses("sum-wrong"):
        train(
            settings(**SUMMED),
            4,
            client_app=own_data_app(owners.folders),
            wrap_grid=lambda grid: LyingGrid(grid, other_settings),
        )


def ask_again(
    monkeypatch: pytest.MonkeyPatch,
    *,
    as_round: int | None,
    without: int | None = VICTIM,
    apart: float = 0.0,
) -> None:
    """The server starts round 2 from the first model, or one next to it, without the victim."""
    begin, configure = SecureSums.begin, Strategy.configure_train
    before, first = Strategy.choose_clients, {}

    def begun(self: Any, grid: Grid, messages: Any, number: int, buffers: Any) -> Any:
        for message in messages if as_round else ():
            config_of(message)["server-round"] = as_round
        return begin(self, grid, messages, number, buffers)

    def configured(self: Any, number: int, arrays: Any, config: Any, grid: Grid) -> Any:
        start = to_arrays(first.setdefault("model", arrays))
        near = {name: array + array.dtype.type(apart) for name, array in start.items()}
        return configure(self, number, to_record(near if number == 2 else start), config, grid)

    def sampled(self: Any, round: RoundAtServer) -> Any:
        chosen = before(self, round)
        return [c for c in chosen if round.number != 2 or c.partition_id != without]

    monkeypatch.setattr(SecureSums, "begin", begun)
    monkeypatch.setattr(Strategy, "configure_train", configured)
    monkeypatch.setattr(Strategy, "choose_clients", sampled)


FULL_BATCHES: dict[str, Any] = {"batch_size": 64, "local_epochs": 1, "optimizer": "sgd"}
"""With them a round's number makes no difference to an update."""


@pytest.mark.parametrize("as_round", [None, 1], ids=["as round 2", "as round 1"])
def test_given_a_round_asked_again_without_one_owner_then_the_others_refuse(
    as_round: int | None, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, sums = Owners(tmp_path, 5), opened_sums(monkeypatch)
    ask_again(monkeypatch, as_round=as_round)
    run(settings, owners, num_rounds=2, **FULL_BATCHES)
    assert [clients for clients, _ in sums] == [[0, 1, 2, 3, 4]]


def test_given_a_round_asked_under_the_number_of_another_then_nobody_answers(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all owners are asked, so that two sums would tell no difference."""
    owners, sums = Owners(tmp_path, 4), opened_sums(monkeypatch)
    ask_again(monkeypatch, as_round=1, without=None)
    run(settings, owners, num_rounds=2)
    assert len(sums) == 1


def test_given_owners_without_a_memory_when_asked_again_then_the_difference_is_the_update(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: nobody remembers over whom a model's updates were summed."""
    monkeypatch.setattr(Ledger, "others", lambda *_, **options: [])
    owners, sums = Owners(tmp_path, 5), opened_sums(monkeypatch)
    ask_again(monkeypatch, as_round=None)
    run(settings, owners, num_rounds=2, **FULL_BATCHES)
    (_, everybody), (_, others) = sums
    assert cosine(everybody - others, owners.updates[1, VICTIM][0]) > 0.9999


@pytest.mark.parametrize("fixed", [True, False])
def test_given_a_model_next_to_the_last_when_one_owner_is_left_out_then_fixed_clients_refuse(
    fixed: bool, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is what docs/privacy.md says of sums of different rounds without the limit."""
    owners, sums = Owners(tmp_path, 5, **{"fixed-clients": fixed}), opened_sums(monkeypatch)
    ask_again(monkeypatch, as_round=None, apart=1e-6)
    run(settings, owners, num_rounds=2, **FULL_BATCHES)
    assert len(sums) == (1 if fixed else 2)
    if not fixed:
        difference = sums[0][1] - sums[1][1]
        assert cosine(difference, owners.updates[1, VICTIM][0]) > 0.999


@pytest.mark.parametrize("fixed", [True, False])
def test_given_an_owner_that_drops_out_of_the_first_sum_then_the_rest_is_no_group(
    fixed: bool, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fixed groups it waits: else all of them together could never be summed again."""
    owners, sums = Owners(tmp_path, 5, **{"fixed-clients": fixed}), opened_sums(monkeypatch)
    build, gone = owners._build, {VICTIM}

    def failing(context: Any) -> Any:
        client = build(context)
        if client.node.partition_id in gone:
            client.train = None  # type: ignore[method-assign, assignment]
        return client

    def start() -> None:
        flat = {**SUMMED, "on_client_failure": "continue"}
        with suppress(UserError):
            train(settings(**flat), 5, client_app=make_client_app(failing))

    start()
    assert [len(clients) for clients, _ in sums] == ([] if fixed else [4])
    gone.clear()
    start()
    assert [len(clients) for clients, _ in sums] == ([5] if fixed else [4])


@pytest.mark.parametrize("seed", [0, 1])
def test_given_a_new_run_of_the_same_seed_without_one_owner_then_the_others_refuse(
    seed: int, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another seed the models, and so the updates, are others: the run goes on."""
    owners, sums = Owners(tmp_path, 5), opened_sums(monkeypatch)
    run(settings, owners)
    present = Strategy.choose_clients
    monkeypatch.setattr(
        Strategy,
        "choose_clients",
        lambda *asked: [c for c in present(*asked) if c.partition_id != VICTIM],
    )
    run(settings, owners, seed=seed)
    assert [len(clients) for clients, _ in sums] == ([5, 4] if seed else [5])
    for folder in owners.folders:
        Ledger(folder.with_suffix(".ledger") / LEDGER).regroup()
    run(settings, owners)
    assert len(sums[-1][0]) == 4


def test_given_a_resumed_run_then_each_round_is_answered_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, sums = Owners(tmp_path, 4), opened_sums(monkeypatch)
    begun = train(settings(**{**SUMMED, "num_rounds": 2}), 4, client_app=owners.app)
    train(resolve({"resume": str(begun), "num-rounds": 3}, tmp_path), 4, client_app=owners.app)
    assert len(sums) == 3
    assert sorted(owners.updates) == [(number, c) for number in (1, 2, 3) for c in range(4)]
    assert {len(answers) for answers in owners.updates.values()} == {1}


class Restarting(LyingGrid):
    """All SuperNodes restart after round 1; then the server asks for its sum again."""

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        replies = super().send_and_receive(sent, timeout=timeout)
        if sent and phase_of(sent[0]) == UNMASK:
            for context in cast(Any, self._grid).contexts.values():
                for name in [name for name in context.state if name != SETUP]:
                    del context.state[name]
        return replies


def answers_after_restart(
    settings: Settings, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> int:
    """How often the victim answers one round, if it is asked again by the same model."""
    ask_again(monkeypatch, as_round=1, without=None)
    begin = SecureSums.begin
    monkeypatch.setattr(
        SecureSums,
        "begin",
        lambda self, grid, messages, _, buffers: begin(self, grid, messages, 1, buffers),
    )
    monkeypatch.setattr(SecureSums, "_is_stale", lambda *_: True)
    with suppress(UserError):
        train(
            settings(**{**SUMMED, "num_rounds": 2, "on_client_failure": "continue"}),
            len(owners.folders),
            client_app=owners.app,
            wrap_grid=Restarting,
        )
    return len(owners.updates[1, 0])


def test_given_restarted_nodes_when_a_round_is_asked_again_then_nobody_answers(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answers_after_restart(settings, Owners(tmp_path, 4), monkeypatch) == 1


def test_given_two_processes_that_answer_at_once_then_one_vector_leaves(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither knows of the other when the sum begins."""
    monkeypatch.setattr(Ledger, "last_answer", lambda *_: 0)
    sums = opened_sums(monkeypatch)
    answers_after_restart(settings, Owners(tmp_path, 4), monkeypatch)
    assert len(sums) == 1


def test_given_no_ledger_when_a_round_is_asked_again_then_it_is_answered_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what Flower's state alone remembers is lost with a restart."""
    monkeypatch.setattr(sum_member, "ledger_file", lambda _: None)
    assert answers_after_restart(settings, Owners(tmp_path, 4), monkeypatch) == 2


# Phases

NO_SUM = {
    "xclp": {"xclp-compare", "xclp-sum", "xclp-audit", "xclp-end"},
    "xclp-predict": {"xclp-compare", "xclp-sum", "xclp-audit", "xclp-end", "xclp-label"},
    "fedsem": {"fedsem-label"},
}
"""Phases that are no sums, and are answered where owners require sums: encrypted, or without a word
about the data."""
PHASES_OF_ALL = {DESCRIBE, SETUP, END}
ALL_PHASES = {
    *SUM_PHASES,
    *PHASES_OF_ALL,
    *(COLUMNS, PERSONAL, HEAD),
    *(phase for method in METHODS.values() for phase in method.client_class.answers),
    *(p for method in METHODS.values() for stage in method.stages for p in stage.client.phases),
    *set().union(*NO_SUM.values()),
    "a phase that nobody knows",
} - {TRAIN, EVALUATE}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_given_owners_that_require_sums_then_only_phases_without_a_part_are_answered(
    method: Method,
) -> None:
    assert STATISTICS in ALL_PHASES
    settings = parse_flat({"method": method.name, "secure-sum": "on" if method.can_sum else "off"})
    node = NodeConfig(data="somewhere", require_secure_sum=True)
    kind = method.client_class
    door = Door(kind(settings, node, ClientState(RecordDict())))
    for phase in ALL_PHASES:
        of_sums = SUM_PHASES if sums_of(settings) else ()
        if phase in {*of_sums, *PHASES_OF_ALL, *NO_SUM.get(method.name, ())}:
            door.require_phase(phase)
        else:
            with refuses("server-asks-too-much", match=phase):
                door.require_phase(phase)
    for what in ("an update", "a loss"):
        with refuses("server-asks-too-much", match=what):
            door.require_no_sum(what)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_given_owners_that_require_sums_then_no_method_trains_without(method: Method) -> None:
    node = NodeConfig(data="somewhere", require_secure_sum=True)
    for sums in ("on", "off"):
        text = json.dumps({"method": method.name, "secure-sum": sums, **NO_DATA})
        tells_no_update = not (method.trains and method.updates)
        is_trained_head = method.name == "fedul-heads"
        if not is_trained_head and (method.can_sum if sums == "on" else tells_no_update):
            admitted_settings(node, text)
        else:
            with pytest.raises(UserError, match="secure-sum"):
                admitted_settings(node, text)


def statistics_of(owners: Owners, settings: Settings, client: int) -> Content | None:
    """What a client answers to a server that calls a run SemiFL, and asks for its statistics."""
    told = settings(
        **{**SUMMED, "method": "semifl", "secure_sum": "off", "model": "cnn2"}
    ).to_flat()
    told["secure-sum"] = "on"
    with task_identity():
        grid = InProcessGrid(owners.app, len(owners.folders), {})
        shape = {"input-shape": [8, 8, 1], "model-shape": [8, 8, 1], "class-names": [*NAMES]}

        def ask(name: str, content: Content) -> Content | None:
            node = FIRST_NODE_ID + client
            [reply] = grid.send_and_receive(phase_messages(name, {node: content}))
            return None if reply.has_error() else from_records(reply.content)

        ask(SETUP, Content(values={SETTINGS: json.dumps(told), **shape}))
        model = build_model("cnn2", (8, 8, 1), len(NAMES))
        arrays = {name: array.numpy() for name, array in model.state_dict().items()}
        return ask(STATISTICS, Content(arrays=arrays, values={"round": 1}))


def test_given_a_method_that_is_no_sum_when_statistics_are_asked_for_then_they_stay(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = Owners(tmp_path, 3)
    assert statistics_of(owners, settings, 1) is None
    # The control: a client that takes the server's word for it.
    monkeypatch.setitem(METHODS, "semifl", replace(METHODS["semifl"], can_sum=True))
    assert statistics_of(owners, settings, 1) is None
    monkeypatch.setattr(Door, "require_phase", lambda *_: None)
    answer = statistics_of(owners, settings, 1)
    assert answer is not None
    assert any("running_mean" in name for name in answer.arrays)


def test_given_sums_of_class_shares_in_two_runs_then_both_are_over_the_same_owners(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their seed is no matter, as they come from no model; other data are another matter."""
    owners = Owners(tmp_path, 5, write_sets)
    options = {**SUMMED, "method": "fedul", "model": "linear", "test_prior": "sets"}
    sizes: list[int] = []

    def start(count: int, seed: int) -> None:
        collect = SecureSums.collect

        def counted(self: Any, grid: Any, of: Any, clients: Any, *given: Any) -> Any:
            summed = collect(self, grid, of, [*clients][:count], *given)
            sizes.append(len(summed[1]))
            return summed

        with monkeypatch.context() as patch, suppress(UserError):
            patch.setattr(SecureSums, "collect", counted)
            train(settings(**options, seed=seed), 5, client_app=owners.app)

    start(5, seed=0)
    start(4, seed=1)
    assert sizes == [5]
    start(5, seed=2)
    assert sizes == [5, 5]
    for number in range(5):
        folder = tmp_path / "others" / f"{number}"
        write_sets(folder, number)
        (tmp_path / "owners" / f"{number}.ledger").rename(folder.with_suffix(".ledger"))
        owners.folders[number] = folder
    start(4, seed=3)
    assert sizes == [5, 5, 4]
