"""FedUL around bases that one client cannot lead astray, and what these bases need."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Message

from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.errors import UserError
from fedul_flwr.federated.bases import ROBUST, fewest_updates
from fedul_flwr.federated.combine import average_buffers
from fedul_flwr.federated.messages import ARRAYS, to_record
from tests.support.refusals import refuses
from tests.support.runs import MeddlingGrid, as_error, is_train, metrics, train
from tests.support.settings import Settings

Attack = Callable[[Any], Any]
PLAN: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 4, "local_epochs": 2, "points_per_client": 150},
    **{"evaluate_every": 4},
}
CLIENTS = {"multikrum": 6, "bulyan": 7}
"""With one that may send anything; five for the others."""


def flipped(array: Any) -> Any:
    return -20 * array


pytestmark = pytest.mark.usefixtures("no_collection")


def attacked(attack: Attack) -> dict[str, Any]:
    """Options of a run in which client 1 always returns something else."""

    def meddle(_: int, replies: list[Message]) -> list[Message]:
        for reply in replies if is_train(replies) else ():
            if reply.metadata.src_node_id == FIRST_NODE_ID + 1:
                record = reply.content[ARRAYS]
                for name, array in record.items():
                    record[name] = Array(attack(array.numpy()).astype(array.dtype))
        return replies

    return {"wrap_grid": lambda grid: MeddlingGrid(grid, meddle)}


@pytest.fixture
def error_of(settings: Settings) -> Callable[..., float]:
    """``error_of(base, attack) -> test error`` in percent of the last round."""

    def run(base: str, attack: Attack | None = None) -> float:
        options = attacked(attack) if attack else {}
        directory = train(settings(**PLAN, base=base), CLIENTS.get(base, 5), **options)
        return float(metrics(directory)[-1]["test_error"])

    return run


def test_a_mean_is_led_astray(error_of: Callable[..., float]) -> None:
    assert error_of("fedavg", flipped) > error_of("fedavg") + 25


@pytest.mark.parametrize("base", sorted(ROBUST))
def test_robust_bases_stay_near_the_run_without_attack(
    error_of: Callable[..., float], base: str
) -> None:
    assert error_of(base, flipped) < error_of(base) + 10


def test_a_median_of_buffers_by_hand() -> None:
    records = [to_record({"v": np.array([value, 1.0]), "n": np.array(9)}) for value in (1, 2, 1e9)]
    kept = to_record({"v": np.zeros(2), "n": np.array(4)})
    weights = np.array([1.0, 1.0, 98.0])  # have no say
    found = average_buffers(records, weights, ["v", "n"], kept, robust=True)
    np.testing.assert_array_equal(found["v"].numpy(), [2.0, 1.0])
    assert found["n"].numpy() == 4


# How many it takes

NEEDED: list[tuple[dict[str, Any], int]] = [
    ({"base": "fedavg"}, 1),
    ({"base": "krum"}, 5),  # 2·1 + 3
    ({"base": "multikrum"}, 6),  # 2·1 + 2 + 2
    ({"base": "bulyan", "krum.num-malicious-nodes": 2}, 11),  # 4·2 + 3
    ({"base": "fedtrimmedavg"}, 5),  # floor(0.2·4) is 0
    ({"base": "fedtrimmedavg", "fedtrimmedavg.beta": 0.3}, 4),  # floor(0.3·4) is 1
    ({"base": "fedtrimmedavg", "fedtrimmedavg.beta": 0.0}, 1),  # is a mean
]


@pytest.mark.parametrize(("options", "needed"), NEEDED)
def test_updates_that_a_base_needs(
    settings: Settings, options: dict[str, Any], needed: int
) -> None:
    assert fewest_updates(settings(**options)) == needed


def test_too_few_clients_are_refused_before_they_train(settings: Settings) -> None:
    config = settings(**PLAN, base="multikrum")
    with refuses("too-few-clients", setting="base", match="5 clients .* 6"):
        train(config, 5)


def test_a_round_that_is_left_with_too_few_ends_the_run(settings: Settings) -> None:
    def lose(call: int, replies: list[Message]) -> list[Message]:
        return [as_error(replies[0], "gone"), *replies[1:]] if call == 3 else replies

    config = settings(**PLAN, base="krum", on_client_failure="continue")
    message = r"4 clients .* krum.num-malicious-nodes = 1 need 5\."
    with pytest.raises(UserError, match=message):
        train(config, 5, wrap_grid=lambda grid: MeddlingGrid(grid, lose))
