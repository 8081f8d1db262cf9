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
        If a client has fewer points that can have a label than its number of labels, or
        ``options.classes_per_client`` is more than the number of classes.
    """
    shares = label_shares(len(labels), options, seed)
    classes = label_classes(labels, options, seed)
    dealt = [
        _deal_client(truth, share, classes[client], options, seed, client)
        for client, (truth, share) in enumerate(zip(labels, shares, strict=True))
    ]
    return [given for given, _ in dealt], [new for _, new in dealt]


def label_shares(num_clients: int, options: LabelSettings, seed: int) -> Ints | Floats:
    """``(C,)``: number of labels of each client: 0, or equal up to 1.

    With ``options.fraction`` it is the fraction of its points that get a label.
    """
    order = _clients_in_order(num_clients, seed)
    chosen = order[: max(1, round(options.labeled_clients * num_clients))]
    if options.fraction:
        parts = np.zeros(num_clients)
        parts[chosen] = options.fraction
        return parts
    shares = np.zeros(num_clients, dtype=np.int64)
    shares[chosen] = options.total // len(chosen)
    shares[chosen[: options.total % len(chosen)]] += 1
    return shares


def _clients_in_order(num_clients: int, seed: int) -> Ints:
    """Order in which clients have labels: the first have them, if only some have."""
    return stream(seed, "labeled-clients").permutation(num_clients)


def label_classes(labels: Sequence[Ints], options: LabelSettings, seed: int) -> list[Ints]:
    """The classes that the labels of each client may be of.

    With ``options.classes_per_client`` = k of K classes they are those of the XCLP authors' code: k
    drawn classes, and their K rotations for K clients in turn; then k drawn anew. So each class is
    at k of K clients. Clients with labels come first, so that this holds among them too.
    """
    known = np.unique(np.concatenate([truth[truth != UNLABELED] for truth in labels]))
    count = options.classes_per_client
    if not count:
        return [known] * len(labels)
    if count > len(known):
        raise UserError(
            f"Setting labels.classes-per-client = {count}: the clients' points have {len(known)} "
            f"classes."
        )
    rng = stream(seed, "label-classes")
    classes: list[Ints] = [known] * len(labels)
    drawn = known[:0]
    for position, client in enumerate(_clients_in_order(len(labels), seed)):
        if position % len(known) == 0:
            drawn = rng.permutation(len(known))[:count]
        classes[client] = np.sort(known[(drawn + position) % len(known)])
    return classes


def _deal_client(
    truth: Ints, share: float, classes: Ints, options: LabelSettings, seed: int, client: int
) -> tuple[Ints, Bools]:
    new = np.zeros(len(truth), dtype=np.bool_)
    count = round(options.new_fraction * len(truth))
    new[stream(seed, "new-points", client).permutation(len(truth))[:count]] = True
    able = np.flatnonzero(~new & (truth != UNLABELED))
    share = round(share * len(able)) if options.fraction else int(share)
    able = able[np.isin(truth[able], classes)]
    if share > len(able):
        key, value = (
            ("fraction", options.fraction) if options.fraction else ("total", options.total)
        )
        of_classes = f" of its {len(classes)} classes" if options.classes_per_client else ""
        raise UserError(
            f"Setting labels.{key} = {value}: the share of client {client} is {share} "
            f"labels, and it has only {len(able)} points{of_classes} that can have one."
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
