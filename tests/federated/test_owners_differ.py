"""Owners whose points look different: offsets stay at home, and heads are of features without."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedul_flwr as ff
from fedul_flwr.config.run_config import default_flat, parse_flat
from fedul_flwr.data.run_files.run import BEST_MODEL
from fedul_flwr.data.safe_files import load_arrays_of
from fedul_flwr.federated.declared import disclosures
from fedul_flwr.federated.owner_offsets import taken_out
from fedul_flwr.federated.stage import sums_of
from fedul_flwr.federated.stages import owners_differ
from fedul_flwr.federated.stages.heads import head_names
from fedul_flwr.learning.owner_effects import REFERENCE
from tests.support.refusals import refuses

ON = {"method": "closed-form", "closed-form.owners-differ": "auto"}


def vectors(owners: int = 4, seed: int = 5) -> Any:
    """Sets of three classes of vectors, with an offset at each owner, and their class shares."""
    rng = np.random.default_rng(seed)
    means = np.array([[2.0, 0, 0], [0, 2, 0], [0, 0, 2]])
    sets, priors, of = [], [], []
    for owner in range(owners):
        offset = 4 * rng.normal(size=3)
        for _ in range(4):
            classes = rng.choice(3, 60, p=rng.dirichlet([0.7, 0.7, 0.7]))
            sets.append(means[classes] + offset + 0.4 * rng.normal(size=(60, 3)))
            priors.append(np.bincount(classes, minlength=3) / 60)
            of.append(owner)
    return sets, priors, of


def run(place: Path, value: str, **options: Any) -> Any:
    return ff.simulate(
        "closed-form",
        output=place / f"run-{value}-{len(options)}",
        engine="in-process",
        seed=3,
        closed_form={"owners_differ": value},
        **options,
    )


def model(result: Any) -> dict[str, NDArray[Any]]:
    return load_arrays_of(result.directory / BEST_MODEL)[0]


def test_where_owners_do_not_differ_the_model_is_the_same(tmp_path: Path) -> None:
    plain, auto = (run(tmp_path, value, data="digits", clients=3) for value in ("off", "auto"))
    assert auto.summary["owners_differ"] == 0
    assert "owners_differ" not in plain.summary
    assert "personal" not in auto.summary
    for name, array in model(plain).items():
        np.testing.assert_array_equal(array, model(auto)[name])
    assert auto.summary["known_error"] == plain.summary["known_error"]


def test_owners_with_offsets_learn_what_they_share(tmp_path: Path) -> None:
    """Offsets are twice as far as classes: one model for all points as they are is far off."""
    sets, priors, of = vectors()
    options = {"sets": sets, "priors": priors, "clients": of, "standardize": "none"}
    plain, auto = (run(tmp_path, value, **options) for value in ("off", "auto"))
    assert auto.summary["owners_differ"] == 1
    assert plain.summary["known_error"] > 10
    assert auto.summary["known_error"] < 3
    # An owner's model is the common one but for biases, W δ apart; of its points it says what the
    # common one says of them without δ. Owners' offsets differ, so do their biases.
    common, files = model(auto), sorted(auto.directory.glob("clients/*/personal.safetensors"))
    assert len(files) == 4
    biases = []
    for file in files:
        own, about = load_arrays_of(file)
        assert about["personal"] == "offset"
        assert [*own] == [name for name in common if name.endswith("bias")]
        biases.append(next(iter(own.values())))
    assert len({one.tobytes() for one in biases}) == 4
    weight = next(one for name, one in common.items() if name.endswith("weight"))
    bias = next(one for name, one in common.items() if name.endswith("bias"))
    wrong = {"own": 0, "common": 0}
    for owner, own_bias in enumerate(biases):
        x = np.concatenate([one for one, at in zip(sets, of, strict=True) if at == owner])
        shares = np.repeat([p for p, at in zip(priors, of, strict=True) if at == owner], 60, axis=0)
        for name, by in {"own": own_bias, "common": bias}.items():
            said = np.bincount((x @ weight.T + by).argmax(axis=1), minlength=3)
            wrong[name] += int(abs(said - shares.sum(axis=0)).sum())
    assert wrong["own"] < 30 < wrong["common"]


def test_test_points_at_clients_are_shifted_too(tmp_path: Path) -> None:
    few = {"partition": "dirichlet", "dirichlet": {"alpha": 0.2}}
    options = {"data": "digits", "clients": 5, "shift": "moved:2", **few}
    about = run(tmp_path, "auto", **options).summary["personal"]
    assert about["kind"] == "offset"
    assert about["measured_on"] == "test points"
    assert about["error"] < about["global_error"]


@pytest.mark.parametrize(
    ("more", "code", "setting"),
    [
        ({"closed-form.epsilon": 1.0}, "setting-breaks-privacy", "closed-form.owners-differ"),
        ({"closed-form.sum": "plaintext"}, "setting-without-effect", "closed-form.owners-differ"),
        ({"method": "closed-form-labels"}, "setting-without-effect", "closed-form.owners-differ"),
        ({"personal": "head"}, "setting-without-effect", "closed-form.owners-differ"),
    ],
)
def test_where_it_cannot_be_right_it_is_refused(
    more: dict[str, Any], code: str, setting: str
) -> None:
    with refuses(code, setting=setting):
        parse_flat({**default_flat(), **ON, **more})


def test_the_sum_is_declared_and_what_comes_beside_a_model_is_checked() -> None:
    settings = parse_flat({**default_flat(), **ON})
    sums = sums_of(settings)
    assert [*sums][:3] == ["filters", owners_differ.OF_EFFECTS, "head"] or "filters" not in sums
    assert sums["head"].beside == frozenset(REFERENCE)
    assert sums["known-error"].beside > frozenset(REFERENCE)
    off = parse_flat({**default_flat(), "method": "closed-form"})
    assert owners_differ.OF_EFFECTS not in sums_of(off)
    assert not sums_of(off)["head"].beside
    assert any("how far its features are off" in one.part.says for one in disclosures(settings))


@pytest.mark.parametrize(
    "change",
    [
        {REFERENCE[0]: np.zeros(3, np.float32)},
        {REFERENCE[1]: np.full((3, 4), np.nan, np.float32)},
        {REFERENCE[2]: np.array(2.0, np.float32)},
        {REFERENCE[2]: np.array(-0.1, np.float32)},
        {REFERENCE[2]: None},
    ],
)
def test_another_form_of_the_reference_is_refused(change: dict[str, Any]) -> None:
    settings = parse_flat({**default_flat(), **ON, "model": "linear"})
    data = SimpleNamespace(model_shape=(4,))
    client = SimpleNamespace(settings=settings, data=data, num_classes=3)
    arrays = {
        "weight": np.zeros((3, 4), np.float32),
        "bias": np.zeros(3, np.float32),
        REFERENCE[0]: np.zeros(4, np.float32),
        REFERENCE[1]: np.zeros((3, 4), np.float32),
        REFERENCE[2]: np.array(0.1, np.float32),
    }
    names = head_names(settings, (4,), 3)
    arrays = {{"weight": names[0], "bias": names[1]}.get(key, key): a for key, a in arrays.items()}
    kept, reference = taken_out(client, arrays, names[0])
    assert {*kept} == {*names}
    assert reference is not None
    broken = {key: array for key, array in {**arrays, **change}.items() if array is not None}
    with refuses("message-form"):
        taken_out(client, broken, names[0])
