"""Points that look different at each owner of a simulation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedul_flwr as ff
from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.config.shared import Shift
from fedul_flwr.data.shift import Draw, apply, draw_of, require_fit, shifted, spreads
from fedul_flwr.data.standardize import ScaledInputs, Scaling
from fedul_flwr.run.server_data import open_server_data
from tests.support.refusals import refuses

ROWS = np.arange(2)
NONE = np.zeros(0)


def drawn(first: float = 0.0, second: float = 0.0, columns: Any = NONE) -> Draw:
    return Draw(first, second, 2.0, np.asarray(columns), np.random.default_rng)


def image(*values: int) -> Any:
    return np.array(values, np.uint8).reshape(1, 1, -1, 1)


@pytest.mark.parametrize(
    ("kind", "draw", "before", "after"),
    [
        ("brightness", drawn(0.2), (0, 100, 250), (51, 151, 255)),  # 0.2 · 255 = 51
        ("brightness", drawn(-0.2), (0, 100, 250), (0, 49, 199)),
        # Twice the distance from 127.5: 127.5 + 2 · (100 - 127.5) = 72.5, rounded to even.
        ("contrast", drawn(np.log(2)), (100, 128, 250), (72, 128, 255)),
        ("moved", drawn(0.0, 1.4), (10, 20, 30), (10, 10, 20)),
        ("moved", drawn(0.0, -1.0), (10, 20, 30), (20, 30, 30)),
        ("blur", drawn(0.0), (10, 20, 30), (10, 20, 30)),
    ],
)
def test_images_by_hand(kind: str, draw: Draw, before: Any, after: Any) -> None:
    made = apply(Shift(kind, 1.0), image(*before), ROWS[:1], draw, NONE)
    assert made.dtype == np.uint8
    np.testing.assert_array_equal(made, image(*after))


def test_a_blur_keeps_the_sum_and_noise_its_deviation() -> None:
    spot = np.zeros((1, 21, 21, 1), np.uint8)
    spot[0, 10, 10] = 255
    wide = apply(Shift("blur", 2.0), spot, ROWS[:1], drawn(1.0), NONE)
    assert wide.max() < 50
    assert abs(int(wide.sum()) - 255) < 20  # but for rounding
    gray = np.full((2, 40, 40, 1), 128, np.uint8)
    noisy = apply(Shift("noise", 1.0), gray, ROWS, drawn(-0.1), NONE).astype(float)
    assert noisy.std() == pytest.approx(25.5, rel=0.05)  # 0.1 · 255
    assert (noisy[0] != noisy[1]).any()


def test_columns_by_hand_and_categories_stay() -> None:
    x = np.array([[1.0, 0.0], [3.0, 1.0]], np.float32)
    spread = spreads(x)
    np.testing.assert_allclose(spread, [1.0, 0.0])  # 1 and 3 are 1 from their mean; 0 and 1 stay
    draw = drawn(0.5, columns=[0.5, 0.5])
    times = apply(Shift("scale", 2.0), x, ROWS, draw, spread)
    np.testing.assert_allclose(times, [[np.e, 0], [3 * np.e, 1]], rtol=1e-6)
    plus = apply(Shift("offset", 2.0), x, ROWS, draw, spread)
    np.testing.assert_allclose(plus, [[2, 0], [4, 1]])  # 2 · 0.5 · 1
    noisy = apply(Shift("noise", 2.0), x, ROWS, draw, spread)
    assert (noisy[:, 0] != x[:, 0]).all()
    np.testing.assert_array_equal(noisy[:, 1], x[:, 1])
    assert apply(Shift("noise", 2.0), x[:0], ROWS[:0], draw, spread).shape == (0, 2)


def test_a_share_of_clients_differs_each_by_its_draw() -> None:
    shape = (4, 4, 1)
    draws = [draw_of(Shift("brightness", 0.5, 0.25), 7, client, 6, shape) for client in range(6)]
    there = [draw for draw in draws if draw is not None]
    assert len(there) == 2  # a quarter of 6, rounded up
    assert len({draw.first for draw in there}) == 2
    assert all(abs(draw.first) <= 0.5 for draw in there)
    again = draw_of(Shift("brightness", 0.5), 7, 0, 6, shape)
    other = draw_of(Shift("brightness", 0.5), 8, 0, 6, shape)
    assert again is not None
    assert other is not None
    assert again.first != other.first


def test_rows_are_shifted_alike_in_every_read_and_before_they_are_scaled() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (9, 5, 5, 1)).astype(np.uint8)
    some = shifted(raw, "noise:0.3", 1, 2, 3, raw)
    assert some.shape == raw.shape
    assert some.dtype == raw.dtype
    assert len(some) == 9
    np.testing.assert_array_equal(some[np.array([4, 2])], some[:][[4, 2]])
    np.testing.assert_array_equal(some[4], some[:][4])
    mask = np.arange(9) % 2 == 0
    np.testing.assert_array_equal(some[mask], some[:][mask])
    vectors = np.random.default_rng(0).normal(5, 2, (50, 3)).astype(np.float32)
    scaled = ScaledInputs(vectors, lambda: Scaling(np.full(3, 5.0), np.full(3, 2.0)))
    both = shifted(scaled, "offset:1", 1, 0, 2, scaled)
    apart = both[:] - scaled[:]
    np.testing.assert_allclose(apart, np.broadcast_to(apart[0], apart.shape), atol=1e-5)
    assert 0 < abs(apart).max() <= vectors.std(axis=0).max() / 2 + 1e-5  # in steps of 2
    assert shifted(raw, "", 1, 0, 2, raw) is raw


@pytest.mark.parametrize(
    "text",
    ["bright:1", "blur", "blur:0", "blur:-1", "blur:x", "blur:1:2:3", "blur:nan", "blur:1e9"],
)
def test_other_words_are_refused(text: str) -> None:
    with refuses("setting-not-allowed", setting="shift"):
        parse_flat({**default_flat(), "shift": text})
    with refuses("setting-not-allowed", setting="shift"):
        parse_flat({**default_flat(), "shift": "blur:1:0"})


def test_kinds_that_points_do_not_have_are_refused(tmp_path: Path) -> None:
    require_fit("", (3,))
    with refuses("setting-unfit-for-data", setting="shift"):
        require_fit("blur:1", (3,))
    with refuses("setting-unfit-for-data", setting="shift"):
        require_fit("scale:1", (8, 8, 1))
    with refuses("setting-unfit-for-data", setting="shift"):
        require_fit("noise:1", ())
    with refuses("setting-without-effect", setting="shift"):
        parse_flat({**default_flat(), "shift": "blur:1", "features": "efficientnet-lite0"})
    owners = parse_flat({**default_flat(), "shift": "blur:1"})
    with refuses("setting-for-simulations", setting="shift"):
        open_server_data(owners).without_split(owners)


def test_clients_and_test_points_of_a_run_are_shifted(tmp_path: Path) -> None:
    """A model of digits that moved otherwise at each client errs more, and most at these."""
    errors = {}
    for shift in ("", "moved:3"):
        result = ff.simulate(
            "closed-form",
            "digits",
            clients=4,
            output=tmp_path / (shift[:5] or "none"),
            engine="in-process",
            shift=shift,
            seed=3,
        )
        errors[shift] = result.summary["known_error"]
    assert errors["moved:3"] > errors[""] + 5
    settings = parse_flat({**default_flat(), "shift": "moved:3", "seed": 3})
    data = open_server_data(settings).split_over(4, settings)
    assert data.source is not None
    views = [data.test_at(client, settings) for client in range(4)]
    assert all(view is not None for view in views)
    assert len({np.asarray(view[:]).tobytes() for view in views if view is not None}) > 1
    plain = parse_flat(default_flat())
    assert data.test_at(0, plain) is None
