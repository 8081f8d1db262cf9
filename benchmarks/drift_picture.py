"""``python -m benchmarks.drift_picture``: draws docs/pictures/closed-form.png.

Four classes in the plane, two clients with two of them each: what each client's trained last layer
says, what the mean of both says, and what the layer from sums over both says.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.linear_model import LogisticRegression

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.learning.closed_form import SoftSums, fit_gaussians, linear_head, soft_sums
from fedul_flwr.results.figure_style import COLORS, draw, new_figure

CENTERS = np.array([[-2.0, 1.2], [0.6, 2.0], [-0.6, -1.6], [2.0, -0.8]])
CLIENTS = ((0, 1), (2, 3))
FILE = Path(__file__).parents[1] / "docs/pictures/closed-form.png"
Head = tuple[Floats, Floats]


def trained_head(x: Floats, y: Ints) -> Head:
    """A client's last layer: rows of classes that it lacks go where they disturb it least."""
    of_two = LogisticRegression(C=10.0).fit(x, y)
    weight, bias = np.zeros((4, 2)), np.full(4, -4.0)
    first, second = of_two.classes_
    weight[second], bias[second] = of_two.coef_[0] / 2, of_two.intercept_[0] / 2
    weight[first], bias[first] = -weight[second], -bias[second]
    return weight, bias


def head_from_sums(clients: list[tuple[Floats, Ints]]) -> Head:
    """The layer from sums over both clients."""
    parts = [soft_sums(x, np.eye(4)[y], stated=True) for x, y in clients]
    return linear_head(fit_gaussians(SoftSums.total(parts)), np.full(4, 0.25))


def main() -> None:
    """Draw the four layers."""
    rng = np.random.default_rng(0)
    clients = []
    for classes in CLIENTS:
        y = np.repeat(classes, 60)
        clients.append((CENTERS[y] + 0.5 * rng.normal(size=(120, 2)), y))
    heads = [trained_head(x, y) for x, y in clients]
    mean = tuple(np.mean(parts, axis=0) for parts in zip(*heads, strict=True))
    everybody = tuple(np.concatenate(parts) for parts in zip(*clients, strict=True))
    panels = [
        ("client 1, two classes", heads[0], clients[0]),
        ("client 2, two others", heads[1], clients[1]),
        ("mean of both layers", mean, everybody),
        ("layer from sums", head_from_sums(clients), everybody),
    ]
    figure = new_figure(9.6, 3.0)
    side = np.linspace(-3.7, 3.7, 220)
    plane = np.stack(np.meshgrid(side, side), axis=-1)
    for axes, (title, (weight, bias), (x, y)) in zip(figure.subplots(1, 4), panels, strict=True):
        wrong = float(((x @ weight.T + bias).argmax(axis=1) != y).mean())
        regions = (plane @ weight.T + bias).argmax(axis=-1)
        colors = ListedColormap(COLORS[:4])
        axes.imshow(
            regions, cmap=colors, vmin=0, vmax=3, alpha=0.25, origin="lower",
            extent=(side[0], side[-1], side[0], side[-1]),
        )  # fmt: skip
        axes.scatter(*x.T, c=y, cmap=colors, vmin=0, vmax=3, s=7, linewidth=0)
        axes.set_title(f"{title}\n{100 * wrong:.0f} % wrong", fontsize=9)
        axes.set_axis_off()
    FILE.write_bytes(draw(figure, "png"))
    print(FILE)


if __name__ == "__main__":
    main()
