"""Which points of each simulated client have labels, and which are kept for prediction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedul_flwr.config.labels import LabelSettings
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import UNLABELED, Bools, Floats, Ints
from fedul_flwr.errors import UserError


def deal_labels(
    labels: Sequence[Ints], options: LabelSettings, seed: int
) -> tuple[list[Ints], list[Bools]]:
    """Give labels to clients and set their new points aside.

    Parameters
    ----------
    labels : one ``(n_c,)`` per client, true labels of its points; ``-1`` where nobody knows.
    options : all but ``without_client`` and ``split`` count.
    seed : the run's. A larger total or fraction keeps all labels of a smaller one, and a larger
        part of clients with labels keeps the clients.

    Returns
    -------
    given : one ``(n_c,)`` per client, the labels it is given and ``-1`` elsewhere.
    new : one ``(n_c,)`` per client, true for points to predict; none of them has a label.

    Raises
    ------
    UserError
        A client has fewer points that can have a label than its share of labels.
    """
    shares = label_shares(len(labels), options, seed)
    dealt = [
        _deal_client(truth, share, options, seed, client)
        for client, (truth, share) in enumerate(zip(labels, shares, strict=True))
    ]
    return [given for given, _ in dealt], [new for _, new in dealt]


def label_shares(num_clients: int, options: LabelSettings, seed: int) -> Ints | Floats:
    """``(C,)``: how many labels each client is given, equal up to 1 where it is given some.

    With ``options.fraction`` the part of its points that is given one.
    """
    order = stream(seed, "labeled-clients").permutation(num_clients)
    chosen = order[: max(1, round(options.labeled_clients * num_clients))]
    if options.fraction:
        parts = np.zeros(num_clients)
        parts[chosen] = options.fraction
        return parts
    shares = np.zeros(num_clients, dtype=np.int64)
    shares[chosen] = options.total // len(chosen)
    shares[chosen[: options.total % len(chosen)]] += 1
    return shares


def _deal_client(
    truth: Ints, share: float, options: LabelSettings, seed: int, client: int
) -> tuple[Ints, Bools]:
    new = np.zeros(len(truth), dtype=np.bool_)
    count = round(options.new_fraction * len(truth))
    new[stream(seed, "new-points", client).permutation(len(truth))[:count]] = True
    able = np.flatnonzero(~new & (truth != UNLABELED))
    share = round(share * len(able)) if options.fraction else int(share)
    if share > len(able):
        raise UserError(
            f"Setting labels.total = {options.total}: the share of client {client} is {share} "
            f"labels, and it has only {len(able)} points that can have one."
        )
    rng = stream(seed, "given-labels", client)
    order = rng.permutation(len(able))
    if options.sampling == "balanced":
        order = order[_in_turns(truth[able[order]], rng)]
    chosen = able[order[:share]]
    given = np.full(len(truth), UNLABELED, dtype=np.int64)
    given[chosen] = truth[chosen]
    return given, new


def _in_turns(labels: Ints, rng: np.random.Generator) -> Ints:
    """Order ``labels`` so that the classes take turns, each until it is exhausted.

    Their order within a turn is drawn, for otherwise the first classes would be favoured in every
    client whose share is no multiple of its number of classes.
    """
    turn, place = np.empty_like(labels), np.empty_like(labels)
    for position, k in enumerate(rng.permutation(np.unique(labels))):
        of_class = np.flatnonzero(labels == k)
        turn[of_class], place[of_class] = np.arange(len(of_class)), position
    return np.lexsort((place, turn))
