"""Some of the hostile replies of ``robustness/hostile_replies.py``, for families of every kind."""

import pytest

from robustness.hostile_attacks import Attack
from robustness.hostile_replies import FAMILIES, attacked, forgeries, planned, table


def some(plan: list[tuple[Attack, int]], first: int) -> list[tuple[Attack, int]]:
    """A part of the attacks: fewer of those that need a run of their own."""
    alone = [found for found in plan if found[0].phase in ("describe", "setup")]
    others = [found for found in plan if found not in alone]
    return alone[first::30] + others[first::9]


@pytest.mark.parametrize(
    ("family", "first"), [("FedUL", 0), ("scaffold", 2), ("FedMatch", 5), ("XCLP, plaintext", 6)]
)
def test_given_hostile_replies_then_their_client_is_named(family: str, first: int) -> None:
    results = attacked(FAMILIES[family], some(planned(FAMILIES[family], few=True), first))
    assert len(results) > 15
    unmet = [(one.attack.phase, one.attack.name, one.in_words) for one in results if not one.sound]
    assert unmet == []
    count = len(results)
    assert table({family: results}).endswith(f"| {family} | {count} | {count} | {count} | 0 | 0 |")


@pytest.mark.parametrize(
    ("name", "about", "count"), [("XCLP, secure", "", 25), ("XCLP, identities", "signature", 5)]
)
def test_given_forgeries_then_the_liar_leaves_alone(name: str, about: str, count: int) -> None:
    family = FAMILIES[name]
    plan = [(attack, step) for attack, step in forgeries(family) if about in attack.name]
    results = attacked(family, plan)
    assert len(results) >= count
    unmet = [(one.attack.phase, one.attack.name, one.in_words) for one in results if not one.sound]
    assert unmet == []
    assert {result.clients for result in results} == {family.clients - 1}


def test_given_an_honest_reply_then_it_counts_as_accepted_and_nobody_is_named() -> None:
    """The judgment can fail: an attack that changes nothing is not met."""
    honest = Attack("train", "nothing", lambda content: content)
    (result,) = attacked(FAMILIES["fedavg"], [(honest, 0)])
    assert (result.alive, result.named, result.accepted, result.sound) == (True, False, True, False)
    assert result.in_words == "accepted, unnamed"
