"""Models from a server that lies: an owner accepts those that its run can have, and no others."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.errors import UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import ARRAYS
from fedul_flwr.federated.owner.ledger import LEDGER, Ledger
from fedul_flwr.federated.owner.model_check import largest_move, refuse_foreign_model
from fedul_flwr.federated.stages.heads import HeadNoise
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models.registry import fresh_model
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.lying_server import SUMMED, LyingGrid, Owners
from tests.support.refusals import refuses
from tests.support.runs import metrics, train
from tests.support.settings import Settings

C = 0.5
FLAT: dict[str, Any] = {
    **{"method": "labels-only", "model": "mlp", "secure-sum": "on", "max-update-norm": C},
    **{"num-rounds": 5, **NO_DATA},
}
SHAPE = (8, 8, 1), 3
NODE = NodeConfig(data="somewhere", check_models=True)


@pytest.fixture
def run() -> RunConfig:
    return parse_flat(FLAT)


@pytest.fixture
def first(run: RunConfig) -> dict[str, Any]:
    return dump_arrays(fresh_model(run, *SHAPE))


def moved(arrays: dict[str, Any], length: float) -> dict[str, Any]:
    """``arrays`` after a step of L2 norm ``length`` along its first array."""
    name = next(iter(arrays))
    step = np.ones(arrays[name].shape) * length / math.sqrt(arrays[name].size)
    return {**arrays, name: (arrays[name] + step).astype(np.float32)}


def test_given_rounds_then_a_model_may_move_by_a_clipped_update_in_each(
    run: RunConfig, first: dict[str, Any]
) -> None:
    state = ClientState(RecordDict())

    def check(arrays: dict[str, Any], number: int, state: ClientState = state) -> None:
        refuse_foreign_model(run, NODE, state, SHAPE, arrays, number)

    check(first, 1)
    with refuses("owner-does-not-allow", limit="check-models"):
        check(moved(first, 1.01 * C), 2)
    second = moved(first, 0.99 * C)
    check(second, 2)
    with refuses("owner-does-not-allow"):
        check(moved(first, -0.99 * C), 3)  # too far from the last one, not from the first
    check(moved(second, 1.9 * C), 4)  # the client was not in round 3
    check(second, 3, ClientState(RecordDict()))  # a client that joins, or has forgotten
    with refuses("owner-does-not-allow"):
        check(moved(first, 2.1 * C), 3, ClientState(RecordDict()))
    with refuses("owner-does-not-allow"):
        check(first, 7, ClientState(RecordDict()))  # of 5 rounds, 6 is evaluated
    with refuses("owner-does-not-allow"):
        check(moved(first, 0.99 * C), 0, ClientState(RecordDict()))  # the first round is 1
    again = ClientState(RecordDict())
    for arrays, number in ((first, 1), (second, 2), (first, 1)):
        check(arrays, number, again)
    with refuses("owner-does-not-allow"):
        check(moved(first, -0.99 * C), 2, again)  # the last one is still that of round 2
    for wrong in (np.nan, np.inf):
        with refuses("owner-does-not-allow"):
            check({**first, next(iter(first)): first[next(iter(first))] * wrong}, 4)


def test_given_first_weights_of_another_seed_then_they_must_be_approved(
    run: RunConfig, first: dict[str, Any]
) -> None:
    other = dump_arrays(fresh_model(run.model_copy(update={"seed": 1}), *SHAPE))
    with refuses("owner-does-not-allow") as error:
        refuse_foreign_model(run, NODE, ClientState(RecordDict()), SHAPE, other, 1)
    digest = Asked({ARRAYS: other}, {}).model.hex()
    assert digest in str(error.value)
    node = NodeConfig(data="x", check_models=True, approved_starts=f"{'0' * 64},{digest}")
    state = ClientState(RecordDict())
    refuse_foreign_model(run, node, state, SHAPE, other, 1)
    refuse_foreign_model(run, node, state, SHAPE, moved(other, C), 2)
    with refuses("owner-does-not-allow"):
        refuse_foreign_model(run, node, ClientState(RecordDict()), SHAPE, other, 2)


def test_given_noise_of_clients_then_it_is_in_the_bound() -> None:
    private = parse_flat(
        {"method": "fedul", "model": "linear", "dp.clipping": "client", "dp.norm": 2.0,
         "dp.noise-multiplier": 0.5, "secure-sum": "on", **NO_DATA}
    )  # fmt: skip
    # C + z·C/3·(√d + 8) = 2 + 1/3·(10 + 8) = 8 for d = 100.
    assert largest_move(private, 100) == pytest.approx(8.0)
    assert largest_move(parse_flat(FLAT), 100) == C


def test_given_an_honest_run_when_owners_check_models_then_it_is_as_before(
    settings: Settings, tmp_path: Path
) -> None:
    owners = Owners(tmp_path, 4, **{"check-models": True})
    options = {**SUMMED, "num_rounds": 3, "max_update_norm": C}
    run = train(settings(**options), 4, client_app=owners.app)
    assert [line["clients"] for line in metrics(run)] == [4, 4, 4]


@pytest.mark.parametrize("checks", [True, False])
def test_given_a_model_that_the_server_made_up_then_an_owner_that_checks_refuses(
    checks: bool, settings: Settings, tmp_path: Path
) -> None:
    owners = Owners(tmp_path, 4, **{"check-models": checks})

    def other_model(kind: str, _: int, message: Any) -> None:
        if kind == "train":
            record = message.content.array_records[ARRAYS]
            for name, array in [*record.items()]:
                record[name] = type(array)(10 * array.numpy())

    from fedul_flwr.federated.sums.server import SecureSums

    begin = SecureSums.begin

    def lying(self: Any, grid: Any, messages: Any, *rest: Any) -> Any:
        for message in messages:
            other_model("train", 0, message)
        return begin(self, grid, messages, *rest)

    patch = pytest.MonkeyPatch()
    patch.setattr(SecureSums, "begin", lying)
    try:
        run = lambda: train(  # noqa: E731
            settings(**{**SUMMED, "max_update_norm": C}), 4, client_app=owners.app
        )
        if checks:
            with pytest.raises(UserError, match="check-models"):
                run()
        else:
            run()
    finally:
        patch.undo()
    assert bool(owners.updates) is not checks


RULES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "check-models": (
        {"check_models": True},
        {"base": "fedadam"},
    ),
    "check-models without a norm": ({"check_models": True}, {"max-update-norm": 0.0}),
    "check-models at the server": (
        {"check_models": True},
        {"method": "fixmatch", "scenario.labels-at": "server", "secure-sum": "off"},
    ),
    "check-models from elsewhere": ({"check_models": True}, {"start-from": "/x.safetensors"}),
    "fixed-features": ({"fixed_features": True}, {"method": "xclp"}),
    "require-secure-sum of heads": ({"require_secure_sum": True}, {"head": "closed-form"}),
    "max-epsilon": ({"max_epsilon": 5.0}, {}),
    "max-epsilon of codes": ({"max_epsilon": 5.0}, {"method": "xclp-predict", "secure-sum": "off",
                             "max-update-norm": 0.0}),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "options"), RULES.values(), ids=RULES)
def test_a_run_that_an_owner_could_not_check_is_refused(
    limits: dict[str, Any], options: dict[str, Any]
) -> None:
    run = parse_flat({**FLAT, **options})
    node = NodeConfig(data="somewhere", **limits)
    with refuses("owner-does-not-allow", limit=next(iter(limits)).replace("_", "-")):
        node.check_run(run)
    NodeConfig(data="somewhere").check_run(run)


def test_runs_that_keep_the_limits_are_admitted() -> None:
    NODE.check_run(parse_flat(FLAT))
    approved = NodeConfig(data="x", check_models=True, approved_starts="0" * 64)
    approved.check_run(parse_flat({**FLAT, "start-from": "/x.safetensors"}))
    predict = {"method": "xclp-predict", "xclp.codes-epsilon": 5.0, **NO_DATA}
    NodeConfig(data="x", fixed_features=True, max_epsilon=5.0).check_run(parse_flat(predict))


# Budgets

PRIVATE: dict[str, Any] = {
    **SUMMED,
    **{"dp.clipping": "client", "dp.norm": C, "dp.noise_multiplier": 2.0},
    **{"method": "fedul", "model": "linear", "num_rounds": 4},
}


def test_given_a_budget_when_runs_spend_it_then_a_later_round_is_refused_also_in_another_run(
    settings: Settings, tmp_path: Path
) -> None:
    # z = 2: μ² = 1/4 a round. At δ = 1e-5 ε of 4, 5 and 6 rounds is 4.38, 4.98 and 5.55.
    owners = Owners(tmp_path, 3, write_sets, **{"max-epsilon": 5.2})
    train(settings(**PRIVATE), 3, client_app=owners.app)
    with pytest.raises(UserError, match="max-epsilon"):
        train(settings(**PRIVATE, seed=1), 3, client_app=owners.app)
    assert {len(answers) for answers in owners.updates.values()} <= {1, 2}
    [spent] = Ledger(tmp_path / "owners" / "0.ledger" / LEDGER).spent()
    assert "updates in 5 message(s): epsilon = 4.98" in spent


def test_given_a_budget_then_sums_for_heads_spend_it_also_in_another_run(
    settings: Settings, tmp_path: Path
) -> None:
    # One release of ε = 10,000 in each run; two have more than 12,000.
    owners = Owners(tmp_path, 3, write_sets, **{"max-epsilon": 12_000.0})
    heads = {**SUMMED, "secure_sum": "off", "method": "closed-form", "model": "linear"}
    private = {**heads, "closed-form.refinements": 0, "closed-form.epsilon": 1e4}
    train(settings(**private), 3, client_app=owners.app)
    ledger, one = Ledger(tmp_path / "owners" / "0.ledger" / LEDGER), HeadNoise(settings(**private))
    assert ledger.mu_squared("sums for heads") == pytest.approx(one.mu_squared)
    with pytest.raises(UserError, match="max-epsilon"):
        train(settings(**private, seed=1), 3, client_app=owners.app)


def test_given_a_server_that_asks_for_more_rounds_than_it_said_then_owners_stop(
    settings: Settings, tmp_path: Path
) -> None:
    import json

    from fedul_flwr.federated.messages import CONFIG, SETTINGS

    owners = Owners(tmp_path, 4)

    def fewer(kind: str, _: int, message: Any) -> None:
        if kind == "setup":
            values = message.content[CONFIG]
            flat = {**json.loads(str(values[SETTINGS])), "num-rounds": 1, "evaluate-every": 1}
            values[SETTINGS] = json.dumps(flat, sort_keys=True)

    with pytest.raises(UserError, match="round 2 of 1"):
        train(
            settings(**{**SUMMED, "num_rounds": 3}),
            4,
            client_app=owners.app,
            wrap_grid=lambda grid: LyingGrid(grid, fewer),
        )
    assert {number for number, _ in owners.updates} == {1}
