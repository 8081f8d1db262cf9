"""Arrays of messages: the right one as it is, any other refused by name and without a value."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.messages import checked_array
from tests.support.refusals import refuses

ORIGIN = "Client 3 sent in step 'offer'"


@pytest.mark.parametrize(
    "array", [np.zeros((2, 3), np.uint16), np.zeros((0, 3), np.int64), np.array(7, np.int64)]
)
def test_an_array_of_the_right_form_is_given_as_it_is(array: Bytes) -> None:
    message = {"sums": array, "else": np.zeros(1)}
    assert checked_array(ORIGIN, message, "sums", array.dtype, array.shape) is array


@pytest.mark.parametrize(
    ("message", "form"),
    [
        ({}, "nothing"),
        ({"sums": np.full((2, 3), 41, np.int16)}, "int16 (2, 3)"),
        ({"sums": np.full((2, 3), 41, ">u2")}, ">u2 (2, 3)"),
        ({"sums": np.full((3, 2), 41, np.uint16)}, "uint16 (3, 2)"),
        ({"sums": np.array(41, np.uint16)}, "uint16 ()"),
    ],
)
def test_any_other_is_refused(message: dict[str, Bytes], form: str) -> None:
    with refuses("message-form", match=re.escape(f"{ORIGIN} {form} as 'sums'")):
        checked_array(ORIGIN, message, "sums", np.uint16, (2, 3))
