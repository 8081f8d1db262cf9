"""What leaves the owner of some data: neither points nor priors nor labels, with any method."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.config.methods import METHODS, PARTLY_LABELED
from fedul_flwr.config.run_config import resolve
from tests.support.learnable_owners import NO_DATA, found_in, write_labeled, write_sets
from tests.support.runs import own_data_app, train
from tests.support.watched_app import RECORDED, recorded
from tests.support.watched_app.watched_client import WatchedClientApp

CLIENTS = 3
QUICK = {
    **{**NO_DATA, "model": "linear", "num-rounds": 2, "local-epochs": 1},
    **{"learning-rate": 1e-3},
}
SPECIAL: dict[str, dict[str, Any]] = {
    "xclp": {"semi.labels-only-rounds": 1, "xclp.num-bits": 256},
    "xclp-predict": {"xclp.num-bits": 256},
    "fedmatch": {"optimizer": "sgd"},
}
OWN_DATA = [
    method.name
    for method in METHODS.values()
    if method.data in ("unlabeled-sets", *PARTLY_LABELED)
    and not method.strategy_class.trains_at_server
]


def sent_by_owners(
    settings: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, list[Path]]:
    """All that they send in a run in process, and their folders."""
    folders = [place / f"ward-{client}" for client in range(CLIENTS)]
    for client, folder in enumerate(folders):
        if METHODS[settings["method"]].data != "unlabeled-sets":
            write_labeled(folder, seed=client)
        else:  # 21 points: shares of many digits, too
            write_sets(folder, client, size=21, exact=settings["method"] == "fedllp-pvc")

    monkeypatch.setenv(RECORDED, str(place / "sent"))
    config = resolve({**settings, "output": str(place / "out")}, place)
    train(config, CLIENTS, client_app=WatchedClientApp(own_data_app(folders)))
    return recorded(place / "sent"), folders


@pytest.mark.parametrize("method", OWN_DATA)
def test_no_method_sends_points_priors_or_labels(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {key: value for key, value in QUICK.items() if key not in METHODS[method].idle}
    settings = {**quick, "method": method, **SPECIAL.get(method, {})}
    sent, folders = sent_by_owners(settings, tmp_path, monkeypatch)
    assert b"num-points" in sent
    for folder in folders:
        assert found_in(sent, folder) == set()


def test_what_an_owner_agrees_to_share_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**QUICK, "method": "fedul", "fedul.share-priors": True}
    sent, folders = sent_by_owners(settings, tmp_path, monkeypatch)
    for folder in folders:
        assert found_in(sent, folder) == {"priors"}
