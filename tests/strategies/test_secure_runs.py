"""Whole runs in secret: who fails where, what messages show, what is refused in advance."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fedul_flwr.propagation.client
from fedul_flwr.arrays import Bytes
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import to_arrays
from fedul_flwr.propagation.codes import encode
from fedul_flwr.secure import session as key_pairs
from fedul_flwr.secure.session import KEY_BYTES, Session
from tests.strategies.test_dropouts import AT_SUM, LOST, PREDICT, TRAIN, losing, written
from tests.support.leaks import messages_with
from tests.support.refusals import refuses
from tests.support.runs import metrics, same, train
from tests.support.settings import Settings

SECRET = {"xclp.secure": "rlwe", "xclp.codes-seed": "run"}
ANSWER, SECRET_SUM = 5, 7
"""Calls of a run whose first round propagates, after hello, prepare, keys, shares and offers."""


def test_training_goes_on_with_the_others(settings: Settings) -> None:
    lost = train(settings(**TRAIN, **SECRET), 4, **losing(SECRET_SUM, LOST))
    expected = train(settings(**TRAIN), 4, **losing(AT_SUM, LOST))
    assert same(lost, expected)
    counts = [
        [(line["clients"], line["failures"]) for line in metrics(run)] for run in (lost, expected)
    ]
    assert counts[0] == counts[1]


def test_two_that_are_left_get_no_labels_across_clients(settings: Settings) -> None:
    with refuses("labels-missing", match="group"):
        train(settings(**PREDICT, **SECRET), 4, **losing(ANSWER, 1, 2))


def test_two_that_are_left_train_on_labels_alone(settings: Settings) -> None:
    lost = train(settings(**TRAIN, **SECRET), 4, **losing(ANSWER, 1, 2))
    # Of a run on labels alone, hello and prepare come before training.
    labels_only = settings(**{**TRAIN, "semi.labels-only-rounds": 1})
    expected = train(labels_only, 4, **losing(2, 1, 2))
    assert same(lost, expected)


def test_whose_labels_could_be_told_is_refused(settings: Settings) -> None:
    """Of 5 clients 3 have labels: with one of these gone, two could tell each other's apart."""
    options = {**PREDICT, **SECRET, "labels.labeled-clients": 0.6}
    whole = train(settings(**options), 5)
    labeled = [int(c["id"]) for c in clients_of(whole) if c["num_labeled"]]
    assert len(labeled) == 3
    with refuses("labels-missing", match="group"):
        train(settings(**options), 5, **losing(SECRET_SUM, labeled[0]))
    allowed = train(
        settings(**options, **{"xclp.min-labeled-clients": 2}), 5, **losing(SECRET_SUM, labeled[0])
    )
    assert list(written(allowed)) == [c for c in range(5) if c != labeled[0]]


def clients_of(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((directory / "federation.json").read_text())["clients"]
    return found


@pytest.mark.parametrize(
    ("options", "at"),
    [(PREDICT, ANSWER), (PREDICT, SECRET_SUM), (TRAIN, SECRET_SUM)],
    ids=["answer", "sum", "sum of training"],
)
def test_who_is_lost_or_left_alone_forgets(
    settings: Settings, options: dict[str, Any], at: int
) -> None:
    grids: list[Any] = []
    meddle = losing(at, 1, 2)["wrap_grid"]
    with suppress(UserError):  # of prediction: nobody got labels
        train(settings(**options, **SECRET), 4, wrap_grid=lambda g: meddle(grids.append(g) or g))
    for context in grids[0].contexts.values():
        kept = [to_arrays(record) for record in context.state.array_records.values()]
        assert not [name for arrays in kept for name in arrays]


def test_what_the_server_sees(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets: dict[str, list[bytes]] = {"codes": [], "keys": [], "seed": []}
    make_key, agree = key_pairs.new_private_key, Session.seed

    def watched_codes(features: Any, seed: bytes, num_bits: int) -> Bytes:
        codes = encode(features, seed, num_bits)
        secrets["codes"] += [row.tobytes() for row in codes]
        return codes

    def watched_key(entropy: Any) -> bytes:
        key = make_key(entropy)
        secrets["keys"] += [key[:KEY_BYTES], key[KEY_BYTES:]]  # of X25519, and of ML-KEM
        return key

    def watched_seed(session: Session, shares: Any) -> bytes:
        secrets["seed"] += [*shares.values(), agree(session, shares)]
        return secrets["seed"][-1]

    monkeypatch.setattr(fedul_flwr.propagation.client, "encode", watched_codes)
    monkeypatch.setattr(key_pairs, "new_private_key", watched_key)
    monkeypatch.setattr(Session, "seed", watched_seed)
    options = {**PREDICT, "points_per_client": 30, "labels.total": 40}
    place = tmp_path / "transcript"
    secret = settings(**options, **{"xclp.secure": "rlwe"})
    train(secret, 4, message_log=place)
    assert [len(found) for found in secrets.values()] == [4 * 30, 4 * 2, 4 * 5]
    hidden = [*secrets["codes"][::10], *secrets["keys"], *secrets["seed"]]
    assert not messages_with(place, *hidden)
    # Codes are found where nothing is encrypted, so the search can find them.
    for found in secrets.values():
        found.clear()
    train(settings(**options), 4, message_log=tmp_path / "clear")
    assert len(secrets["codes"]) == 4 * 30
    for client in range(4):
        code = secrets["codes"][30 * client]
        assert [message.client for message in messages_with(tmp_path / "clear", code)] == [client]


FEW_LABELED = {"labels.labeled-clients": 0.5}
REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "two": ({**PREDICT, **SECRET}, 2, "too-few-clients"),
    "small groups": ({**PREDICT, **SECRET, "xclp-predict.groups": 2}, 5, "too-few-clients"),
    "few in a round": ({**TRAIN, **SECRET, "fraction_train": 0.5}, 4, "too-few-clients"),
    "few labeled": ({**PREDICT, **SECRET, **FEW_LABELED}, 4, "too-few-labeled-clients"),
    "few labeled in a round": ({**TRAIN, **SECRET, **FEW_LABELED}, 4, "too-few-labeled-clients"),
    "ot": ({**PREDICT, "xclp.secure": "ot", "xclp.num-bits": 4096}, 4, "too-expensive"),
    "left out": (
        {**PREDICT, **SECRET, "xclp-predict.leave-one-out": True},
        4,
        "settings-contradict",
    ),
    "rlwe bits": ({**PREDICT, **SECRET, "xclp.num-bits": 8192}, 4, "setting-out-of-range"),
    "paillier bits": (
        {**PREDICT, "xclp.secure": "paillier", "xclp.num-bits": 8192},
        4,
        "setting-out-of-range",
    ),
}
