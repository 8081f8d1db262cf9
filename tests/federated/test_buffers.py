"""Messages between the form with batch-norm buffers and the base's form without."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from fedul_flwr.federated.aggregation import add_arrays
from fedul_flwr.federated.messages import ARRAYS, CONFIG

pytestmark = pytest.mark.usefixtures("identity")


def record(**arrays: list[float]) -> ArrayRecord:
    found = {name: Array(np.array(values, np.float32)) for name, values in arrays.items()}
    return ArrayRecord(found)


def message(content: RecordDict, node: int) -> Message:
    return Message(content, node, MessageType.TRAIN)


def test_given_a_base_that_sends_its_own_weights_then_buffers_join_them_in_the_models_order() -> (
    None
):
    content = RecordDict({ARRAYS: record(last=[5.0], w=[2.0, 3.0]), CONFIG: ConfigRecord({"r": 1})})
    one, two = message(content, 1), message(content, 2)
    other = message(RecordDict({ARRAYS: record(w=[9.0, 9.0], last=[9.0])}), 3)
    model = record(w=[1.0, 1.0], mean=[7.0], last=[1.0])
    total = add_arrays([one, two, other], model)
    sent = one.content[ARRAYS]
    assert isinstance(sent, ArrayRecord)
    assert {name: array.numpy().tolist() for name, array in sent.items()} == {
        "w": [2.0, 3.0],
        "mean": [7.0],
        "last": [5.0],
    }
    assert list(sent) == ["w", "mean", "last"]
    assert one.content[CONFIG] == ConfigRecord({"r": 1})
    assert list(other.content[ARRAYS]["w"].numpy()) == [9.0, 9.0]
    # What is sent to several clients is built once.
    assert one.content is two.content
    assert total["model"] == 3 * sum(len(array.data) for array in sent.values())
