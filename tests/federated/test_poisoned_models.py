"""Updates that go too far and models that are not finite take the place of no good one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedul_flwr.config.run_config import resolve
from fedul_flwr.federated.combine import update_norm
from fedul_flwr.federated.messages import ARRAYS, to_record
from tests.federated.test_update_validator import IN_ROUND_1, LENIENT, replacing
from tests.support.fedmatch_exchanges import Exchange, watched
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, metrics, same, train
from tests.support.settings import QUICK, Settings

# Bounds


def norms_of(settings: Settings) -> list[float]:
    """Norms of the clients' updates in round 1."""
    exchanges: list[Exchange] = []
    train(settings(**{**QUICK, "num_rounds": 1}), 3, **watched(exchanges))
    pairs = [(to_record(e.up[ARRAYS]), to_record(e.down[ARRAYS])) for e in exchanges]
    return [update_norm(*pair) for pair in pairs]


def test_updates_beyond_the_bound_are_refused(settings: Settings) -> None:
    norms = norms_of(settings)
    assert len(norms) == 3
    least, middle, most = sorted(norms)
    plan = {**LENIENT, "num_rounds": 1}
    free = train(settings(**plan), 3)
    assert same(free, train(settings(**plan, max_update_norm=1.0001 * most), 3))
    bounded = train(settings(**plan, max_update_norm=(middle + most) / 2), 3)
    assert metrics(bounded)[0]["failures"] == 1
    farthest = norms.index(most)
    with refuses("client-failed", match=f"Client {farthest}: .*{most:.6g}"):
        train(settings(**QUICK, max_update_norm=(middle + most) / 2), 3)
    with refuses("no-update", match="returned"):
        train(settings(**plan, max_update_norm=least / 2), 3)


# Never a poisoned model


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value")
def test_a_model_that_is_not_finite_ends_the_run_and_is_not_kept(settings: Settings) -> None:
    """Updates are finite and their mean is; a server's step of 10 times their length is not."""
    kept: list[bytes] = []
    base: dict[str, Any] = {"base": "fedavgm", "fedavgm.server-learning-rate": 10.0}
    config = settings(**{**QUICK, **base, "num_rounds": 3})
    model = Path(config.output) / "last.safetensors"

    def poison(call: int, replies: list[Message]) -> list[Message]:
        if call == IN_ROUND_1 + 1:
            kept.append(model.read_bytes())
            for reply in replies:
                replacing("1.bias", np.full(128, 3e38, np.float32))(reply)
        return replies

    with refuses("model-not-finite", match=r"Round 2: .*round 1.*last\.safetensors") as error:
        train(config, 3, wrap_grid=lambda grid: MeddlingGrid(grid, poison))
    assert [model.read_bytes()] == kept
    assert [line["round"] for line in metrics(model.parent)] == [1]
    assert (model.parent / "error.txt").read_text() == f"{error.value.with_code}\n"
    assert not list(model.parent.glob(".*.part"))
    # And the run goes on from there, with what the base remembered of round 1.
    train(resolve({"resume": config.output}, Path.cwd()), 3)
    assert [line["round"] for line in metrics(model.parent)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_memory_that_is_not_finite_ends_the_run_and_is_not_kept(settings: Settings) -> None:
    """A step of FedAdam is m/(sqrt(v) + tau), which is 0 where v has overflowed: the model is
    sound, and these weights would never move again."""
    config = settings(**{**QUICK, "base": "fedadam", "num_rounds": 3})
    directory = Path(config.output)

    def poison(call: int, replies: list[Message]) -> list[Message]:
        for reply in replies if call == IN_ROUND_1 + 1 else ():
            replacing("1.bias", np.full(128, 1e25, np.float32))(reply)
        return replies

    with refuses("model-not-finite", match=r"Round 2: .base/v_t/dict/1\.bias.*round 1"):
        train(config, 3, wrap_grid=lambda grid: MeddlingGrid(grid, poison))
    assert [file.name for file in directory.glob("state-*")] == ["state-1.safetensors"]
    train(resolve({"resume": config.output}, Path.cwd()), 3)
    assert [line["round"] for line in metrics(directory)] == [1, 2, 3]
