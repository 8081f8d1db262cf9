"""The settings that a search tries: its file, the drawn points, and the changes in a row."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.run_config import resolve
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.search_space import Search, candidates, changes, points

OURS = Search()
STEPS = ({"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1}, {"optimizer": "adam"})


def search(trials: int = 12, **space: tuple[dict[str, Any], ...]) -> Search:
    named = {name.replace("_", "-"): [*options] for name, options in space.items()}
    return Search(trials=trials, space=named)


def resolved(flat: Any) -> dict[str, Any]:
    return dict(resolve({**flat, "output": "x"}, Path.cwd()).to_flat())


def flat(**overrides: Any) -> dict[str, Any]:
    return resolved({key.replace("_", "-"): value for key, value in overrides.items()})


def test_given_the_first_eight_points_then_each_option_occurs_equally_often() -> None:
    for seed in range(5):
        first, again, other = (points(OURS, s)[:8] for s in (seed, seed, seed + 1))
        assert first == again != other
        assert sorted(point["step"] for point in first) == list(range(8))
        for name in ("schedule", "augmentation", "rounds"):
            assert sum(point[name] for point in first) == 4
        assert sorted(point["weight-decay"] for point in first) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_given_another_optimizer_or_schedule_then_settings_of_the_old_one_are_defaults() -> None:
    given = flat(
        optimizer="sgd", momentum=0.9, learning_rate_schedule="plateau", learning_rate_patience=7
    )
    assert changes(given, {"optimizer": "adam"}) == {"optimizer": "adam", "momentum": 0.0}
    assert changes(given, {"learning-rate-schedule": "cosine"}) == {
        "learning-rate-schedule": "cosine",
        "learning-rate-patience": 5,
    }
    assert changes(given, {"optimizer": "sgd", "momentum": 0.9}) == {}


def test_given_a_share_of_the_rounds_then_stages_and_schedules_are_scaled_too() -> None:
    staged = {
        **{"method": "labels-only", "num-rounds": 160, "semi.labels-only-rounds": 100},
        **{"learning-rate-schedule": "cosine", "learning-rate-rounds": 15},
    }
    assert changes(resolved(staged), {"rounds": 0.5}) == {
        "num-rounds": 80,
        "semi.labels-only-rounds": 50,
        "learning-rate-rounds": 8,  # 7.5, to the even one
    }
    assert changes(flat(num_rounds=1), {"rounds": 0.5}) == {}
    assert changes(flat(num_rounds=5), {"rounds": 1.0}) == {}


def test_candidates_begin_with_the_own_settings_and_have_no_settings_twice() -> None:
    # Own settings: adam, weight decay 0. Of the four points one leaves these, so four candidates.
    space = search(step=STEPS, decay=({"weight-decay": 0.0}, {"weight-decay": 1e-3}))
    found = list(candidates(space, 0, flat(), resolved))
    assert found[0].changes == {}
    assert found[0].options == {}
    assert len(found) == 4
    changed = [tuple(sorted(one.changes.items())) for one in found]
    assert len(set(changed)) == 4
    again = candidates(space, 0, flat(), resolved)
    assert [one.changes for one in again] == [one.changes for one in found]


def test_given_first_points_then_they_come_after_the_own_settings_and_not_again() -> None:
    decays = ({"weight-decay": 0.0}, {"weight-decay": 1e-3}, {"weight-decay": 1e-4})
    space = search(decay=decays, threshold=({}, {"fedpl.threshold": 0.5}))
    space = replace(space, first=[{"decay": 2, "threshold": 1}, {"decay": 1}])
    found = [one.changes for one in candidates(space, 0, flat(), resolved)]  # FedUL: no threshold
    assert found == [{}, {"weight-decay": 1e-4}, {"weight-decay": 1e-3}]
    of_fedpl = [one.changes for one in candidates(space, 0, flat(method="fedpl"), resolved)]
    assert of_fedpl[1:3] == [{"weight-decay": 1e-4, "fedpl.threshold": 0.5}, {"weight-decay": 1e-3}]
    assert len(of_fedpl) == len({tuple(sorted(one.items())) for one in of_fedpl}) == 6


def test_given_an_option_that_the_row_refuses_then_it_is_dropped_from_the_points() -> None:
    given = flat(base="fednova", optimizer="sgd", learning_rate=0.01)
    space = search(step=STEPS, decay=({"weight-decay": 0.0}, {"weight-decay": 1e-3}))
    found = list(candidates(space, 0, given, resolved))
    assert all("optimizer" not in one.changes for one in found)
    # Own, the other step, the other decay, both.
    assert len(found) == 4
    (alone,) = [one for one in found if one.changes == {"weight-decay": 1e-3}]
    (name, why), *_ = alone.dropped.items()
    assert name == "step: optimizer = adam"
    assert "base = 'fednova' goes only with optimizer = 'sgd'" in why


def test_given_a_point_that_is_refused_as_a_whole_then_it_is_skipped() -> None:
    def refusing(settings: Any) -> dict[str, Any]:
        if settings["weight-decay"] and settings["optimizer"] == "sgd":
            raise UserError("Not both.")
        return resolved(settings)

    space = search(step=STEPS, decay=({"weight-decay": 0.0}, {"weight-decay": 1e-3}))
    found = list(candidates(space, 0, flat(), refusing))
    assert len(found) == 3
    assert not any({"momentum", "weight-decay"} <= set(one.changes) for one in found)


@pytest.mark.parametrize(
    ("space", "more", "words"),
    [
        ([{}, {}], {}, "space 'a' needs two or more different options."),
        ([{}, {"num-rounds": 3}], {}, "space 'a' cannot have num-rounds"),
        ([{}, {"rounds": 2}], {}, "rounds = 2 must be a share in (0, 1]."),
        ([{}, {"l1x": 2}], {}, "Unknown setting 'l1x'; did you mean 'l1'?"),
        ([{}, {"l1": 1.0}], {"first": [{"a": 2}]}, "first has 'a': 2, which is no option"),
        ([{}, {"l1": 1.0}], {"settings": {"seed": 3}}, "settings cannot have seed"),
    ],
)
def test_given_a_wrong_key_then_it_is_named(space: Any, more: Any, words: str) -> None:
    with pytest.raises(UserError) as refused:
        Search(space={"a": space}, **more)
    assert words in str(refused.value)
