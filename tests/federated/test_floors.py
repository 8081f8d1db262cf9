"""An owner's floors: nothing that is below them is in any recorded message."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import resolve
from fedul_flwr.data.class_priors import rounded_shares
from fedul_flwr.deploy.check import check_owner
from fedul_flwr.errors import OwnDataError, UserError
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.message_log import TO_SERVER, read_message_log
from tests.support.refusals import refuses
from tests.support.runs import own_data_app, train

SETTINGS = {
    **{**NO_DATA, "method": "fedul", "model": "mlp", "local-epochs": 1, "num-rounds": 1},
    **{"selection": "last", "fedul.share-priors": True, "on-client-failure": "continue"},
}
SIZES = (12, 20, 31, 50)


def payload(place: Path, **limits: Any) -> list[dict[str, Any]]:
    """What the clients of four owners, with sets of different sizes, send before round 1."""
    folders = [place / f"ward-{client}" for client in range(len(SIZES))]
    for client, folder in enumerate(folders):
        write_sets(folder, seed=client, size=SIZES[client], exact=True)
    config = resolve({**SETTINGS, "output": str(place / "run")}, place)
    client_app = own_data_app(folders, **limits)
    with suppress(UserError):  # nobody is left
        train(config, len(SIZES), client_app=client_app, message_log=place / "log")
    sent = (one for one in read_message_log(place / "log") if one.direction == TO_SERVER)
    answers = [one.values["config"] for one in sent if one.phase == "setup" and not one.error]
    return [answer for answer in answers if "set-sizes" in answer]


@pytest.mark.parametrize(
    "limits",
    [
        {"min_set_size": 20},
        {"min_set_size": 60},
        {"min_class_count": 2},
        {"min_class_count": 4, "share_digits": 1},
        {"share_digits": 2},
    ],
)
def test_no_payload_is_below_a_floor(tmp_path: Path, limits: dict[str, int]) -> None:
    named = {key.replace("_", "-"): value for key, value in limits.items()}
    everybody = payload(tmp_path / "control")
    sent = payload(tmp_path / "limited", **named)
    assert len(everybody) == len(SIZES)
    least, fewest = limits.get("min_set_size", 0), limits.get("min_class_count", 0)
    digits = limits.get("share_digits", 0)

    def fits(answer: dict[str, Any]) -> bool:
        sizes = np.array(answer["set-sizes"])
        counts = np.array(answer["priors"]).reshape(len(sizes), -1) * sizes[:, None]
        masses = np.array(answer["class-masses"])
        small = [(of > 0) & (of < fewest - 1e-9) for of in (counts, masses)]
        return bool(sizes.min() >= least) and not any(of.any() for of in small)

    assert all(fits(answer) for answer in sent)
    if digits:
        priors = np.array([share for answer in sent for share in answer["priors"]])
        np.testing.assert_array_equal(priors, np.round(priors, digits))
        for answer in sent:  # of rounded shares, too
            sizes = np.array(answer["set-sizes"])
            masses = sizes @ np.array(answer["priors"]).reshape(len(sizes), -1)
            np.testing.assert_allclose(answer["class-masses"], masses, rtol=1e-12)
    else:  # whoever fits takes part, with the same numbers
        assert sent == [answer for answer in everybody if fits(answer)]


def test_rounded_rows_add_up_to_one() -> None:
    rng = np.random.default_rng(0)
    for digits in (1, 2, 3):
        shares = rng.dirichlet(np.ones(7), size=50)
        rounded = rounded_shares(shares, digits)
        np.testing.assert_allclose(rounded.sum(axis=1), 1, atol=1e-12)
        assert (rounded >= 0).all()
        # Half a digit of each class, and what is missing of all in one.
        assert np.abs(rounded - shares).max() <= 7 * 0.5 * 10**-digits + 1e-12


def test_longer_runs_are_refused_and_the_check_shows_what_a_floor_stops(tmp_path: Path) -> None:
    write_sets(tmp_path / "ward", seed=0, size=50)
    one = tmp_path / "ward" / "month-1.npz"
    np.savez(one, images=np.load(one)["images"][:12])

    def checked(limit: str, **flat: Any) -> list[str]:
        node = f'data="{tmp_path / "ward"}" allow-priors=true {limit}'
        return [*check_owner(node, {**SETTINGS, **flat}, tmp_path)]

    assert "  max-rounds: 5" in checked("max-rounds=5")
    with refuses("owner-does-not-allow", limit="max-rounds"):
        checked("max-rounds=5", **{"num-rounds": 6})
    for limit in ("min-set-size=13", "min-class-count=40"):
        with refuses("owner-does-not-allow", OwnDataError, limit=limit.partition("=")[0]):
            checked(limit)
