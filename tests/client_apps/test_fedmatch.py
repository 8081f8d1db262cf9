"""FedMatch's client, a message at a time: what it holds, helpers' models, and labels it hides."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from torch import nn

from fedul_flwr import learning
from fedul_flwr.arrays import Arrays
from fedul_flwr.client_apps.fedmatch import FedMatchClient
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import build_split, client_files
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import BASE_ROUND, EXCHANGED, HELPERS, STALE, WEIGHT
from fedul_flwr.federated.nodes import DataShape, setup_content
from fedul_flwr.learning.helpers import InterClientConsistency
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.learning.parts import PSI, SIGMA, decompose, flatten, unflatten
from fedul_flwr.models import build_model
from fedul_flwr.strategies.fedmatch_parts import decode, encode
from tests.support.fedmatch_exchanges import LC, LS, SCENARIOS
from tests.support.local_tasks import points_of
from tests.support.settings import Settings

NOTHING: dict[str, Arrays] = {SIGMA: {}, PSI: {}}
FIGURES = {
    *("loss", "supervised-loss", "consistency-loss", "confident-share"),
    *("num-helpers", "steps", STALE),
}


def parts(seed: int = 3, factor: float = 0.2) -> dict[str, Arrays]:
    arrays = dump_arrays(build_model("mlp", (8, 8, 1), 10, seed=seed))
    return decompose({name: array.copy() for name, array in arrays.items()}, (), factor)


class Device:
    """A device with a client that is built anew for every message."""

    def __init__(self, config: RunConfig, node: Mapping[str, Any], files: dict[str, str]) -> None:
        self.config, self.state = config, RecordDict()
        self.node = NodeConfig.parse({"partition-id": 0, "num-partitions": 2, **node})
        source = load_source("digits")
        shape = DataShape(source.input_shape, source.class_names)
        self.answer = self.client().on_phase("setup", setup_content(config, shape, files))

    def client(self) -> FedMatchClient:
        return FedMatchClient(self.config, self.node, ClientState(self.state))

    def fit(
        self, server_round: int, since: int, received: Mapping[str, Arrays], helpers: int = 0
    ) -> tuple[Mapping[str, Arrays], int, Mapping[str, Any]]:
        """Records that the client returns, its number of points and its metrics."""
        told = {"server-round": server_round, BASE_ROUND: since, HELPERS: helpers}
        payload = self.client().train({}, told, received)
        records = {key: payload.pop(key) for key in [*payload] if isinstance(payload[key], dict)}
        num_points = payload.pop(WEIGHT)
        assert set(payload) == FIGURES
        return records, num_points, payload

    @property
    def held(self) -> Arrays:
        return ClientState(self.state).load(EXCHANGED, 99)


@pytest.fixture
def device(settings: Settings) -> Callable[..., Device]:
    def build(plan: Mapping[str, Any] = LC, **options: Any) -> Device:
        config = settings(**{**plan, **options})
        place = source_directory("digits")
        split = build_split(place, 2, config)
        return Device(config, {}, client_files(place, split.directory, "partly-labeled"))

    return build


Build = Callable[..., Device]


@pytest.mark.parametrize(
    ("held_since", "said"),
    [(None, 1), (2, 1), (1, 2)],
    ids=["nothing is held", "a later round is held", "an earlier round is held"],
)
def test_who_holds_another_round_says_so(device: Build, held_since: int | None, said: int) -> None:
    one = device()
    if held_since is not None:
        kept = flatten(parts()) | {BASE_ROUND: np.array(held_since)}
        ClientState(one.state).save(EXCHANGED, held_since, kept)
    before = {name: array.copy() for name, array in one.held.items()}
    returned, examples, figures = one.fit(3, said, NOTHING)
    assert (examples, returned, figures[STALE]) == (0, {}, 1)
    assert one.held.keys() == before.keys()
    # Everything is what it may have in any case.
    _, examples, figures = one.fit(4, 0, parts())
    assert (examples, figures[STALE]) == (60, 0)
    assert int(one.held[BASE_ROUND]) == 4


def test_the_server_hears_of_changes_above_the_threshold_alone(device: Build) -> None:
    far, near = (device(**{"fedmatch.difference-threshold": t}) for t in (1e-2, 0.0))
    changes = []
    for one in (far, near):
        returned, _, _ = one.fit(1, 0, parts())
        changes.append({p: decode(returned[p], a) for p, a in parts().items()})
    for part, arrays in parts().items():
        for name, array in arrays.items():
            few, all_ = (found[part][name] for found in changes)
            large = np.abs(all_ - array) >= 1e-2
            np.testing.assert_array_equal(few, np.where(large, all_, array))
    # What is not told is not kept, either.
    for name, array in flatten(changes[0]).items():
        np.testing.assert_array_equal(far.held[name], array)


# Helpers


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[nn.Module]]:
    """Models of helpers that clients compare with, by message."""
    found: list[list[nn.Module]] = []

    def consistency(helpers: list[nn.Module], *options: Any) -> InterClientConsistency:
        found.append(helpers)
        return InterClientConsistency(helpers, *options)

    monkeypatch.setattr(learning, "InterClientConsistency", consistency)
    return found


def helping(*seeds: int) -> tuple[list[Arrays], Arrays]:
    """Helpers' psi, and their record: differences from the psi that is sent."""
    found = [parts(seed)[PSI] for seed in seeds]
    records = {
        str(number): encode(psi, parts()[PSI], 0.0).record for number, psi in enumerate(found)
    }
    return found, flatten(records)


def assert_models(models: list[nn.Module], sigma: Arrays, found: list[Arrays]) -> None:
    assert len(models) == len(found)
    for model, psi in zip(models, found, strict=True):
        for name, array in dump_arrays(model).items():
            np.testing.assert_array_equal(array, sigma[name] + psi[name])


@pytest.mark.parametrize("keep", [False, True])
def test_between_helper_rounds(device: Build, seen: list[list[nn.Module]], keep: bool) -> None:
    """There are none, or the last ones, with the sigma of the day."""
    one = device(**{"fedmatch.keep-helpers": keep})
    found, record = helping(5, 6)
    one.fit(1, 0, parts() | {HELPERS: record}, 2)
    _, _, figures = one.fit(2, 0, parts(8))
    assert figures["num-helpers"] == (2 if keep else 0)
    assert_models(seen[1], parts(8)[SIGMA], found if keep else [])
    others, record = helping(7)
    one.fit(3, 0, parts() | {HELPERS: record}, 1)
    assert_models(seen[2], parts()[SIGMA], others)


# Labels and points


def write_owner(folder: Path) -> Path:
    """Twelve images with labels for five of them."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    np.savez(folder / "images.npz", images=pixels)
    rows = "".join(f"{row},{row}\n" for row in range(5))
    (folder / "labels.csv").write_text(f"name,label\n{rows}")
    return folder


@pytest.mark.parametrize("at", ["clients", "server"])
def test_an_owners_labels_are_not_looked_at_where_the_server_alone_has_some(
    settings: Settings, tmp_path: Path, at: str
) -> None:
    dealt = ("labels.total", "points_per_client")
    plan = {key: value for key, value in SCENARIOS[f"at {at}"].items() if key not in dealt}
    one = Device(settings(**plan), {"data": str(write_owner(tmp_path / "owner"))}, {})
    labels = 5 if at == "clients" else 0
    assert one.answer.values["num-labeled"] == labels
    assert one.answer.values["num-points"] == 12
    client = one.client()
    batches = client.data.labeled_and_unlabeled(client.round({"server-round": 1}))
    assert (points_of(batches).targets >= 0).sum() == labels
    returned, examples, figures = one.fit(1, 0, parts())
    assert examples == 12
    assert (figures["supervised-loss"] > 0) == (at == "clients")
    assert set(returned) == ({SIGMA, PSI} if at == "clients" else {PSI})
    sigma = unflatten({n: a for n, a in one.held.items() if n != BASE_ROUND})[SIGMA]
    same = all((array == sigma[name]).all() for name, array in parts()[SIGMA].items())
    assert same == (at == "server")


def test_without_points_it_changes_nothing_and_stays_in_step(device: Build) -> None:
    """With 60 points in 100 steps there are none in the last."""
    one = device(LS, **{"scenario.streaming-steps": 100, "scenario.rounds-per-step": 1})
    returned, examples, figures = one.fit(100, 0, parts())
    assert examples == 0
    assert figures == dict.fromkeys(FIGURES, 0)
    assert returned == {PSI: {}}
    held = one.held
    assert int(held.pop(BASE_ROUND)) == 100
    for name, array in flatten(parts()).items():
        np.testing.assert_array_equal(held[name], array)


@pytest.mark.parametrize(
    ("points", "labels", "share"),
    [(60, 30, 1.0), (2, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0)],
    ids=["half have a label", "one of two has", "an unlabeled one", "a labeled one"],
)
def test_given_no_threshold_then_all_unlabeled_points_are_sure(
    device: Build, points: int, labels: int, share: float
) -> None:
    """Also a client with one point trains on it."""
    sure = {"points_per_client": points, "fedmatch.threshold": 0.0}
    one = device(LC, **sure, **{"labels.total": 2 * labels}) if labels else device(LS, **sure)
    _, examples, figures = one.fit(1, 0, parts())
    assert examples == points
    assert figures["steps"] > 0
    assert figures["confident-share"] == share
