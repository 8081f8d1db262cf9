"""Clients that put together what they know: whose labels a sum hides from how many of them."""

from dataclasses import replace

import numpy as np
import pytest

from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.propagation.server import LabelPropagation
from fedul_flwr.propagation.solve import label_part, one_hot, own_rows, propagation_weights
from fedul_flwr.secure.encrypted_distances import mask_keys
from fedul_flwr.secure.rowsums import (
    Words,
    open_rows,
    pair_masks,
    split_share,
    sum_shares,
    to_words,
)
from tests.secure.test_rowsums import keys_of
from tests.secure.test_why_labeled_rows_stay import CLASSES, World, world
from tests.support.refusals import refuses
from tests.support.secure_parties import borrowed, parties
from tests.support.toy_protocol import FOUR, group
from tests.support.xclp_parties import SEED

HONEST, COLLUDING = 3, 2
"""Of the first kind, the one that others try to read; one of those who try."""


def among(clients: int, seed: int = 0) -> World:
    """Points of as many clients, all of whom have labels."""
    everything = world(seed)
    kept = everything.owners >= 4 - clients
    return World(everything.features[kept], everything.owners[kept], everything.labels[kept])


def summed(held: World) -> tuple[dict[int, Words], dict[int, Words], dict[int, slice]]:
    """A sum under masks: parts of all clients in the clear, sums as opened, and whose rows."""
    clients = np.unique(held.owners).tolist()
    found = propagation_weights(held.joint, clients)
    unlabeled = list(found.unlabeled.values())
    parts, shares, rows = {}, {}, {}
    for position, client in enumerate(clients):
        own = held.labels[(held.owners == client) & (held.labels >= 0)]
        given = one_hot(own, CLASSES)
        part = label_part(found.columns[client], given, given.sum(axis=0), unlabeled)
        rows[client] = own_rows(unlabeled, position)
        mask = pair_masks(keys_of(client, clients), client, part.shape)
        shares[client] = split_share(part, rows[client], len(clients), mask)
        parts[client] = to_words(part, len(clients))
    sums = sum_shares({c: share.sent for c, share in shares.items()}, found.rows())
    opened = {c: to_words(open_rows(shares[c].stored, sums[c])) for c in clients}
    return parts, opened, rows


@pytest.mark.parametrize("seed", range(3))
def test_of_three_clients_with_labels_two_that_collude_read_the_third_exactly(seed: int) -> None:
    held = among(3, seed)
    parts, opened, rows = summed(held)
    for colluding in (1, 2):
        # Its rows of the sum, less its own part and what the other one tells of its own.
        left = opened[colluding] - parts[1][rows[colluding]] - parts[2][rows[colluding]]
        np.testing.assert_array_equal(left, parts[HONEST][rows[colluding]])
        # The last row is class counts, in units of 2^-40.
        own = held.labels[(held.owners == HONEST) & (held.labels >= 0)]
        counts = np.bincount(own, minlength=CLASSES)
        np.testing.assert_array_equal(left[-1], counts.astype(np.uint64) << np.uint64(40))


@pytest.mark.parametrize("seed", range(3))
def test_of_four_clients_with_labels_two_that_collude_read_the_sum_of_the_others(seed: int) -> None:
    held = among(4, seed)
    parts, opened, rows = summed(held)
    here = rows[COLLUDING]
    left = opened[COLLUDING] - parts[COLLUDING][here] - parts[1][here]
    np.testing.assert_array_equal(left, parts[0][here] + parts[HONEST][here])
    for honest in (0, HONEST):
        # But at points that labels of one of the two do not reach, the sum is the other's part.
        differ = (left != parts[honest][here]).any(axis=1)
        assert differ[-1]
        assert differ.mean() > 0.5
    # A third one that joins in has the last one's part.
    np.testing.assert_array_equal(left - parts[0][here], parts[HONEST][here])


@pytest.mark.parametrize("labeled", range(5))
@pytest.mark.parametrize("fewest", range(1, 5))
def test_clients_refuse_sums_of_fewer_labeled_ones_than_set(fewest: int, labeled: int) -> None:
    # The server asks for it all the same. With t that collude, fewest = t + 2 leaves two whose
    # parts they cannot tell apart.
    played = group(FOUR)
    played.play()
    unlabeled = {
        client: size - (number < labeled) for number, (client, size) in enumerate(FOUR.items())
    }
    task = replace(played.task(1), min_labeled_clients=fewest)
    if labeled >= fewest:
        _, keys = mask_keys(played.memories[1], task, unlabeled, 0)
        assert set(keys) == {4, 9, 2}
        return
    with refuses("server-asks-too-much", match=f" {labeled} .* = {fewest}"):
        mask_keys(played.memories[1], task, unlabeled, 0)


def test_clients_go_by_their_setting_and_not_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three of the four have labels. The server is content with one, the clients want four.
    clients = parties(borrowed(monkeypatch), options={"xclp.min-labeled-clients": 4})
    options = clients.settings[XCLPSettings]
    careless = options.model_copy(update={"min_labeled_clients": 1})
    announced = {number: len(found) for number, found in enumerate(clients.labels)}
    propagation = LabelPropagation(
        clients.ask, clients.fail, careless, announced, 1, SEED, clients.classes
    )
    left, joint = propagation.join(clients.members, {})
    with refuses("server-asks-too-much", match=r" 3 .*xclp\.min-labeled-clients = 4"):
        propagation.sum_labels(left, joint)
