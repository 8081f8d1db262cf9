"""Choose which points of simulated clients get labels, and which are kept for prediction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedul_flwr.config.labels import LabelSettings
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import UNLABELED, Bools, Floats, Ints
from fedul_flwr.errors import UserError


def assign_labels_to_clients(
    labels: Sequence[Ints], options: LabelSettings, seed: int
) -> tuple[list[Ints], list[Bools]]:
    """Assign labels to clients' points, and set their new points aside.

    Parameters
    ----------
    labels : one ``(n_c,)`` per client, true labels of its points; ``-1`` for unknown.
    options : settings; ``without_client`` and ``split`` are not used.
    seed : the run's seed. A larger total or fraction includes all labels of a smaller one, and a
        larger fraction of clients with labels includes the clients of a smaller one.

    Returns
    -------
    given : one ``(n_c,)`` per client, its given labels, ``-1`` for points without.
    new : one ``(n_c,)`` per client, true for points to predict; none of them has a given label.

    Raises
    ------
    UserError
        If a client has fewer points that can have a label than its number of labels.
    """
    shares = label_shares(len(labels), options, seed)
    dealt = [
        _deal_client(truth, share, options, seed, client)
        for client, (truth, share) in enumerate(zip(labels, shares, strict=True))
    ]
    return [given for given, _ in dealt], [new for _, new in dealt]


def label_shares(num_clients: int, options: LabelSettings, seed: int) -> Ints | Floats:
    """``(C,)``: number of labels of each client: 0, or equal up to 1.

    With ``options.fraction`` it is the fraction of its points that get a label.
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
    """Order of ``labels`` in which classes alternate, each until it runs out.

    The order within a turn is random. A fixed order would favor the first classes in every client
    whose number of labels is not a multiple of its number of classes.
    """
    turn, place = np.empty_like(labels), np.empty_like(labels)
    for position, k in enumerate(rng.permutation(np.unique(labels))):
        of_class = np.flatnonzero(labels == k)
        turn[of_class], place[of_class] = np.arange(len(of_class)), position
    return np.lexsort((place, turn))
