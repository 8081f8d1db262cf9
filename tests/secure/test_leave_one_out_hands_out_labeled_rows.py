"""Negative control: with ``leave-one-out`` a client reads labels of others in what it was sent.

Where client j's labels are withheld, all of its points count as unlabeled, so weights on its
labeled points are sent out, too (:func:`fedul_flwr.propagation.solve.propagation_weights`).
A client i

- gets S[L_j, L_i] when j's turn comes. Which rows these are it sees by comparison with the first
  sum, where all rows but these were there, in the same order;
- gets S[L_i, L_o] Y_o, with L_o the labeled points of all others, when its own turn comes: rows of
  its labeled points in a sum in which its own labels have no part; and others' label counts.

That is the system of equations of :mod:`tests.secure.test_why_labeled_rows_stay`, complete. So a
backend that is to protect labels has to refuse leave-one-out. Each attacker below knows its own
labels, and from a message log the messages of its own.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.propagation.phases import (
    COLUMNS,
    LABEL,
    PREVIOUS_LABELS,
    ROWS,
    SUM,
    UNLABELED_POINTS,
)
from fedul_flwr.secure.rowsums import from_words
from tests.secure.test_why_labeled_rows_stay import Floats, Ints, solve
from tests.support.message_log import Recorded, read_message_log
from tests.support.runs import train

CLIENTS = 4
PLAN = {
    **{"method": "xclp-predict", "xclp.num-bits": 1024},
    **{"points_per_client": 60, "labels.total": 40},
}


def array(message: Recorded, name: str) -> NDArray[np.generic]:
    (found,) = (array for array in message.arrays if array.name == name)
    return found.numpy()


def sent_to(client: int, phase: str, message_log: Path) -> list[Recorded]:
    """Messages of a phase that ``client`` gets."""
    return [
        message
        for message in read_message_log(message_log)
        if (message.client, message.phase, message.direction) == (client, phase, "to client")
    ]


def influences_on(message: Recorded) -> list[Floats]:
    """Of the client's labeled points on the rows of each client."""
    sizes = message.values["config"][UNLABELED_POINTS]
    columns = array(message, COLUMNS).astype(np.float64)
    return np.split(columns, np.cumsum(sizes)[:-1])  # type: ignore[arg-type]


def added(rows: Floats, before: Floats) -> list[int]:
    """Positions in ``rows`` of those that ``before``, else the same in the same order, lacks."""
    found, known = [], iter([*before, np.full(rows.shape[1], np.nan)])
    expected = next(known)
    for position, row in enumerate(rows):
        if np.allclose(row, expected, rtol=0, atol=2e-6):
            expected = next(known)
        else:
            found.append(position)
    return found


def attack(client: int, own_labeled: Ints, message_log: Path) -> dict[int, dict[int, int]]:
    """For each other client, labels by the position of its points, as ``client`` finds them."""
    first, *turns = (influences_on(m) for m in sent_to(client, SUM, message_log))
    others = [j for j in range(CLIENTS) if j != client]
    where = {j: added(turns[j][j], first[j]) for j in others}
    known = np.concatenate([turns[j][j][where[j]] for j in others]).T
    (told,) = (
        message
        for message in sent_to(client, LABEL, message_log)
        if not message.values["config"][PREVIOUS_LABELS]
    )
    rows = from_words(array(told, ROWS))  # its own part of them is 0
    labels = iter(solve(known, rows[:-1][own_labeled], rows[-1]).tolist())
    return {j: {position: next(labels) for position in where[j]} for j in others}


def test_every_client_reads_all_labels(settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = settings(**PLAN, **{"xclp-predict.leave-one-out": True})
    directory = train(config, CLIENTS, message_log=tmp_path / "t")
    with np.load(directory / "split.npz") as split:
        labels = np.split(split["labels"], split["bounds"][1:-1])
    truth = {
        client: {int(p): int(own[p]) for p in np.flatnonzero(own >= 0)}
        for client, own in enumerate(labels)
    }
    for client in range(CLIENTS):
        found = attack(client, np.flatnonzero(labels[client] >= 0), tmp_path / "t")
        assert found == {other: truth[other] for other in found}
        assert len(found) == CLIENTS - 1


def test_else_no_labeled_row_is_sent(settings: Callable[..., RunConfig], tmp_path: Path) -> None:
    train(settings(**PLAN), CLIENTS, message_log=tmp_path / "t")
    for client in range(CLIENTS):
        (asked,) = sent_to(client, SUM, tmp_path / "t")
        (told,) = sent_to(client, LABEL, tmp_path / "t")
        # 60 points and 10 labels each; in the sum a row of counts each.
        assert asked.values["config"][UNLABELED_POINTS] == [50] * CLIENTS
        assert array(asked, COLUMNS).shape == (200, 10)
        assert array(told, ROWS).shape == (51, 10)
