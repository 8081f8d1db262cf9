"""Who drops out of a propagation, when, and what is left of it; and what messages hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedul_flwr.data.run_files.label_files import XCLP, file_name
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.propagation.phases import COMPARE, SUM
from tests.strategies.test_label_propagation import (
    FEATURES,
    LABELS,
    assert_agree,
    central,
    together,
)
from tests.support.runs import MeddlingGrid, as_error, last_model, metrics, same, summary, train
from tests.support.settings import Settings
from tests.support.xclp_parties import Parties, split

WrapGrid = Callable[[Grid], Grid]
SETUP, AT_COMPARE, AT_SUM, LAST = 1, 2, 3, 4
"""Calls of a run whose first round propagates: hello, these, and training or the labels."""
LOST = 2
SIZES = [90, 110, 100, 100]
OWNERS = np.repeat(np.arange(4), SIZES)


def losing(at: int, *clients: int) -> dict[str, WrapGrid]:
    """Options of a run in which ``clients`` fail to answer call ``at``."""
    nodes = {FIRST_NODE_ID + client for client in clients}

    def lose(call: int, replies: list[Message]) -> list[Message]:
        return [
            as_error(reply, "gone") if call == at and reply.metadata.src_node_id in nodes else reply
            for reply in replies
        ]

    return {"wrap_grid": lambda grid: MeddlingGrid(grid, lose)}


# Among parties


def test_before_the_graph_it_is_as_if_never_there() -> None:
    parts = split(FEATURES, LABELS, SIZES)
    lost = Parties(**parts, lost=lambda phase, _, client: (phase, client) == (COMPARE, LOST))
    found = lost.propagate()
    assert list(found) == [0, 1, 3]
    left = OWNERS != LOST
    assert_agree(together(found), central(LABELS[left], FEATURES[left]), LABELS[left] < 0)


def test_in_the_sum_it_leaves_its_points_and_takes_its_labels() -> None:
    parts = split(FEATURES, LABELS, SIZES)
    lost = Parties(**parts, lost=lambda phase, _, client: (phase, client) == (SUM, LOST))
    found = lost.propagate()
    assert lost.asked == [COMPARE, SUM, SUM]
    assert list(found) == [0, 1, 3]
    left = OWNERS != LOST
    expected = central(np.where(left, LABELS, -1))
    of_others = type(expected)(*(part[left] for part in expected))
    assert_agree(together(found), of_others, LABELS[left] < 0)
    # Neither all labels nor a graph without those points gives the same.
    for other in (central(), central(np.where(left, LABELS, -1), FEATURES * left[:, None])):
        assert np.abs(other.confidence - expected.confidence)[left & (LABELS < 0)].max() > 1e-3


# In whole runs

PREDICT: dict[str, Any] = {
    **{"method": "xclp-predict", "labels.total": 60, "xclp.num-bits": 256},
    **{"on_client_failure": "continue"},
}
TRAIN: dict[str, Any] = {
    **{"method": "xclp", "labels.total": 60, "xclp.num-bits": 256, "model": "mlp"},
    **{"semi.labels-only-rounds": 0, "num_rounds": 1, "local_epochs": 1, "points_per_client": 60},
    **{"on_client_failure": "continue"},
}


def written(directory: Path) -> dict[int, str]:
    """Files of labels by client."""
    return {
        int(file.parent.name): file.read_text()
        for file in sorted((directory / "clients").glob(f"*/{file_name(XCLP)}"))
    }


def test_predictions_of_the_others_when_one_drops_out(settings: Settings) -> None:
    whole = written(train(settings(**PREDICT), 4))
    assert list(whole) == [0, 1, 2, 3]
    never = train(settings(**PREDICT), 4, **losing(SETUP, LOST))
    lost = train(settings(**PREDICT), 4, **losing(AT_COMPARE, LOST))
    assert written(lost) == written(never)
    assert list(written(lost)) == [0, 1, 3]
    assert written(lost)[0] != whole[0]
    assert summary(lost)["failures"] == 1
    last = train(settings(**PREDICT), 4, **losing(LAST, LOST))
    assert {c: text for c, text in written(last).items() if c != LOST} == {
        c: text for c, text in whole.items() if c != LOST
    }


def test_models_when_one_drops_out(settings: Settings) -> None:
    never = train(settings(**TRAIN), 4, **losing(SETUP, LOST))
    lost = train(settings(**TRAIN), 4, **losing(AT_COMPARE, LOST))
    assert same(lost, never)
    assert [(line["clients"], line["failures"]) for line in metrics(lost)] == [(3, 1)]
    # In the sum: its points carry labels of others, it has no labels and does not train. Where its
    # labels are withheld and it fails to train (one try of the sum: call 4), that is the same.
    lost = train(settings(**TRAIN), 4, **losing(AT_SUM, LOST))
    silent = settings(**TRAIN, **{"labels.without-client": LOST})
    expected = last_model(train(silent, 4, **losing(LAST, LOST)))
    for name, array in last_model(lost).items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-5)
    assert not same(lost, never)


# What messages hold


def heard(labels: Any) -> list[tuple[str, int, Content, Content]]:
    parties = Parties(**split(FEATURES, labels, SIZES))
    parties.propagate()
    return parties.heard


def test_messages_hold_what_they_must_and_no_more() -> None:
    unlabeled = [int((LABELS[client == OWNERS] < 0).sum()) for client in range(4)]
    for phase, client, message, answer in heard(LABELS):
        if phase == COMPARE:
            assert set(message.arrays) == {"seed"}
            assert set(message.values) == {"server-round", "first"}
            assert set(answer.arrays) == {"codes", "labeled"}
            np.testing.assert_array_equal(answer.arrays["labeled"], LABELS[client == OWNERS] >= 0)
            assert answer.arrays["labeled"].dtype == np.bool_
        else:
            labeled = SIZES[client] - unlabeled[client]
            assert {name: array.shape for name, array in message.arrays.items()} == {
                "columns": (sum(unlabeled), labeled)
            }
            assert message.values == {
                **{"server-round": 1, "unlabeled": unlabeled},
                **{"participants": [0, 1, 2, 3], "attempt": 0, "withheld": False},
            }
            # Rows of the others' unlabeled points, of the counts for each other, and for a check.
            rows = sum(unlabeled) - unlabeled[client] + 3 + 1
            assert {name: array.shape for name, array in answer.arrays.items()} == {
                "sent": (rows, 5)
            }
        assert answer.values == {}


def test_a_group_that_is_lost_leaves_the_other_groups_their_labels(settings: Settings) -> None:
    grouped = {**PREDICT, "xclp-predict.groups": 2}
    whole = written(train(settings(**grouped), 4))
    # Groups are halves of an order drawn from the seed; the first half is asked first.
    left = set(stream(0, "groups").permutation(4)[2:].tolist())
    found = written(train(settings(**grouped), 4, **losing(AT_COMPARE, 0, 1, 2, 3)))
    assert found == {client: whole[client] for client in left}
