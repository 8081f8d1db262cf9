"""Weights as a sum: what goes where, sums with and without a part, and a model that holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr.learning.device import place
from fedul_flwr.learning.disjoint import (
    PSI,
    SIGMA,
    THETA,
    Decomposed,
    compose,
    decompose,
    flatten,
    unflatten,
    unlabeled_part,
)
from fedul_flwr.learning.local import dump_arrays

BUFFERS = ("norm.mean", "norm.count")
MODEL = {
    "w": np.array([[1.0, -2.0]], np.float32),
    "norm.mean": np.array([3.0], np.float32),
    "norm.count": np.array(7),
}
CPU = torch.device("cpu")


def assert_same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
        assert array.tobytes() == other[name].tobytes(), name


# Arrays


def test_first_parts_by_hand() -> None:
    parts = decompose(MODEL, BUFFERS, 0.5)
    assert parts.keys() == {SIGMA, PSI}
    # Statistics are no sum, and go with psi; counters go nowhere.
    assert_same_bits(parts[SIGMA], {"w": MODEL["w"]})
    expected = {"w": np.array([[0.5, -1.0]], np.float32), "norm.mean": MODEL["norm.mean"]}
    assert_same_bits(parts[PSI], expected)
    assert unlabeled_part(parts) == PSI


def test_a_trained_model_is_the_sum_of_its_parts() -> None:
    # theta / 1.25 = (0.8, -1.6), and a quarter of that.
    parts = decompose(MODEL, BUFFERS, 0.25, whole=True)
    np.testing.assert_allclose(parts[SIGMA]["w"], [[0.8, -1.6]], rtol=1e-6)
    np.testing.assert_allclose(parts[PSI]["w"], [[0.2, -0.4]], rtol=1e-6)
    np.testing.assert_allclose(compose(parts)["w"], MODEL["w"], rtol=1e-6)
    assert parts[SIGMA]["w"].dtype == parts[PSI]["w"].dtype == np.float32
    assert_same_bits(decompose(MODEL, BUFFERS, 0.0, whole=True)[SIGMA], {"w": MODEL["w"]})


def test_without_a_decomposition_there_is_theta_alone() -> None:
    parts = decompose(MODEL, BUFFERS, None)
    assert parts.keys() == {THETA}
    assert_same_bits(parts[THETA], {name: MODEL[name] for name in ("w", "norm.mean")})
    assert unlabeled_part(parts) == THETA
    assert_same_bits(compose(parts, cutoff=1e9), parts[THETA])


@pytest.mark.parametrize(
    ("used", "cutoff", "expected"),
    [
        ("both", 0.0, [11.0, 20.25, 29.75]),
        ("sigma", 0.0, [10.0, 20.0, 30.0]),
        ("psi", 0.0, [1.0, 0.25, -0.25]),
        # Below the cut-off counts as 0; at it does not.
        ("both", 0.25, [11.0, 20.25, 29.75]),
        ("both", 0.3, [11.0, 20.0, 30.0]),
        ("psi", 0.3, [1.0, 0.0, 0.0]),
        ("sigma", 100.0, [10.0, 20.0, 30.0]),
    ],
)
def test_sums_by_hand(used: str, cutoff: float, expected: list[float]) -> None:
    parts = {
        SIGMA: {"w": np.array([10, 20, 30], np.float32)},
        PSI: {"w": np.array([1, 0.25, -0.25], np.float32), "mean": np.array([0.1], np.float32)},
    }
    # Statistics are those of psi whatever is used, and nothing of them is cut off.
    assert_same_bits(
        compose(parts, used, cutoff),
        {"w": np.array(expected, np.float32), "mean": parts[PSI]["mean"]},
    )


def test_flat_names_and_back() -> None:
    parts = {SIGMA: {"a.b": np.ones(1)}, PSI: {"a.b": np.zeros(1), "c/d": np.ones(2)}}
    flat = flatten(parts)
    assert list(flat) == ["sigma/a.b", "psi/a.b", "psi/c/d"]
    assert unflatten(flat) == parts
    assert unflatten({}) == flatten({}) == {}


# Models


def model(precision: str = "float32") -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2)
        return place(nn.Sequential(*layers), CPU, precision)


def parts_of(net: nn.Module, psi_factor: float | None = 0.3) -> dict[str, dict[str, Any]]:
    """Parts whose psi is no multiple of sigma."""
    parts = decompose(
        {name: array.copy() for name, array in dump_arrays(net).items()},
        [name for name, _ in net.named_buffers()],
        psi_factor,
    )
    rng = np.random.default_rng(1)
    last = parts[unlabeled_part(parts)]
    for name, array in last.items():
        last[name] = array + rng.random(array.shape).astype(array.dtype)
    return parts


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("psi_factor", [0.3, None])
def test_a_model_holds_the_sum_and_gives_the_parts_back(
    precision: str, psi_factor: float | None
) -> None:
    net, dtype = model(precision), getattr(torch, precision)
    parts = parts_of(net, psi_factor)
    decomposed = Decomposed(net, parts)
    found = dict(dump_arrays(net))
    assert found.pop("1.num_batches_tracked").dtype == np.int64
    assert_same_bits(found, {name: compose(parts)[name] for name in found})
    dumped = decomposed.dump()
    assert dumped.keys() == parts.keys()
    for part, arrays in parts.items():
        assert_same_bits(dumped[part], arrays)
    # The convolution's weights lie channels last in the model, but not in a message.
    assert not net[0].weight.is_contiguous()
    assert all(array.flags.c_contiguous for array in flatten(dumped).values())
    assert net(torch.zeros(2, 3, 3, 3, dtype=dtype)).dtype == dtype


def test_what_is_dumped_is_not_shared_with_the_model() -> None:
    net = model()
    decomposed = Decomposed(net, parts_of(net))
    dumped = decomposed.dump()
    before = {name: array.copy() for name, array in flatten(dumped).items()}
    with torch.no_grad():
        for tensor in (*decomposed.part(SIGMA), *decomposed.part(PSI), *net.buffers()):
            tensor.add_(1)
    assert_same_bits(flatten(dumped), before)
    later = flatten(decomposed.dump())
    for name, array in before.items():  # and the statistics are the model's
        np.testing.assert_array_equal(later[name], array + 1)
