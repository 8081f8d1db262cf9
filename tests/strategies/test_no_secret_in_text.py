"""Nothing that a propagation prints, logs or raises has a key, a mask or what was decrypted."""

import logging
import os
import traceback
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from flwr.app import ArrayRecord

import fedul_flwr.secure.rowsums
import fedul_flwr.secure.session
from fedul_flwr.data.types import Content
from fedul_flwr.errors import UserError
from fedul_flwr.federated.members import CheckAnswer
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.propagation.phases import COMPARE, ROWS, SUM
from fedul_flwr.secure.session import PRIVATE_BYTES
from tests.support.secure_parties import parties
from tests.support.xclp_parties import Parties

KEY = 32
SECRETS = ((KEY,), (PRIVATE_BYTES,))
PUBLIC = ("public-keys", "nonce", "commitments", "backend/public-keys", "backend/nonce")
"""Arrays of a client's state that all may see."""


class Watched(Parties):
    """Clients of which every 32 bytes that they remember are noted; what arrives can be changed."""

    wrong: tuple[str, int] = ("", -1)
    secrets: set[bytes]

    def ask(
        self, phase: str, contents: Mapping[ClientRef, Content], check: CheckAnswer
    ) -> dict[ClientRef, Content]:
        answers = super().ask(phase, contents, check)
        for state in self.states:
            for record in state.values():
                self.secrets |= {*(of_record(record) if isinstance(record, ArrayRecord) else ())}
        return answers

    def meddled(self, phase: str, member: ClientRef, answer: Content) -> Content:
        at, step = self.wrong
        if phase == at and self.asked.count(phase) - 1 == step and member.partition_id == 1:
            for name, array in answer.arrays.items():
                if name.startswith("to/") or name == "sent":
                    answer.arrays[name] = np.ones_like(array)
        return answer


def of_record(record: ArrayRecord) -> Iterator[bytes]:
    """All that rows of arrays of secrets are made of, 32 bytes each."""
    for name, array in record.items():
        values = array.numpy()
        if name not in PUBLIC and values.dtype == np.uint8 and values.shape[-1:] in SECRETS:
            yield from parts(values.tobytes())


def parts(secret: bytes) -> Iterator[bytes]:
    """A secret of several parts, 32 bytes each, without those that are zero."""
    for begin in range(0, len(secret), KEY):
        if any(part := secret[begin : begin + KEY]):
            yield part


def spelled(secret: bytes) -> list[str]:
    """How a secret could stand in a text: hexadecimal, as bytes, as an array and as a list."""
    array = np.frombuffer(secret, np.uint8)
    numbers = ", ".join(str(value) for value in array[:8])
    return [secret.hex(), repr(secret)[2:-1], numbers, str(array)[1:20], repr(array[:6])[7:30]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = parties("rlwe", options={"xclp.codes-seed": "secret"})
    played = Watched(found.features, found.labels, found.options)
    played.secrets = set()
    make = fedul_flwr.secure.session.derive

    def noted(secret: bytes, info: bytes) -> bytes:
        key = make(secret, info)
        played.secrets |= {*parts(secret), key}
        return key

    for module in (fedul_flwr.secure.session, fedul_flwr.secure.rowsums):
        monkeypatch.setattr(module, "derive", noted)
    return played


@pytest.mark.parametrize(
    "wrong",
    [("", -1), (COMPARE, 1), (COMPARE, 2), (COMPARE, 3), (SUM, 0), (ROWS, 0)],
    ids=["nothing", "shares", "offer", "answer", "sum", "rows"],
)
def test_given_a_propagation_and_its_failures_then_no_text_has_a_secret(
    watched: Watched,
    wrong: tuple[str, int],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    watched.wrong = wrong
    propagation = watched.propagation()
    left, joint = propagation.join(watched.members, {})
    rows = propagation.sum_labels(left, joint)
    texts = [repr(watched.failed)]
    for member, content in rows.items():
        client = watched.client(member.partition_id)
        received = content.arrays
        if wrong[0] == ROWS:
            received = {ROWS: np.random.default_rng(1).integers(0, 2**64, (9, 5), np.uint64)}
        try:
            client.propagation.open(received)
        except UserError as error:
            texts.append("".join(traceback.format_exception(error)))
    assert ({*watched.failed} == {1}) == (wrong[0] in (COMPARE, SUM))
    assert (len(texts) > 1) == (wrong[0] == ROWS)
    out, err = capfd.readouterr()
    texts += [caplog.text, out, err]
    # Private keys, shares, the seed, roots of masks, keys of messages and what they are made of.
    assert len(watched.secrets) > 60
    for secret in watched.secrets:
        assert not [word for text in texts for word in spelled(secret) if word in text]


def test_the_search_finds_what_is_there() -> None:
    secret = os.urandom(KEY)
    array = np.frombuffer(secret, np.uint8)
    for text in (secret.hex(), f"key {secret!r}", f"{array}", f"{array.tolist()}", f"{array!r}"):
        assert [word for word in spelled(secret) if word in text], text
