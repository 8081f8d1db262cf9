"""Accuracy of a model at each client, and its figure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedul_flwr.data.run_files.records import Run
from fedul_flwr.results.figure_style import COLOURS, new_figure, set_title, style

ALL_NUMBERS = 40
"""Largest number of clients whose numbers all fit below the axis."""


def client_accuracies(run: Run) -> dict[int, float]:
    """Percent of points that the best round's model names rightly, by the client's number.

    It is the mean of the classes' recalls on the test set, weighted by the client's class shares:
    the accuracy on points like the client's, if points of a class are alike at all clients.
    Clients are left out if their class shares are not known, or if they have a class without a
    test point.
    """
    recall = (run.measures or {}).get("best", {}).get("recall")
    if not recall or run.federation is None:
        return {}
    recalls = np.array(recall, dtype=np.float64)
    found = {}
    for client in run.federation.clients:
        shares = client.class_shares()
        if shares is None or len(shares) != len(recalls):
            continue
        present = np.array(shares) > 0
        value = float(np.array(shares)[present] @ recalls[present])
        if np.isfinite(value):
            found[client.id] = value
    return found


def client_accuracy_figure(accuracies: Mapping[int, float], label: str) -> Figure:
    """Accuracies (percent) of clients, the lowest first."""
    clients = sorted(accuracies, key=lambda client: (accuracies[client], client))
    figure = new_figure(7.2, 3.4)
    axes = style(figure.add_subplot())
    values = [accuracies[client] for client in clients]
    axes.plot(range(len(clients)), values, "o", color=COLOURS[0])
    label_clients(axes, clients)
    axes.set_ylim(max(values[0] - 5, -1), min(values[-1] + 5, 101))
    axes.set_ylabel("accuracy (%)")
    set_title(figure, "Accuracy at each client", label)
    return figure


def label_clients(axes: Axes, clients: list[int]) -> None:
    """Name the clients below the axis."""
    # Numbers of many clients would overlap.
    shown = len(clients) <= ALL_NUMBERS
    axes.set_xticks(range(len(clients)) if shown else [], map(str, clients) if shown else [])
    if len(clients) > 20:
        axes.tick_params(axis="x", labelsize=7)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("client" if shown else f"{len(clients)} clients, by accuracy")
    axes.margins(x=0.03)
