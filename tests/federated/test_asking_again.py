"""Servers that ask again in other words, and owners who lie under masks; each with its control."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, default_flat, parse_flat
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid, task_identity
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    HEAD,
    OF,
    PRIOR,
    SETTINGS,
    SETUP,
    phase_messages,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.owner.door import build_client, make_client_app
from fedul_flwr.federated.owner.ledger import LEDGER, Ledger, epsilon_of
from fedul_flwr.federated.replies import UpdateValidator
from fedul_flwr.federated.stages import dp, heads
from fedul_flwr.federated.stages.known_error import OF_MISFITS
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.federated.sums import client as sum_member
from fedul_flwr.federated.sums.server import SecureSums
from fedul_flwr.federated.sums.vector import Numbers
from fedul_flwr.learning.closed_form import SoftSums
from fedul_flwr.models import build_model
from tests.support.learnable_owners import NAMES, images_in, write_labeled, write_sets
from tests.support.lying_server import SUMMED, Owners, cosine, opened_sums
from tests.support.refusals import refuses
from tests.support.runs import train

Settings = Callable[..., RunConfig]
VICTIM = 2
FULL = {"batch_size": 64, "local_epochs": 1, "optimizer": "sgd", "max_update_norm": 5.0}
OF_HEADS: dict[str, Any] = {
    **{**SUMMED, "secure_sum": "off", "method": "closed-form", "model": "linear"},
    "closed-form.refinements": 0,
}


def in_other_words(words: str, start: Any) -> Any:
    """The weights of a model, moved by a hair or of another type."""
    if words == "hair":
        return {name: array + array.dtype.type(1e-7) for name, array in start.items()}
    return {name: array.astype(words) for name, array in start.items()}


@pytest.mark.parametrize(
    ("words", "limits", "answers"),
    [
        *(("hair", {"fixed-clients": True}, 1), ("float64", {"fixed-clients": True}, 1)),
        *(("float64", {}, 1), ("int64", {"check-models": False}, 1), ("hair", {}, 2)),
        ("hair", {"fixed-clients": True, "identity": ""}, 1),
    ],
)
def test_a_second_run_without_one_owner_learns_nothing_from_nearly_the_same_weights(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    limits: dict[str, Any],
    answers: int,
) -> None:
    checked = {"check-models": True, "max-rounds": 3}
    owners, sums = Owners(tmp_path, 5, **{**checked, **limits}), opened_sums(monkeypatch)
    train(settings(**{**SUMMED, **FULL}), 5, client_app=owners.app)
    present, configure = Strategy.choose_clients, Strategy.configure_train

    def configured(self: Any, number: int, arrays: Any, config: Any, grid: Any) -> Any:
        start = to_record(in_other_words(words, to_arrays(arrays)))
        return configure(self, number, start, config, grid)

    def chosen(*asked: Any) -> Any:
        return [one for one in present(*asked) if one.partition_id != VICTIM]

    monkeypatch.setattr(Strategy, "choose_clients", chosen)
    monkeypatch.setattr(Strategy, "configure_train", configured)
    with suppress(UserError):
        train(settings(**{**SUMMED, **FULL}), 5, client_app=owners.app)
    assert len(sums) == answers
    if answers == 2:  # the control: what the limit prevents
        difference = sums[0][1] - sums[1][1]
        assert cosine(difference, owners.updates[1, VICTIM][0]) > 0.999


def sums_of_heads(
    settings: Settings, owners: Owners, monkeypatch: pytest.MonkeyPatch, count: int, change: Any
) -> list[Any]:
    """Sums for a head over the first ``count`` owners, asked with a changed model."""
    opened: list[Any] = []
    collect = SecureSums.collect

    def lying(
        self: Any, grid: Any, of: Any, clients: Any, size: int, arrays: Any, values: Any
    ) -> Any:
        asked = collect(self, grid, of, [*clients][:count], size, change(arrays), values)
        if of in heads.HEADS:
            opened.append(asked[0])
        return asked

    with monkeypatch.context() as patch, suppress(UserError):
        patch.setattr(SecureSums, "collect", lying)
        train(settings(**OF_HEADS), 5, client_app=owners.app)
    return opened


def moved_bias(arrays: Any) -> Any:
    return {n: a + a.dtype.type(1) if n.endswith("bias") else a for n, a in arrays.items()}


@pytest.mark.parametrize("fixed", [True, False])
def test_another_bias_of_the_last_layer_is_no_other_group_for_a_head(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool
) -> None:
    owners = Owners(tmp_path, 5, write_sets, **{"fixed-clients": fixed})
    first = sums_of_heads(settings, owners, monkeypatch, 5, lambda arrays: arrays)
    second = sums_of_heads(settings, owners, monkeypatch, 4, moved_bias)
    assert (len(first), len(second)) == (1, 0 if fixed else 1)
    if not fixed:  # the control: Σ x xᵀ of the owner who was left out, exactly
        one = SoftSums.of_flat(first[0] - second[0], 3, 64).about(np.zeros(64))
        rows = (images_in(owners.folders[4]).reshape(-1, 64) / 255 - 0.5) / 0.5
        np.testing.assert_allclose(one.second, rows.T @ rows, atol=1e-3)


@pytest.mark.parametrize("wants", ["require-secure-sum", "check-models", ""])
def test_features_that_the_server_made_are_not_summed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wants: str
) -> None:
    limits = {"require-secure-sum": False} | ({wants: True} if wants else {})
    owners = Owners(tmp_path, 5, write_sets, **limits)

    def crafted(arrays: Any) -> Any:
        return {n: a * a.dtype.type(1.01) if "filters" in n else a for n, a in arrays.items()}

    monkeypatch.setitem(OF_HEADS, "model", "random-features")
    opened = sums_of_heads(settings, owners, monkeypatch, 5, crafted)
    assert len(opened) == (0 if wants else 1)


@pytest.mark.parametrize("sent", ["array", "value"])
def test_what_no_answer_depends_on_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    owners = Owners(tmp_path, 3, write_sets)
    collect = SecureSums.collect

    def lying(self: Any, grid: Any, of: Any, clients: Any, size: int, *others: Any) -> Any:
        junk = {"junk": np.zeros(1, np.float32)} if sent == "array" else None
        return collect(self, grid, of, clients, size, junk, {"junk": 1} if junk is None else None)

    monkeypatch.setattr(SecureSums, "collect", lying)
    options = {**SUMMED, "method": "fedul", "model": "linear", "test_prior": "sets"}
    with pytest.raises(UserError, match="'junk' for a sum of sets"):
        train(settings(**options), 3, client_app=owners.app)


@pytest.mark.parametrize("sent", [True, False])
def test_an_array_beside_what_a_sum_is_of_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    owners, opened = Owners(tmp_path, 3, write_sets), []
    collect = SecureSums.collect

    def lying(
        self: Any, grid: Any, of: Any, clients: Any, size: int, arrays: Any, values: Any
    ) -> Any:
        junk = {"junk": np.zeros(1, np.float32)} if sent and of == OF_MISFITS else {}
        asked = collect(self, grid, of, clients, size, {**arrays, **junk}, values)
        opened.append(of)
        return asked

    monkeypatch.setattr(SecureSums, "collect", lying)
    with suppress(UserError):
        train(settings(**OF_HEADS), 3, client_app=owners.app)
    assert (OF_MISFITS in opened) is not sent


def answers_of(folder: Path, asked: list[Any], **limits: Any) -> list[str]:
    """What an owner answers to messages, each ``(phase, content)`` or content to train on."""

    def build(context: Any) -> Any:
        context.node_config |= {"data": str(folder), **limits}
        return build_client(context)

    replies = []
    with task_identity():
        grid = InProcessGrid(make_client_app(build), 1, {})
        for one in asked:
            if isinstance(one, RecordDict):
                messages = [Message(one, dst_node_id=FIRST_NODE_ID, message_type="train")]
            else:
                name, content = one
                messages = phase_messages(name, {FIRST_NODE_ID: content})
            [reply] = grid.send_and_receive(messages)
            replies.append(reply.error.reason if reply.has_error() else "answered")
    return replies


def setup_of(config: RunConfig, **more: Any) -> tuple[str, Content]:
    shape = {"input-shape": [8, 8, 1], "model-shape": [8, 8, 1], "class-names": [*NAMES]}
    told = {**config.to_flat(), **more}
    return SETUP, Content(values={SETTINGS: json.dumps(told), **shape})


def weights() -> dict[str, Any]:
    state = build_model("linear", (8, 8, 1), 3).state_dict()
    return {name: array.numpy() for name, array in state.items()}


@pytest.mark.parametrize("least", [60, 0])
def test_after_a_setup_that_a_floor_refuses_nothing_is_answered(
    settings: Settings, tmp_path: Path, least: int
) -> None:
    write_sets(tmp_path / "ward", 0)
    limits = {"min-set-size": least, "allow-plaintext": True}
    plain = {**OF_HEADS, "closed-form.sum": "plaintext", "test_prior": "uniform"}
    values = {OF: "head", PRIOR: [1 / 3] * 3, "server-round": 1}
    head = (HEAD, Content(weights(), values))
    answers = answers_of(tmp_path / "ward", [setup_of(settings(**plain)), head], **limits)
    assert [answer == "answered" for answer in answers] == [not least] * 2
    update = RecordDict({ARRAYS: to_record(weights()), CONFIG: ConfigRecord({"server-round": 1})})
    fedul = {**SUMMED, "secure_sum": "off", "method": "fedul", "model": "linear"}
    config = settings(**fedul, test_prior="uniform")
    answers = answers_of(tmp_path / "ward", [setup_of(config), update], **limits)
    assert [answer == "answered" for answer in answers] == [not least] * 2


@pytest.mark.parametrize(
    "features", ["run:/etc", "run:/nowhere", "huggingface:/etc", "torchvision:resnet18"]
)
def test_whether_a_folder_or_network_is_there_is_not_told(
    settings: Settings, tmp_path: Path, features: str
) -> None:
    write_sets(tmp_path / "ward", 0)
    fedul = {**SUMMED, "secure_sum": "off", "method": "fedul", "model": "linear"}
    asked = setup_of(settings(**fedul, test_prior="uniform"), features=features)
    [answer] = answers_of(tmp_path / "ward", [asked])
    assert f"does not allow features = {features!r}" in answer


def test_sums_of_one_owner_are_plain_text() -> None:
    flat = {**default_flat(), "closed-form.sum": "plaintext"}
    for method in ({"method": "closed-form"}, {"method": "closed-form-labels"}):
        settings = parse_flat({**flat, **method})
        with refuses("owner-does-not-allow", UserError, limit="allow-plaintext"):
            NodeConfig(data="ward").check_run(settings)
        NodeConfig(data="ward", allow_plaintext=True).check_run(settings)


@pytest.mark.parametrize("clipping", ["none", "client"])
@pytest.mark.parametrize("fails", ["too large", "loss-not-finite", "model-not-finite"])
def test_whether_an_update_can_be_sent_is_in_no_answer(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fails: str,
    clipping: str,
) -> None:
    if (fails, clipping) == ("too large", "client"):
        pytest.skip("what is clipped is not too large")
    owners, sums = Owners(tmp_path, 5), opened_sums(monkeypatch)
    build, seen = owners._build, []

    def failing(context: Any) -> Any:
        client = build(context)
        honest = client.train

        def train_one(arrays: Any, config: Any, received: Any = None) -> Any:
            update = honest(arrays, config, received)
            if client.node.partition_id == VICTIM:
                if fails != "too large":
                    raise UserError("What it has trained is not finite.", fails)
                name = next(iter(update[ARRAYS]))
                update[ARRAYS][name] = update[ARRAYS][name] + np.float32(100)
            return update

        client.train = train_one
        return client

    receive = UpdateValidator.updates

    def replies_of(self: Any, replies: Any) -> Any:
        heard = [*replies]
        seen.extend(dict(reply.content["metrics"]) for reply in heard)
        return receive(self, heard)

    monkeypatch.setattr(UpdateValidator, "updates", replies_of)
    config = settings(**SUMMED, **{"dp.clipping": clipping})
    run = train(config, 5, client_app=make_client_app(failing))
    assert [clients for clients, _ in sums] == [[*range(5)]]
    assert len(seen) == 5
    assert all(reply == seen[0] for reply in seen)  # the server hears the same of each
    if clipping == "none":  # else the sum has noise
        others = [owners.updates[1, client][0] for client in range(5) if client != VICTIM]
        np.testing.assert_allclose(sums[0][1] / 4, np.mean(others, axis=0), atol=1e-6)
    assert "finite" in capfd.readouterr().err
    assert (run / "summary.json").is_file()


LIES: dict[str, Callable[[SoftSums], SoftSums]] = {
    "times a million": lambda s: SoftSums(*(1e6 * part for part in s)),
    "negative": lambda s: SoftSums(*(-3 * part for part in s)),
    "features twenty times": lambda s: SoftSums(s.gram, 20 * np.roll(s.sums, 1, 0), s.second),
    "no squares": lambda s: SoftSums(s.gram, s.sums, -1e5 * np.eye(len(s.second))),
}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_given_an_owner_whose_sums_no_points_have_then_no_head_is_made(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str | None
) -> None:
    honest = heads.client_sums

    def lying(client: Any, content: Content) -> Any:
        flat = honest(client, content)
        if client.node.partition_id or lie is None:
            return flat
        return LIES[lie](SoftSums.of_flat(flat, 3, 64).about(np.zeros(64))).flat()

    monkeypatch.setattr(heads, "client_sums", lying)
    owners = Owners(tmp_path, 5, lambda folder, number: write_labeled(folder, number, known=30))
    config = settings(**{**OF_HEADS, "method": "closed-form-labels"})
    if lie is None:
        assert (train(config, 5, client_app=owners.app) / "summary.json").is_file()
        return
    with refuses("sum-wrong"):
        train(config, 5, client_app=owners.app)


@pytest.mark.parametrize("lie", ["weight", "length"])
def test_given_an_owner_whose_update_weighs_or_moves_too_much_then_no_model_is_made(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    owners, write = Owners(tmp_path, 5), Numbers.write
    if lie == "weight":
        heavy = lambda self, *numbers: [900.0, *write(self, *numbers)[1:]]  # noqa: E731
        monkeypatch.setattr(Numbers, "write", heavy)
    else:
        longer = lambda changes, _: {n: 0.1 + 0 * value for n, value in changes.items()}  # noqa: E731
        monkeypatch.setattr(sum_member, "clipped", longer)
    with refuses("sum-wrong"):
        train(settings(**{**SUMMED, "max_update_norm": 0.5}), 5, client_app=owners.app)


PRIVATE: dict[str, Any] = {
    **{**SUMMED, "method": "fedul", "model": "linear", "test_prior": "uniform"},
    **{"dp.clipping": "client", "num_rounds": 4},
}


def test_no_figure_without_noise_leaves_where_clients_add_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss tells whether an owner has a point, whatever noise the model has."""
    seen: list[set[str]] = []
    write = Numbers.write

    def watched(self: Any, weight: float, payload: Any) -> Any:
        seen.append({*payload} & {"loss", "confident-share"})
        return write(self, weight, payload)

    monkeypatch.setattr(Numbers, "write", watched)
    train(
        settings(**{**PRIVATE, "num_rounds": 1}), 3, client_app=Owners(tmp_path, 3, write_sets).app
    )
    assert seen == [set()] * 3
    plain = {**PRIVATE, "dp.clipping": "none", "num_rounds": 1, "seed": 1}
    train(settings(**plain), 3, client_app=Owners(tmp_path / "plain", 3, write_sets).app)
    assert seen[3:] == [{"loss"}] * 3  # the control


@pytest.mark.parametrize("more", [{"selection": "heldout"}, {"fedul.fewer-sets": True}])
def test_sums_without_noise_are_beyond_a_budget(settings: Settings, more: dict[str, Any]) -> None:
    node = NodeConfig(data="ward", max_epsilon=10.0)
    node.check_run(settings(**PRIVATE))
    with refuses("owner-does-not-allow", UserError, limit="max-epsilon"):
        node.check_run(settings(**{**PRIVATE, **more}))


def test_an_owner_reads_what_the_whole_run_spends(settings: Settings, tmp_path: Path) -> None:
    write_sets(tmp_path / "ward", 0)
    # z = 1: after k releases mu = sqrt(k), of which epsilon at delta 1e-5 is 4.377, 6.573, 8.385,
    # 9.997 for k = 1 to 4 (Balle and Wang 2018); 7 allows two, and one is spent.
    node = NodeConfig(data=str(tmp_path / "ward"), max_epsilon=7.0)
    Ledger(tmp_path / "ward.ledger" / LEDGER).spend("updates", 1.0, 0.0)
    client = SimpleNamespace(settings=settings(**{**PRIVATE, "num_rounds": 3}), node=node)
    first, second = dp.AtClient(client).describe()
    assert f"epsilon = {epsilon_of(4.0):.4g} " in first
    assert f"{epsilon_of(1.0):.4g} is spent" in first
    assert second.endswith("after 1 round(s).")
